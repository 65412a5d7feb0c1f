"""Test accuracy of the digits recipe for seeds 0 to 4, and the median. The target is at least 98.5 %.

    python benchmarks/bench_digits.py [--seeds 0 1 2 3 4] [--epochs N]

Each seed trains in a process of its own, one after the other, in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WANTED = 0.985


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=range(5))
    parser.add_argument("--epochs", type=int)
    options = parser.parse_args()
    accuracies = []
    with tempfile.TemporaryDirectory() as root:
        for seed in options.seeds:
            command = [
                sys.executable,
                "-m",
                "ox_cli",
                "train",
                "digits",
                "--seed",
                str(seed),
                "--out",
                f"{root}/{seed}",
            ]
            command += ["--epochs", str(options.epochs)] if options.epochs else []
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            elapsed = time.perf_counter() - began
            result = json.loads(Path(root, str(seed), "digits-0001", "result.json").read_text())
            held_back, best = result["held_back"], result["best"]
            accuracies.append(held_back["accuracy"])
            print(
                f"seed {seed}: test set {held_back['correct']} of {held_back['count']}, "
                f"{held_back['accuracy']:.2%} · epoch {best['epoch']}, validation {best['validation_accuracy']:.2%} · "
                f"trained in {result['seconds']:.1f} s, whole command {elapsed:.1f} s",
                flush=True,
            )
    median = statistics.median(accuracies)
    print(f"median {median:.2%} (wanted: at least {WANTED:.1%})")
    return 0 if median >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
