"""Products by cuBLAS equal NumPy's, for all the ways in which matrices lie."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.thread_handles import ThreadHandles
from ox.dtypes import bfloat16
from ox.errors import DTypeError, ShapeError

pytestmark = pytest.mark.gpu

SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)), ((2, 3, 4), (4,)), ((1, 1), (1, 1)), ((3, 1), (1, 5)), ((0, 4), (4, 5)),
    ((3, 0), (0, 5)), ((1, 4), (4, 5)), ((3, 4), (4, 1)),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(shapes: tuple[tuple[int, ...], tuple[int, ...]], kind: str) -> None:
    from ox.devices.gpu.cublas import Cublas

    xp, rng = cupy(), np.random.default_rng(0)
    dtype = bfloat16 if kind == "bfloat16" else np.dtype(kind)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in shapes)
    made = Cublas().matmul(xp.asarray(a), xp.asarray(b))
    wanted = np.matmul(a.astype(np.float32), b.astype(np.float32))
    assert made.dtype == dtype and made.shape == wanted.shape
    assert np.array_equal(made.get().astype(np.float32), wanted)


@pytest.mark.parametrize("turned", ["a", "b", "both", "parts", "broadcast", "reversed", "reversed batch"])
def test_strides(turned: str) -> None:
    from ox.devices.gpu.cublas import Cublas

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


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("turn_b", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_product_that_is_repeated(rows: int, turn_b: bool, kind: str) -> None:
    from ox.devices.gpu.cublas import Cublas

    xp, rng = cupy(), np.random.default_rng(0)
    dtype = bfloat16 if kind == "bfloat16" else np.dtype(kind)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((2, rows, 4), (5, 4) if turn_b else (4, 5)))
    x, y, out = xp.asarray(a), xp.asarray(b), xp.empty((rows, 5), dtype)
    wanted = a.astype(np.float64) @ (b.astype(np.float64).T if turn_b else b.astype(np.float64))
    replace = Cublas().repeated(x[0], y, out, turn_b)
    for i in (1, 0):
        replace(x[i].data.ptr)
        assert np.array_equal(out.get().astype(np.float64), wanted[i])
    Cublas().repeated(x[0], y, out, turn_b, added=True)(x[1].data.ptr)
    assert np.array_equal(out.get().astype(np.float64), wanted.sum(0))


def test_a_repeated_product_of_arrays_with_gaps_is_refused() -> None:
    from ox.devices.gpu.cublas import Cublas

    xp = cupy()
    a, b, out = xp.ones((3, 4), np.float32), xp.ones((4, 5), np.float32), xp.empty((3, 5), np.float32)
    gaps, other_gaps = xp.empty((3, 10), np.float32)[:, ::2], xp.ones((3, 8), np.float32)[:, ::2]
    for wrong in ((a, b, out[:2]), (a, b, gaps), (other_gaps, b, out)):
        with pytest.raises(ShapeError, match="in place"):
            Cublas().repeated(*wrong)
    with pytest.raises(DTypeError, match="float32 and float32 and float64"):
        Cublas().repeated(a, b, xp.empty((3, 5)))


LAYOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "as it is": lambda xp, x: x,
    "turned": lambda xp, x: xp.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "every second": lambda xp, x: xp.repeat(x, 2, axis=-1)[..., ::2],
    "reversed": lambda xp, x: xp.ascontiguousarray(x[..., ::-1])[..., ::-1],
    "one row": lambda xp, x: xp.broadcast_to(x[..., :1, :], x.shape),
}


@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("turn", [(False, False), (True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize(
    "leads", [((), ()), ((2,), ()), ((2,), (2,)), ((2, 1), (3,)), ((1,), (1, 1)), ((0,), ())], ids=str
)
def test_factors_that_are_turned(leads: Any, turn: tuple[bool, bool], kind: str) -> None:
    from ox.devices.gpu.cublas import Cublas

    xp, rng, handle = cupy(), np.random.default_rng(0), Cublas()
    dtype = bfloat16 if kind == "bfloat16" else np.dtype(kind)
    shapes = [
        (*lead, *(side[::-1] if t else side)) for lead, side, t in zip(leads, ((3, 4), (4, 5)), turn, strict=True)
    ]
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in shapes)
    bias = rng.integers(-3, 4, 5).astype(dtype)
    for of_a in LAYOUTS.values():
        for of_b in LAYOUTS.values():
            x, y = of_a(xp, xp.asarray(a)), of_b(xp, xp.asarray(b))
            left, right = (e.get().astype(np.float64) for e in (x, y))
            left, right = (e.swapaxes(-1, -2) if t else e for e, t in zip((left, right), turn, strict=True))
            for added in (None, xp.asarray(bias), xp.asarray(np.repeat(bias, 2))[::2], xp.asarray(bias[:1])):
                made = handle.matmul(x, y, alpha=0.5, added=added, turn_a=turn[0], turn_b=turn[1])
                wanted = 0.5 * left @ right + (0 if added is None else added.get().astype(np.float64))
                assert made.dtype == dtype and np.array_equal(made.get(), wanted.astype(dtype)), (of_a, of_b, added)


def test_rows_of_a_stack_are_one_product() -> None:
    """Also where an axis of one has other strides than those of a new array."""
    from ox.devices.gpu.cublas import Cublas

    xp, handle, batches = cupy(), Cublas(), list[int]()
    multiply = handle._multiply
    handle._multiply = lambda *a: (batches.append(a[-3]), multiply(*a))[1]
    rng, w = np.random.default_rng(0), np.random.default_rng(1).integers(-3, 4, (4, 5)).astype(np.float32)
    x = rng.integers(-3, 4, (6, 4)).astype(np.float32)
    for shape in ((2, 3, 4), (6, 1, 4), (1, 6, 4), (3, 2, 1, 4)):
        assert np.array_equal(handle.matmul(xp.asarray(x).reshape(shape), xp.asarray(w)).get(), x.reshape(shape) @ w)
    turned = xp.asarray(x).reshape(1, 6, 4).swapaxes(0, 1)
    assert np.array_equal(handle.matmul(turned, xp.asarray(w)).get(), x.reshape(6, 1, 4) @ w)
    assert batches == [1] * 5


def test_sizes_that_cublas_has_no_numbers_for() -> None:
    from ox.devices.gpu.cublas import Cublas

    one = cupy().zeros(1, np.float32)
    for shape in ((1, 2**31), (2**31, 1)):
        with pytest.raises(ShapeError, match="2147483648"):
            Cublas().matmul(cupy().broadcast_to(one, shape), cupy().broadcast_to(one, shape[::-1]))
    with pytest.raises(ShapeError, match=r"\[3, 4\] by \[3, 4\]"):
        Cublas().matmul(cupy().zeros((3, 4), np.float32), cupy().zeros((3, 4), np.float32))


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), bfloat16], ids=str)
def test_sums_of_halves_are_rounded_once(dtype: Any) -> None:
    """By default cuBLAS may split a long product and add the parts as halves."""
    from ox.devices.gpu.cublas import Cublas

    xp, rng = cupy(), np.random.default_rng(0)
    a, b = (rng.random(shape).astype(dtype) for shape in ((16, 65536), (65536, 16)))
    made = Cublas().matmul(xp.asarray(a), xp.asarray(b)).get()
    exact = a.astype(np.float64) @ b.astype(np.float64)
    spacing = 2.0 ** (np.floor(np.log2(exact)) - (10 if dtype == np.float16 else 7))
    assert (np.abs(made.astype(np.float64) - exact) <= 0.5 * spacing + exact * 2.0**-14).all()  # float32's own error


def test_other_types() -> None:
    from ox.devices.gpu.cublas import Cublas

    x = cupy().ones((2, 2), np.int64)
    with pytest.raises(DTypeError, match="int64"):
        Cublas().matmul(x, x)


def test_streams_do_not_share_what_cublas_works_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from ox.devices.gpu import cublas

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


def stream_of(handle: Any) -> int:
    """What cuBLAS says that a handle's products run on."""
    found = ctypes.c_void_p()
    handle._do("cublasGetStream_v2", handle._handle, ctypes.byref(found))
    return found.value or 0


