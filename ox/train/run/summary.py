"""Results of a run, for lists of runs, comparisons and reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ox.errors import ArgumentError, LoadError
from ox.file_lock import lock_file
from ox.train.loggers import jsonl
from ox.train.run import checkpoint
from ox.train.run.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FINISHED, TRAINING, STOPPED = "finished", "training now", "stopped"
# different in every run, so not compared
UNIQUE = {("run", "name"), ("run", "made"), ("run", "command"), ("recipe", "source")}


@dataclass(frozen=True)
class Summary:
    """The current state and results of a run.

    Attributes:
        history: one row per epoch.
        best: the row of the best epoch; None before the first.
        held_back: results of the best weights on the test set; None before the end, or without a test set.
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
        """The metrics of the best epoch on the validation data, and those on the test set."""
        best, held = self.best or {}, self.held_back or {}
        validation = {k.removeprefix("validation_"): v for k, v in best.items() if k.startswith("validation_")}
        several = (("validation", validation), ("test", held))
        return {
            f"{part} {name}": float(value)
            for part, table in several
            for name, value in table.items()
            if isinstance(value, int | float) and name not in ("count", "correct")
        }


def summarize(run: Run) -> Summary:
    """Reads the results from a run's folder; computes and writes nothing.

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
    return Summary(run, TRAINING if _is_locked(run) else STOPPED, history, _best(run, history), None)


def _is_locked(run: Run) -> bool:
    """Whether a process is training this run."""
    with open(run.folder / "config.toml", "rb") as file:
        return lock_file(file.fileno(), shared=True) is False


def _best(run: Run, history: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The row of the best epoch of an unfinished run, from its best checkpoint."""
    if not history or not run.best.is_file():
        return None
    try:
        found = checkpoint.load(run.best)["progress"]["best"]
    except LoadError:
        return None
    return None if found is None else dict(found)


def config_differences(runs: Sequence[Run]) -> dict[str, list[str]]:
    """The config entries that differ between runs, by name; "" where a run lacks one."""
    keys = dict.fromkeys((table, key) for run in runs for table, entries in run.config.items() for key in entries)
    rows = {
        f"{table}.{key}": [_config_text(run.config.get(table, {}).get(key)) for run in runs]
        for table, key in keys
        if (table, key) not in UNIQUE
    }
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def _config_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def plot(summaries: Sequence[Summary], metric: str = "validation_loss") -> Figure:
    """Plots one metric of several runs over the epochs.

    Raises:
        ArgumentError: no run has this metric; the error lists those that exist.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from ox.train.run.curves import epoch_ticks

    points = {s.run.name: [(r["epoch"], r[metric]) for r in s.history if _is_number(r.get(metric))] for s in summaries}
    found = {name: several for name, several in points.items() if several}
    if not found:
        noted = dict.fromkeys(k for s in summaries for row in s.history for k, v in row.items() if _is_number(v))
        raise ArgumentError(
            f"none of these runs has a metric '{metric}'", expected=", ".join(noted) or "a run with a finished epoch"
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
    # below the axes, where it covers no curve
    figure.legend(loc="outside lower left", ncols=min(4, len(found)), frameon=False, fontsize=8.5)
    return figure


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def metrics_of(summary: Summary) -> list[str]:
    """The names of the validation metrics, besides loss and accuracy."""
    names = dict.fromkeys(k for row in summary.history for k, v in row.items() if _is_number(v))
    return [k for k in names if k.startswith("validation_") and k not in ("validation_loss", "validation_accuracy")]


def save_figure(figure: Figure, path: Path) -> None:
    """Writes a figure atomically as PNG, SVG or PDF, by the file extension.

    Raises:
        ArgumentError: another file extension.
    """
    from ox.serialization.files import write_whole

    kind = path.suffix[1:].lower() or "png"
    if kind not in ("png", "svg", "pdf"):
        raise ArgumentError(f"figures cannot be written as .{kind}", expected="png, svg or pdf")
    write_whole(path, lambda temporary: figure.savefig(temporary, format=kind, facecolor="white"))
