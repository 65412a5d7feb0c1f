"""Measure ox beside PyTorch eager and torch.compile, and write docs/performance.md with its charts.

    python benchmarks/performance_page.py                      # everything: about 25 minutes on two cores
    python benchmarks/performance_page.py "step: mlp" growth   # names that contain one of these words: to the terminal
    python benchmarks/performance_page.py --from benchmarks/results/performance.json   # write the page again
    python benchmarks/performance_page.py --check              # exit code 1 if ox became slower, or a side failed

The environment variable ROUNDS is the number of processes of each side (3). A measurement of everything with two or
more is added to the history. The ratios in README.md are written, too.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

import charts
import history
import measurement
import page_text
from bench_first_step import COLD, MEMORY
from measurement import ROOT, Measurement, Spread
from workloads import GROWTH, OPERATORS, STEPS
from workloads import check as check_words

from ox.temporary_files import file_beside

PAGE = ROOT / "docs" / "performance.md"
CHARTS = ROOT / "docs" / "performance"
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results" / "performance.json"
HISTORY = ROOT / "benchmarks" / "results" / "history.jsonl"
BEGIN, END = "<!-- ratios: benchmarks/performance_page.py writes these lines -->", "<!-- end of the ratios -->"


def readme(text: str, measured: Measurement) -> str:
    """README.md with the ratios of this measurement between the markers."""
    block = f"{BEGIN}\n\n{page_text.ratios(measured)}\n\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, text, flags=re.DOTALL)


def quotient(ours: list[float], theirs: list[float]) -> Spread:
    """The ratio of the medians; its bounds pair the fastest process of one side with the slowest of the other."""
    a, b = Spread.of(ours), Spread.of(theirs)
    return Spread(a.median / b.median, a.low / b.high, a.high / b.low)


def draw(measured: Measurement, folder: Path) -> None:
    """The charts of the page."""
    ratios = {
        page_text.short(name): {
            side: quotient(by_side["ox"], by_side[side]) for side in page_text.PEERS if by_side.keys() >= {"ox", side}
        }
        for name, by_side in measured.times.items()
        if name in STEPS or name in OPERATORS
    }
    charts.bars(
        folder / "ratios.svg",
        "Time of ox divided by that of its peers",
        "ratio; below 1, ox is faster",
        ratios,
        ratio=True,
    )
    for each in GROWTH:
        points = {
            side: {
                size: Spread.of(by_side[side])
                for size in each.sizes
                if side in (by_side := measured.times.get(each.name(size), {}))
            }
            for side in page_text.THREE
        }
        charts.lines(folder / f"{page_text.chart_of_growth(each.axis)}.svg", each.model, each.axis, each.sizes, points)
    for file, title, unit, figure in (
        ("memory", "Peak memory of a training step", "MiB", MEMORY),
        ("first-step", "To the end of the first step, with empty caches", "ms", COLD),
    ):
        figures = {
            page_text.short(name): {
                side: Spread.of(values) for side, values in measured.first[key].items() if side in page_text.THREE
            }
            for name in STEPS
            if (key := f"{name}: {figure}") in measured.first
        }
        charts.bars(folder / f"{file}.svg", title, unit, figures)


def write(path: Path, text: str) -> None:
    with file_beside(path) as temporary:
        temporary.write_text(text)
        os.replace(temporary, path)


def check(measured: Measurement, entries: list[history.Entry]) -> list[str]:
    """What is wrong with a measurement: regressions, and sides that failed."""
    wrong = [f"{side} failed: {reason}" for side, reason in measured.failed.items()]
    then = history.earlier(entries, measured)
    found = history.regressions(history.Entry.of(measured), then) if then else []
    wrong += [f"{each.name}: {each.then:g} before, {each.now:g} now" for each in found if not each.shared]
    return wrong


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure, and write docs/performance.md.")
    parser.add_argument("words", nargs="*", help="only workloads whose name contains one of these")
    parser.add_argument("--from", dest="source", type=Path, help="a measurement; nothing is run")
    parser.add_argument("--check", action="store_true", help="exit code 1 if ox became slower, or a side failed")
    given = parser.parse_args(words)
    check_words(parser, given.words)
    if given.source is not None:
        try:
            measured = Measurement.from_json(given.source.read_text())
        except (OSError, ValueError, KeyError, TypeError) as error:
            parser.error(f"{given.source} holds no measurement: {type(error).__name__}: {error}")
    else:
        rounds = int(os.environ.get("ROUNDS", "3"))
        measured = measurement.measure(given.words, rounds)
        if given.words:  # a part does not replace the whole
            print(page_text.page(measured, []))
            return 0
        write(RESULTS, measured.to_json())
        if rounds > 1:
            history.append(HISTORY, history.Entry.of(measured))
    entries = history.read(HISTORY)
    draw(measured, CHARTS)
    write(PAGE, page_text.page(measured, entries))
    write(README, readme(README.read_text(), measured))
    print(f"{PAGE}, its charts and the ratios of {README.name} are written")
    for line in page_text.missing(measured):
        print(f"left out: {line}")
    wrong = check(measured, entries)
    for line in wrong:
        print(f"wrong: {line}")
    return int(given.check and bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
