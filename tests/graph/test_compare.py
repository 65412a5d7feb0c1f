"""Each way in which a size can leak makes two recordings differ, and the difference is found and described."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.graph.compare import find_fixed_reshape, find_leak
from ox.graph.record.recording import record


def at(function: Any, rows: int) -> Any:
    return record(function, {"x": ox.ones(rows, 4)}, dims={"x": ["batch", 4]})


def attribute(x: Any) -> Any:
    return ox.ops.Softmax(x, axis=int(x.shape[0]) - 2)


def other_outputs(x: Any) -> Any:
    return x if x.shape[0] == 2 else x.sum()


def other_inputs(x: Any) -> Any:
    y = x * 2
    return (x if x.shape[0] == 2 else y) + y


LEAKS: dict[str, tuple[Any, str, str]] = {
    "a constant": (lambda x: x * int(x.shape[0]), "a constant that Mul received", "2.0"),
    "an array": (lambda x: x.sum(0) * np.full(9, len(x.array), np.float32)[:4], "a constant that Mul received", "[2"),
    "a length": (lambda x: x * len(x), "a constant that Mul received", "2.0"),
    "an attribute": (attribute, "attribute axis of Softmax", "0"),
    "another operator": (lambda x: x.exp() if x.shape[0] == 2 else x.log(), "the code's path", "Exp"),
    "more operators": (lambda x: x * 2 if x.shape[0] == 2 else x * 2 + 1, "the code's path", "1 operators"),
    "fewer operators": (lambda x: x * 2 + 1 if x.shape[0] == 2 else x * 2, "the code's path", "2 operators"),
    "more inputs": (lambda x: ox.cat([x] * int(x.shape[0])), "the code's path", "Concat"),
    "other inputs": (other_inputs, "an input of Add", "x"),
    "a longer constant": (lambda x: x + ox.ones(int(x.shape[0]), 1), "a constant that Add received", "[[1.0], [1.0]]"),
}


@rows("name", LEAKS)
def test_leaks_are_found(name: str) -> None:
    function, what, first = LEAKS[name]
    leak = find_leak(at(function, 2), at(function, 3))
    assert leak is not None
    assert leak.what == what and leak.first.startswith(first)
    assert "test_compare.py" in leak.place


def test_an_output_of_another_rank() -> None:
    leak = find_leak(at(other_outputs, 2), at(other_outputs, 3))
    assert leak is not None


@pytest.mark.parametrize("literal", [lambda x: x.reshape(2, -1), lambda x: ox.zeros(1, 4).expand(2, 4) * x[0]])
def test_literals_are_found_where_the_size_was(literal: Any) -> None:
    a, b = at(literal, 2), at(literal, 3)
    assert find_leak(a, b) is None, "the two graphs are the same"
    fixed = find_fixed_reshape(a, b)
    if fixed is not None:
        assert fixed.first == fixed.second == "2"
    else:
        assert a.nodes[0].op_type == "Expand", "a constant that is expanded never had the batch's size"


@rows(
    "fine",
    [
        lambda x: x.reshape(-1, 2),
        lambda x: x.transpose(0, 1).reshape(2, -1),
        lambda x: x.reshape(x.shape[0], 2, 2),
        lambda x: x.flatten(1) * x.shape[0],
        lambda x: x[:2],
    ],
)
def test_what_is_no_leak(fine: Any) -> None:
    a, b = at(fine, 2), at(fine, 3)
    assert find_leak(a, b) is None and find_fixed_reshape(a, b) is None
