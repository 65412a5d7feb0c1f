"""The effect of a change on the server: `ox serve` of this checkout and of an earlier commit, in one run.

    python benchmarks/bench_serve_change.py --before COMMIT [--rounds 5] [--turns 5]

The same loads as in bench_serve.py, on one core and two. Both servers stand ready and take turns of a second, so that
a machine that gets slower or faster meanwhile does so for both; each round starts new ones. The figures are medians,
the ratio is that of the two neighbours of each turn, now / before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench_serve import SETTINGS, kinds_for
from serving import models
from serving.load import Figures, missing, put
from serving.peers import OX, PEERS, ROOT
from serving.process import Running, serving

Load = tuple[str, int, str, int]  # model, cores, kind of request, connections


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=5, help="seconds of each load for each server")
    options = parser.parse_args()
    if gone := missing():
        parser.error(f"{' and '.join(gone)} must be installed (benchmarks/README.md)")
    folder = ROOT / "build" / "bench-serve"
    models.write(folder)
    with tempfile.TemporaryDirectory() as temporary:
        earlier = Path(temporary) / "before"
        _git("worktree", "add", "--detach", str(earlier), options.before)
        try:
            compare({"before": earlier, "now": ROOT}, folder, options.rounds, options.turns)
        finally:
            _git("worktree", "remove", "--force", str(earlier))


def compare(trees: dict[str, Path], folder: Path, rounds: int, turns: int) -> None:
    """Measures and prints."""
    figures: dict[Load, dict[str, list[Figures]]] = {}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for setting in SETTINGS:
            file = folder / f"{setting.model}.onnx"
            with ExitStack() as stack:
                sides: dict[str, Running] = {}
                for side, tree in sorted(trees.items(), reverse=number % 2 == 1):
                    peer = replace(PEERS[OX], tree=tree)
                    sides[side] = stack.enter_context(serving(peer, folder, file, setting.cores))
                for kind in kinds_for(PEERS[OX], setting):
                    for connections in setting.concurrency:
                        load = setting.model, setting.cores, kind, connections
                        _take_turns(sides, kind, connections, turns, figures.setdefault(load, {}))
    print(f"{rounds} servers a side, {turns} turns of 1 s a load; {os.cpu_count()} cores with the load; medians")
    head = f"{'model':<6}{'cores':>6} {'request':<8}{'clients':>8}{'before/s':>12}{'now/s':>12}{'ratio':>8}"
    print(f"{head}{'p99 ms':>18}")
    for (model, cores, kind, connections), seen in figures.items():
        before, now = seen["before"], seen["now"]
        rates = [statistics.median(each.rate for each in side) for side in (before, now)]
        p99 = [statistics.median(each.p99 for each in side) for side in (before, now)]
        # Of neighbours: a machine that gets slower meanwhile slows both.
        ratio = statistics.median(mine.rate / other.rate for mine, other in zip(now, before, strict=True))
        print(
            f"{model:<6}{cores:>6} {kind:<8}{connections:>8}{rates[0]:>12,.0f}{rates[1]:>12,.0f}"
            f"{ratio:>8.3f}{p99[0]:>9.2f} →{p99[1]:>6.2f}"
        )


def _take_turns(
    sides: dict[str, Running], kind: str, connections: int, turns: int, figures: dict[str, list[Figures]]
) -> None:
    """One load on both servers in turn, a second each; the one that goes first changes."""
    for turn in range(turns):
        for side, running in list(sides.items())[:: 1 if turn % 2 else -1]:
            seen = put(running.asked[kind], running.port_of(kind), connections, 1, turn > 0)
            figures.setdefault(side, []).append(seen)


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)


if __name__ == "__main__":
    main()
