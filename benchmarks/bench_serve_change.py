"""The effect of a change on the server: `ox serve` of this checkout and of an earlier commit, in one run.

    python benchmarks/bench_serve_change.py --before COMMIT [--rounds 5] [--seconds 3]

The same loads as in bench_serve.py, on one core and two. The two servers take turns, and the one that goes first
changes with each round; the figures are medians, the ratio is now / before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from bench_serve import SETTINGS, kinds_for
from serving import models
from serving.load import Figures, missing, put
from serving.peers import OX, PEERS, ROOT
from serving.process import serving

Load = tuple[str, int, str, int]  # model, cores, kind of request, connections


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each load")
    options = parser.parse_args()
    if gone := missing():
        parser.error(f"{' and '.join(gone)} must be installed (benchmarks/README.md)")
    folder = ROOT / "build" / "bench-serve"
    models.write(folder)
    with tempfile.TemporaryDirectory() as temporary:
        earlier = Path(temporary) / "before"
        _git("worktree", "add", "--detach", str(earlier), options.before)
        try:
            compare({"before": earlier, "now": ROOT}, folder, options.rounds, options.seconds)
        finally:
            _git("worktree", "remove", "--force", str(earlier))


def compare(trees: dict[str, Path], folder: Path, rounds: int, seconds: int) -> None:
    """Measures and prints."""
    figures: dict[Load, dict[str, list[Figures]]] = {}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for setting in SETTINGS:
            for side, tree in sorted(trees.items(), reverse=number % 2 == 1):
                peer = replace(PEERS[OX], tree=tree)
                with serving(peer, folder, folder / f"{setting.model}.onnx", setting.cores) as running:
                    for kind in kinds_for(peer, setting):
                        for place, connections in enumerate(setting.concurrency):
                            load = setting.model, setting.cores, kind, connections
                            seen = put(running.asked[kind], running.port_of(kind), connections, seconds, place > 0)
                            figures.setdefault(load, {}).setdefault(side, []).append(seen)
    print(f"median of {rounds} servers a side, taking turns; {seconds} s a load; {os.cpu_count()} cores with the load")
    head = f"{'model':<6}{'cores':>6} {'request':<8}{'clients':>8}{'before/s':>12}{'now/s':>12}{'ratio':>8}"
    print(f"{head}{'p99 ms':>18}")
    for (model, cores, kind, connections), sides in figures.items():
        rates = {side: statistics.median(each.rate for each in seen) for side, seen in sides.items()}
        p99 = {side: statistics.median(each.p99 for each in seen) for side, seen in sides.items()}
        print(
            f"{model:<6}{cores:>6} {kind:<8}{connections:>8}{rates['before']:>12,.0f}{rates['now']:>12,.0f}"
            f"{rates['now'] / rates['before']:>8.3f}{p99['before']:>9.2f} →{p99['now']:>6.2f}"
        )


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)


if __name__ == "__main__":
    main()
