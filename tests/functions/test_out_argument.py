"""`out=`: a result written into a tensor, or several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import rows

import ox

x = ox.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))


@rows(
    "call",
    [
        lambda **k: ox.add(x, x, alpha=2, **k),
        lambda **k: ox.exp(x, **k),
        lambda **k: ox.cumsum(x, 0, **k),
        lambda **k: ox.matmul(x, x.t(), **k),
        lambda **k: ox.cat([x, x], **k),
        lambda **k: ox.linalg.pinv(x, **k),
        lambda **k: ox.fft.rfft(x, **k),
        lambda **k: ox.special.expit(x, **k),
        lambda **k: ox.where(x > 1, x, -x, **k),
        lambda **k: ox.arange(4.0, **k),
        lambda **k: ox.zeros(2, 2, **k),
    ],
)
def test_the_result_is_in_out_whether_it_has_the_shape_or_no_elements(call: Any) -> None:
    expected = call()
    for given in (ox.full_like(expected, 7), ox.empty(0)):
        found = call(out=given)
        assert found is given
        np.testing.assert_array_equal(given.array, expected.array)


def test_several_results_go_into_a_tuple() -> None:
    values, indices = ox.empty(0), ox.empty(0, dtype=ox.int64)
    found = ox.max(x, 1, out=(values, indices))
    assert found.values is values
    assert found.indices is indices
    assert values.tolist() == [2, 5]
    assert indices.tolist() == [2, 2]


def test_out_is_written_in_place_and_seen_by_views() -> None:
    out = ox.zeros(2, 3)
    view = out[0]
    ox.mul(x, 2, out=out)
    assert view.tolist() == [0, 2, 4]
    ox.neg(out, out=out)
    assert view.tolist() == [0, -2, -4]


def test_a_wider_type_takes_the_result() -> None:
    out = ox.zeros(2, 3, dtype=ox.float64)
    assert ox.add(x, 1, out=out).dtype == ox.float64


def test_out_never_shares_memory_with_the_input() -> None:
    whole, out = ox.tensor([1, 2]), ox.empty(0, dtype=ox.int64)
    ox.nan_to_num(whole, out=out)  # which of whole numbers is the tensor itself
    out += 1
    assert whole.tolist() == [1, 2]
    assert out.tolist() == [2, 3]


@rows(
    ("call", "kind", "words"),
    [
        (lambda: ox.add(x, x, out=3), ox.errors.CallError, ("add", "int")),
        (lambda: ox.sort(x, out=x), ox.errors.CallError, ("sort", "2 tensors")),
        (lambda: ox.sort(x, out=(x,)), ox.errors.CallError, ("sort", "1 of them")),
        (lambda: ox.add(x, x, out=ox.zeros(3)), ox.errors.ShapeError, ("add", "[2, 3]", "[3]")),
        (lambda: ox.add(x, x, out=ox.zeros(2, 3, dtype=ox.int64)), ox.errors.DTypeError, ("float32", "int64")),
        (lambda: ox.sum(x, 0, out=ox.zeros(3, dtype=ox.bool)), ox.errors.DTypeError, ("sum", "bool")),
        (lambda: ox.exp(x.clone().requires_grad_(), out=ox.empty(0)), ox.errors.GradientError, ("exp", "no_grad")),
        (lambda: ox.exp(x, out=ox.zeros(2, 3).requires_grad_()), ox.errors.GradientError, ("exp", "gradient")),
    ],
)
def test_a_wrong_out_is_refused(call: Any, kind: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value
    assert "test_out_argument.py" in str(caught.value)


def test_out_is_recorded(tmp_path: Any) -> None:
    class Net(ox.nn.Module):
        def forward(self, a: Any) -> Any:
            total, fresh = a * 1, ox.empty(0)
            ox.add(total, 1, out=total)
            ox.exp(total, out=fresh)
            return total + fresh

    ox.export.save(Net(), tmp_path / "net.onnx", x)
    loaded = ox.export.load(tmp_path / "net.onnx")
    np.testing.assert_allclose(loaded(x + 1).array, Net()(x + 1).array, rtol=1e-6)
