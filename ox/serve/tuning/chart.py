"""A tuning as a picture: what each setting reached, and how the recommended one takes other loads."""

from __future__ import annotations

from pathlib import Path

from ox.errors import ArgumentError, WriteError
from ox.serve.tuning.tune import Point, Tuning

KINDS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Raises ArgumentError for an unsupported file type; checked before the work."""
    if path.suffix.lower() not in KINDS:
        raise ArgumentError("unknown file type for a chart", expected=", ".join(KINDS), got=str(path))


def draw(tuning: Tuning, path: Path) -> None:
    """Writes the chart.

    Raises:
        WriteError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    lines: dict[str, list[Point]] = {}
    for point in tuning.points:
        lines.setdefault(point.setting.layout, []).append(point)
    for name, points in lines.items():
        left.plot([p.setting.max_rows for p in points], [p.rate for p in points], "o-", label=name)
    best = tuning.best
    left.plot([best.setting.max_rows], [best.rate], "o", ms=15, mfc="none", mec="black", label="recommended")
    left.set_xscale("log", base=2)
    sizes = sorted({point.setting.max_rows for point in tuning.points})
    left.set_xticks(sizes, [str(size) for size in sizes])
    left.set_xlabel("maximum batch size")
    left.set_ylabel(f"samples/s with {best.clients} clients")
    left.set_ylim(0, 1.1 * max(point.rate for point in tuning.points))
    left.legend(title="instances × threads", fontsize="small", loc="lower right")
    clients = [point.clients for point in tuning.loads]
    right.plot(clients, [1e3 * point.p50 for point in tuning.loads], "v-", color="tab:purple", label="p50")
    right.plot(clients, [1e3 * point.p99 for point in tuning.loads], "^-", color="tab:brown", label="p99")
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    right.set_xticks(clients, [str(count) for count in clients])
    right.set_xlabel("clients")
    right.set_ylabel("latency of the recommended setting, ms")
    rates = right.twinx()
    rates.plot(clients, [point.rate for point in tuning.loads], "o--", color="black", label="samples/s")
    rates.set_ylim(0, 1.15 * max(point.rate for point in tuning.loads))
    rates.set_ylabel("samples/s")
    right.legend(handles=[*right.get_lines(), *rates.get_lines()], fontsize="small", loc="lower right")
    for axes in (left, right):
        axes.grid(True, alpha=0.3)
    setting = best.setting
    chosen = f"{setting.layout} (instances × threads), batches up to {setting.max_rows}"
    figure.suptitle(f"{tuning.name} on {tuning.cores} cores: {chosen}\n{tuning.reason()}", fontsize="medium")
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        hint = "a file in a folder that exists and can be written"
        raise WriteError(f"{path} cannot be written", got=error.strerror or str(error), hint=hint) from None
