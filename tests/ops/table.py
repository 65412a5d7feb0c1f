"""The tables of docs/operators.md, made from the definitions and from what the generated tests run and skip, and the
totals of the scoreboard.

python tests/ops/table.py        rewrites them in the page
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import conformance  # noqa: E402
import known  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from node_cases import cases, failures, operators, wholes  # noqa: E402

from ox import devices  # noqa: E402
from ox.core.operator import OPS  # noqa: E402
from ox.core.schema import Schema  # noqa: E402
from ox.devices.onnxruntime import dispatch_table  # noqa: E402
from ox.dtypes import ALL, FLOATS, INTEGERS, NUMERIC, SIGNED, UNSIGNED, bool_  # noqa: E402

PAGE = ROOT / "docs" / "operators.md"
VERSIONS = f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}"

GROUPS = [
    ("all", ALL),
    ("numbers", NUMERIC),
    ("integers", INTEGERS),
    ("floats", FLOATS),
    ("signed", SIGNED),
    ("unsigned", UNSIGNED),
    ("bool", (bool_,)),
]


def types_of(schema: Schema) -> str:
    """The element types of the first input, in groups where they are whole."""
    if not schema.inputs:
        return ""
    left = set(schema.allowed(schema.inputs[0].type))
    words = []
    for name, group in GROUPS:
        if left >= set(group):
            words.append(name)
            left -= set(group)
    return ", ".join(words + [str(d) for d in ALL if d in left])


def operator_table() -> list[str]:
    rows = [
        "| operator | element types | gradient of | ONNX cases: NumPy / ONNX Runtime | fast path |",
        "|---|---|---|---|---|",
    ]
    for name in operators():
        op = OPS[name]
        followed = [op.schema.inputs[p].name for rule in op.rules for p in rule.positions]
        with devices.forced("numpy"):
            _, here, _ = failures(name, known.NUMPY)
        with devices.forced("onnxruntime"):
            _, there, _ = failures(name, known.ONNXRUNTIME, devices.NoKernelError)
        fast = "yes" if name in dispatch_table.ALLOWED else ""
        rows.append(
            f"| {name} | {types_of(op.schema)} | {', '.join(dict.fromkeys(followed))} | {here} / {there} | {fast} |"
        )
    return rows


def skip_table() -> list[str]:
    reasons: Counter[tuple[str, str]] = Counter()
    names: dict[tuple[str, str], set[str]] = {}
    total = 0
    for name in operators():
        taken, skipped = cases(name)
        total += len(taken) + len(wholes(name)) + len(skipped)
        for skip in skipped:
            _count(reasons, names, ("both", skip.reason), name)
        with devices.forced("onnxruntime"):
            _, _, there = failures(name, known.ONNXRUNTIME, devices.NoKernelError)
        for skip in there[len(skipped) :]:
            _count(reasons, names, ("ONNX Runtime", skip.reason), name)
    rows = [
        f"{total} cases of {len(operators())} operators.",
        "",
        "| where | why | cases | operators |",
        "|---|---|---|---|",
    ]
    for (where, reason), count in sorted(reasons.items()):
        rows.append(f"| {where} | {reason} | {count} | {', '.join(sorted(names[where, reason]))} |")
    return rows


def _count(
    reasons: Counter[tuple[str, str]], names: dict[tuple[str, str], set[str]], key: tuple[str, str], op: str
) -> None:
    reasons[key] += 1
    names.setdefault(key, set()).add(op)


def scoreboard() -> list[str]:
    passed, total = conformance.totals(conformance.scores(conformance.RUNTIMES))
    with_gradient, declared = conformance.differentiable()
    return [
        *(score(name, count, total) for name, count in passed.items()),
        f"- operators with a gradient: {with_gradient} of the {declared} that declare a differentiable input",
    ]


def score(name: str, passed: int, total: int) -> str:
    return f"- {name}: {passed:,} of {total:,} cases ({100 * passed / total:.1f} %)"


def written(page: str) -> str:
    """The page with its tables made anew."""
    for title, table in (("operators", operator_table()), ("skipped", skip_table())):
        page = replaced(page, title, table)
    return page


def replaced(page: str, title: str, lines: list[str]) -> str:
    start, end = f"<!-- table: {title} -->\n", "<!-- end of table -->"
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}\nMade with {VERSIONS}.\n\n" + "\n".join(lines) + f"\n\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(replaced(written(PAGE.read_text()), "scoreboard", scoreboard()))
