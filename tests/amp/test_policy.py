"""The table: what it names exists, functions ask it, and docs/amp.md shows it."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import ox
from ox.amp.autocast import Active
from ox.amp.policy import FUNCTIONS, KEEP, OPERATORS, RULES, WIDEST
from ox.ops.operator import OPS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "amp.md"


def table() -> str:
    """The rows that docs/amp.md must hold; `python tests/amp/test_policy.py` writes them there."""
    lines = ["| rule | operators | functions |", "|---|---|---|"]
    for rule in RULES:
        operators, functions = (
            ", ".join(sorted(name for name, own in each.items() if own == rule)) for each in (OPERATORS, FUNCTIONS)
        )
        lines.append(f"| `{rule}` | {operators or ('all others' if rule == WIDEST else '')} | {functions} |")
    return "\n".join(lines)


def parts(text: str) -> list[str]:
    return re.split(r"(?<=<!-- table: begins -->\n)|(?=\n<!-- table: ends -->)", text)


def test_the_page_shows_the_table() -> None:
    assert parts(PAGE.read_text())[1] == table()


def test_every_operator_of_the_table_is_one() -> None:
    assert not set(OPERATORS) - set(OPS)
    assert set(OPERATORS.values()) | set(FUNCTIONS.values()) <= set(RULES)


def functions() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for package in (ox.functions, ox.nn.functional):
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            found |= {name: value for name, value in vars(module).items() if callable(value)}
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_of_the_table_asks_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Enough(Exception):
        pass

    def function(self: Any, name: str, *rest: Any) -> Any:
        asked.append(name)
        raise Enough

    monkeypatch.setattr(Active, "function", function)
    with ox.autocast("cpu"), pytest.raises(Enough):
        functions()[name](ox.ones(2), ox.ones(2))
    assert asked == [name]


def test_what_is_kept_goes_through() -> None:
    x = ox.ones(2).bfloat16()
    kept = [name for name, rule in OPERATORS.items() if rule == KEEP]
    assert "Identity" in kept
    with ox.autocast("cpu"):
        assert OPS["Identity"](x).dtype == ox.bfloat16
        assert [t.dtype for t in OPS["SequenceConstruct"](x, x)] == [ox.bfloat16] * 2


if __name__ == "__main__":
    before, _, after = parts(PAGE.read_text())
    PAGE.write_text(before + table() + after)
