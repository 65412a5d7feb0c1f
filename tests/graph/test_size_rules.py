"""The sizes for which a file is right: found from a condition, printed, stored, checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from rows import rows

from ox.core.size_expression import evaluate, from_lists, inverse, solve, text
from ox.graph.size_rules import SizeRange, SizeRules, range_around

CONDITIONS: dict[str, tuple[int, Callable[[int], Any], str]] = {
    "above": (20, lambda n: n > 16, "17.."),
    "below": (20, lambda n: n < 9000, "1..8999"),
    "between": (20, lambda n: 3 <= n <= 40, "3..40"),
    "a multiple": (64, lambda n: n % 32 == 0, "32.. in steps of 32"),
    "a multiple, limited": (64, lambda n: n % 32 == 0 and n < 20_000, "32..19968 in steps of 32"),
    "odd": (7, lambda n: n % 2, "1.. in steps of 2"),
    "but one": (20, lambda n: n != 6, "7.."),
    "one": (20, lambda n: n == 20, "20"),
    "all": (20, lambda n: True, "1.."),
    "multiples of 4, or one more": (20, lambda n: n % 4 in (0, 1), "4.. in steps of 4"),
}


@rows("name", CONDITIONS)
def test_the_largest_range_around_a_size(name: str) -> None:
    size, holds, shown = CONDITIONS[name]
    found = range_around(size, holds)
    assert str(found) == shown and size in found
    assert all(holds(n) for n in range(1, 5000) if n in found)
    assert SizeRange.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found.open is (shown == "1..")


def test_the_nearest_size() -> None:
    found = SizeRange(40, 200, 32)
    assert [found.nearest(n) for n in (1, 64, 79, 80, 300)] == [64, 64, 64, 96, 192]
    assert SizeRange(33, 40, 32).nearest(36) is None


def test_rules_say_what_is_broken_and_survive_json() -> None:
    rules = SizeRules(
        {"seq": SizeRange(17)}, ((">", ("//", ("+", "h", 1), 2), ("%", "w", 8)), ("==", "n + 1", ("+", "n", 1)))
    )
    assert str(rules) == "seq in 17.., (h + 1) // 2 > w % 8"
    again = SizeRules.from_json(json.loads(json.dumps(rules.to_json())))
    assert again == rules and again.names() == {"seq", "h", "w", "n", "n + 1"}
    assert again.broken({"seq": 17, "h": 9, "w": 4}) is None
    assert again.broken({"seq": 16}) == "seq in 17.."
    assert again.broken({"h": 3, "w": 4}) == "(h + 1) // 2 > w % 8"
    assert again.broken({"n": 3, "n + 1": 5}) == "n + 1 = 4" and again.broken({"n": 3, "n + 1": 4}) is None


@rows("value", [["+", 1], ["import", 1, 2], {"a": 1}, [["+", 1, 2]], None, True])
def test_no_expression(value: Any) -> None:
    with pytest.raises(ValueError, match="no expression of sizes"):
        from_lists(value)


@rows(
    "written", ["(n + 1) // 2", "n - (m - 1)", "n - m - 1", "2 * n + 1", "n // (m // 2)", "n % 4 == 0", "(n + m) ** 2"]
)
def test_an_expression_is_printed_as_python_reads_it(written: str) -> None:
    import ast

    signs = {"Add": "+", "Sub": "-", "Mult": "*", "FloorDiv": "//", "Mod": "%", "Pow": "**", "Eq": "=="}

    def tree(node: Any) -> Any:
        if isinstance(node, ast.BinOp):
            return (signs[type(node.op).__name__], tree(node.left), tree(node.right))
        if isinstance(node, ast.Compare):
            return (signs[type(node.ops[0]).__name__], tree(node.left), tree(node.comparators[0]))
        return node.id if isinstance(node, ast.Name) else node.value

    expression = tree(ast.parse(written, mode="eval").body)
    assert text(expression) == written
    sizes = {"n": 13, "m": 6}
    assert evaluate(expression, sizes) == eval(written, {}, dict(sizes))


@rows("written", ["n", "n + 3", "n - 3", "2 * n", "3 * n + 1", "n // 2", "(n + 1) // 3", "2 * (n - 1) // 3", "40 - n"])
def test_the_sizes_that_one_can_be(written: str) -> None:
    expression = EXPRESSIONS[written]
    for value in range(30):
        expected = [n for n in range(200) if evaluate(expression, {"n": n}) == value]
        found = solve(expression, "n", value, value, {})
        assert found is not None and [n for n in range(found[0], found[1] + 1) if n >= 0] == expected
        back = inverse(expression, "n", value)
        if len(expected) == 1 and "//" not in written and "40" not in written:
            assert evaluate(back, {}) == expected[0]


EXPRESSIONS = {
    "n": "n",
    "n + 3": ("+", "n", 3),
    "n - 3": ("-", "n", 3),
    "2 * n": ("*", 2, "n"),
    "3 * n + 1": ("+", ("*", 3, "n"), 1),
    "n // 2": ("//", "n", 2),
    "(n + 1) // 3": ("//", ("+", "n", 1), 3),
    "2 * (n - 1) // 3": ("//", ("*", 2, ("-", "n", 1)), 3),
    "40 - n": ("-", 40, "n"),
}


def test_what_cannot_be_told_of_a_size() -> None:
    twice = ("+", "n", ("*", 2, "n"))
    assert solve(twice, "n", 9, 9, {}) is None and inverse(twice, "n", 9) is None
    assert inverse(("//", "n", 2), "n", 9) is None
    rules = SizeRules({}, (("==", "n + 2 * n", twice),))
    assert rules.broken({"n + 2 * n": 8}) is None  # it is not refused where nothing is known
    assert rules.broken({"n + 2 * n": 8, "n": 3}) == "n + 2 * n = 9"


def test_two_sizes_that_follow_from_one() -> None:
    named = (("==", "n // 2", ("//", "n", 2)), ("==", "n // 3", ("//", "n", 3)))
    rules = SizeRules({"n": SizeRange(3, 9, 3)}, named)
    assert rules.broken({"n // 2": 4, "n // 3": 3}) is None  # 9, and not 8
    assert rules.broken({"n // 2": 4, "n // 3": 2}) == "n // 2 and n // 3, for n in 3..9 in steps of 3"
    assert rules.broken({"n // 2": 0, "n // 3": 0}) is not None


def test_a_range_in_large_steps() -> None:
    assert str(range_around(1024, lambda n: n % 512 == 0, [512])) == "512.. in steps of 512"
    assert str(range_around(4, lambda n: n < 9, lowest=0)) == "0..8"
    assert SizeRules().broken({"n": 0}) == "n in 1.." and SizeRules({"n": SizeRange(0)}).broken({"n": 0}) is None
