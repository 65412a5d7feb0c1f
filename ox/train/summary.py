"""What a run came to, in a few words: for lists of runs, comparisons and reports."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ox.errors import ArgumentError, LoadError
from ox.train import checkpoint
from ox.train.loggers import jsonl
from ox.train.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FINISHED, TRAINING, STOPPED = "finished", "training now", "stopped"
# what every run differs in, and no comparison should repeat
OWN = {("run", "name"), ("run", "made"), ("run", "command"), ("recipe", "source")}


@dataclass(frozen=True)
class Summary:
    """A run as it stands.

    Attributes:
        history: a row an epoch.
        best: the row of the best epoch; None before the first.
        held_back: what the best weights made of the held-back part; None before the end, or without one.
    """

    run: Run
    state: str
    history: list[dict[str, Any]]
    best: dict[str, Any] | None
    held_back: dict[str, Any] | None

    @property
    def seconds(self) -> float:
        return float(self.history[-1]["seconds"]) if self.history else 0.0

    def figures(self) -> dict[str, float]:
        """The numbers to compare by: the best epoch's on validation, and those on what was held back."""
        best, held = self.best or {}, self.held_back or {}
        validation = {k.removeprefix("validation_"): v for k, v in best.items() if k.startswith("validation_")}
        several = (("validation", validation), ("held back", held))
        return {
            f"{part} {name}": float(value)
            for part, table in several
            for name, value in table.items()
            if isinstance(value, int | float) and name not in ("count", "correct")
        }


def summarize(run: Run) -> Summary:
    """Read what a run's folder says; nothing is computed, and nothing is written.

    Raises:
        LoadError: a file in it is damaged.
    """
    history = [row for row in jsonl.read(run.metrics) if "validation_loss" in row]
    for row in history:
        if not (type(row.get("epoch")) is int and _is_number(row.get("seconds"))):
            raise LoadError(f"{run.metrics} is damaged", expected="epoch and seconds in each epoch's row")
    result = run.result
    if result is not None:
        best, held_back = result.get("best"), result.get("held_back")
        if not (
            isinstance(best, dict)
            and type(best.get("epoch")) is int
            and (held_back is None or isinstance(held_back, dict))
        ):
            raise LoadError(
                f"{run.folder / 'result.json'} is damaged", expected="a row under best, a table under held_back"
            )
        return Summary(run, FINISHED, history, best, held_back)
    return Summary(run, TRAINING if _held(run) else STOPPED, history, _best(run, history), None)


def _held(run: Run) -> bool:
    """Whether a process trains it now."""
    with open(run.folder / "config.toml", "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a disk without locks cannot say
            return False
    return False


def _best(run: Run, history: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The best row of a run that has not ended: its best checkpoint knows."""
    if not history or not run.best.is_file():
        return None
    try:
        found = checkpoint.load(run.best)["progress"]["best"]
    except LoadError:
        return None
    return None if found is None else dict(found)


def differing(runs: Sequence[Run]) -> dict[str, list[str]]:
    """What the configs of several runs say differently, by name; "" where one says nothing."""
    keys = dict.fromkeys((table, key) for run in runs for table, entries in run.config.items() for key in entries)
    rows = {
        f"{table}.{key}": [_shown(run.config.get(table, {}).get(key)) for run in runs]
        for table, key in keys
        if (table, key) not in OWN
    }
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def plot(summaries: Sequence[Summary], metric: str = "validation_loss") -> Figure:
    """One metric of several runs by epoch.

    Raises:
        ArgumentError: no run noted it; lists what they noted.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from ox.train.curves import epoch_ticks

    points = {s.run.name: [(r["epoch"], r[metric]) for r in s.history if _is_number(r.get(metric))] for s in summaries}
    found = {name: several for name, several in points.items() if several}
    if not found:
        noted = dict.fromkeys(k for s in summaries for row in s.history for k, v in row.items() if _is_number(v))
        raise ArgumentError(
            f"none of these runs noted '{metric}'", expected=", ".join(noted) or "a run that ended an epoch"
        )
    figure = Figure(figsize=(7, 4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for name, several in found.items():
        axes.plot(*zip(*several, strict=True), lw=1.8, marker="o" if len(several) <= 40 else None, ms=3, label=name)
    axes.set_title(metric.replace("_", " "), loc="left", fontsize=10)
    axes.set_xlabel("epoch", fontsize=9)
    epochs = [epoch for several in found.values() for epoch, _ in several]
    axes.set_xticks(epoch_ticks(min(epochs), max(epochs)))
    axes.grid(axis="y", lw=0.6, color="#d8dee4")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(labelsize=8.5, length=0)
    # below the panel, where no curve can be
    figure.legend(loc="outside lower left", ncols=min(4, len(found)), frameon=False, fontsize=8.5)
    return figure


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def metrics_of(summary: Summary) -> list[str]:
    """The numbers that validation gave each epoch, besides loss and accuracy."""
    names = dict.fromkeys(k for row in summary.history for k, v in row.items() if _is_number(v))
    return [k for k in names if k.startswith("validation_") and k not in ("validation_loss", "validation_accuracy")]


def save_figure(figure: Figure, path: Path) -> None:
    """As PNG, SVG or PDF by its ending; whole or not at all.

    Raises:
        ArgumentError: another ending.
    """
    from ox.files import write_whole

    kind = path.suffix[1:].lower() or "png"
    if kind not in ("png", "svg", "pdf"):
        raise ArgumentError(f"no picture is written as .{kind}", expected="png, svg or pdf")
    write_whole(path, lambda temporary: figure.savefig(temporary, format=kind, facecolor="white"))
