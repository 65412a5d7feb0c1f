"""Runs the tests in several orders and environments, and prints a line for each run: passed, failed, skipped, time.

    python scripts/run_matrix.py --seeds 1 2 3
    python scripts/run_matrix.py --variants one-worker no-home just-started -- tests/serve

A variant differs from the usual run in one thing. What follows `--` goes to pytest. The output of each run is kept in
the folder that the first line names. The exit code is 1 if a run failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VARIANTS = ("usual", "one-worker", "two-workers", "four-workers", "empty-home", "no-home", "just-started")
WORKERS = {"one-worker": "1", "two-workers": "2", "four-workers": "4"}


def command(variant: str, seed: int, workers: str, more: list[str]) -> list[str]:
    """What runs the tests."""
    count = WORKERS.get(variant, workers)
    words = [sys.executable, "-m", "pytest", "-m", "not slow", "-n", count, "--maxprocesses", "4", "--color=no"]
    words += [f"--randomly-seed={seed}", *more]
    if variant == "just-started":  # a time namespace, whose monotonic clock begins two seconds ago
        uptime = int(float(Path("/proc/uptime").read_text().split()[0]))
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        return ["unshare", *user, "--time", "--fork", f"--monotonic=-{max(0, uptime - 2)}", *words]
    return words


def environment(variant: str, folder: Path) -> dict[str, str]:
    """The environment variables of a run."""
    env = dict(os.environ)
    if variant == "no-home":
        env.pop("HOME", None)
    elif variant == "empty-home":
        home = folder / "home"
        home.mkdir(exist_ok=True)
        env["HOME"] = str(home)
    return env


def run(variant: str, seed: int, workers: str, more: list[str], folder: Path) -> int:
    """Runs the tests once, prints the line, and returns the exit code."""
    log = folder / f"{variant}-{seed}.txt"
    begun = time.monotonic()
    with open(log, "w") as file:
        words, env = command(variant, seed, workers, more), environment(variant, folder)
        code = subprocess.run(words, cwd=ROOT, env=env, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    text = log.read_text()
    counts = dict.fromkeys(("passed", "failed", "error", "skipped"), 0)
    for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", text.strip().rpartition("\n")[2]):
        counts[word] = int(number)
    shown = " · ".join(f"{number:,} {word}" for word, number in counts.items())
    print(f"{variant:12} seed {seed:<6} {shown} · {time.monotonic() - begun:,.0f} s · exit code {code}", flush=True)
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
