"""Runs the tests in several orders and environments, and prints a line for each run: passed, failed, skipped, time.

    python scripts/run_matrix.py --seeds 1 2 3
    python scripts/run_matrix.py --variants one-worker no-home just-started -- tests/serve

A variant differs from the usual run in one thing. `ordinary-user` is for whoever is root: the tests run as the user
`nobody`, in a copy of the tree that is theirs. It is not run for anybody else, whose usual run is just that, nor where
`nobody` cannot run this Python (one in root's home, say); a line says so. What follows `--` goes to pytest. The output
of each run is kept in the folder that the first line names. The exit code is 1 if a run failed.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VARIANTS = (
    "usual",
    "one-worker",
    "two-workers",
    "four-workers",
    "empty-home",
    "no-home",
    "just-started",
    "ordinary-user",
)
WORKERS = {"one-worker": "1", "two-workers": "2", "four-workers": "4"}
USER = "nobody"
LEFT_OUT = (".venv", ".git", "__pycache__", ".*_cache", ".hypothesis", "runs")  # of the copy


def command(variant: str, seed: int, workers: str, more: list[str]) -> list[str]:
    """What runs the tests."""
    count = WORKERS.get(variant, workers)
    words = [sys.executable, "-m", "pytest", "-m", "not slow", "-n", count, "--maxprocesses", "4"]
    words += ["--dist", "worksteal", "--color=no", f"--randomly-seed={seed}", *more]
    if variant == "just-started":  # a time namespace, whose monotonic clock begins two seconds ago
        uptime = int(float(Path("/proc/uptime").read_text().split()[0]))
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        return ["unshare", *user, "--time", "--fork", f"--monotonic=-{max(0, uptime - 2)}", *words]
    if variant == "ordinary-user":
        return [*as_user(), *words]
    return words


def as_user() -> list[str]:
    """What runs a command as an ordinary user, without any capability of root."""
    user = pwd.getpwnam(USER)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--no-new-privs"]


def why_skipped(variant: str) -> str:
    """Why a variant cannot be run here; "" where it can."""
    if variant != "ordinary-user":
        return ""
    if os.geteuid() != 0:
        return "only root runs tests as somebody else; the usual run is one of an ordinary user"
    if shutil.which("setpriv") is None:
        return "there is no setpriv (util-linux)"
    twice = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import pytest'], check=True)"
    words = [
        *as_user(),
        sys.executable,
        "-c",
        twice,
    ]  # the tests start it, too, and have no rights left to find it with
    if subprocess.run(words, cwd="/", capture_output=True, check=False).returncode:
        return f"the user {USER} cannot run {sys.executable}: a virtual environment and a Python that all may read"
    return ""


def tree(variant: str, folder: Path) -> Path:
    """Where the tests run: an ordinary user has a copy, and may write to it."""
    if variant != "ordinary-user":
        return ROOT
    copy, user = folder / "tree", pwd.getpwnam(USER)
    if not copy.exists():
        shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        (copy / "home").mkdir()
        folder.chmod(0o755)
        for path in (copy, *copy.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    return copy


def environment(variant: str, folder: Path) -> dict[str, str]:
    """The environment variables of a run."""
    env = dict(os.environ)
    if variant == "no-home":
        env.pop("HOME", None)
    elif variant == "empty-home":
        home = folder / "home"
        home.mkdir(exist_ok=True)
        env["HOME"] = str(home)
    elif variant == "ordinary-user":
        env |= {"HOME": str(folder / "tree" / "home"), "USER": USER, "LOGNAME": USER}
    return env


def run(variant: str, seed: int, workers: str, more: list[str], folder: Path) -> int:
    """Runs the tests once, prints the line, and returns the exit code."""
    if reason := why_skipped(variant):
        print(f"{variant:13} not run: {reason}", flush=True)
        return 0
    log = folder / f"{variant}-{seed}.txt"
    begun = time.monotonic()
    with open(log, "w") as file:
        words, env, place = command(variant, seed, workers, more), environment(variant, folder), tree(variant, folder)
        code = subprocess.run(words, cwd=place, env=env, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    text = log.read_text()
    counts = dict.fromkeys(("passed", "failed", "error", "skipped"), 0)
    for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", text.strip().rpartition("\n")[2]):
        counts[word] = int(number)
    shown = " · ".join(f"{number:,} {word}" for word, number in counts.items())
    print(f"{variant:13} seed {seed:<6} {shown} · {time.monotonic() - begun:,.0f} s · exit code {code}", flush=True)
    for line in text.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            print(f"    {line}", flush=True)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of the orders")
    parser.add_argument("--variants", nargs="+", choices=(*VARIANTS, "all"), default=["usual"])
    parser.add_argument("--workers", default="auto", help="processes, where the variant does not say how many")
    parser.add_argument("more", nargs="*", help="for pytest, after --")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ox-tests-"))
    print(f"output: {folder}", flush=True)
    variants = VARIANTS if "all" in given.variants else given.variants
    codes = [run(variant, seed, given.workers, given.more, folder) for variant in variants for seed in given.seeds]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
