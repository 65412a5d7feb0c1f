"""Ranks that no mpiexec started: they meet at the store, or each says why not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from manual_clock import ManualClock
from ranks import THREADS, needs_mpi
from test_launch import is_running
from waiting import wait_until

from ox.distributed import environment, frames, heartbeat, pmi, rendezvous, store
from ox.distributed.environment import Launch
from ox.distributed.ports import free_port
from ox.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("forked_processes")
LAUNCHERS = (
    "PMI", "MPI", "SLURM", "OMPI", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC", frames.TOKEN,
    rendezvous.PORT,
)  # fmt: skip
HEAD = """
import os, sys, time
import ox, ox.distributed as dist
from ox.distributed import mpi, rendezvous, store_watch
"""
JOIN = "dist.init_process_group(timeout=float(os.environ.get('LIMIT', 60)))\n"
WORKS = """
x = ox.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(x)
print("sum", x.tolist(), "of", dist.get_rank(), dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


def answers(host: str, port: int) -> bool:
    """Whether something listens there."""
    try:
        socket.create_connection((host, port)).close()
    except OSError:
        return False
    return True


class Rank:
    """A process that is to be a rank, and what became of it."""

    def __init__(self, folder: Path, code: str, env: dict[str, object]) -> None:
        script = folder / "script.py"
        if not script.exists() or script.read_text() != code:  # an earlier rank may be reading it
            script.write_text(code)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
        self.process = subprocess.Popen(
            [sys.executable, str(script)], text=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**clean, **THREADS, **{name: str(value) for name, value in env.items()}},
        )  # fmt: skip

    def finish(self, limit: float = 120) -> None:
        try:
            self.out, _ = self.process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"hung for {limit} s: {self.process.communicate()[0][-4000:]}")
        self.code = self.process.returncode

    @property
    def error(self) -> str:
        """The first line of its DistributedError."""
        mark = "ox.errors.DistributedError: "
        return next((line.removeprefix(mark) for line in self.out.splitlines() if line.startswith(mark)), self.out)


def started(folder: Path, code: str, *envs: dict[str, object], **all_env: object) -> list[Rank]:
    """Starts one process for each of `envs`, as a shell loop does, and waits for all. The default is two ranks."""
    envs = envs or ({"RANK": 0}, {"RANK": 1})
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": 2, **all_env}
    ranks = [Rank(folder, HEAD + textwrap.dedent(code), {**shared, **env}) for env in envs]
    for rank in ranks:
        rank.finish()
    return ranks


def check(ranks: list[Rank]) -> None:
    for number, rank in enumerate(ranks):
        assert rank.code == 0 and f"sum [3.0, 3.0, 3.0] of {number} 2" in rank.out, rank.out


# -- ranks that meet ---------------------------------------------------------------------------------------------


@needs_mpi
@pytest.mark.usefixtures("real_processes")
def test_a_shell_loop(tmp_path: Path) -> None:
    code = """
    import subprocess
    from pathlib import Path
    dist.init_process_group("gloo", init_method="env://")
    print("shared memory", "mpich_shm" in Path("/proc/self/maps").read_text())
    print("inherited", [name for name in os.environ if name.startswith("PMI")])
    group = dist.new_group([1])
    told = [None, None]
    dist.all_gather_object(told, {"rank": dist.get_rank()})
    print("told", told)
    dist.destroy_process_group()
    dist.init_process_group()  # MPI goes on: nobody needs to meet again
    """
    ranks = started(tmp_path, code + textwrap.indent(WORKS, "    "), MASTER_ADDR="localhost")
    check(ranks)
    for rank in ranks:
        assert "shared memory True" in rank.out and "inherited []" in rank.out, rank.out
        assert "told [{'rank': 0}, {'rank': 1}]" in rank.out, rank.out


@needs_mpi
def test_rank_and_size_as_arguments_and_a_token(tmp_path: Path) -> None:
    """As scripts do that start their processes themselves."""
    code = "dist.init_process_group('gloo', rank=int(os.environ['MINE']), world_size=2)\n" + WORKS
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), frames.TOKEN: "secret"}
    ranks = [Rank(tmp_path, HEAD + code, {**shared, "MINE": number}) for number in range(2)]
    for rank in ranks:
        rank.finish()
    check(ranks)


