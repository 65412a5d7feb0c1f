"""The report of a run, as Markdown: what failed, what differs from the stand-in, the benchmarks, the profile."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpu_run.steps import BAD

MOST_TESTS = 60  # of a list; the others are in the report's JSON


def text(report: Mapping[str, Any]) -> str:
    """The page."""
    outcomes = report["steps"]
    parts = [_head(report), _steps(outcomes), _failed(outcomes), _skipped(outcomes), _differences(outcomes)]
    parts += [_warnings(outcomes)]
    parts += [_benchmarks(outcomes, report["stand in"]), _counts(outcomes), _serving(outcomes), _profile(outcomes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def short(report: Mapping[str, Any]) -> str:
    """The outcome of each step, and what failed, as plain text."""
    lines = [f"{where(report)}, commit {report['commit']}{', ' * bool(report['stand in'])}{report['stand in']}", ""]
    for each in report["steps"]:
        line = f"{each['name']:<18} {each['state']:<9} {each['seconds']:5.0f} s {_passed(each['findings'])}"
        lines.append(f"{line} {each['reason']}".rstrip()[:300])
    found = [f"{each['name']}: {text}" for each in report["steps"] for text in each["failed"]]
    more = [f"and {len(found) - MOST_TESTS} more, in report.json"] * (len(found) > MOST_TESTS)
    return "\n".join([*lines, "", *(line[:300] for line in found[:MOST_TESTS]), *more]) + "\n"


def where(report: Mapping[str, Any]) -> str:
    """The card and the date."""
    card = report["versions"].get("card")
    return f"{card['name'] if isinstance(card, Mapping) else 'unknown card'}, {report['date']}"


def problems(outcomes: Iterable[Mapping[str, Any]]) -> list[str]:
    """What failed or could not run, a line each."""
    found: list[str] = []
    for outcome in outcomes:
        if outcome["state"] in BAD and (outcome["reason"] or not outcome["failed"]):
            found.append(f"{outcome['name']}: {outcome['state']}, {outcome['reason']}".rstrip(", "))
        found += [f"{outcome['name']}: {text}" for text in outcome["failed"]]
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _head(report: Mapping[str, Any]) -> str:
    if report["stand in"]:
        trial = f"This is a trial of `make gpu` on {report['stand in']}, which computes on the CPU"
        first = f"**Not of a GPU.** {trial}: its times say nothing."
    else:
        first = "Written by `make gpu`. See [GPU](../../docs/gpu.md)."
    rows: list[tuple[str, str]] = [("date", report["date"]), ("commit", report["commit"])]
    for name, value in report["versions"].items():
        flat = " · ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, Mapping) else str(value)
        rows.append((name, flat))
    return f"# Results on a GPU\n\n{first}\n\n{table(['', ''], rows)}"


def _steps(outcomes: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (each["name"], each["state"], f"{each['seconds']:.0f}", len(each["failed"]) or "", _passed(each["findings"]))
        for each in outcomes
    ]
    return f"## Steps\n\n{table(['step', 'outcome', 'seconds', 'failed', 'passed'], rows)}"


def _passed(findings: Mapping[str, Any]) -> object:
    return findings.get("held") or len(findings.get("passed", ())) or ""


def _list(heading: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    shown = [f"- {line}" for line in lines[:MOST_TESTS]]
    if len(lines) > MOST_TESTS:
        shown.append(f"- and {len(lines) - MOST_TESTS} more, in report.json")
    return f"## {heading}\n\n" + "\n".join(shown)


def _failed(outcomes: Sequence[Mapping[str, Any]]) -> str:
    return _list("What failed or could not run", problems(outcomes))


def _skipped(outcomes: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"{each['name']}: {each['reason']}" for each in outcomes if each["state"] == "skipped"]
    reasons: dict[str, int] = {}
    for each in outcomes:
        for reason in each["findings"].get("skipped", {}).values():
            reasons[reason] = reasons.get(reason, 0) + 1
    return _list(
        "What this machine cannot do", lines + [f"{count} tests: {reason}" for reason, count in reasons.items()]
    )


def _differences(outcomes: Sequence[Mapping[str, Any]]) -> str:
    notes = [note for each in outcomes for note in each["findings"].get("notes", [])]
    return _list("What is done more often than on host_cuda", notes)


def _warnings(outcomes: Sequence[Mapping[str, Any]]) -> str:
    """DeprecationWarnings, which a library newer than those of the tests brings."""
    counts: dict[str, int] = {}
    for each in outcomes:
        for text, count in each["findings"].get("warnings", {}).items():
            counts[text] = counts.get(text, 0) + count
    return _list("Warnings", [f"{count} times: {text}" for text, count in counts.items()])


def _benchmarks(outcomes: Sequence[Mapping[str, Any]], stand_in: str) -> str:
    found = _findings(outcomes, "benchmarks") or _findings(outcomes, "benchmarks of ox")
    if not found.get("figures") and not found.get("left out"):
        return ""
    rows = []
    names = [*found["figures"], *(name for name in found["left out"] if name not in found["figures"])]
    for name in names:
        by_side, reasons = found["figures"].get(name, {}), found["left out"].get(name, {})
        cells = [_figure(by_side.get(side), reasons.get(side, "")) for side in ("ox", "torch")]
        both = "ox" in by_side and "torch" in by_side
        ratio = statistics.median(by_side["ox"]) / statistics.median(by_side["torch"]) if both else None
        rows.append((name, *cells, "" if ratio is None else f"{ratio:.2f}"))
    lines = [
        f"Milliseconds of a step; medians of {found['rounds']} processes a side, which alternate (smallest to largest)."
        " Below 1, ox is faster. Without TF32. captured: the step is one CUDA graph on both sides."
    ]
    if stand_in or found["tiny"]:
        lines = ["In tiny sizes: each step has run, and the times say nothing."]
    lines += [f"{side}: {reason}." for side, reason in found["absent"].items()]
    return f"## Benchmarks\n\n{' '.join(lines)}\n\n" + table(["", "ox", "PyTorch", "ox / PyTorch"], rows)


def _figure(values: Sequence[float] | None, reason: str) -> str:
    if not values:
        return reason or "–"
    text = f"{statistics.median(values):.3f}"
    return f"{text} ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else text


def _counts(outcomes: Sequence[Mapping[str, Any]]) -> str:
    found = _findings(outcomes, "step counts")
    if not found.get("counts"):
        return ""
    rows = [(name, _numbers(counts), _numbers(found["recorded"][name])) for name, counts in found["counts"].items()]
    return f"## A training step\n\nCounted by {found['counted by']}.\n\n" + table(
        ["step", "here", "on host_cuda"], rows
    )


def _serving(outcomes: Sequence[Mapping[str, Any]]) -> str:
    served = _findings(outcomes, "serving by CUDA").get("served")
    rows = [(part, _numbers(found)) for part, found in served.items()] if served else []
    return "## A server on ONNX Runtime's CUDA provider\n\n" + table(["part", "found"], rows) if rows else ""


def _numbers(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.items()) or "–"


def _profile(outcomes: Sequence[Mapping[str, Any]]) -> str:
    found = _findings(outcomes, "profile")
    parts = []
    for name, title in (("operators", "By operator, with a wait after each"), ("kernels", "By kernel")):
        rows = found.get(name)
        if isinstance(rows, str):
            parts.append(f"{title}: {rows}.")
        elif rows:
            cells = [(row[0], f"{row[1]:.1f}", f"{row[2]:.3f}") for row in rows]
            parts.append(f"{title}:\n\n{table(['', 'a step', 'ms a step'], cells)}")
    sizes = ", ".join(f"{name} {size}" for name, size in found.get("sizes", {}).items())
    return f"## A step of a GPT with AMP\n\n{sizes}.\n\n" + "\n\n".join(parts) if parts else ""


def _findings(outcomes: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next((each["findings"] for each in outcomes if each["name"] == name), {})
