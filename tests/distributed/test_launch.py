"""`ox launch`: ranks that start, die, are stopped and are started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import THREADS, needs_mpi
from waiting import wait_for_files, wait_until

from ox.devices import machine
from ox.distributed import coordinator, hosts, launcher, mpi
from ox.distributed import init as distributed_init
from ox.distributed.frames import TOKEN
from ox.distributed.launcher import Plan
from ox.errors import ArgumentError, DeviceError
from ox.installation import install_command

pytestmark = pytest.mark.usefixtures("forked_processes")

PAGE = """
import os, signal, sys, time
import ox, ox.distributed as dist
rank = int(os.environ["RANK"])
{before}
dist.init_process_group()
{after}
dist.barrier()
print(f"rank {{rank}} of {{dist.get_world_size()}} is done", *sys.argv[1:], flush=True)
"""


SSH_HOST = "OX_TEST_HOST"


def page(folder: Path, before: str = "", after: str = "") -> Path:
    (folder / "page.py").write_text(PAGE.format(before=before, after=after))
    return folder / "page.py"


def begin(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ox_cli", "launch", *words], cwd=folder, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **THREADS, "TMPDIR": str(folder)},
    )  # fmt: skip


def finished(process: subprocess.Popen[str], limit: float = 600) -> tuple[int, str]:
    try:
        out, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"hung for {limit} s:\n{process.communicate()[0][-4000:]}")
    return process.returncode, out


def is_running(pid: int) -> bool:
    """A zombie does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def launched(folder: Path, *words: str) -> tuple[int, str]:
    return finished(begin(folder, *words))


@pytest.mark.usefixtures("real_processes")
@needs_mpi
def test_a_page_with_its_arguments(tmp_path: Path) -> None:
    page(tmp_path, after="print('threads', ox.get_num_threads(), os.environ['OMP_NUM_THREADS'])")
    code, out = launched(tmp_path, "--nproc", "2", "--label", "--", "page.py", "--lr", "0.1")
    assert code == 0, out
    assert "[0] " in out and "[1] " in out and out.count(" of 2 is done") == 2 and "--lr 0.1" in out, out
    assert {path.name for path in tmp_path.iterdir()} == {"page.py"}


@pytest.mark.slow
@needs_mpi
def test_more_processes_than_cores_work_and_are_told(tmp_path: Path) -> None:
    page(tmp_path)
    cores = machine.limit().threads
    code, out = launched(tmp_path, "--nproc", str(cores + 2), "--", "page.py")
    assert code == 0, out
    assert f"{cores + 2} processes on {cores} core" in out
    assert out.count(f"of {cores + 2} is done") == cores + 2
    assert "take turns" not in launched(tmp_path, "--nproc", "1", "--", "page.py")[1]


