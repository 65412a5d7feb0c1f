"""`ox launch` on several nodes, which come and go, and ranks that hang."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from manual_clock import ManualClock
from ranks import THREADS, needs_mpi
from test_rendezvous import LAUNCHERS, answers
from waiting import wait_for_files, wait_until

import ox
from ox import tolerance
from ox.distributed import frames, launcher
from ox.distributed.coordinator import Coordinator
from ox.distributed.launcher import Plan
from ox.distributed.ports import free_port

pytestmark = needs_mpi
LIMIT = 120

TRAINS = """
import os, select, signal, sys
from pathlib import Path
import numpy as np
import ox, ox.distributed as dist
from ox import nn
from ox.train import Interrupted, Trainer

dist.init_process_group()
rank, world = dist.get_rank(), dist.get_world_size()
ox.manual_seed(0)
r = np.random.default_rng(0)
x = r.standard_normal((120, 6)).astype(np.float32)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))

attempt = os.environ["OX_LAUNCH_ATTEMPT"]
signals, write = os.pipe()
os.set_blocking(write, False)
signal.set_wakeup_fd(write)

def step(model, batch):
    if trainer.progress.step == 12:
        Path(f"gate.{attempt}.{rank}").touch()
    while trainer.progress.step >= 12 and not Path("go." + attempt).exists():  # a test lets this attempt go on
        if select.select([signals], [], [], 0.02)[0]:
            os.read(signals, 1)
            Path(f"stops.{attempt}.{rank}").touch()  # after this step
    out = model(batch[0])
    return nn.functional.cross_entropy(out, batch[1]), out

trainer = Trainer(model, None, None, (x, (x.sum(1) > 0).astype(np.int64)), None, step=step, epochs=3, batch_size=10,
                  checkpoint_every=0.001)
Path(f"{attempt}.{rank}.{world}.{os.getpid()}.pid").touch()
try:
    trainer.fit("run", resume=True)
except Interrupted as stop:
    sys.exit(stop.exit_code)
print("trained on", world, flush=True)
dist.destroy_process_group()
"""


# The first attempt waits for the nodes of a test, which start late on a busy machine.
LAUNCH = """
from ox.distributed import coordinator
from ox_cli.main import main

