"""The text of docs/performance.md, made from a measurement and the history."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import history
from bench_first_step import COLD, MEASURED, MEMORY, WARM
from measurement import Measurement, Spread
from sides import Table
from step_profile import Cost
from workloads import GROWTH, OPERATORS, STEPS

NAMES = {
    "ox": "ox",
    "torch": "PyTorch",
    "compiled": "`torch.compile`",
    "whole": "`ox.compile`",
    "without": "ox without kernels",
}
PEERS = ("torch", "compiled")
THREE = ("ox", *PEERS)
NOTHING = "Not measured."

INTRODUCTION = """\
# Performance

Training with ox beside PyTorch eager (with its fused optimizers) and `torch.compile`, on one CPU. A ratio below 1
means that ox is faster, or needs less memory. `python benchmarks/performance_page.py` writes this page, and
`make bench` calls it.

- **Machine:** {machine.cpu}, {machine.cores} cores, {machine.memory} GiB of memory. Every side uses all cores. Load
  average before the measurement: {load:.2f}.
- **Versions:** ox {ox} at commit {commit}, Python {python}, NumPy {numpy}, ONNX Runtime {onnxruntime}, PyTorch {torch}.
- **Date:** {date} UTC.
- **Method:** each side runs alone in its own process, and the processes of the sides alternate. A process warms each
  workload up and takes the median of its times. The tables show the median of the processes, and in parentheses the
  smallest and the largest. Processes of each side: {rounds}. A step is forward, loss, backward and update; an operator
  is forward and backward. Element type: float32, and bfloat16 under autocast where the name says bf16.
- **Sides:** PyTorch eager; `torch.compile` of forward and loss, and so of their backward, with static shapes (it does
  not compile LSTM layers, and runs them as PyTorch eager does); ox with its [compiled kernels](kernels.md); ox without
  them (`OX_KERNELS=0`); [`ox.compile`](compile.md) of whole training steps, the update included."""

TRIAL = "**This was a trial with one process a side: the spread is not known, and the figures prove nothing.**"

COMPILED = """\
Whole training steps with [`ox.compile`](compile.md), in ms:

{times}

To the end of the first compiled step, in ms. It is the third step: the optimizer's state is created in
the first, and the second is recorded.

{first}

Peak memory, in MiB, as below:

{memory}"""

FIRST_STEP = """\
From the import to the end of the first step, in ms: model, optimizer and one step, in a process that runs nothing else.
With empty caches, ox compiles its kernels (once for all models), and `torch.compile` compiles the model. Each of these
times is that of one process.

![Time to the end of the first step](performance/first-step.svg)

{cold}

Later processes find the caches filled:

{warm}"""

MEMORY_TEXT = """\
The highest resident memory of a process that runs the training step of one model, or the attention's forward and
backward, less that after the import, in MiB, with filled caches.

![Peak memory of a training step](performance/memory.svg)

{table}"""

PROFILE = """\
The ten most expensive entries of a step, by the profiler of each library. The time of an entry is its own, without the
entries that it calls; `step` is Python. Profilers take time themselves: the sums are larger than the times above."""

RULE = """\
A figure of ox is a regression if its median is more than 15 % worse than in the last measurement of the same machine,
and by more than the processes of either measurement differ. If PyTorch became slower by as much, the cause is the
machine."""


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(values: list[float] | None) -> str:
    """The median, with the smallest and the largest."""
    if not values:
        return "–"
    spread = Spread.of(values)
    bounds = f" ({number(spread.low)}–{number(spread.high)})" if len(values) > 1 else ""
    return number(spread.median) + bounds


def ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def mean(values: Iterable[float]) -> float | None:
    """The geometric mean of ratios."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def short(name: str) -> str:
    """A training step, as the page names it."""
    return name.removeprefix("step: ")


def compared(
    measured: Measurement,
    figures: Table,
    names: Mapping[str, str],
    first: str,
    sides: Iterable[str] = THREE,
    ours: str = "ox",
) -> str:
    """A table of figures: the sides, then the ratio of ox to each peer.

    Args:
        names: of the figures, and how the page names them.
        first: the head of the column of these names.
        ours: the side of ox whose ratios these are.
    """
    head = [first, *(NAMES[side] for side in sides), *(f"{NAMES[ours]} / {NAMES[side]}" for side in PEERS)]
    rows = []
    for name, said in names.items():
        if name in figures:
            cells = [cell(figures[name].get(side)) for side in sides]
            rows.append([said, *cells, *(ratio(measured.ratio(name, side, ours)) for side in PEERS)])
    return table(head, rows) if rows else NOTHING


