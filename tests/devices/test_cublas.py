"""Products by cuBLAS equal NumPy's, for all the ways in which matrices lie."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from ox.devices.cuda import cupy
from ox.dtypes import bfloat16
from ox.errors import DTypeError

pytestmark = pytest.mark.gpu

SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)), ((2, 3, 4), (4,)), ((1, 1), (1, 1)), ((3, 1), (1, 5)), ((0, 4), (4, 5)),
    ((3, 0), (0, 5)), ((1, 4), (4, 5)), ((3, 4), (4, 1)),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(shapes: tuple[tuple[int, ...], tuple[int, ...]], kind: str) -> None:
    from ox.devices.cublas import Cublas

    xp, rng = cupy(), np.random.default_rng(0)
    dtype = bfloat16 if kind == "bfloat16" else np.dtype(kind)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in shapes)
    made = Cublas().matmul(xp.asarray(a), xp.asarray(b))
    wanted = np.matmul(a.astype(np.float32), b.astype(np.float32))
    assert made.dtype == dtype and made.shape == wanted.shape
    assert np.array_equal(made.get().astype(np.float32), wanted)


@pytest.mark.parametrize("turned", ["a", "b", "both", "parts", "broadcast", "reversed", "reversed batch"])
def test_strides(turned: str) -> None:
    from ox.devices.cublas import Cublas

    xp, rng = cupy(), np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((2, 3, 4), (2, 4, 5)))
    x, y = xp.asarray(a), xp.asarray(b)
    if turned in ("a", "both"):
        x, a = x.transpose(0, 2, 1)[:, :, ::1], a.transpose(0, 2, 1)
        x, a = x.transpose(0, 2, 1), a.transpose(0, 2, 1)
        x = xp.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)
    if turned in ("b", "both"):
        y = xp.ascontiguousarray(y.transpose(0, 2, 1)).transpose(0, 2, 1)
    if turned == "parts":
        wide, deep = xp.zeros((2, 3, 9), np.float32), xp.zeros((2, 8, 5), np.float32)
        wide[:, :, 1:5], deep[:, ::2] = x, y
        x, y = wide[:, :, 1:5], deep[:, ::2]
    if turned == "broadcast":
        x, a = xp.broadcast_to(x[:1], x.shape), np.broadcast_to(a[:1], a.shape)
    if turned == "reversed":
        x, a = x[:, ::-1], a[:, ::-1]
    if turned == "reversed batch":
        x, a = x[::-1], a[::-1]
    out = xp.empty((2, 3, 5), np.float32)
    made = Cublas().matmul(x, y, out=out)
    assert made is out and np.array_equal(out.get(), np.matmul(a, b))


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), bfloat16], ids=str)
def test_sums_of_halves_are_rounded_once(dtype: Any) -> None:
    """By default cuBLAS may split a long product and add the parts as halves."""
    from ox.devices.cublas import Cublas

    xp, rng = cupy(), np.random.default_rng(0)
    a, b = (rng.random(shape).astype(dtype) for shape in ((16, 65536), (65536, 16)))
    made = Cublas().matmul(xp.asarray(a), xp.asarray(b)).get()
    exact = a.astype(np.float64) @ b.astype(np.float64)
    spacing = 2.0 ** (np.floor(np.log2(exact)) - (10 if dtype == np.float16 else 7))
    assert (np.abs(made.astype(np.float64) - exact) <= 0.5 * spacing + exact * 2.0**-14).all()  # float32's own error


def test_other_types() -> None:
    from ox.devices.cublas import Cublas

    x = cupy().ones((2, 2), np.int64)
    with pytest.raises(DTypeError, match="int64"):
        Cublas().matmul(x, x)


def test_streams_do_not_share_what_cublas_works_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from ox.devices import cublas

    xp, handle = cupy(), cublas.Cublas()
    x = xp.ones((3, 3), np.float32)
    real, given = handle._do, list[int]()

    def do(name: str, *arguments: Any) -> None:
        if name == "cublasSetWorkspace_v2":
            given.append(arguments[1].value)
        real(name, *arguments)

    monkeypatch.setattr(handle, "_do", do)
    streams = [xp.cuda.Stream(non_blocking=True) for _ in range(2)]
    for stream in (*streams, *streams):
        with stream:
            handle.matmul(x, x)
    one, two = given[:2]
    assert given == [one, two, one, two] and abs(one - two) >= cublas.WORKSPACE
    for stream in [xp.cuda.Stream(non_blocking=True) for _ in range(2 * cublas.MOST_STREAMS)]:
        with stream:
            handle.matmul(x, x)
    assert len(handle._workspaces) == cublas.MOST_STREAMS


def test_threads_take_the_handles_of_those_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from ox.devices import cublas

    xp = cupy()
    monkeypatch.setattr(cublas, "_left", {})
    handles = list[Any]()

    def work() -> None:
        handles.append(cublas.cublas(xp))

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
    assert len(handles) == 3 and handles[1] is handles[0] and handles[2] is handles[0]


def test_graphs_keep_what_cublas_works_in() -> None:
    """A captured product works at its address whenever the graph is launched."""
    from ox.devices import cublas

    xp, handle = cupy(), cublas.Cublas()
    x, captured = xp.ones((3, 3), np.float32), xp.cuda.Stream(non_blocking=True)
    out = xp.empty((3, 3), np.float32)
    with captured:
        captured.begin_capture()
        handle.matmul(x, x)
        captured.end_capture()
    found = dict(handle._of_graphs)
    assert list(found) == [captured.ptr]
    for stream in [xp.cuda.Stream(non_blocking=True) for _ in range(2 * cublas.MOST_STREAMS)]:
        with stream:
            handle.matmul(x, x, out=out)
    assert handle._of_graphs[captured.ptr] is found[captured.ptr]