coordinator.LAST_CALL = LAST_CALL
raise SystemExit(main())
"""


class Launch:
    """An `ox launch`, and what it prints."""

    def __init__(
        self, folder: Path, *words: object, env: dict[str, str] | None = None, last_call: float = LIMIT
    ) -> None:
        code = LAUNCH.replace("= LAST_CALL", f"= {last_call}")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
        self.log = folder / f"log.{len(list(folder.glob('log.*')))}"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, "launch", *map(str, words)], cwd=folder, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, env={**clean, **THREADS, **(env or {})},
            )  # fmt: skip

    @property
    def out(self) -> str:
        return self.log.read_text()

    def code(self) -> int:
        try:
            return self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            pytest.fail(f"hung for {LIMIT} s:\n{self.out[-4000:]}")


@pytest.fixture
def launches() -> Iterator[list[Launch]]:
    """Launches that are killed at the end; their ranks end with them."""
    begun: list[Launch] = []
    yield begun
    for launch in begun:
        launch.process.kill()
        launch.process.wait()


def waited(folder: Path, pattern: str, count: int, launch: Launch) -> list[Path]:
    """The files that are there as soon as there are so many."""
    try:
        return wait_for_files(folder, pattern, count, launch.process)
    except AssertionError:
        pytest.fail(f"no {count} files {pattern}:\n{launch.out[-4000:]}")


def said(launch: Launch, text: str) -> None:
    """Waits until a launch has printed it."""
    try:
        wait_until(lambda: text in launch.out)
    except AssertionError:
        pytest.fail(f"not said, {text}:\n{launch.out[-4000:]}")


def with_store(folder: Path, *words: object, last_call: float = LIMIT) -> Launch:
    """The launch that holds the store, once it does."""
    launch = Launch(folder, *words, last_call=last_call)
    host, port = str(words[words.index("--rdzv-endpoint") + 1]).split(":")
    wait_until(lambda: answers(host, int(port)), process=launch.process)
    return launch


def nodes(nnodes: str = "1:3", restarts: int = 2) -> tuple[object, ...]:
    endpoint = f"127.0.0.1:{free_port()}"
    return ("--nnodes", nnodes, "--nproc-per-node", 1, "--rdzv-endpoint", endpoint, "--max-restarts", restarts)


def weights(folder: Path) -> dict[str, np.ndarray]:
    state = ox.load(folder / "run/checkpoints/last.safetensors")
    assert state["progress"]["step"] == 18, "120 samples by 20, three times"
    return {name: value.array for name, value in state["model"].items()}


def undisturbed(folder: Path, launches: list[Launch]) -> dict[str, np.ndarray]:
    """The weights of a run of two ranks."""
    (folder / "alone").mkdir()
    (folder / "alone" / "train.py").write_text(TRAINS)
    (folder / "alone" / "go.1").touch()
    launches.append(Launch(folder / "alone", "--nproc", 2, "--", "train.py"))
    assert launches[-1].code() == 0, launches[-1].out
    return weights(folder / "alone")


@pytest.mark.slow
def test_a_node_is_lost_and_another_comes(tmp_path: Path, launches: list[Launch]) -> None:
    """The job shrinks, goes on from the checkpoint, grows again, and ends with the weights of an undisturbed run."""
    expected = undisturbed(tmp_path, launches)
    (tmp_path / "train.py").write_text(TRAINS)
    words = (*nodes("1:2"), "--", "train.py")
    store = with_store(tmp_path, *words)
    launches.append(store)
    lost = Launch(tmp_path, *words)
    launches.append(lost)
    waited(tmp_path, "1.*.2.*.pid", 2, store)
    lost.process.kill()
    waited(tmp_path, "2.0.1.*.pid", 1, store)
    text = r"process \d+ on \S+ with rank 1 is lost: its connection has ended · restarting all ranks"
    assert re.search(text, store.out) and "(1 of 2)" in store.out, store.out
    waited(tmp_path, "gate.2.0", 1, store)
    new = Launch(tmp_path, *words)
    launches.append(new)
    said(store, "joins · continuing on more nodes")
    waited(tmp_path, "stops.2.0", 1, store)
    (tmp_path / "go.3").touch()
    (tmp_path / "go.2").touch()
    assert store.code() == new.code() == 0, store.out + new.out
    assert store.out.count("trained on 2") == new.out.count("trained on 2") == 1
    for name, value in weights(tmp_path).items():
        assert tolerance.compare(value, expected[name]).ok, name


@pytest.mark.slow
def test_a_node_that_is_asked_to_stop_leaves_the_job_to_the_others(tmp_path: Path, launches: list[Launch]) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    words = (*nodes("1:2", restarts=0), "--", "train.py")
    store = with_store(tmp_path, *words)
    launches.append(store)
    other = Launch(tmp_path, *words)
    launches.append(other)
    waited(tmp_path, "1.*.2.*.pid", 2, store)
    waited(tmp_path, "gate.1.*", 2, store)
    other.process.terminate()
    waited(tmp_path, "stops.1.*", 2, store)
    (tmp_path / "go.2").touch()
    (tmp_path / "go.1").touch()
    assert other.code() == 143 and store.code() == 0, store.out + other.out
    assert "trained on 1" in store.out and "restarting" not in store.out


@pytest.mark.slow
def test_the_node_with_the_store_is_lost(tmp_path: Path, launches: list[Launch]) -> None:
    """The other one ends its ranks and waits; the job goes on when the node comes back."""
    (tmp_path / "train.py").write_text(TRAINS)
    words = (*nodes("2", restarts=0), "--timeout", 60, "--", "train.py")
    store = with_store(tmp_path, *words)
    launches.append(store)
    other = Launch(tmp_path, *words)
    launches.append(other)
    begun = waited(tmp_path, "1.*.2.*.pid", 2, store)
    store.process.kill()
    said(other, "has gone · waiting for it")
    for path in begun:
        path.unlink()
    launches.append(Launch(tmp_path, *words))
    waited(tmp_path, "1.*.2.*.pid", 2, other)
    (tmp_path / "go.1").touch()
    assert other.code() == 0 and launches[-1].code() == 0, other.out + launches[-1].out


@pytest.mark.slow
def test_the_node_with_the_store_does_not_come_back(tmp_path: Path, launches: list[Launch]) -> None:
    (tmp_path / "train.py").write_text("import os, time; open(f'here.{os.getpid()}', 'w').close(); time.sleep(600)")
    words = (*nodes("1:2", restarts=9), "--timeout", 3, "--", "train.py")
    store = with_store(tmp_path, *words)
    launches.append(store)
    other = Launch(tmp_path, *words)
    launches.append(other)
    waited(tmp_path, "here.*", 2, store)
    store.process.kill()
    assert other.code() == 1 and "no coordinator of ox launch at 127.0.0.1" in other.out, other.out


HANGS = """
import os, signal, sys, threading, time
import ox, ox.distributed as dist
dist.init_process_group()
rank, first = dist.get_rank(), os.environ["OX_LAUNCH_ATTEMPT"] == "1"
x = ox.ones(3)
dist.all_reduce(x)
if rank == 1 and first:
    {hangs}
