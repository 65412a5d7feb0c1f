"""curves.png: loss and metrics over the epochs; for regression also predictions over targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.serialization.files import write_whole
from ox.train.recipe.datasets import full_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ox.train.predictions import Predictions

TRAIN, VALIDATION, INK, FAINT, ALARM = "#9aa5b1", "#1f6feb", "#1b1f24", "#d8dee4", "#cf222e"
PANELS = 6  # at most, the picture of predictions among them
DOTS = 40  # epochs up to which each is a dot
OWN = ("epoch", "step", "lr", "samples_per_second", "seconds", "accuracy", "loss")
SHARES = ("accuracy", "f1", "f1_micro", "f1_weighted", "f1_binary", "auroc", "top")  # from 0 to 1
# Inches around the panels. Matplotlib's own layouts draw every label twice to find them, half of the time of a picture.
LEFT, RIGHT, ABOVE, BELOW, LINE = 0.6, 0.14, 0.3, 0.46, 0.22
WIDE_RANGE = 200  # between the largest and the least loss, from which on the axis is logarithmic


def draw(
    path: Path,
    history: list[dict[str, Any]],
    best: dict[str, Any],
    title: str,
    subtitle: str = "",
    predictions: Predictions | None = None,
) -> None:
    """Draws the rows of `Trainer.close_epoch` as PNG, with the best epoch marked; written atomically."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = picture(history, best, title, subtitle, predictions)
    canvas = FigureCanvasAgg(figure)
    write_whole(path, canvas.print_png)  # `savefig` draws everything once before, to find bounds that are not asked for