@needs_mpi
def test_an_empty_token_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As env files write it. The ranks get a secret one then, as without the variable."""
    monkeypatch.setenv(TOKEN, "")
    page(tmp_path, after=f"print('token of', len(os.environ['{TOKEN}']))")
    code, out = launched(tmp_path, "--nproc", "2", "--", "page.py")
    assert code == 0 and out.count("token of 32") == 2, out


@needs_mpi
def test_a_module(tmp_path: Path) -> None:
    page(tmp_path).rename(tmp_path / "mine.py")
    code, out = launched(tmp_path, "--nproc", "1", "--", "-m", "mine", "x")
    assert code == 0 and "rank 0 of 1 is done x" in out, out


@pytest.mark.slow_after(3)
@needs_mpi
@pytest.mark.parametrize(
    ("before", "after", "code", "said"),
    [
        ("if rank == 1: sys.exit(3)", "", 3, "rank 1 ended before init_process_group"),
        ("if rank == 1: raise ValueError('mine')", "", 1, "exit code 1: ValueError: mine"),
        ("if rank == 1: os.kill(os.getpid(), 9)", "", 137, "killed"),
        ("", "if rank == 1: sys.exit(5)", 5, "barrier: rank 1 has ended and will not come"),
        ("", "if rank == 1: os.kill(os.getpid(), 9)", 137, "rank 1: killed by signal 9\n"),
        ("", "if rank == 1: os._exit(0)", 1, "rank 1: exit code 1: ended by os._exit(0)"),
        ("if rank == 1: os._exit(4)", "", 4, "rank 1 ended before init_process_group"),
        ("", "dist.destroy_process_group(); sys.exit(7)", 7, ""),
        ("sys.exit(0)", "", 0, ""),
        ("if rank == 1: sys.exit(0)", "", 1, "rank 1 ended before init_process_group"),
        # what has died ends those, too, that have not begun to wait for it
        ("if rank == 1: sys.exit(3)\nfor _ in range(600): time.sleep(0.1)", "", 3, ""),
    ],
)
def test_how_a_rank_ends_is_how_all_end(before: str, after: str, code: int, said: str, tmp_path: Path) -> None:
    page(tmp_path, before, after)
    got, out = launched(tmp_path, "--nproc", "2", "--", "page.py")
    assert got == code and said in out, (got, out)


@needs_mpi
@pytest.mark.slow
def test_a_rank_that_has_nothing_to_do_may_end_early(tmp_path: Path) -> None:
    """However long the others take: longer than what a death leaves them."""
    (tmp_path / "page.py").write_text(
        "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit()\n"
        f"time.sleep({coordinator.FAILURE_TIMEOUT + 2})\nprint('rank 0 is done')"
    )
    code, out = launched(tmp_path, "--nproc", "2", "--", "page.py")
    assert code == 0 and out == "rank 0 is done\n", (code, out)


@needs_mpi
def test_a_rank_that_vanishes_is_a_failure_and_is_started_again(tmp_path: Path) -> None:
    page(tmp_path, after="if rank == 1 and not os.path.exists('gone'): open('gone', 'w'); os._exit(0)")
    code, out = launched(tmp_path, "--nproc", "2", "--max-restarts", "1", "--", "page.py")
    assert code == 0 and out.count("of 2 is done") == 2, (code, out)
    assert "rank 1: exit code 1: ended by os._exit(0), without the end of the program · restarting all ranks" in out


@pytest.mark.usefixtures("real_processes")
@needs_mpi
def test_the_ranks_do_not_outlive_a_killed_launch(tmp_path: Path) -> None:
    page(tmp_path, after="open(f'pid.{os.getpid()}', 'w').close()\ntime.sleep(600)")
    process = begin(tmp_path, "--nproc", "2", "--", "page.py")
    pids = [int(path.suffix[1:]) for path in wait_for_files(tmp_path, "pid.*", 2, process)]
    process.kill()
    finished(process)
    wait_until(lambda: not any(is_running(pid) for pid in pids))


@needs_mpi
@pytest.mark.slow
def test_a_rank_that_is_late_for_the_meeting(tmp_path: Path) -> None:
    page(tmp_path, before="if rank == 1: time.sleep(600)")
    code, out = launched(tmp_path, "--nproc", "3", "--timeout", "3", "--", "page.py")
    assert code == 1 and out.count("rank 1 did not come to init_process_group within 3 s") == 2, out


@pytest.mark.usefixtures("real_processes")
@needs_mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_goes_to_every_rank_once(number: signal.Signals, tmp_path: Path) -> None:
    after = """
numbers, write = os.pipe()
os.set_blocking(write, False)
signal.set_wakeup_fd(write)
for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(n, lambda n, _: None)
open(f"ready.{rank}", "w").close()
caught = [*os.read(numbers, 1)]
open(f"caught.{rank}", "w").close()
caught += os.read(numbers, 1)
print(f"rank {rank} caught", caught, flush=True)
"""
    page(tmp_path, after=after)
    process = begin(tmp_path, "--nproc", "2", "--", "page.py")
    wait_for_files(tmp_path, "ready.*", 2, process)
    process.send_signal(number)
    wait_for_files(tmp_path, "caught.*", 2, process)
    process.send_signal(signal.SIGUSR1)  # which comes after all that the first one causes
    code, out = finished(process)
    caught = f"caught {[int(number), int(signal.SIGUSR1)]}"
    assert code == 128 + number and all(f"rank {rank} {caught}" in out for rank in range(2)), (code, out)


@needs_mpi
def test_a_warning_goes_to_every_rank_and_grace_ends_one_that_does_not_stop(tmp_path: Path) -> None:
    after = """
for n in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(n, lambda n, _: open(f"warned.{rank}.{int(n)}", "w").close())
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(f"ready.{rank}", "w").close()
while True:
    time.sleep(0.05)
"""
    page(tmp_path, after=after)
    process = begin(tmp_path, "--nproc", "2", "--grace", "0.3", "--", "page.py")
    wait_for_files(tmp_path, "ready.*", 2, process)
    process.send_signal(signal.SIGUSR1)
    assert len(wait_for_files(tmp_path, "warned.*", 2, process)) == 2
    process.send_signal(signal.SIGUSR2)
    assert len(wait_for_files(tmp_path, "warned.*", 4, process)) == 4
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143  # by default, a rank has a minute
    finished(process)
    code, out = launched(tmp_path, "--nproc", "2", "--grace", "-1", "--", "page.py")
    assert code == 1 and "--grace is the time" in out


@pytest.mark.usefixtures("real_processes")
@needs_mpi
def test_what_failed_is_started_again(tmp_path: Path) -> None:
    after = """