@needs_mpi
def test_srun(tmp_path: Path) -> None:
    """Its variables alone: the first host of the step, and a port from the numbers of job and step."""
    step = {"SLURM_NTASKS": 2, "SLURM_STEP_NODELIST": socket.gethostname(), "SLURM_STEP_ID": 0}
    shared = {**step, "SLURM_JOB_ID": os.getpid()}
    ranks = [Rank(tmp_path, HEAD + JOIN + WORKS, {**shared, "SLURM_PROCID": number}) for number in range(2)]
    for rank in ranks:
        rank.finish()
    check(ranks)


@needs_mpi
@pytest.mark.slow
def test_a_recipe(tmp_path: Path) -> None:
    code = "from ox_cli.main import main\nsys.argv = ['ox', 'train', 'digits', '--epochs', '1']\nmain()"
    ranks = started(tmp_path, code)
    assert [rank.code for rank in ranks] == [0, 0], [rank.out for rank in ranks]
    assert len(list((tmp_path / "runs").iterdir())) == 1 and "2 processes" in ranks[0].out, ranks[0].out


@needs_mpi
def test_the_next_attempt_at_one_port(tmp_path: Path) -> None:
    """A store that has failed waits for late ranks, and gives way to the ranks of the next attempt."""
    port = free_port()
    first = started(tmp_path, JOIN + WORKS, {"RANK": 0}, {"RANK": 7}, MASTER_PORT=port)
    assert [rank.error for rank in first] == ["there is no rank 7 of 2 ranks"] * 2
    check(started(tmp_path, JOIN + WORKS, MASTER_PORT=port))


@needs_mpi
def test_the_end_without_heartbeats(tmp_path: Path) -> None:
    """MPICH takes leave of the store after Python's end; the store must still be there."""
    check(started(tmp_path, JOIN + WORKS, **{frames.HEARTBEAT: 0}))


# -- ranks that do not -------------------------------------------------------------------------------------------


@needs_mpi
@pytest.mark.parametrize(
    ("envs", "said"),
    [
        ([{"RANK": 0}, {"RANK": 1}, {"RANK": 1}], ["two processes have RANK=1"] * 3),
        ([{"RANK": 0}, {"RANK": 0}, {"RANK": 1}], ["two processes have RANK=0"] * 3),
        ([{"RANK": 0}, {"RANK": 7}], ["there is no rank 7 of 3 ranks"] * 2),
    ],
    ids=["twice", "rank 0 twice", "too large"],
)
def test_numbers(envs: list[dict[str, object]], said: list[str], tmp_path: Path) -> None:
    ranks = started(tmp_path, JOIN, *envs, WORLD_SIZE=3)
    assert [rank.error for rank in ranks] == said
    assert [rank.code for rank in ranks] == [1] * len(envs)


@needs_mpi
def test_rank_0_does_not_come(tmp_path: Path) -> None:
    (rank,) = started(tmp_path, JOIN, {"RANK": 1}, LIMIT=1)
    assert rank.error.startswith("rank 0 did not come to init_process_group within 1 s: no store of ox at 127.0.0.1:")
    assert "Connection refused" in rank.out


@needs_mpi
@pytest.mark.parametrize(
    ("code", "second", "said"),
    [
        ("", {"WORLD_SIZE": 3}, "WORLD_SIZE"),
        ("if os.environ['RANK'] == '1': rendezvous.__version__ = '0.0.7'\n", {}, "the version of ox"),
        ("if os.environ['RANK'] == '1': sys.modules['__main__'].__file__ = ox.__file__\n", {}, "their script"),
        ("", {frames.HEARTBEAT: 30}, frames.HEARTBEAT),
    ],
    ids=["size", "version", "script", "heartbeat"],
)
def test_ranks_that_differ(code: str, second: dict[str, object], said: str, tmp_path: Path) -> None:
    ranks = started(tmp_path, code + JOIN, {"RANK": 0}, {"RANK": 1, **second})
    for rank in ranks:
        assert rank.error in {f"rank {a} and rank {1 - a} differ in {said}" for a in (0, 1)}, rank.out
        assert "rank 0" in rank.out and f"process {ranks[1].process.pid} on" in rank.out, rank.out


