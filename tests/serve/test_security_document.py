"""SECURITY.md: each line of its threats names tests that are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from rows import rows

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "SECURITY.md"
NAME = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def lines() -> list[list[str]]:
    """The lines of the tables whose last column is "tests"."""
    found: list[list[str]] = []
    inside = False
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            inside = False
        elif cells[-1] == "tests":
            inside = True
        elif inside and set(line) - set("|- "):
            found.append(cells)
    return found


@cache
def functions(path: Path) -> frozenset[str]:
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


@rows("row", lines(), ids=lambda row: row[0][:60])
def test_every_threat_is_held_by_tests(row: list[str]) -> None:
    threat, defence, held = row
    assert threat and defence
    names = NAME.findall(held)
    assert names and NAME.sub("", held).strip(", ") == "", "only names of tests, and at least one"
    for file, name in names:
        assert (TESTS / file).is_file(), f"{file} is gone"
        assert name in functions(TESTS / file), f"{file} has no {name}"


def test_the_page_has_its_parts() -> None:
    text = PAGE.read_text()
    assert len(lines()) > 40
    for part in ("Reporting a vulnerability", "Threat model", "Defended threats", "Not defended"):
        assert part in text
