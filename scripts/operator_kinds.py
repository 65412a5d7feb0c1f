"""Generate ox/serve/operator_kinds.py: what the server asks of operators, whose definitions it does not import.

python scripts/operator_kinds.py             write it
python scripts/operator_kinds.py --check     exit with 1 if it is not current
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import fill

import ox  # noqa: F401  # its import defines the operators
from ox.core.operator import OPS, Operator

MODULE = Path(__file__).parents[1] / "ox" / "serve" / "operator_kinds.py"
TEXT = '''"""The kinds of ONNX operators, and which inputs say how large a result is.

Generated from the definitions in ox.ops by scripts/operator_kinds.py; ox/core/kind.py says what a kind means.
"""

from __future__ import annotations

KINDS: dict[str, set[str]] = {{
{kinds}
}}  # fmt: skip
# operator -> the inputs whose values make its result as large as they say
SIZED_BY: dict[str, tuple[int, ...]] = {{
{sized}
}}  # fmt: skip
_KINDS = {{name: kind for kind, names in KINDS.items() for name in names}}


def kind_of(operator: str) -> str | None:
    """The kind of an ONNX operator by its name; None where ox does not have it."""
    return _KINDS.get(operator)
'''


def source() -> str:
    """The text of the module."""
    standard = {name: op for name, op in sorted(OPS.items()) if not op.domain}
    kinds: dict[str, list[str]] = {}
    for name, op in standard.items():
        assert op.kind is not None, f"{name} has no kind"
        kinds.setdefault(op.kind, []).append(name)
    lines = [f'    "{kind}": {{\n{wrapped(names)}\n    }},' for kind, names in sorted(kinds.items())]
    sized = [f'    "{name}": {positions(op)},' for name, op in standard.items() if op.sized_by]
    return TEXT.format(kinds="\n".join(lines), sized="\n".join(sized))


def wrapped(names: list[str]) -> str:
    """Names as strings, in lines."""
    margin = " " * 8
    items = " ".join(f'"{name}",' for name in names)
    return fill(items, 110, initial_indent=margin, subsequent_indent=margin)


def positions(op: Operator) -> tuple[int, ...]:
    """Where among the inputs of an operator those are that say how large its result is."""
    return tuple(i for i, each in enumerate(op.schema.inputs) if each.name in op.sized_by)


def main(arguments: list[str]) -> int:
    current = MODULE.exists() and MODULE.read_text() == source()
    if "--check" in arguments:
        return 0 if current else 1
    MODULE.write_text(source())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