@needs_mpi
@pytest.mark.parametrize("env", [{"MASTER_PORT": "no"}, {"MASTER_PORT": "70000"}, {"MASTER_ADDR": ""}])
def test_no_address(env: dict[str, object], tmp_path: Path) -> None:
    (rank,) = started(tmp_path, JOIN, {"RANK": 1, **env})
    assert "ArgumentError: ranks meet at the machine of rank 0" in rank.out
    assert "expected MASTER_ADDR and MASTER_PORT" in rank.out


# -- ranks that end ----------------------------------------------------------------------------------------------


@needs_mpi
def test_a_rank_that_is_killed_while_others_are_awaited(tmp_path: Path) -> None:
    code = "if os.environ['RANK'] == '1': rendezvous._wait_for_all = lambda *_: os._exit(9)\n" + JOIN
    ranks = started(tmp_path, code, WORLD_SIZE=3)
    assert ranks[0].error == "rank 1 ended before all ranks had come to init_process_group", ranks[0].out
    assert [rank.code for rank in ranks] == [1, 9]


@needs_mpi
def test_a_rank_that_is_killed_inside_mpis_start(tmp_path: Path) -> None:
    """The other one waits in `MPI_Init`, where no code of Python runs: the system ends it."""
    code = "if os.environ['RANK'] == '1': mpi.start = lambda: os._exit(9)\n" + JOIN
    ranks = started(tmp_path, code)
    assert [rank.code for rank in ranks] == [-signal.SIGIO, 9], [rank.out for rank in ranks]


@needs_mpi
@pytest.mark.parametrize(
    ("end", "codes", "said"),
    [
        ("os.kill(os.getpid(), 9)", [1, -9], "ox: rank 1 ended without the end of the program; rank 0 ends, too"),
        ("os._exit(0)", [1, 0], "ox: rank 1 ended without the end of the program; rank 0 ends, too"),
        ("dist.abort(7)", [7, 7], "ox: rank 1 ended all ranks with exit code 7; rank 0 ends, too"),
        ("raise ValueError('mine')", [1, 1], "rank 1 has ended and will not come"),
        # rank 1 waits for the others at its end, and rank 0 ends it there
        ("sys.exit(5)", [1, 1], "rank 1 has ended and will not come"),
    ],
)
def test_how_a_rank_ends(end: str, codes: list[int], said: str, tmp_path: Path) -> None:
    ranks = started(tmp_path, JOIN + f"dist.barrier()\nif dist.get_rank() == 1: {end}\ndist.all_reduce(ox.ones(3))\n")
    assert said in ranks[0].out, ranks[0].out
    assert ([rank.code for rank in ranks]) == codes, [rank.out for rank in ranks]


@needs_mpi
def test_rank_0_is_killed_and_the_store_tells_the_others(tmp_path: Path) -> None:
    code = JOIN + "dist.barrier()\nif dist.get_rank() == 0: os.kill(os.getpid(), 9)\ntime.sleep(100)\n"
    ranks = started(tmp_path, code)
    assert "ox: rank 0 ended without the end of the program; rank 1 ends, too" in ranks[1].out
    assert [rank.code for rank in ranks] == [-9, 1]


@needs_mpi
@pytest.mark.slow
def test_the_store_is_stopped(tmp_path: Path) -> None:
    """It answers no heartbeat, and MPI's end would wait for it for ever."""
    code = JOIN + (
        "for store in store_watch.store_process:  # of rank 0\n"
        "    os.kill(store, 19)\n"
        "    print('store', store, flush=True)\n"
        "dist.barrier()\ndist.destroy_process_group()\n"
    )
    ranks = started(tmp_path, code, **{frames.HEARTBEAT: 5})
    assert [rank.code for rank in ranks] == [1, 1], [rank.out for rank in ranks]
    for number, rank in enumerate(ranks):
        assert (
            "ox: the store of the ranks, at rank 0, has gone (" in rank.out and f"; rank {number} ends, too" in rank.out
        ), rank.out
    store_process = int(ranks[0].out.partition("store ")[2].split()[0])
    wait_until(lambda: not is_running(store_process))  # rank 0 kills it