dist.all_reduce(x)
print("done", flush=True)
dist.destroy_process_group()
"""
STOPS = "os.kill(os.getpid(), signal.SIGSTOP)"
DEADLOCK = "lock = threading.Lock(); lock.acquire(); lock.acquire()"
BUSY = "until = time.monotonic() + 8\n    while time.monotonic() < until: pass"


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_and_all_are_restarted(tmp_path: Path, launches: list[Launch]) -> None:
    (tmp_path / "script.py").write_text(HANGS.format(hangs=DEADLOCK))
    words = ("--nproc", 2, "--max-restarts", 1, "--heartbeat-timeout", 5, "--", "script.py")
    launch = Launch(tmp_path, *words)
    launches.append(launch)
    assert launch.code() == 0 and launch.out.count("done") == 2, launch.out
    how = r"no processor time used for \d+ s, while rank 0 waits in all_reduce float32 \[3\] sum"
    text = rf"rank 1 \(process \d+ on \S+\) hangs: {how} · restarting all ranks \(1 of 1\)"
    assert re.search(text, launch.out), launch.out


@pytest.mark.slow
def test_without_restarts_a_rank_that_hangs_ends_all(tmp_path: Path, launches: list[Launch]) -> None:
    (tmp_path / "script.py").write_text(HANGS.format(hangs=STOPS))
    launch = Launch(tmp_path, "--nproc", 2, "--heartbeat-timeout", 5, "--", "script.py")
    launches.append(launch)
    assert launch.code() == 1 and "done" not in launch.out, launch.out
    assert re.search(
        r"rank 1 \(process \d+ on \S+\) hangs or is cut off: no heartbeat for \d+ s$", launch.out.strip()
    ), launch.out


@pytest.mark.slow
def test_a_rank_that_computes_does_not_hang(tmp_path: Path, launches: list[Launch]) -> None:
    (tmp_path / "script.py").write_text(HANGS.format(hangs=BUSY))
    launch = Launch(tmp_path, "--nproc", 2, "--heartbeat-timeout", 5, "--", "script.py")
    launches.append(launch)
    assert launch.code() == 0 and launch.out.count("done") == 2, launch.out


@pytest.mark.slow
def test_nodes_that_do_not_belong_to_a_job(tmp_path: Path, launches: list[Launch]) -> None:
    for name in ("train.py", "other.py"):
        (tmp_path / name).write_text(f"import time; {name!r}; open('here', 'w').close(); time.sleep(600)")
    where = nodes("1:2")
    store = with_store(tmp_path, *where, "--", "train.py", last_call=0)
    launches.append(store)
    waited(tmp_path, "here", 1, store)
    attempts = {
        "another script": Launch(tmp_path, *where, "--", "other.py"),
        "another --rdzv-id": Launch(tmp_path, *where, "--rdzv-id", "x", "--", "train.py"),
        "another --nnodes": Launch(tmp_path, *where, "--nnodes", "1:3", "--", "train.py"),
        "another token": Launch(tmp_path, *where, "--", "train.py", env={frames.TOKEN: "x"}),
    }
    launches += attempts.values()
    for text, launch in attempts.items():
        assert launch.code() == 1 and text in launch.out, launch.out
    assert store.process.poll() is None
    store.process.send_signal(signal.SIGINT)
    assert store.code() == 130


def test_too_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lines, changed = ManualClock(), list[str](), Coordinator._membership_changed

    def too_late(self: Coordinator) -> None:
        changed(self)
        if self.nodes:
            clock.advance(60)

    monkeypatch.setattr(Coordinator, "_membership_changed", too_late)
    plan = Plan(["-m", "x"], 1, nodes=(2, 3), endpoint=("127.0.0.1", free_port()), timeout=60)
    assert launcher.run(plan, lines.append, clock) == 1
    assert lines == ["1 of at least 2 nodes are there after 60 s"]