def introduction(measured: Measurement) -> str:
    text = INTRODUCTION.format(**vars(measured), **measured.versions)
    return f"{text}\n\n{TRIAL}" if measured.rounds == 1 else text


def summary(measured: Measurement) -> str:
    """How often ox is faster, and the means: a sentence for each peer and kind of workload."""
    said = []
    for kind, names in (("training steps", STEPS), ("operators", OPERATORS)):
        for side in PEERS:
            ratios = [value for name in names if (value := measured.ratio(name, side)) is not None]
            if ratios:
                faster = sum(value < 1 for value in ratios)
                bounds = f"{min(ratios):.2f} to {max(ratios):.2f}, geometric mean {ratio(mean(ratios))}"
                said.append(f"- {kind}: ox is faster than {NAMES[side]} in {faster} of {len(ratios)}; ratios {bounds}")
    return "\n".join([*said, "", "![Ratios of ox to its peers](performance/ratios.svg)"]) if said else NOTHING


def chart_of_growth(axis: str) -> str:
    return "growth-" + axis.replace(" ", "-")


def growth(measured: Measurement) -> str:
    parts = ["The training step of a small model over one of its sizes, in ms. Both scales of a chart are logarithmic."]
    for each in GROWTH:
        names = {each.name(size): str(size) for size in each.sizes}
        if names.keys() & measured.times.keys():
            parts += [
                f"### {each.axis.capitalize()}",
                f"{each.model}.",
                f"![Time of a step over {each.axis}](performance/{chart_of_growth(each.axis)}.svg)",
                compared(measured, measured.times, names, each.axis),
            ]
    return "\n\n".join(parts) if len(parts) > 1 else NOTHING


def first_step(measured: Measurement) -> str:
    tables = {}
    for key, figure, head in (("cold", COLD, "with empty caches"), ("warm", WARM, "with filled caches")):
        tables[key] = compared(measured, measured.first, {f"{n}: {figure}": short(n) for n in STEPS}, head)
    return NOTHING if set(tables.values()) == {NOTHING} else FIRST_STEP.format(**tables)


def memory(measured: Measurement) -> str:
    names = {f"{name}: {MEMORY}": short(name) for name in MEASURED}
    made = compared(measured, measured.first, names, "training step")
    return NOTHING if made == NOTHING else MEMORY_TEXT.format(table=made)


def compiled(measured: Measurement) -> str:
    """The tables of whole steps with `ox.compile`."""
    sides = ("whole", *THREE)
    tables = {}
    for key, figures, of, head in (
        ("times", measured.times, "", "training step"),
        ("first", measured.first, f": {WARM}", "with filled caches"),
        ("memory", measured.first, f": {MEMORY}", "training step"),
    ):
        names = {f"{n}{of}": short(n) for n in STEPS if "whole" in figures.get(f"{n}{of}", {})}
        tables[key] = compared(measured, figures, names, head, sides, "whole")
    return NOTHING if set(tables.values()) == {NOTHING} else COMPILED.format(**tables)


def where_time_goes(measured: Measurement) -> str:
    parts = [PROFILE]
    for name, by_side in measured.profile.items():
        parts.append(f"### Profile of {short(name)}")
        columns = []
        for side in ("ox", "torch"):
            rows = by_side.get(side, "not measured")
            if isinstance(rows, str):
                parts.append(f"{NAMES[side]}: {rows}")
                rows = []
            columns.append([cost(row) for row in rows])
        height = max(map(len, columns))
        left, right = (column + [[""] * 4] * (height - len(column)) for column in columns)
        head = [text for side in ("ox", "torch") for text in (NAMES[side], "calls", "ms", "share")]
        parts.append(table(head, [a + b for a, b in zip(left, right, strict=True)]))
    return "\n\n".join(parts) if measured.profile else NOTHING


