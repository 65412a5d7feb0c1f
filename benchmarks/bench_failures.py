"""How soon ox launch and torchrun notice a dead rank, a rank that hangs and a lost node, and when the ranks go on.

"noticed" is when all ranks have ended and the launcher says why; "next step" is the first exchange of the next attempt;
both in seconds from the failure. The next step contains the start of Python and the imports of both libraries. The time
limit of the heartbeat is LIMIT seconds here; its default is 60. torchrun runs on gloo, with a store of its own for each
attempt: with the shared one, PyTorch 2.13 finds the addresses of dead ranks in it, and no attempt succeeds.

    python benchmarks/bench_failures.py
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import sleep, time

import sides

LIMIT = 6  # seconds without a heartbeat
PATIENCE = 120.0  # seconds after which a case counts as failed
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # of each attempt of torchrun
SCRIPT = """
import os, signal, sys, time
from pathlib import Path
if sys.argv[1] == "ox":
    import ox as torch, ox.distributed as dist
else:
    import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, restarts = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
attempt = int(os.environ.get("OX_LAUNCH_ATTEMPT", restarts + 1))
x = torch.ones(1000)
for step in range(1_000_000):
    dist.all_reduce(x)
    x /= dist.get_world_size()
    if step == 0 and rank == 0:
        Path(f"began.{attempt}").write_text(str(time.time()))
        if attempt == 2:
            os._exit(3)
    if step == 50 and rank == 1 and sys.argv[2] != "none":
        Path("failed").write_text(str(time.time()))
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    time.sleep(0.01)
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Case:
    """Launches in a folder of their own, with the times of what happens there."""

    def __init__(self, library: str, failure: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bench-failures-"))
        (self.folder / "script.py").write_text(SCRIPT)
        self.words = ["script.py", library, failure]
        self.launches: list[subprocess.Popen[bytes]] = []

    def launch(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"log.{len(self.launches)}").open("wb")
        self.launches.append(
            subprocess.Popen(
                [sys.executable, "-m", *words, *self.words], cwd=self.folder, stdout=log,
                env={**os.environ, **THREADS, **OWN_STORE}, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        )  # fmt: skip
        log.close()
        return self.launches[-1]

    def when(self, name: str) -> float:
        """The time in a file, once it is there."""
        return self._waited(
            lambda: (self.folder / name).exists() and float((self.folder / name).read_text() or 0), name
        )

    def said(self, text: str) -> float:
        """When the first launch has printed a text, to about 5 ms."""
        return self._waited(lambda: re.search(text, (self.folder / "log.0").read_text()) and time(), text)

    def _waited(self, ready: Callable[[], object], name: str) -> float:
        until = time() + PATIENCE
        while not (found := ready()):
            if time() > until:
                raise TimeoutError(f"{name}: {(self.folder / 'log.0').read_text()[-500:]}")
            sleep(0.005)
        return float(found)  # type: ignore[arg-type]

    def close(self) -> None:
        for launch in self.launches:
            try:
                os.killpg(launch.pid, signal.SIGTERM)
                launch.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                launch.kill()
                launch.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def ox_side() -> sides.Figures:
    found: dict[str, float | str] = {}
    words = ("ox_cli", "launch", "--max-restarts", "1", "--heartbeat-timeout", str(LIMIT))
    for name, failure in (("dead rank", "SIGKILL"), (f"hung rank, limit {LIMIT} s", "SIGSTOP")):
        case = Case("ox", failure)
        try:
            case.launch(*words, "--nproc", "2", "--")
            began = case.when("failed")
            found[f"{name}: noticed"] = case.said("restarting all ranks") - began
            found[f"{name}: next step"] = case.when("began.2") - began
        finally:
            case.close()
    case = Case("ox", "none")
    try:
        node = (*words, "--nnodes", "1:2", "--nproc", "1", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--")
        case.launch(*node)
        sleep(2)
        other = case.launch(*node)
        case.when("began.1")
        began = time()
        os.kill(other.pid, signal.SIGKILL)
        found["lost node: noticed"] = case.said("restarting all ranks") - began
        found["lost node: next step"] = case.when("began.2") - began
    finally:
        case.close()
    return found


def torch_side() -> sides.Figures:
    case = Case("torch", "SIGKILL")
    try:
        case.launch("torch.distributed.run", "--standalone", "--max-restarts", "1", "--nproc-per-node", "2")
        began = case.when("failed")
        next_step = case.when("began.2") - began
    finally:
        case.close()
    silent = "torchrun has no heartbeat of ranks: gloo waits for 30 minutes"
    return {
        "dead rank: next step": next_step,
        f"hung rank, limit {LIMIT} s: noticed": silent,
        "lost node: next step": "not measured",
    }


if __name__ == "__main__":
    sides.main({"ox": ox_side, "torch": torch_side}, unit="s")