# -- the address -------------------------------------------------------------------------------------------------


def test_addresses() -> None:
    rank = Launch("torchrun", 1, 4)
    plain = {"MASTER_ADDR": "node7", "MASTER_PORT": "29500"}
    assert rendezvous.address(plain, rank) == ("node7", 29500)
    assert rendezvous.address({**plain, rendezvous.PORT: "31"}, rank) == ("node7", 31)
    agent = {**plain, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "x"}
    ports = {rendezvous.address({**agent, "TORCHELASTIC_RESTART_COUNT": str(count)}, rank)[1] for count in range(3)}
    assert len(ports) == 3 and ports <= set(rendezvous.HASHED_PORTS)
    step = {"SLURM_STEP_NODELIST": "node[003-006,009],other", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0"}
    host, port = rendezvous.address(step, rank)
    assert host == "node003" and port in rendezvous.HASHED_PORTS
    assert rendezvous.address({**step, **plain}, rank) == ("node7", 29500)
    with pytest.raises(ArgumentError, match="meet at the machine of rank 0"):
        rendezvous.address({}, rank)


def test_addresses_of_mpiexec_and_of_ox_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """mpiexec needs no address on one machine; on several, rank 0's is not known."""
    plain = {"MASTER_ADDR": "node7", "MASTER_PORT": "29500"}
    here, spread = Launch("mpi", 1, 4, 1, 4), Launch("mpi", 1, 4, 1, 2)
    with pytest.raises(ArgumentError, match="meet at the machine of rank 0"):  # no mpiexec started this process
        rendezvous.address({}, here)
    step = {"SLURM_STEP_NODELIST": "a1", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0"}
    assert rendezvous.address(step, here)[0] == "a1"
    monkeypatch.setattr(rendezvous, "_mpiexec", lambda: ("7", "300"))
    host, port = rendezvous.address(step, here)
    assert host == "127.0.0.1" and port in rendezvous.HASHED_PORTS and rendezvous.address({}, here)[1] == port
    assert rendezvous.address(plain, here) == rendezvous.address(plain, spread) == ("node7", 29500)
    with pytest.raises(ArgumentError, match="meet at the machine of rank 0"):
        rendezvous.address({}, spread)
    assert rendezvous.address({**plain, rendezvous.STORE: "::1:31"}, Launch("ox", 1, 4)) == ("::1", 31)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a1", "a1"), ("a1,b2", "a1"), ("n[1-3]", "n1"), ("n[07,9]-ib,m", "n07-ib"), ("", "")],
)
def test_the_first_host(nodes: str, first: str) -> None:
    assert rendezvous._first_host(nodes) == first


def test_who_is_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment._NUMBERS:
        monkeypatch.delenv(name, raising=False)
    assert not environment.is_rank()
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.delenv("SLURM_STEP_NODELIST", raising=False)
    assert not environment.is_rank(), "the batch script of a job"
    monkeypatch.setenv("SLURM_STEP_NODELIST", "a")
    assert environment.is_rank()


# -- the store ---------------------------------------------------------------------------------------------------


@needs_mpi
def test_strangers_do_not_disturb(tmp_path: Path) -> None:
    """Whatever a port scanner sends: the ranks meet."""
    port = free_port()
    zero = Rank(
        tmp_path, HEAD + JOIN + WORKS,
        {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": 2, "RANK": 0, frames.TOKEN: "t"},
    )  # fmt: skip
    wait_until(lambda: answers("127.0.0.1", port), process=zero.process)
    sent = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\0\0\0\0", b"\0\0\0\x40" + b"x" * 64]
    for body in (
        b"[]",
        b"{}",
        b"[" * 50000,
        b'{"kind": "rank"}',
        b'{"kind": "mpi", "rank": -1, "nonce": "x"}',
        b"\xff",
    ):
        sent.append((len(body) + 32).to_bytes(4, "big") + bytes(32) + body)
    kept = []
    for data in sent:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(data)
        kept.append(connection)
    one = Rank(
        tmp_path, HEAD + JOIN + WORKS,
        {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": 2, "RANK": 1, frames.TOKEN: "t"},
    )  # fmt: skip
    for rank in (zero, one):
        rank.finish()
    for connection in kept:
        connection.close()
    check([zero, one])


@pytest.mark.parametrize(
    ("machines", "blocks"),
    [
        ("aaaa", "(0,1,4)"),
        ("aabb", "(0,2,2)"),
        ("aabbc", "(0,2,2),(2,1,1)"),
        ("abab", "(0,2,1),(0,2,1)"),
        ("abba", "(0,1,1),(1,1,2),(0,1,1)"),
    ],
)
def test_which_ranks_share_a_machine(machines: str, blocks: str) -> None:
    assert pmi.mapping(machines) == f"(vector,{blocks})"


def test_a_frame_that_is_none() -> None:
    for body in (b"", b"[]", b"1", b"[" * 100_000, b"\xff"):
        with pytest.raises(ValueError):
            frames.content(body)


def test_a_hello_that_is_none() -> None:
    hello = rendezvous._hello(1, 2, 60.0, 1.0) | {"nonce": "x", "remaining": 5}
    assert store.check_hello(hello) is hello
    for name in ("kind", "nonce", "machine", "place", "age", "limit", "remaining", "rank", "same"):
        for bad in (None, [], True if name == "rank" else float("nan"), b""):
            with pytest.raises(ValueError, match="no rank sends"):
                store.check_hello(hello | {name: bad})


def test_who_hangs() -> None:
    hello = rendezvous._hello(1, 2, 60.0, 1.0)
    made = store.Store(3, b"", ManualClock(), heartbeat=10.0)
    zero, one, two = (store.Member(hello, None, beat=100.0, starts=False) for _ in range(3))  # type: ignore[arg-type]
    made.members = {0: zero, 1: one, 2: two}
    assert made.hung(109.0) is None
    assert made.hung(111.0) == (0, "hangs or is cut off: no heartbeat for 11 s")
    zero.beat = two.beat = 111.0
    one.finalized = True  # it has left
    assert made.hung(112.0) is None
    one.finalized, one.starts = False, True  # MPI starts, which has the time limit of the meeting
    zero.beat = two.beat = 155.0
    assert made.hung(159.0) is None and made.hung(161.0) == (1, "hangs or is cut off: no heartbeat for 61 s")
    for member in (zero, one, two):
        member.beat, member.starts = 200.0, False
    one.idle = 30.0
    assert made.hung(201.0) is None  # nobody waits for it
    zero.waits, zero.operation = 20.0, "barrier"
    assert made.hung(201.0) == (1, "hangs: no processor time used for 30 s, while rank 0 waits in barrier")
    one.waits = 5.0  # it waits, too
    assert made.hung(201.0) is None


def test_what_a_heartbeat_says(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = socket.socketpair()
    with near, far:
        monkeypatch.setenv(frames.HEARTBEAT, "0")  # no thread
        clock = ManualClock()
        beat = heartbeat.Heartbeat(near, clock)
    beat._pause, used = 0.001, beat._used
    monkeypatch.setattr(beat, "_processor_time", lambda: used)
    clock.advance(5)
    assert beat.state() == {"idle": 5, "waits": 0, "operation": ""}
    heartbeat.begin_wait(1, clock.now() - 3, "barrier")
    heartbeat.begin_wait(2, clock.now() - 1, "send")
    state = beat.state()
    heartbeat.end_wait(1)
    heartbeat.end_wait(2)
    assert state["waits"] == 3 and state["operation"] == "barrier"
    monkeypatch.setattr(beat, "_processor_time", lambda: used + 1)
    assert beat.state()["idle"] == 0
