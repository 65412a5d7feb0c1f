"""What of a task the host computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ox.dtypes import float32
from ox.engines.engine import Task
from ox.engines.native.cuda.halves import split
from ox.graph.ir import Graph, Node, Value


def value(name: str, *shape: int) -> Value:
    return Value(name, float32, shape, shape)


def node(op: str, *inputs: Value, to: Value, **attributes: Any) -> Node:
    return Node(op, "", [*inputs], [to], attributes)


def test_what_reads_nothing_of_the_device_is_for_the_host() -> None:
    x, rate, count = value("x", 3), value("rate"), value("count")
    one, next_, factor, y = value("one"), value("next"), value("factor"), value("y", 3)
    nodes = [node("Add", count, one, to=next_), node("Mul", rate, next_, to=factor), node("Mul", x, factor, to=y)]
    task = Task(Graph([x, rate, count], [y, next_], nodes, {one: np.ones((), np.float32)}), {next_: count})
    halves = split(task, {x})
    assert [n.op_type for n in halves.nodes] == ["Mul"] and halves.on_device == {x, y}
    assert halves.host.graph.nodes == nodes[:2]
    assert halves.host.graph.inputs == [rate, count] and halves.host.graph.outputs == [factor, next_]
    assert halves.host.updates == {next_: count} and halves.handed_on == [factor]


def test_a_value_that_is_an_output_and_read_by_the_device_is_given_once() -> None:
    x, count, one, next_, y = value("x", 3), value("count"), value("one"), value("next"), value("y", 3)
    nodes = [node("Add", count, one, to=next_), node("Mul", x, next_, to=y)]
    task = Task(Graph([x, count], [y, next_], nodes, {one: np.ones((), np.float32)}))
    halves = split(task, {x})
    assert halves.host.graph.outputs == [next_] and halves.handed_on == [next_]


def test_inputs_of_the_host_are_handed_on_as_they_are() -> None:
    x, factor, y = value("x", 3), value("factor"), value("y", 3)
    halves = split(Task(Graph([x, factor], [y], [node("Mul", x, factor, to=y)])), {x})
    assert halves.handed_on == [factor] and not halves.host.graph.nodes


@pytest.mark.parametrize("read_by", ["device", "host", "output"])
def test_random_numbers_that_the_device_reads_are_drawn_there(read_by: str) -> None:
    x, key, counter, shape = value("x", 3), value("key"), value("counter"), value("shape", 1)
    drawn, next_, factor, y = value("drawn", 3), value("next"), value("factor", 3), value("y", 3)
    draw = Node("RandomUniform", "ox", [key, counter, shape], [drawn, next_])
    double = node("Add", drawn, drawn, to=factor)
    nodes = [draw, double, node("Reshape" if read_by == "host" else "Mul", x, factor, to=y)]
    outputs = [y, next_, *([drawn] if read_by == "output" else [])]
    task = Task(Graph([x, key, counter], outputs, nodes, {shape: np.array([3])}), {next_: counter})
    halves = split(task, {x})
    if read_by == "device":
        assert [n.op_type for n in halves.nodes] == ["RandomUniform", "Add", "Mul"]
        assert halves.nodes[0].outputs == [drawn] and halves.handed_on == [key, counter]
        (advance,) = halves.host.graph.nodes
        assert advance.op_type == "Add" and advance.outputs == [next_]
        assert halves.host.graph.constants[advance.inputs[1]] == 1  # four numbers a block
        assert halves.host.updates == {next_: counter}
    else:
        assert halves.host.graph.nodes == nodes[:2] and halves.handed_on == [factor]
    on_device = split(replace(task, on_device={drawn: True}), {x})
    assert (on_device.host.graph.nodes == nodes[:2]) is (read_by == "host")
