"""Charts as SVG files: bars of several sides, and lines over a size.

The same figures give the same file. The background is white, so that a chart can be read on a dark page, too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measurement import Spread

from ox.temporary_files import file_beside

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = {"ox": "#0072B2", "torch": "#D55E00", "compiled": "#E69F00", "whole": "#56B4E9", "without": "#999999"}
LABELS = {
    "ox": "ox",
    "torch": "PyTorch eager",
    "compiled": "torch.compile",
    "whole": "ox.compile",
    "without": "ox without kernels",
}
MARKERS = {"ox": "o", "torch": "s", "compiled": "^"}
SETTINGS: Any = {
    "svg.hashsalt": "ox",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@contextmanager
def chart(path: Path, title: str, width: float, height: float) -> Iterator[Any]:
    """Axes to draw on; the file appears at the end."""
    import matplotlib  # slow, and most programs that import this module draw nothing
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.set_title(title, loc="left", fontsize=11)
        yield axes
        path.parent.mkdir(parents=True, exist_ok=True)
        with file_beside(path) as temporary:
            figure.savefig(temporary, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
            os.replace(temporary, path)


def ticks(spreads: Iterable[Spread]) -> tuple[list[float], list[str]]:
    """Places and labels of a logarithmic scale: 1, 2, 5, 10 ... around all spreads; of many decades only the tens."""
    bounds = [value for spread in spreads for value in (spread.low, spread.high) if value > 0] or [1.0]
    low, high = min(bounds), max(bounds)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first < 4 else (1,)
    places = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    places = [place for place in places if low / 2.5 <= place <= high * 2.5] or [low, high]
    return places, [f"{place:,g}" if place < 1e6 else f"{place:.0e}" for place in places]


def bars(
    path: Path, title: str, unit: str, figures: Mapping[str, Mapping[str, Spread]], *, ratio: bool = False
) -> None:
    """A group of horizontal bars for each name, one bar a side, with its spread.

    Args:
        ratio: the figures are ratios of ox to the sides; the bars begin at 1, on a logarithmic scale.
    """
    sides = [side for side in COLOURS if any(side in by_side for by_side in figures.values())]
    if not sides:
        return
    height = 1.2 + len(figures) * (0.12 + 0.16 * len(sides))
    with chart(path, title, 8, height) as axes:
        thick = 0.8 / len(sides)
        for number, side in enumerate(sides):
            rows = [(row, by_side[side]) for row, by_side in enumerate(figures.values()) if side in by_side]
            places = [row + (number - (len(sides) - 1) / 2) * thick for row, _ in rows]
            spreads = [spread for _, spread in rows]
            medians = [spread.median for spread in spreads]
            axes.barh(
                places,
                [median - 1 for median in medians] if ratio else medians,
                thick * 0.9,
                left=1 if ratio else None,
                color=COLOURS[side],
                label=f"ox / {LABELS[side]}" if ratio else LABELS[side],
            )
            axes.hlines(places, [s.low for s in spreads], [s.high for s in spreads], color="#333333", linewidth=1)
        axes.set_yticks(range(len(figures)), list(figures))
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        if ratio:
            axes.set_xscale("log")
            axes.set_xticks(*ticks(spread for by_side in figures.values() for spread in by_side.values()))
            axes.minorticks_off()
            axes.axvline(1, color="#333333", linewidth=1)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.legend(frameon=False, fontsize=9)


def lines(path: Path, title: str, axis: str, sizes: Sequence[int], figures: Mapping[str, Mapping[int, Spread]]) -> None:
    """A line for each side over the sizes, with the spread of each point; both scales are logarithmic."""
    if not any(figures.values()):
        return
    with chart(path, title, 6.5, 3.6) as axes:
        for side, points in figures.items():
            xs = [size for size in sizes if size in points]
            axes.plot(
                xs,
                [points[x].median for x in xs],
                marker=MARKERS.get(side, "o"),
                markersize=5,
                color=COLOURS[side],
                label=LABELS[side],
            )
            axes.vlines(xs, [points[x].low for x in xs], [points[x].high for x in xs], color=COLOURS[side], linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(list(sizes), [str(size) for size in sizes])
        axes.set_yticks(*ticks(spread for points in figures.values() for spread in points.values()))
        axes.minorticks_off()
        axes.set_xlabel(axis)
        axes.set_ylabel("ms a step")
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.legend(frameon=False, fontsize=9)
