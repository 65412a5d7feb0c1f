"""Ranks that come with something else, late, never, or that die: everybody says who, and nobody hangs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import HEAD, needs_mpi, run

import ox.distributed as dist
from ox.distributed import environment
from ox.distributed.objects import decode, encode
from ox.errors import ArgumentError, DistributedError, LoadError

# A time limit of 3 s that begins when all ranks are there, for they do not start at once.
SHORT = HEAD + "dist.barrier()\ndist.group.WORLD.timeout = 3.0\n"


def errors(out: str) -> list[str]:
    """What each rank's DistributedError says first."""
    mark = "ox.errors.DistributedError: "
    return sorted(line.split(mark)[1] for line in out.splitlines() if mark in line)


@needs_mpi
def test_another_operation_shape_or_type_is_named(tmp_path: Path) -> None:
    code = """
    Op = dist.ReduceOp
    for mine in (lambda g: dist.all_reduce(ox.ones(4), group=g) if rank else dist.broadcast(ox.ones(4), group=g),
                 lambda g: dist.all_reduce(ox.ones(4 + rank), group=g),
                 lambda g: dist.all_reduce(ox.ones(4).to(ox.float64 if rank else ox.float32), group=g),
                 lambda g: dist.all_reduce(ox.ones(4), Op.MAX if rank else Op.SUM, group=g),
                 lambda g: dist.broadcast(ox.ones(4), src=rank, group=g)):
        try:
            mine(dist.new_group())
        except ox.errors.DistributedError as error:
            print(error.one_line().replace("\\n", " "), flush=True)
    """
    out = run(code, 2, tmp_path, check=False)
    assert out.count("are in different operations") == 10, out
    for said in (
        "rank 0 broadcast float32 [4] from rank 0; rank 1 all_reduce float32 [4] sum",
        "rank 0 all_reduce float32 [4] sum; rank 1 all_reduce float32 [5] sum",
        "rank 0 all_reduce float32 [4] sum; rank 1 all_reduce float64 [4] sum",
        "rank 0 all_reduce float32 [4] sum; rank 1 all_reduce float32 [4] max",
        "rank 0 broadcast float32 [4] from rank 0; rank 1 broadcast float32 [4] from rank 1",
    ):
        assert out.count(said) == 2, (said, out)
    assert "script.py" in out


@pytest.mark.slow
@needs_mpi
def test_a_rank_that_does_not_come_is_named_by_all_others(tmp_path: Path) -> None:
    code = """
    import time
    if rank == 2:
        time.sleep(3600)
    dist.all_reduce(ox.ones(3))
    """
    out = run(SHORT + "\n".join(line[4:] for line in code.splitlines()), 4, tmp_path, bare=True, check=False, limit=300)
    assert [said.split(" within")[0] for said in errors(out)] == [
        "all_reduce float32 [3] sum: rank 2 did not arrive"
    ] * 3, out
    assert len(re.findall(r"rank 2 +process \d+ on ", out)) == 3, out
    assert "waits in all_reduce float32 [3] sum" in out


@needs_mpi
@pytest.mark.parametrize("end", ["raise ValueError('mine')", "sys.exit(5)"])
def test_a_rank_that_ended_is_named_at_once(end: str, tmp_path: Path) -> None:
    """Long before the time limit of 30 minutes."""
    code = f"{HEAD.replace('timeout=300', '')}\nif rank == 1:\n    {end}\ndist.all_reduce(ox.ones(3))"
    out = run(code, 3, tmp_path, bare=True, check=False, limit=300)
    assert errors(out) == ["all_reduce float32 [3] sum: rank 1 has ended and will not come"] * 2, out
    assert out.count("model.join()") == 2, out


@needs_mpi
def test_a_group_in_which_something_failed_is_closed(tmp_path: Path) -> None:
    """Everything after it says so and what came first, at once; other groups go on; and the end says why it fails."""
    code = """
    import warnings
    other = dist.new_group()
    late = dist.all_reduce(ox.ones(2), async_op=True)
    said = open(f"said.{rank}", "w")  # output of several ranks may run together
    def tried(operation):
        try:
            operation()
        except ox.errors.DistributedError as error:
            print(error.one_line().replace("\\n", " "), file=said, flush=True)
    tried(lambda: dist.barrier() if rank else dist.all_reduce(ox.ones(3)))
    tried(dist.barrier)
    tried(lambda: dist.all_gather_object([None] * 2, {"a": 1}))
    tried(lambda: dist.send(ox.ones(3), 1 - rank))
    x = ox.ones(2)
    dist.all_reduce(x, group=other)
    print("other", x.tolist(), file=said, flush=True)
    sys.exit()
    """
    out = run(code, 2, tmp_path, check=False, limit=300)
    for rank, first in enumerate(("all_reduce float32 [3] sum", "barrier")):
        lines = (tmp_path / f"said.{rank}").read_text().splitlines()
        assert "are in different operations" in lines[0] and lines[4] == "other [2.0, 2.0]", lines
        for line, name in zip(lines[1:4], ("barrier", "all_gather_object", "send float32 [3]"), strict=True):
            assert line.startswith(f"{name}") and "is closed, for an earlier operation failed" in line, line
            assert f"{first}, at " in line and "script.py:" in line, line
    assert "ends with exit code 1, for a process group of it is closed: " in out, out


