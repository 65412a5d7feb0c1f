"""Reachability while numbers are merged, against a search in the graph."""

from __future__ import annotations

import random

import pytest

from ox.engines.native.order import Order


def reaches(edges: set[tuple[int, int]], start: int, end: int) -> bool:
    seen, waiting = set(), [start]
    while waiting:
        i = waiting.pop()
        for a, b in edges:
            if a == i and b not in seen:
                seen.add(b)
                waiting.append(b)
    return end in seen


@pytest.mark.parametrize("seed", range(8))
def test_merges_keep_the_order(seed: int) -> None:
    dice = random.Random(seed)
    before = [{p for p in range(i) if dice.random() < 0.15} for i in range(20)]
    order = Order(before)
    for _ in range(40):
        a, b = dice.sample(range(20), 2)
        if order.find(a) != order.find(b) and order.can_merge(a, b):
            order.merge(a, b)
        edges = {(order.find(p), order.find(i)) for i, ps in enumerate(before) for p in ps}
        edges = {(p, i) for p, i in edges if p != i}
        whole = {order.find(i) for i in range(20)}
        assert not any(reaches(edges, i, i) for i in whole), "a circle"
        for one in whole:
            for other in whole - {one}:
                assert order.precedes(one, other) == reaches(edges, one, other)
        places = {i: place for place, i in enumerate(order.sequence())}
        assert places.keys() == whole and all(places[p] < places[i] for p, i in edges)


def test_what_lies_between_is_not_merged() -> None:
    order = Order([set(), {0}, {1}])
    assert order.can_merge(0, 1) and order.can_merge(1, 2) and not order.can_merge(0, 2)
    order.merge(0, 1)
    assert order.can_merge(0, 2)


def test_an_edge_is_added() -> None:
    order = Order([set(), set(), {1}])
    order.add(0, 1)
    assert order.precedes(0, 2) and not order.can_merge(0, 2)
