"""What CuPy does unlike NumPy, and ox has to know. The stand-ins for a device do the same."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ox.devices.gpu.cupy_device import cupy

pytestmark = pytest.mark.gpu

REFUSED = {
    "x + host": TypeError,
    "host + x": TypeError,
    "xp.add(x, host)": TypeError,
    "np.add(x, host)": TypeError,
    "xp.where(x > 0, host, x)": TypeError,
    "xp.concatenate([x, host])": TypeError,
    "xp.matmul(square, host.reshape(2, 2))": TypeError,
    "xp.exp(x, out=host)": TypeError,
    "np.asarray(x)": TypeError,
    "x.__setitem__(slice(None), host)": ValueError,
    "xp.add(x, x, where=x > 0)": TypeError,
    "x.max(initial=0)": TypeError,
    "xp.linalg.svd(square, hermitian=True)": TypeError,
    "xp.multiply.at(x, index, x)": NotImplementedError,
    "xp.maximum.reduce(x)": NotImplementedError,
    "xp.vecdot": AttributeError,
    "x.setflags": AttributeError,
    "xp.sort(halves)": NotImplementedError,
    "xp.linalg.inv(square.astype('e'))": TypeError,
    "xp.asarray(np.array(['a']))": ValueError,
}
TYPES = {
    "xp.where(halves > 0, halves, halves)": np.float32,
    "(x * 2.0)": np.float32,
    "(x * np.float64(2))": np.float64,
    "xp.fft.fft(x)": np.complex64,
    "np.exp(x)": np.float32,
    "(halves + halves)": ml_dtypes.bfloat16,
    "x[[0, 1]]": np.float32,
    "xp.argsort(x)": np.int64,
    "x[0]": np.float32,
    "(x > 0)": np.bool_,
}


def value(line: str) -> Any:
    xp = cupy()
    host = np.arange(4, dtype=np.float32)
    x = xp.asarray(host)
    names = {"xp": xp, "np": np, "host": host, "x": x, "square": x.reshape(2, 2) + xp.eye(2, dtype="f")}
    return eval(line, names | {"halves": x.astype(ml_dtypes.bfloat16), "index": xp.asarray([0, 1, 2, 2])})


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_refused(line: str) -> None:
    with pytest.raises(REFUSED[line]):
        value(line)


@pytest.mark.parametrize("line", TYPES)
def test_types(line: str) -> None:
    made = value(line)
    assert isinstance(made, cupy().ndarray) and made.dtype == np.dtype(TYPES[line])


def test_indices_outside_of_an_axis_wrap() -> None:
    assert value("xp.take(x, xp.asarray([4, -5]))").tolist() == [0, 3]
    assert value("x[xp.asarray([4, -5])]").tolist() == [0, 3]


def test_the_base_of_a_view_is_the_array_that_owns_the_memory() -> None:
    owner = value("x + 0")
    assert owner.base is None and owner[1:].base is owner and owner.reshape(2, 2)[0].base is owner