@needs_mpi
def test_a_killed_rank_leaves_no_shared_memory(tmp_path: Path) -> None:
    code = """
    import os, re
    from pathlib import Path
    maps = Path("/proc/self/maps").read_text()
    print("names", re.findall(r"/dev/shm/mpich_shm_\\w+$", maps, re.M), "mapped", "mpich_shm" in maps, flush=True)
    dist.barrier()
    os.kill(os.getpid(), 9)
    """
    out = run(code, 2, tmp_path, check=False, limit=300)
    assert out.count("names [] mapped True") == 2, out


@pytest.mark.slow
@needs_mpi
def test_a_message_that_never_comes(tmp_path: Path) -> None:
    code = SHORT + "x = ox.ones(3)\nif rank == 1:\n    dist.recv(x, 0)\ndist.barrier()"
    out = run(code, 2, tmp_path, bare=True, check=False, limit=300)
    assert errors(out)[0].startswith("barrier: rank 1 did not arrive"), out
    assert "recv float32 [3] from rank 0: no result" in out and "waits in recv float32 [3] from rank 0" in out


@needs_mpi
@pytest.mark.parametrize(("size", "word"), [(2, "a message of 8 bytes came"), (4, "truncated")])
def test_a_message_of_another_size(size: int, word: str, tmp_path: Path) -> None:
    code = f"if rank == 0:\n    dist.send(ox.ones({size}), 1)\nelse:\n    dist.recv(ox.ones(3), 0)\ndist.barrier()"
    assert word in run(SHORT + code, 2, tmp_path, bare=True, check=False, limit=300)


@needs_mpi
def test_a_rank_that_ends_before_the_meeting_is_named(tmp_path: Path) -> None:
    code = "import os\nimport ox.distributed as dist\nif os.environ['PMI_RANK'] == '1':\n    raise ValueError('mine')\n"
    out = run(code + "dist.init_process_group()", 3, tmp_path, bare=True, check=False, limit=300)
    assert errors(out) == ["rank 1 ended before init_process_group"] * 2, out


@needs_mpi
@pytest.mark.slow
def test_a_rank_that_never_meets_the_others_is_named(tmp_path: Path) -> None:
    code = (
        "import os, time\nimport ox.distributed as dist\nif os.environ['PMI_RANK'] == '1':\n    time.sleep(5)\n"
        "dist.init_process_group(timeout=3)"
    )
    out = run(code, 3, tmp_path, bare=True, check=False, limit=300)
    assert errors(out) == ["rank 1 did not come to init_process_group within 3 s"] * 3, out


def alone(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "MPI", "SLURM"))}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**clean, **env}, timeout=300
    )


@needs_mpi
def test_one_process_alone_is_a_world() -> None:
    code = (
        "import ox, ox.distributed as dist\ndist.init_process_group('gloo', world_size=1, rank=0)\nx = ox.ones(2)\n"
        "dist.all_reduce(x); dist.barrier()\nl=[None]; dist.all_gather_object(l, 3)\n"
        "print(dist.get_rank(), dist.get_world_size(), x.tolist(), l)\ndist.destroy_process_group()\n"
        "dist.init_process_group(); print(dist.is_initialized()); dist.destroy_process_group()"
    )
    done = alone(code)
    assert done.returncode == 0 and done.stdout.splitlines() == ["0 1 [1.0, 1.0] [3]", "True"], done.stderr


@needs_mpi
def test_variables_of_other_launchers_that_are_not_enough() -> None:
    code = "import ox.distributed as d; d.init_process_group()"
    done = alone(code, RANK="0", WORLD_SIZE="4", LOCAL_RANK="0")
    assert done.returncode == 1 and "expected MASTER_ADDR and MASTER_PORT" in done.stderr, done.stderr
    done = alone(code, SLURM_PROCID="0", SLURM_NTASKS="2")
    assert done.returncode == 1 and "expected MASTER_ADDR and MASTER_PORT" in done.stderr, done.stderr
    done = alone(code, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2")
    assert done.returncode == 1 and "2 processes, but this MPI sees 1" in done.stderr, done.stderr


@needs_mpi
def test_what_does_not_agree_with_the_launcher() -> None:
    done = alone("import ox.distributed as d; d.init_process_group(world_size=2)")
    assert "world_size is not what the launcher says" in done.stderr
    done = alone("import ox.distributed as d; d.init_process_group(init_method='tcp://10.1.1.20:23456')")
    assert "env://" in done.stderr and "tcp://10.1.1.20:23456" in done.stderr


def test_without_a_group_every_call_says_so() -> None:
    assert not dist.is_initialized() and dist.is_available()
    with pytest.raises(DistributedError, match="no process group yet"):
        dist.get_rank()
    with pytest.raises(ArgumentError, match="no backend 'ucc'"):
        dist.init_process_group("ucc")
    with pytest.raises(ArgumentError, match="no process group to destroy"):
        dist.destroy_process_group()


def test_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment._NUMBERS:
        monkeypatch.delenv(name, raising=False)
    assert environment.launch() == environment.Launch("nobody")
    for name, value in {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert environment.launch() == environment.Launch("torchrun", 3, 8, 1, 2)
    for name, value in {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}.items():
        monkeypatch.setenv(name, value)
    assert environment.launch() == environment.Launch("mpi", 1, 2, 0, 1)


@pytest.mark.parametrize("data", [b"", b"\x02", encode([1, 2])[:-1], encode({"a": b"xyz"})[:-1], b"\x04" + b"\0" * 7
                                  + b'["q"]'])  # fmt: skip
def test_a_damaged_value_is_an_error(data: bytes) -> None:
    with pytest.raises(LoadError):
        decode(data)
