"""Runs the tests in several orders and environments, and prints a line for each run: passed, failed, skipped, time.

    python scripts/run_matrix.py --seeds 1 2 3
    python scripts/run_matrix.py --variants one-worker no-home busy -- tests/serve

A variant differs from the usual run in one thing; a line says why one cannot be run on this machine. In `ordinary-user`
root runs the tests as the user `nobody`, in a copy of the tree. `python3.12` and the like get an environment with the
newest packages. In `full-disk` a test may fail if the failure names the cause. What follows `--` goes to pytest. The
output of each run is stored in the folder that the first line names. The exit code is 1 if a run failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
USER = "nobody"
OMITTED = (".venv", ".git", "__pycache__", ".*_cache", ".hypothesis", "runs")  # of the copy for an ordinary user
COMPILERS = re.compile(r"(.*-)?(gcc|g\+\+|cc|c\+\+|clang|clang\+\+|cpp|nvcc|zig)(-[\d.]+)?")

BUSY = "while True: pass"
BUSY_DISK = """
import os, tempfile
with tempfile.TemporaryFile() as file:
    while True:
        file.seek(0)
        file.write(bytes(1 << 26))
        file.flush()
        os.fsync(file.fileno())
"""
HOME = "FOLDER/home"
NAMESPACE = ("unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")))


def script(line: str) -> tuple[str, ...]:
    """A shell that runs a line, and then the command that follows."""
    return "sh", "-c", f'{line} && exec "$@"', "sh"


@dataclass(frozen=True)
class Variant:
    """How a run differs from the usual one. FOLDER, in any text, is a folder of the run."""

    workers: str = ""
    python: str = sys.executable
    """The interpreter; another one gets an environment of its own, where `make` installs what the tests need."""
    prefix: tuple[str, ...] = ()
    """What runs the command."""
    env: dict[str, str | None] = field(default_factory=dict)
    """Environment variables that are set, or with None removed."""
    options: tuple[str, ...] = ()
    """For pytest."""
    background: tuple[str, ...] = ()
    """Python programs that run meanwhile."""
    cause: str = ""
    """Tests may fail if the failure says this."""


VARIANTS = {
    "usual": Variant(),
    **{name: Variant(python=name) for name in ("python3.12", "python3.13", "python3.14")},
    "one-worker": Variant("1"),
    "two-workers": Variant("2"),
    "four-workers": Variant("4"),
    "one-core": Variant(prefix=("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))),
    "busy": Variant(background=(BUSY,) * 8),
    "busy-disk": Variant(background=(BUSY_DISK,) * 2),
    "full-disk": Variant(
        prefix=(*NAMESPACE, "--mount", *script("mount -t tmpfs -o size=8m tmpfs FOLDER/full")),
        env={"TMPDIR": "FOLDER/full"},
        options=("--capture=sys", "-o", "tmp_path_retention_policy=failed"),  # else pytest itself writes there
        cause="No space left on device",
    ),
    "empty-home": Variant(env={"HOME": HOME}),
    "no-home": Variant(env={"HOME": None}),
    "read-only-home": Variant(
        prefix=(*NAMESPACE, "--mount", *script(f"mount --bind {HOME} {HOME} && mount -o remount,bind,ro {HOME}")),
        env={"HOME": HOME},
    ),
    "no-network": Variant(prefix=(*NAMESPACE, "--net", *script("ip link set lo up"))),
    "no-compiler": Variant(env={"PATH": "FOLDER/programs", "CC": None, "CXX": None, "OX_CACHE": "FOLDER/cache"}),
    "far-away": Variant(env={"LC_ALL": "LOCALE", "TZ": "Pacific/Kiritimati"}),  # 14 hours before UTC
    "just-started": Variant(prefix=(*NAMESPACE, "--time", "--fork", "--monotonic=-UPTIME")),  # it began two seconds ago
    "ordinary-user": Variant(
        prefix=("setpriv", "--reuid=USER_ID", "--regid=GROUP_ID", "--clear-groups", "--no-new-privs"),
        env={"HOME": "FOLDER/tree/home", "USER": USER, "LOGNAME": USER},
    ),
}


@cache
def substitutions(folder: Path) -> dict[str, str]:
    """What the words in capitals stand for."""
    user = pwd.getpwnam(USER)
    uptime = int(float(Path("/proc/uptime").read_text().split()[0]))
    locales = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout.lower()
    return {
        "FOLDER": str(folder),
        "UPTIME": str(max(0, uptime - 2)),
        "LOCALE": "tr_TR.UTF-8" if "tr_tr.utf" in locales else "C",
        "USER_ID": str(user.pw_uid),
        "GROUP_ID": str(user.pw_gid),
    }


def substitute(text: str, folder: Path) -> str:
    """A text with the words in capitals replaced."""
    return re.sub(r"\b(FOLDER|UPTIME|LOCALE|USER_ID|GROUP_ID)\b", lambda match: substitutions(folder)[match[0]], text)


def command(variant: Variant, folder: Path, args: list[str]) -> list[str]:
    return [*(substitute(text, folder) for text in variant.prefix), *args]


def environment(variant: Variant, folder: Path) -> dict[str, str]:
    """The environment variables of a run."""
    env = dict(os.environ) | {name: substitute(value or "", folder) for name, value in variant.env.items()}
    return {name: value for name, value in env.items() if variant.env.get(name, "") is not None}


def prepare(name: str, folder: Path) -> Path:
    """Makes what a variant needs, and returns where the tests run: an ordinary user has a tree to write to."""
    for new in ("home", "full"):
        (folder / new).mkdir(parents=True, exist_ok=True)
    if name == "no-compiler" and not (folder / "programs").exists():
        link_programs(folder / "programs")
    if name != "ordinary-user":
        return ROOT
    copy, user = folder / "tree", pwd.getpwnam(USER)
    if not copy.exists():
        shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*OMITTED))
        (copy / "home").mkdir()
        folder.chmod(0o755)
        for path in (copy, *copy.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    return copy


def interpreter(variant: Variant, folder: Path) -> str:
    """The Python that runs the tests of a variant, with what they need.

    Raises:
        OSError, subprocess.CalledProcessError: it cannot be made, such as without a network.
    """
    if variant.python == sys.executable:
        return sys.executable
    venv = folder / variant.python
    words = ["make", "-C", ROOT, f"VENV={venv}", f"PYTHON={variant.python}", venv / ".installed-dev"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return str(venv / "bin" / "python")


def link_programs(folder: Path) -> None:
    """Fills a folder with links to all programs but compilers."""
    folder.mkdir()
    for directory in filter(os.path.isdir, os.environ["PATH"].split(os.pathsep)):
        for program in Path(directory).iterdir():
            if not COMPILERS.fullmatch(program.name) and not os.path.lexists(folder / program.name):
                (folder / program.name).symlink_to(program)


def skip_reason(name: str, folder: Path) -> str:
    """Why a variant cannot be run here; "" where it can."""
    variant = VARIANTS[name]
    python = shutil.which(variant.python)
    if python is None or subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode:
        return f"there is no {variant.python}"
    if name == "ordinary-user" and os.geteuid() != 0:
        return "only root runs tests as somebody else; the usual run is one of an ordinary user"
    if not variant.prefix:
        return ""
    if shutil.which(variant.prefix[0]) is None:
        return f"there is no {variant.prefix[0]} (util-linux)"
    args = ["true"]
    if name == "ordinary-user":  # the tests start Python, too, and have no rights left to find it with
        twice = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import pytest'], check=True)"
        args = [sys.executable, "-c", twice]
    done = subprocess.run(command(variant, folder, args), cwd="/", capture_output=True, text=True, check=False)
    if done.returncode and name == "ordinary-user":
        return f"the user {USER} cannot run {sys.executable}: a virtual environment and a Python that all may read"
    return done.stderr.strip().rpartition("\n")[2] or "it failed" if done.returncode else ""


@contextlib.contextmanager
def running(programs: tuple[str, ...]) -> Iterator[None]:
    """Python programs that run meanwhile."""
    processes = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run(name: str, seed: int, workers: str, more: list[str], folder: Path) -> int:
    """Runs the tests once, prints the line, and returns the exit code."""
    variant, tree = VARIANTS[name], prepare(name, folder)
    if reason := skip_reason(name, folder):
        print(f"{name:14} not run: {reason}", flush=True)
        return 0
    log, start = folder / f"{name}-{seed}.txt", time.monotonic()
    try:
        python = interpreter(variant, folder)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{name:14} seed {seed:<6} failed: no environment of {variant.python}: {error}", flush=True)
        return 1
    args = [
        python,
        "-m",
        "pytest",
        "-m",
        "not slow",
        "-n",
        variant.workers or workers,
        "--maxprocesses",
        "4",
    ]
    args += ["--dist", "worksteal", "--color=no", f"--randomly-seed={seed}", *variant.options, *more]
    env = environment(variant, folder) | {"COLUMNS": "1000"}  # the lines at the end in full
    with open(log, "w") as file, running(variant.background):
        whole = command(variant, folder, args)
        code = subprocess.run(whole, cwd=tree, env=env, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    output = log.read_text(errors="replace")
    counts = dict.fromkeys(("passed", "failed", "error", "skipped"), 0)
    for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", output.strip().rpartition("\n")[2]):
        counts[word] = int(number)
    shown = " · ".join(f"{number:,} {word}" for word, number in counts.items())
    failures = [line for line in output.splitlines() if line.startswith(("FAILED ", "SUBFAILED", "ERROR "))]
    failures = [line for line in failures if not re.search(r" - contains \d+ failed subtests?$", line)]
    if variant.cause and code == 1:
        others = [line for line in failures if variant.cause not in line]
        shown += f" · {len(failures) - len(others)} of them say: {variant.cause}"
        failures, code = others, int(bool(others))
    print(f"{name:14} seed {seed:<6} {shown} · {time.monotonic() - start:,.0f} s · exit code {code}", flush=True)
    for line in failures:
        print(f"    {line[:300]}", flush=True)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of the orders")
    parser.add_argument("--variants", nargs="+", choices=(*VARIANTS, "all"), default=["usual"])
    parser.add_argument("--workers", default="auto", help="processes, where the variant does not say how many")
    parser.add_argument("more", nargs="*", help="for pytest, after --")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ox-tests-"))
    print(f"output: {folder}", flush=True)
    variants = VARIANTS if "all" in options.variants else options.variants
    codes = [run(name, seed, options.workers, options.more, folder) for name in variants for seed in options.seeds]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