tries = len([name for name in os.listdir() if name.startswith(f"try.{rank}.")])
open(f"try.{rank}.{tries}", "w").close()
dist.barrier()
if rank == 1 and tries < 2:
    os.kill(os.getpid(), 9)
"""
    page(tmp_path, after=after)
    code, out = launched(tmp_path, "--nproc", "2", "--max-restarts", "3", "--", "page.py")
    assert code == 0 and len(list(tmp_path.glob("try.*"))) == 6, out
    assert "restarting all ranks (2 of 3)" in out and "(3 of 3)" not in out


@needs_mpi
def test_restarts_end(tmp_path: Path) -> None:
    page(tmp_path, after="if rank == 0: os.kill(os.getpid(), 9)")
    code, out = launched(tmp_path, "--nproc", "2", "--max-restarts", "1", "--", "page.py")
    assert code == 137 and out.count("restarting all ranks") == 1, out


@needs_mpi
def test_a_wrong_command_line_starts_nothing(tmp_path: Path) -> None:
    for words, expected, said in (
        (("--nproc", "2", "--", "nowhere.py"), 1, "there is no script nowhere.py"),
        (("--nproc", "0", "--", "-m", "x"), 2, "expected at least 1"),
        (("--nnodes", "4:1", "--", "-m", "x"), 1, "--nnodes is at least 1"),
        (("--nnodes", "two", "--", "-m", "x"), 1, "--nnodes is a number or a range"),
        (("--nnodes", "2", "--", "-m", "x"), 1, "expected --rdzv-endpoint HOST:PORT"),
        (("--rdzv-endpoint", "a:b", "--", "-m", "x"), 1, "expected HOST:PORT"),
        (("--hostfile", "hosts", "--", "-m", "x"), 1, "there is no host file hosts"),
        (("--heartbeat-timeout", "-1", "--", "-m", "x"), 1, "(--heartbeat-timeout) is a time limit"),
    ):
        code, out = launched(tmp_path, *words)
        assert code == expected and said in out, out


@needs_mpi
def test_a_host_file(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost:2\n")
    page(tmp_path)
    code, out = launched(tmp_path, "--hostfile", "hosts", "--nproc", "2", "--", "page.py")
    assert code == 0 and out.count("of 2 is done") == 2, out


@needs_mpi
def test_a_host_file_with_two_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mpiexec starts one node on each. An ssh of ours runs its command here and tells it the host."""
    (tmp_path / "hosts").write_text("host-a:1\nhost-b:1\nhost-b:1\n")
    (tmp_path / "ssh").write_text(
        f'#!/bin/sh\nwhile [ "$1" = -x ]; do shift; done\nexport {SSH_HOST}="$1"\nshift\nexec sh -c "$*"\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("HYDRA_LAUNCHER", "ssh")
    monkeypatch.setenv("HYDRA_LAUNCHER_EXEC", str(tmp_path / "ssh"))
    page(tmp_path, after=f"print('on', os.environ['{SSH_HOST}'], os.environ['LOCAL_WORLD_SIZE'], 'ranks', flush=True)")
    code, out = launched(tmp_path, "--hostfile", "hosts", "--", "page.py")
    assert code == 0 and out.count("of 3 is done") == 3, out
    assert out.count("on host-a 1 ranks") == 1 and out.count("on host-b 2 ranks") == 2, out


@needs_mpi
def test_a_run_that_was_stopped_is_no_failure(tmp_path: Path) -> None:
    """What the Trainer raises after its checkpoint: a line, no traceback, its exit code, no restart."""
    after = """
from ox.errors import TrainError
stop = TrainError("stopped in epoch 2")
stop.exit_code = 143
raise stop
"""
    page(tmp_path, after=after)
    code, out = launched(tmp_path, "--nproc", "2", "--max-restarts", "3", "--", "page.py")
    assert code == 143 and out.count("ox: stopped in epoch 2") == 1, out
    assert not any(word in out for word in ("Traceback", "Abort", "restarting")), out


def test_without_mpi_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise DeviceError("training on several processes needs mpi4py and an MPI", hint=install_command("mpi"))

    monkeypatch.setattr(mpi, "library", missing)
    with pytest.raises(DeviceError, match="mpi4py") as raised:
        launcher.run(Plan(["-m", "x"], 2), print)
    assert install_command("mpi") in str(raised.value)


def test_a_plan_that_cannot_be() -> None:
    with pytest.raises(ArgumentError, match="nothing to launch"):
        launcher.check(Plan([]))


TORCHRUN = """
import os
import ox as torch
import ox.distributed as dist
from ox.nn.parallel import DistributedDataParallel as DDP

local_rank, rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
assert int(os.environ["LOCAL_WORLD_SIZE"]) == world_size and os.environ["MASTER_ADDR"] == "127.0.0.1"
assert 0 < int(os.environ["MASTER_PORT"]) < 65536
{init}
assert (dist.get_rank(), dist.get_world_size()) == (rank, world_size) == (local_rank, 2)
device = torch.device(f"cuda:{{local_rank}}" if torch.cuda.is_available() else "cpu")
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(2, 1).to(device))
model(torch.ones(1, 2, device=device)).sum().backward()
if rank == 0:
    print("port", os.environ["MASTER_PORT"])
dist.destroy_process_group()
"""


@needs_mpi
@pytest.mark.parametrize(
    "init",
    [
        'dist.init_process_group("gloo")',
        'dist.init_process_group(backend="gloo", init_method="env://", rank=rank, world_size=world_size)',
        'dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
    ],
)
def test_a_script_written_for_torchrun(tmp_path: Path, init: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):  # of somebody's shell, and not of this launch
        monkeypatch.setenv(name, "7")
    (tmp_path / "page.py").write_text(TORCHRUN.format(init=init))
    code, out = launched(tmp_path, "--nproc", "2", "--", "page.py")
    assert code == 0 and "port" in out, out


@needs_mpi
@pytest.mark.skipif(distributed_init.is_nccl_available(), reason="the backend is there")
def test_nccl_without_a_gpu_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text(TORCHRUN.format(init='dist.init_process_group("nccl")'))
    code, out = launched(tmp_path, "--nproc", "2", "--", "page.py")
    assert code != 0 and 'the backend "nccl" is for GPUs' in out and 'init_process_group("gloo")' in out, out
    assert 'dist.init_process_group("nccl")' in out, "the line of the script"


@pytest.mark.slow_after(1)
@needs_mpi
@pytest.mark.parametrize(
    ("text", "said"),
    [("node1:4\n:::\n", "names no host"), ("node1:x\n", "names no host"), ("# none\n\n", "names no host"),
     ("\udcff\n", "names no host"), ("a b\n", "names no host"),
     ("no-such-host.invalid:1\n", "no rank could be started")],
    ids=["colons", "slots", "comments", "bytes", "words", "ssh"],
)  # fmt: skip
def test_host_files_that_name_none(tmp_path: Path, text: str, said: str) -> None:
    page(tmp_path)
    (tmp_path / "hosts").write_bytes(text.encode("utf-8", "surrogateescape"))
    code, out = launched(tmp_path, "--hostfile", "hosts", "--", "page.py")
    assert (code, "signal" in out) == (1, False), out
    assert said in out


@needs_mpi
def test_a_killed_rank_without_a_banner(tmp_path: Path) -> None:
    page(tmp_path, after="if rank == 1: os.kill(os.getpid(), signal.SIGKILL)")
    code, out = launched(tmp_path, "--nproc", "2", "--", "page.py")
    assert code == 137
    assert "rank 1: killed by signal 9" in out
    assert "BAD TERMINATION" not in out
    assert "====" not in out


def test_hosts_with_their_ranks(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# ours\n\nnode7:8  # eight\nnode8\n10.0.0.1:2 ifname=eth1\n")
    found = hosts.read(tmp_path / "hosts")
    assert found == [("node7", 8), ("node8", 1), ("10.0.0.1", 2)]
    assert hosts.divide(found, None) == found
    assert hosts.divide(found, 9) == found[:2] and hosts.divide(found, 3) == [("node7", 3)]
    with pytest.raises(ArgumentError, match="the host file has 11 slots"):
        hosts.divide(found, 12)


def test_endpoints() -> None:
    assert launcher.parse_endpoint("node1:31") == ("node1", 31) and launcher.parse_endpoint("node1") == ("node1", 29400)
    assert launcher.parse_endpoint("[::1]:31") == ("::1", 31)
    assert launcher.parse_nodes("1:4") == (1, 4) and launcher.parse_nodes("2") == (2, 2)
