"""Arrays that are lent: read-only for NumPy, and copied for their readers when a tensor writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn
from ox.core import copy_on_write
from ox.core.copy_on_write import CopyOnWrite


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_on_write, "SMALLEST", 1)


def add(x: Any) -> None:
    x.add_(1)


def set_item(x: Any) -> None:
    x[1] = 7


def through_a_view(x: Any) -> None:
    view = x[0]
    view.mul_(3)


def through_a_view_from_before_a_write(x: Any) -> None:
    view = x.T
    x.add_(1)
    view[0] = 5


@pytest.mark.parametrize("make", [lambda: ox.ones(3, 4), lambda: ox.randn(12).reshape(3, 4), lambda: ox.randn(3, 4)])
@pytest.mark.parametrize("write", [add, set_item, through_a_view, through_a_view_from_before_a_write])
def test_a_write_leaves_readers_what_was(make: Callable[[], Any], write: Callable[[Any], None]) -> None:
    x = nn.Buffer(make())
    before, expected = x.tolist(), nn.Buffer(x.clone())
    write(expected)
    read = x.array
    replaced: list[Any] = []
    with CopyOnWrite([x], {id(read): 1}) as lender:
        lender.readers.append(lambda array, copy: replaced.append((array is read, copy.tolist())))
        assert lender.lends(read)
        write(x)
        assert replaced == [(True, before)] and not lender.lends(read)
        assert x.array is read and x.tolist() == expected.tolist()
        lender.restore()
        assert x.tolist() == before and lender.lends(read)
    x.add_(1)  # an ordinary tensor again
    assert x.array is read and len(replaced) == 1


def test_numpy_cannot_write_it() -> None:
    x = ox.ones(3)
    array = x.numpy()
    del array  # what refers to it besides is not lent
    with CopyOnWrite([x], {}), pytest.raises(ValueError, match="read-only"):
        x.array[0] = 2
    x.array[0] = 2
    assert x[0] == 2


def test_what_something_else_refers_to_is_not_lent() -> None:
    x, y, z = ox.ones(3, 3), ox.ones(3, 3), ox.ones(3, 3)
    kept = [x.T, y.numpy()[0], z.detach()]
    with CopyOnWrite([x, y, z], {}) as lender:
        assert not any(lender.lends(t.array) for t in (x, y, z))
    assert len(kept) == 3


def test_references_of_those_who_never_write_may_be_told() -> None:
    x = ox.ones(3)
    kept = x.array
    with CopyOnWrite([x], {}) as lender:
        assert not lender.lends(kept)
    with CopyOnWrite([x], {id(kept): 1}) as lender:
        assert lender.lends(kept)


def test_a_view_that_code_keeps_is_of_the_same_memory_afterwards() -> None:
    x = ox.ones(3, 4)
    with CopyOnWrite([x], {}):
        row, wide = x[0], x[:, :1].expand(3, 2)
    row.add_(1)
    assert x[0].tolist() == [2, 2, 2, 2]
    assert not wide.array.flags.writeable


def test_an_array_that_is_read_only_anyway_is_left_alone() -> None:
    array = np.ones(3, np.float32)
    array.flags.writeable = False
    x = ox.from_numpy(array)
    with CopyOnWrite([x], {}) as lender:
        assert not lender.lends(array)
    assert not array.flags.writeable