def picture(
    history: list[dict[str, Any]],
    best: dict[str, Any],
    title: str = "",
    subtitle: str = "",
    predictions: Predictions | None = None,
) -> Figure:
    """One panel for the loss, one for accuracy and each metric, and one for predictions.

    The value of the best epoch is printed above each panel. Matplotlib is imported here, at the end of a run, because
    it takes longer to load than a small model takes to train.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = panels(history)[: PANELS - (predictions is not None)]
    count = len(names) + (predictions is not None)
    columns = count if count < 4 else -(-count // 2)
    rows = -(-count // columns)
    width, height = max(6.4, 4.6 * columns), 0.5 + 3.7 * rows
    figure = Figure(figsize=(width, height), dpi=150)
    FigureCanvasAgg(figure)
    top = height - ABOVE - LINE * _head(figure, title, subtitle)
    bottom = BELOW + 1.5 * LINE  # with the legend
    panel_width = (width - columns * (LEFT + RIGHT)) / columns
    panel_height = (top - bottom - (rows - 1) * (ABOVE + BELOW)) / rows
    figure.subplots_adjust(
        left=LEFT / width, right=1 - RIGHT / width, bottom=bottom / height, top=top / height,
        wspace=(LEFT + RIGHT) / panel_width, hspace=(ABOVE + BELOW) / panel_height,
    )  # fmt: skip
    cells = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes, name in zip(cells, names, strict=False):
        _curve(axes, name, history, best)
    if predictions is not None:
        _scatter(cells[len(names)], predictions)
    for axes in cells[count:]:
        axes.set_visible(False)
    handles = {label: line for axes in cells for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="lower left", ncols=len(handles), frameon=False, fontsize=8.5)
    return figure


def panels(history: Sequence[dict[str, Any]]) -> list[str]:
    """The names of the panels: the loss, accuracy for classification, and each metric."""
    names = dict.fromkeys(k for row in history for k, v in row.items() if _is_number(v) and k not in OWN)
    metrics = [k.removeprefix("validation_") for k in names if k.startswith("validation_")]
    classes = any(_is_number(row.get(k)) for row in history for k in ("accuracy", "validation_accuracy"))
    return ["loss", *(["accuracy"] if classes else []), *(k for k in metrics if k not in ("loss", "accuracy"))]


def _head(figure: Figure, title: str, subtitle: str) -> int:
    """The run's name on the left and the result on the test set on the right; in two lines if both are long.

    Returns the number of lines.
    """
    together = len(title) + len(subtitle) > 11 * figure.get_figwidth()
    text = f"{title}\n{subtitle}" if together and subtitle else title
    y = 1 - 0.06 / figure.get_figheight()
    if text:
        figure.suptitle(text, x=0.012, y=y, ha="left", va="top", fontsize=11, color=INK, weight="bold")
    if subtitle and not together:
        figure.text(0.988, y, subtitle, ha="right", va="top", fontsize=10, color=INK)
    return len(text.splitlines()) or bool(subtitle)


def _curve(axes: Axes, name: str, history: list[dict[str, Any]], best: dict[str, Any]) -> None:
    """Training and validation of one figure by epoch."""
    epochs = [row["epoch"] for row in history]
    dots = {"marker": "o"} if len(epochs) <= DOTS else {}
    drawn: list[float] = []
    for key, color, width, label in (
        (name, TRAIN, 1.6, "train"), (f"validation_{name}", VALIDATION, 2.0, "validation"),
    ):  # fmt: skip
        values = [_number(row.get(key)) for row in history]
        noted = any(key in row and row[key] is not None for row in history)
        if not noted:
            continue
        axes.plot(epochs, values, color=color, lw=width, ms=width + 1, label=label, **dots)  # type: ignore[arg-type]
        drawn += [value for value in values if math.isfinite(value)]
        if label == "validation" and (gaps := [e for e, v in zip(epochs, values, strict=True) if not math.isfinite(v)]):
            axes.plot(
                gaps, [0.03] * len(gaps), "x", ms=5, color=ALARM, label="NaN or infinite",
                transform=axes.get_xaxis_transform(), clip_on=False,
            )  # fmt: skip
    _mark(axes, name, best)
    _scale(axes, name, drawn)
    axes.set_xlim(*((epochs[0] - 0.5, epochs[0] + 0.5) if len(epochs) == 1 else _margins(epochs[0], epochs[-1])))
    axes.set_xticks(epoch_ticks(epochs[0], epochs[-1]))
    _plain(axes, name.replace("_", " "), "epoch")


def _mark(axes: Axes, name: str, best: dict[str, Any]) -> None:
    """Marks the best epoch with a line and a ring, and prints its value above the panel."""
    axes.axvline(best["epoch"], color=FAINT, lw=1, zorder=0)
    validated = best.get("validation_loss") is not None
    value = _number(best.get(f"validation_{name}" if validated else name))
    word = "best" if validated else "last"
    if math.isfinite(value):
        ring = VALIDATION if validated else TRAIN
        axes.plot(best["epoch"], value, "o", ms=9, mfc="none", mec=ring, mew=1.4, clip_on=False)
    shown = "" if not math.isfinite(value) else f", {percent(value) if name == 'accuracy' else f'{value:.4g}'}"
    axes.set_title(f"{word}: epoch {best['epoch']}{shown}", loc="right", y=1, fontsize=8.5, color=INK)


def _scale(axes: Axes, name: str, drawn: list[float]) -> None:
    from matplotlib.ticker import PercentFormatter

    if name == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    if name == "loss" and drawn and min(drawn) > 0 and max(drawn) > WIDE_RANGE * min(drawn):
        axes.set_yscale("log")
    elif drawn and min(drawn) >= 0 and not name.startswith(SHARES):
        axes.set_ylim(bottom=0, top=None if max(drawn) > 0 else 1)


def _scatter(axes: Axes, predictions: Predictions) -> None:
    """Predictions over targets; on the line both are equal."""
    truth, predicted = predictions.truth, predictions.predicted
    both = np.concatenate([truth, predicted])
    low, high = (float(both.min()), float(both.max())) if both.size else (0.0, 1.0)
    margin = 0.04 * (high - low) or 0.5
    ends = (low - margin, high + margin)
    axes.plot(ends, ends, color=FAINT, lw=1, zorder=0)
    alpha = 0.8 if truth.size < 100 else 0.35
    axes.plot(truth, predicted, "o", ms=3, color=VALIDATION, alpha=alpha, mec="none")
    axes.set_xlim(ends)
    axes.set_ylim(ends)
    axes.set_aspect("equal")
    axes.set_title(
        f"{full_name(predictions.part)}, {predictions.count:,} samples", loc="right", y=1, fontsize=8.5, color=INK
    )
    _plain(axes, "predicted", "target")


def _plain(axes: Axes, title: str, below: str) -> None:
    axes.set_title(title if len(title) < 20 else f"{title[:18]}…", loc="left", y=1, fontsize=10, color=INK)
    axes.yaxis.get_offset_text().set(x=-0.02, ha="right")  # the power of ten, beside the title
    axes.set_xlabel(below, fontsize=9, color=INK)
    axes.grid(axis="y", color=FAINT, lw=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(labelsize=8.5, colors=INK, length=0)


def epoch_ticks(first: int, last: int, most: int = 12) -> list[int]:
    """Integer ticks: the first and the last epoch, and round numbers between."""
    if last - first < most:
        return list(range(first, last + 1))
    step = next(s for k in range(12) for s in (10**k, 2 * 10**k, 5 * 10**k) if (last - first) / s <= 8)
    between = range(step * (first // step + 1), last, step)
    return [first, *(e for e in between if e - first >= 0.6 * step and last - e >= 0.6 * step), last]


def _margins(first: int, last: int) -> tuple[float, float]:
    return first - 0.03 * (last - first), last + 0.03 * (last - first)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else math.nan


def percent(share: float) -> str:
    """``98.9 %``."""
    return f"{100 * share:.1f} %"
