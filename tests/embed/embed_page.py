"""The tables of docs/runtimes.md, out of what `make embed` measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embedded_models import MODELS
from embedded_runtimes import RUNTIMES, Runtime

BEGIN, END = "<!-- tables: make embed writes these lines -->", "<!-- end of the tables -->"


@dataclass(frozen=True)
class Result:
    """One file in one runtime. `far` is the largest difference from eager; `reason` says why there is none, or that it
    is too large."""

    runtime: str
    model: str
    target: str | None
    version: str
    seconds: float
    far: float | None = None
    reason: str | None = None

    def __str__(self) -> str:
        return self.reason or f"max |Δ| {self.far:.0e}, {self.seconds:.1f} s"


def tables(results: Sequence[Result]) -> str:
    """Markdown: how many files each runtime runs, each file in each runtime, and why one does not run."""
    found = {(r.runtime, r.target, r.model): r for r in results}
    with_target = [runtime for runtime in RUNTIMES if runtime.target]
    parts = [
        summary(found),
        "Largest difference from the eager model, and seconds to load and run, of each file as `ox export` writes it:",
        grid(found, [(runtime, None) for runtime in RUNTIMES]),
        "The same of files that are exported for a target:",
        grid(found, [(runtime, runtime.target) for runtime in with_target]),
        "Why files do not run:",
        holes(results),
    ]
    return "\n\n".join(parts)


Found = dict[tuple[str, str | None, str], Result]


def summary(found: Found) -> str:
    rows = ["| runtime | version | runs, as exported | target | runs, with the target |", "|---|---|---|---|---|"]
    for runtime in RUNTIMES:
        version = next(r.version for (name, _, _), r in found.items() if name == runtime.name and r.version)
        ends = f"`{runtime.target}` | {count(found, runtime, runtime.target)}" if runtime.target else "– | –"
        rows.append(f"| {runtime.name} | {version} | {count(found, runtime, None)} | {ends} |")
    return "\n".join(rows)


def count(found: Found, runtime: Runtime, target: str | None) -> str:
    right = sum(found[runtime.name, target, model].reason is None for model in MODELS)
    return f"{right} of {len(MODELS)}"


def grid(found: Found, columns: Sequence[tuple[Runtime, str | None]]) -> str:
    """A row for each model, a column for each runtime."""
    rows = ["| model | " + " | ".join(runtime.name for runtime, _ in columns) + " |"]
    rows.append("|---" * (len(columns) + 1) + "|")
    for model in MODELS:
        cells = []
        for runtime, target in columns:
            one = found[runtime.name, target, model]
            cells.append("no" if one.reason else f"{one.far:.0e}, {one.seconds:.1f} s")
        rows.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def holes(results: Sequence[Result]) -> str:
    """A line for each reason, with the files that it stops."""
    models: dict[tuple[str, str | None, str], list[str]] = {}
    for r in results:
        if r.reason:
            models.setdefault((r.runtime, r.target, r.reason), []).append(r.model)
    lines = [
        f"- {runtime}{f' with `--target {target}`' if target else ''}, {', '.join(names)}: {reason}"
        for (runtime, target, reason), names in models.items()
    ]
    return "\n".join(lines)