def multiplied_on(handle: Any, stream: Any) -> list[str]:
    """Check that a product runs on a stream; what the handle was set to before."""
    xp, calls, seen = cupy(), list[str](), list[int]()
    x = xp.ones((3, 3), np.float32)
    do, multiply = handle._do, handle._multiply
    with pytest.MonkeyPatch.context() as patch, stream:
        patch.setattr(handle, "_do", lambda name, *a: (calls.append(name), do(name, *a))[1])
        patch.setattr(handle, "_multiply", lambda *a: (seen.append(stream_of(handle)), multiply(*a))[1])
        assert (handle.matmul(x, x).get() == 3).all()
    assert seen == [stream.ptr]
    return [name for name in calls if name != "cublasGetStream_v2"]


CHANGE = ["cublasSetStream_v2", "cublasSetWorkspace_v2"]


def test_the_stream_is_set_when_it_changes() -> None:
    from ox.devices.gpu.cublas import Cublas

    xp, handle = cupy(), Cublas()
    one, two = (xp.cuda.Stream(non_blocking=True) for _ in range(2))
    found = [multiplied_on(handle, stream) for stream in (one, one, two, two, one, xp.cuda.Stream.null)]
    assert found == [CHANGE, [], CHANGE, [], CHANGE, CHANGE]
    address = one.ptr
    del one  # the handle kept it only while it was the last one
    for _ in range(20):
        new = xp.cuda.Stream(non_blocking=True)
        assert multiplied_on(handle, new) == CHANGE
        if new.ptr == address:
            break
    # a call that failed in between is made up for
    handle._run_on(two)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(handle, "_workspace", raising(MemoryError))
        multiplied_on(handle, new)
    assert multiplied_on(handle, two) == CHANGE