def cost(row: Cost) -> list[str]:
    name = row.name.removeprefix("autograd::engine::evaluate_function: ")
    return [f"`{name}`", f"{row.calls:g}", number(row.milliseconds), f"{row.share:.0%}"]


def missing(measured: Measurement) -> list[str]:
    """What has no figure, and why."""
    said = [f"{NAMES[side]}, every workload: {reason}" for side, reason in measured.failed.items()]
    for name, by_side in measured.left_out.items():
        said += [f"{NAMES[side]}, {name}: {reason}" for side, reason in by_side.items()]
    return said


def left_out(measured: Measurement) -> str:
    return "\n".join(f"- {line}" for line in missing(measured)) or "Nothing: every side ran every workload."


def regressions(measured: Measurement, entries: list[history.Entry]) -> str:
    """What became worse since the last entry of the same machine, and the last entries."""
    then = history.earlier(entries, measured)
    if then is None:
        return f"{RULE}\n\nThis machine has no earlier measurement."
    found = history.regressions(history.Entry.of(measured), then)
    against = f"Compared with commit {then.commit} of {then.date} UTC"
    rows = [
        [
            each.name,
            number(each.then),
            number(each.now),
            ratio(each.change),
            ratio(each.peer),
            "the machine" if each.shared else "**regression**",
        ]
        for each in found
    ]
    head = ["figure", "then", "now", "change", "PyTorch's change", "cause"]
    said = f"{against}:\n\n{table(head, rows)}" if rows else f"{against}, nothing is worse."
    return f"{RULE}\n\n{said}"


def past(entries: list[history.Entry]) -> str:
    """The last entries of the history, with the mean ratios."""
    rows = []
    for each in entries[-10:]:
        means = []
        for names in (STEPS, OPERATORS):
            known = [each.figures[name] for name in names if each.figures.get(name, {}).keys() >= {"ox", "torch"}]
            means.append(mean(by_side["ox"].median / by_side["torch"].median for by_side in known))
        about = f"{each.machine.cpu}, {each.machine.cores} cores"
        rows.append([each.date, each.commit, about, each.versions["torch"], *map(ratio, means)])
    head = ["date", "commit", "machine", "PyTorch", "steps, ox / PyTorch", "operators, ox / PyTorch"]
    return (
        f"Geometric means of the last measurements:\n\n{table(head, rows)}" if rows else "No measurement is kept yet."
    )


def page(measured: Measurement, entries: list[history.Entry]) -> str:
    """The whole page."""
    every = (*THREE, "without")
    steps = compared(measured, measured.times, {name: short(name) for name in STEPS}, "training step", every)
    operators = compared(measured, measured.times, {name: name for name in OPERATORS}, "operator", every)
    sections = {
        "Summary": summary(measured),
        "Training steps": f"Time of a step, in ms.\n\n{steps}",
        "Compiled training steps": compiled(measured),
        "Operators": f"Time of a forward and backward, in ms.\n\n{operators}",
        "Growth": growth(measured),
        "First step and compile time": first_step(measured),
        "Peak memory": memory(measured),
        "Where a step's time goes": where_time_goes(measured),
        "Left out": left_out(measured),
        "Regressions": regressions(measured, entries),
        "History": past(entries),
    }
    parts = [introduction(measured), *(f"## {title}\n\n{text}" for title, text in sections.items())]
    return "\n\n".join(parts) + "\n"


def ratios(measured: Measurement) -> str:
    """The table of README.md: each training step, and the mean of the operators."""
    head = ["training step", *(f"ox / {NAMES[side]}" for side in PEERS)]
    rows = [
        [short(name), *(ratio(measured.ratio(name, side)) for side in PEERS)]
        for name in STEPS
        if name in measured.times
    ]
    operators = [name for name in OPERATORS if name in measured.times]
    means = [mean(value for name in operators if (value := measured.ratio(name, side))) for side in PEERS]
    rows.append([f"{len(operators)} single operators, geometric mean", *map(ratio, means)])
    about = f"{measured.machine.cpu}, {measured.machine.cores} cores, PyTorch {measured.versions['torch']}"
    text = f"{table(head, rows)}\n\nMeasured on: {about}."
    return f"{TRIAL}\n\n{text}" if measured.rounds == 1 else text
