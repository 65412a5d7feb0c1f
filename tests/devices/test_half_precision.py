"""float16 and bfloat16 on the CPU take the way of float32 and are rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.core.operator import OPS
from ox.devices import half_precision
from ox.devices.onnxruntime import node_session
from ox.dtypes import bfloat16, float16, float32

pytestmark = pytest.mark.usefixtures("without_kernels")

F = ox.nn.functional


def f(*shape: int) -> ox.Tensor:
    return ox.tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


CALLS: dict[str, Callable[[ox.Tensor], ox.Tensor]] = {
    "product": lambda x: x.reshape(500, 200) @ x.reshape(200, 500),
    "turned": lambda x: x.reshape(500, 200).T @ x.reshape(500, 200),
    "convolution": lambda x: F.conv2d(x[:32768].reshape(2, 16, 32, 32), x[:2304].reshape(16, 16, 3, 3)),
    "sum": lambda x: x + x,
    "gelu": F.gelu,
    "choice": lambda x: ox.where(x > 0, x, -x),
    "softmax": lambda x: F.softmax(x.reshape(100, 1000), -1),
    "norm": lambda x: F.layer_norm(x.reshape(100, 1000), (1000,)),
    "attention": lambda x: F.scaled_dot_product_attention(*[x[:65536].reshape(4, 4, 128, 32)] * 3),
}


@rows("dtype", [float16, bfloat16], ids=str)
@rows("name", CALLS)
def test_a_large_call_is_its_float32_call_rounded_once(name: str, dtype: Any) -> None:
    x = f(100_000).to(dtype)
    y = CALLS[name](x)
    assert y.dtype == dtype
    wide = CALLS[name](x.float()).array.astype(dtype)
    np.testing.assert_array_equal(y.array.view(np.uint16), wide.view(np.uint16))


def test_a_large_call_goes_to_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    call = node_session.call

    def watched(op: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        called.append((op.name, arrays[0].dtype))
        return call(op, arrays, attributes)

    monkeypatch.setattr(node_session, "call", watched)
    for dtype in (float16, bfloat16):
        OPS["Conv"](f(1, 4, 16, 16).to(dtype), f(4, 4, 3, 3).to(dtype))
    assert called == [("Conv", float32)] * 2


@pytest.mark.parametrize("turned", [False, True])
def test_conversions_are_numpys(turned: bool) -> None:
    x = np.random.default_rng(0).standard_normal((100, 200)).astype(np.float32)
    x[0, :4] = np.inf, np.nan, 1e6, -1e-9
    x = x.T if turned else x
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    half = half_precision.converted(x, float16)
    np.testing.assert_array_equal(half, expected)
    np.testing.assert_array_equal(half_precision.converted(half, float32), expected.astype(np.float32))
    assert half.flags.f_contiguous == turned


def test_statistics_of_another_type_stay_what_they_are() -> None:
    x = f(64, 8, 10, 10).to(bfloat16)
    one, zero = ox.ones(8), ox.zeros(8)
    y, mean, _ = OPS["BatchNormalization"](x, one, zero, zero, one, training_mode=1, momentum=0.0, outputs=3)
    assert (y.dtype, mean.dtype) == (bfloat16, float32)
    assert OPS["Equal"](f(400, 500).to(float16), f(400, 500).to(float16)).array.all()


def test_in_a_forked_child_nothing_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    add = OPS["Add"]
    x = f(400, 500).to(float16)
    add(x, x)
    plan: Any = add._plans[np.dtype(float16)]
    assert plan.worthwhile([x.array, x.array])
    monkeypatch.setattr(plan._inner, "worthwhile", lambda arrays: False)  # what the hook after a fork does
    assert not plan.worthwhile([x.array, x.array])