def raising(error: type[Exception]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        raise error

    return run


def test_threads_have_streams_of_their_own() -> None:
    """Their products alternate; each runs on the stream of its thread."""
    from ox.devices.gpu import cublas

    xp, turns, errors = cupy(), threading.Barrier(2, timeout=60), list[Exception]()
    handles = set[int]()

    def work() -> None:
        try:
            stream, handle = xp.cuda.Stream(non_blocking=True), cublas.cublas(xp)
            handles.add(id(handle))
            found = []
            for _ in range(3):
                turns.wait()
                found.append(multiplied_on(cublas.cublas(xp), stream))
            assert found == [CHANGE, [], []]
        except Exception as error:
            errors.append(error)
            turns.abort()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and len(handles) == 2


def test_a_handle_that_a_thread_takes_over_runs_on_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    from ox.devices.gpu import cublas

    xp, errors = cupy(), list[Exception]()
    monkeypatch.setattr(cublas, "_handles", ThreadHandles(cublas.Cublas))
    handles = set[int]()

    def work() -> None:
        try:
            handle = cublas.cublas(xp)
            handles.add(id(handle))
            assert multiplied_on(handle, xp.cuda.Stream(non_blocking=True)) == CHANGE
        except Exception as error:
            errors.append(error)

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
    assert not errors and len(handles) == 1


def test_a_capture_on_a_stream_that_had_products() -> None:
    from ox.devices.gpu.cublas import Cublas

    xp, handle = cupy(), Cublas()
    x, out = xp.zeros((3, 4), np.float32), xp.empty((3, 3), np.float32)
    with xp.cuda.Stream(non_blocking=True) as stream:
        handle.matmul(x, x, out=out, turn_b=True)
        pool = xp.cuda.MemoryPool()
        with xp.cuda.using_allocator(pool.malloc):
            stream.begin_capture()
            handle.matmul(x, x, out=out, turn_b=True)
            handle.matmul(x, x[:, ::-1], out=out, turn_b=True, alpha=2.0, added=out[0])
            graph = stream.end_capture()
    numbers = np.arange(12, dtype=np.float32).reshape(3, 4)
    x[...] = xp.asarray(numbers)
    graph.launch(stream)
    stream.synchronize()
    first = numbers @ numbers.T
    assert np.array_equal(out.get(), 2 * numbers @ numbers[:, ::-1].T + first[0])


def test_threads_take_the_handles_of_those_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from ox.devices.gpu import cublas

    xp = cupy()
    monkeypatch.setattr(cublas, "_handles", ThreadHandles(cublas.Cublas))
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
    from ox.devices.gpu import cublas

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
