"""Indices and classes that are out of range on a GPU: the error comes with the next wait, or at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn
from ox.devices.gpu import device_checks
from ox.errors import BoundsError, OxError, ShapeError

F = nn.functional
pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No error is left for another test."""
    yield
    device_checks.raise_if_wrong()


def there(*numbers: Any, dtype: Any = np.int64) -> Any:
    return ox.tensor(np.array(numbers, dtype)).to("cuda")


def table() -> Any:
    return ox.arange(12, dtype=ox.float32).reshape(4, 3).to("cuda")


WRONG: list[tuple[str, Callable[[], Any], type[OxError], str]] = [
    ("embedding", lambda: F.embedding(there(0, 4), table()), BoundsError, "embedding index is out of range.*4"),
    ("embedding below", lambda: F.embedding(there(-1), table()), BoundsError, "embedding index.*-1"),
    ("gather", lambda: ox.ops.Gather(table(), there(0, 4, 1)), BoundsError, "index of Gather is out of range.*4"),
    ("gather int32", lambda: ox.ops.Gather(table(), there(-5, dtype=np.int32)), BoundsError, "Gather.*-5"),
    ("index_select", lambda: ox.index_select(table(), 1, there(3)), BoundsError, "Gather.*3"),
    ("gather elements", lambda: ox.gather(table(), 0, there([9, 0, 0])), BoundsError, "GatherElements.*9"),
    ("scatter", lambda: table().scatter(0, there([7, 0, 0]), table()), BoundsError, "ScatterElements.*7"),
    ("scatter_add", lambda: table().scatter_add(0, there([7, 0, 0]), table()), BoundsError, "ScatterElements.*7"),
    ("cross_entropy", lambda: F.cross_entropy(table(), there(0, 1, 2, 3)), ShapeError, "class out of range.*3"),
    ("smoothed", lambda: F.cross_entropy(table(), there(0, 1, 2, 3), label_smoothing=0.1), ShapeError, "class out.*3"),
    ("gather nd", lambda: ox.ops.GatherND(table(), there([0, 5])), BoundsError, "GatherND for axis 1.*-3 to 2.*5"),
    ("scatter nd", lambda: ox.ops.ScatterND(table(), there([9]), table()[:1]), BoundsError, "ScatterND.*9"),
    ("one_hot", lambda: F.one_hot(there(0, 5), 5), BoundsError, "one_hot's index.*0 to 4.*5"),
    ("margin", lambda: F.multi_margin_loss(table(), there(0, 1, 2, 3)), ShapeError, "multi_margin_loss met.*3"),
    ("nll_loss", lambda: F.nll_loss(table(), there(0, -2, 2, 1)), ShapeError, "nll_loss met.*-2"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "says"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_the_next_wait_raises(call: Callable[[], Any], error: type[OxError], says: str) -> None:
    made = call()
    with pytest.raises(error, match="(?s)" + says) as raised:
        made.sum().item()
    assert "CUDA_LAUNCH_BLOCKING" in str(raised.value)
    assert table().sum().item() == 66.0  # once


@pytest.mark.parametrize("wait", ["tolist", "cpu", "bool", "synchronize"])
def test_every_wait_looks(wait: str) -> None:
    made = ox.ops.Gather(table(), there(4))
    with pytest.raises(BoundsError, match="Gather"):
        if wait == "synchronize":
            ox.cuda.synchronize()
        elif wait == "bool":
            bool(made.sum() > 0)
        else:
            getattr(made, wait)()


@pytest.mark.parametrize(("call", "error", "says"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_at_once(call: Callable[[], Any], error: type[OxError], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_checks, "at_once", True)
    with pytest.raises(error, match="(?s)" + says) as raised:
        call()
    assert "test_device_checks.py" in str(raised.value) and "CUDA_LAUNCH_BLOCKING" not in str(raised.value)


def test_what_is_in_the_range_raises_nothing() -> None:
    F.embedding(there(0, 3), table()).sum().item()
    ox.ops.Gather(table(), there(-4, 3)).sum().item()
    assert np.isfinite(F.cross_entropy(table(), there(0, -100, 2, 1)).item())
    assert np.isfinite(F.nll_loss(table(), there(0, -100, 2, 1)).item())


def test_the_first_of_several_is_told() -> None:
    ox.ops.Gather(table(), there(11))
    ox.ops.Gather(table(), there(12))
    with pytest.raises(BoundsError, match=r"(?s)got.*11"):
        ox.cuda.synchronize()


COMPILED: list[tuple[str, Callable[[Any], Any], Any, Any, type[OxError], str]] = [
    ("embedding", lambda i: F.embedding(i, table()), (0, 3), (0, 4), BoundsError, "an embedding index.*0 to 3.*4"),
    ("embedding below", lambda i: F.embedding(i, table()), (0, 3), (0, -1), BoundsError, "an embedding index.*-1"),
    ("gather", lambda i: ox.ops.Gather(table(), i) * 2 + 1, (0, 3), (4, 0), BoundsError, "index of Gather.*4"),
    ("elements", lambda i: ox.gather(table(), 0, i[None]), (0, 1, 3), (0, 9, 0), BoundsError, "gather's index.*9"),
    ("scatter", lambda i: table().scatter(0, i[None], table()), (0, 1, 3), (0, 9, 0), BoundsError, "scatter's.*9"),
    ("nd", lambda i: ox.ops.GatherND(table(), i[None]), (3, 2), (3, 3), BoundsError, "GatherND for axis 1.*3"),
    ("one_hot", lambda i: F.one_hot(i, 5), (0, 4), (0, 5), BoundsError, "one_hot's index.*5"),
    ("cross_entropy", lambda i: F.cross_entropy(table(), i), (0, -100, 2, 1), (0, 3, 2, 1), ShapeError, "a class.*3"),
    ("nll_loss", lambda i: F.nll_loss(table(), i), (0, -100, 2, 1), (0, -2, 2, 1), ShapeError, "nll_loss met.*-2"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "good", "bad", "error", "says"), [case[1:] for case in COMPILED], ids=[case[0] for case in COMPILED]
)
def test_a_compiled_call(call: Any, good: Any, bad: Any, error: type[OxError], says: str) -> None:
    """The check is a part of the CUDA graph; the next wait raises its error, which names the line of the call."""
    compiled = ox.compile(lambda i: call(i))
    expected = call(there(*good)).cpu().numpy()
    for _ in range(3):
        assert np.array_equal(compiled(there(*good)).cpu().numpy(), expected)
    if "host_cuda" in sys.modules:
        assert "one CUDA graph" in str(compiled.explain())
    made = compiled(there(*bad))
    with pytest.raises(error, match="(?s)" + says) as raised:
        made.sum().item()
    assert "test_device_checks.py" in str(raised.value) and "CUDA_LAUNCH_BLOCKING" not in str(raised.value)
    assert np.array_equal(compiled(there(*good)).cpu().numpy(), expected)


def test_a_compiled_call_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = ox.compile(lambda i: F.embedding(i, table()))
    monkeypatch.setattr(device_checks, "at_once", True)
    for _ in range(3):
        compiled(there(0, 3))
    with pytest.raises(BoundsError, match=r"(?s)an embedding index.*got.*4"):
        compiled(there(0, 4))


def test_a_value_that_is_being_written_is_not_read() -> None:
    number = device_checks.check(BoundsError, "a test's value is wrong", 0, 3)
    there(0)  # so that there are checks at all
    record, _ = device_checks._record()
    record[1:] = 9, 1  # of another stream, whose kernel has not come further
    device_checks.raise_if_wrong()
    record[0] = number
    with pytest.raises(BoundsError, match=r"(?s)a test's value is wrong.*0 to 3.*9"):
        device_checks.raise_if_wrong()
    assert not record.any()
