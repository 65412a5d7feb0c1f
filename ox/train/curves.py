"""curves.png: loss and accuracy by epoch, what people look at first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ox.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAIN, VALIDATION, INK, FAINT = "#9aa5b1", "#1f6feb", "#1b1f24", "#d8dee4"


def draw(path: Path, history: list[dict[str, Any]], best: dict[str, Any], title: str, subtitle: str = "") -> None:
    """Draw the rows that `Trainer.close_epoch` noted, `best` marked, as PNG; written whole or not at all."""
    figure = picture(history, best, title, subtitle)
    write_whole(path, lambda temporary: figure.savefig(temporary, format="png", facecolor="white"))


def picture(history: list[dict[str, Any]], best: dict[str, Any], title: str = "", subtitle: str = "") -> Figure:
    """Loss and, where there are classes, accuracy by epoch.

    Matplotlib is imported here, at the end of a run: it takes longer to load than a small model trains.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    classes = all(row["validation_accuracy"] is not None for row in history)
    if best["validation_loss"] is None:
        history = [row | {"validation_loss": row["loss"], "validation_accuracy": row["accuracy"]} for row in history]
        best, classes = history[-1], history[-1]["accuracy"] is not None
    figure = Figure(figsize=(10 if classes else 5.5, 4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.012, ha="left", fontsize=11, color=INK, weight="bold")
    if subtitle:
        figure.text(0.988, 0.988, subtitle, ha="right", va="top", fontsize=10, color=INK)
    panels = figure.subplots(1, 2 if classes else 1, squeeze=False)[0]
    epochs = [row["epoch"] for row in history]
    for axes, name in zip(panels, ("loss", "accuracy"), strict=False):
        training = [row[name] for row in history]
        if all(value is not None for value in training):
            axes.plot(epochs, training, color=TRAIN, lw=1.6, marker="o", ms=2.5, label="train")
        axes.plot(
            epochs,
            [row[f"validation_{name}"] for row in history],
            color=VALIDATION,
            lw=2,
            marker="o",
            ms=3,
            label="validation",
        )
        axes.axvline(best["epoch"], color=FAINT, lw=1, zorder=0)
        axes.plot(best["epoch"], best[f"validation_{name}"], "o", ms=9, mfc="none", mec=VALIDATION, mew=1.4)
        value = best[f"validation_{name}"]
        text = f"{value:.3f}" if name == "loss" else f"{100 * value:.1f} %"
        late = best["epoch"] > sum(epochs[:1] + epochs[-1:]) / 2
        axes.annotate(
            f"best: epoch {best['epoch']}, {text}",
            (best["epoch"], value),
            xytext=(-10 if late else 10, 22 if name == "loss" else -26),
            textcoords="offset points",
            ha="right" if late else "left",
            fontsize=8.5,
            color=INK,
        )
        axes.set_title(name, loc="left", fontsize=10, color=INK)
        axes.set_xlabel("epoch", fontsize=9, color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color=FAINT, lw=0.6)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(labelsize=8.5, colors=INK, length=0)
        axes.legend(frameon=False, fontsize=8.5, loc="upper right" if name == "loss" else "lower right")
        if name == "accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        else:
            axes.set_ylim(bottom=0 if min(training) >= 0 else None)
    return figure
