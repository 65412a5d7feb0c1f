"""Every reduction rounds little whatever its length, axis, layout and type, by every executor.

The data lie around 1000 (for products around 1), so that adding one number after the other in float32 would lose what
is asked for here. References are float64, of the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import devices
from ox.dtypes import DType, bfloat16, float16, float32, float64

Array = np.ndarray[Any, Any]
Axes = tuple[int, ...]
LONG = 10_007  # a prime number
# a result of these types is rounded once: half a unit in the last place
TOLERANCE: dict[DType, float] = {float32: 1e-6, float64: 1e-11, float16: 5e-4, bfloat16: 4e-3}
R = np.random.default_rng(5)


# what is computed, the reference, and whether the data lie around 1
OVER_AXES: dict[str, tuple[Callable[[Any, Axes], Any], Callable[[Array, Axes], Array], bool]] = {
    "sum": (lambda x, d: x.sum(d), lambda x, d: x.sum(d), False),
    "mean": (lambda x, d: x.mean(d), lambda x, d: x.mean(d), False),
    "nansum": (lambda x, d: ox.nansum(x, d), lambda x, d: x.sum(d), False),
    "nanmean": (lambda x, d: ox.nanmean(x, d), lambda x, d: x.mean(d), False),
    "var": (lambda x, d: x.var(d), lambda x, d: x.var(d, ddof=1), False),
    "std": (lambda x, d: x.std(d), lambda x, d: x.std(d, ddof=1), False),
    "std_mean": (lambda x, d: ox.std_mean(x, d)[1], lambda x, d: x.mean(d), False),
    "prod": (lambda x, d: x.prod(d), lambda x, d: x.prod(d), True),
    "norm 1": (lambda x, d: x.norm(1, d), lambda x, d: np.abs(x).sum(d), False),
    "norm 2": (lambda x, d: x.norm(2, d), lambda x, d: np.sqrt((x * x).sum(d)), True),
    "norm 3": (lambda x, d: x.norm(3, d), lambda x, d: (np.abs(x) ** 3).sum(d) ** (1 / 3), True),
    "ReduceSumSquare": (
        lambda x, d: ox.ops.ReduceSumSquare(x, ox.tensor(d), keepdims=0), lambda x, d: (x * x).sum(d), True,
    ),
    "ReduceLogSum": (
        lambda x, d: ox.ops.ReduceLogSum(x, ox.tensor(d), keepdims=0), lambda x, d: np.log(x.sum(d)), False,
    ),
    "logsumexp": (lambda x, d: x.logsumexp(d), lambda x, d: np.log(np.exp(x).sum(d)), True),
    "sum of a cast": (lambda x, d: x.sum(d, dtype=float64), lambda x, d: x.sum(d), False),
}  # fmt: skip

ALONG_AN_AXIS: dict[str, tuple[Callable[[Any, int], Any], Callable[[Array, int], Array], bool]] = {
    "cumsum": (lambda x, d: x.cumsum(d), lambda x, d: x.cumsum(d), False),
    "cumprod": (lambda x, d: x.cumprod(d), lambda x, d: x.cumprod(d), True),
    "logcumsumexp": (
        lambda x, d: x.logcumsumexp(d), lambda x, d: np.logaddexp.accumulate(x, d), True,
    ),
    "log_softmax": (
        lambda x, d: x.log_softmax(d), lambda x, d: x - np.log(np.exp(x).sum(d, keepdims=True)), True,
    ),
}  # fmt: skip

AXES: list[Axes] = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
EQUAL = ("broadcast", "constant")  # layouts of equal numbers, which have no variance


def layouts(long: int, near_1: bool, dtype: DType) -> Iterator[tuple[str, Array]]:
    """Arrays of three dimensions in every order of memory, and views of larger ones, each long in one dimension."""

    def data(*shape: int) -> Array:
        noise = R.standard_normal(shape, dtype=float32)
        return (1 + 1e-4 * noise if near_1 else 1000 + noise).astype(dtype)

    for shape in ([long, 2, 3], [2, long, 3], [3, 2, long]):
        yield f"contiguous {shape}", data(*shape)
        yield f"transposed {shape}", data(*shape[::-1]).transpose(2, 1, 0)
        yield f"exchanged {shape}", data(shape[1], shape[0], shape[2]).swapaxes(0, 1)
        yield f"negative steps {shape}", data(*shape)[::-1, :, ::-1]
        yield f"every second {shape}", data(*[2 * n for n in shape])[::2, ::2, ::2]
        yield f"part of the last {shape}", data(*shape[:2], shape[2] + 3)[..., 1:-2]
    yield "broadcast first", np.broadcast_to(data(2, 3), (long, 2, 3))
    yield "broadcast last", np.broadcast_to(data(long, 2, 1), (long, 2, 3))
    yield "constant", np.full((long, 2, 3), 1.0001 if near_1 else 1000.1, dtype)


def check(case: str, got: Any, exact: Array, dtype: DType) -> None:
    y = np.asarray(got.numpy(), np.float64)
    assert y.shape == exact.shape, case
    with np.errstate(invalid="ignore"):
        error = np.abs(y - exact) / np.abs(exact)
    if dtype == float16:  # beyond its largest number
        error = np.where((exact > 65504) & np.isinf(y), 0, error)
    assert error.max() <= TOLERANCE[dtype], f"{case}: {error.max():.1e}"


def check_all(dtype: DType, long: int) -> None:
    for near_1 in (False, True):
        for layout, x in layouts(long, near_1, dtype):
            t, wide = ox.from_numpy(x), x.astype(np.float64)
            axis = int(np.argmax(x.shape))
            for name, (ours, exact, around_1) in OVER_AXES.items():
                if around_1 != near_1 or (name in ("var", "std") and layout.startswith(EQUAL)):
                    continue
                for axes in AXES:
                    if axis in axes:
                        check(f"{name} over {axes}, {layout}", ours(t, axes), exact(wide, axes), dtype)
            for name, (along, exact_along, around_1) in ALONG_AN_AXIS.items():
                if around_1 == near_1:
                    check(f"{name}, {layout}", along(t, axis), exact_along(wide, axis), dtype)


@pytest.mark.parametrize("executor", [None, "numpy"])
def test_float32(executor: str | None) -> None:
    with devices.forced(executor):
        check_all(float32, LONG)


@pytest.mark.slow
@rows("dtype", [float16, bfloat16, float64], ids=str)
@rows("executor", [None, "numpy"])
def test_other_types(executor: str | None, dtype: DType) -> None:
    with devices.forced(executor):
        check_all(dtype, LONG)


@pytest.mark.slow
@rows(("shape", "axis"), [((2**25,), 0), ((2**20, 4), 0), ((4, 2**20), 1), ((2**16 + 1, 31), 0)], ids=str)
def test_millions_of_numbers(shape: tuple[int, ...], axis: int) -> None:
    """The first has twice as many as float32 counts to."""
    for near_1 in (False, True):
        x = R.standard_normal(shape, dtype=float32)
        x *= 1e-4 if near_1 else 1
        x += 1 if near_1 else 1000
        t, wide = ox.from_numpy(x), x.astype(np.float64)
        for name, (ours, exact, around_1) in OVER_AXES.items():
            if around_1 == near_1:
                check(name, ours(t, (axis,)), exact(wide, (axis,)), float32)
        for name, (along, exact_along, around_1) in ALONG_AN_AXIS.items():
            if around_1 == near_1:
                check(name, along(t, axis), exact_along(wide, axis), float32)


ROWS = 100_003


def positive(*shape: int) -> Any:
    return ox.from_numpy((1 + 0.1 * R.standard_normal(shape)).astype(float32))


def gradients(run: Callable[[Any], Any], g: Any, *wanted: Any) -> list[Array]:
    """The gradients of leaves from a cotangent of what they give."""
    for leaf in wanted:
        leaf.requires_grad_()
    return [ox.autograd.grad(run(*wanted), leaf, g)[0].numpy() for leaf in wanted]


def exactly(x: Any) -> Array:
    return np.asarray(x.detach().numpy(), np.float64)


@pytest.mark.parametrize("executor", [None, "numpy"])
def test_sums_inside_of_others(executor: str | None) -> None:
    """Gradients of what was broadcast, statistics of a batch, Einsum."""
    x, g = positive(ROWS, 3), positive(ROWS, 3)
    w, g64, x64 = positive(3), exactly(g), exactly(x)
    cases: dict[str, tuple[Callable[[], list[Array]], list[Array]]] = {
        "bias": (lambda: gradients(lambda b: ox.nn.functional.linear(x, ox.eye(3), b), g, positive(3)), [g64.sum(0)]),
        "weight": (lambda: gradients(lambda v: ox.nn.functional.linear(x, v), g, positive(3, 3)), [g64.T @ x64]),
        "broadcast": (lambda: gradients(lambda v: x * v, g, w.detach()), [(g64 * x64).sum(0)]),
        "expand": (lambda: gradients(lambda v: v.expand(ROWS, 3), g, w.detach()), [g64.sum(0)]),
        "einsum": (lambda: [ox.einsum("ij->j", x).numpy(), ox.einsum("ij,ij->j", x, g).numpy()],
                   [x64.sum(0), (x64 * g64).sum(0)]),
        "layer_norm bias": (
            lambda: gradients(lambda b: ox.nn.functional.layer_norm(x, (3,), w.detach(), b), g, positive(3)),
            [g64.sum(0)],
        ),
        "compiled": (lambda: [ox.compile(lambda v: (v * 2).sum(0) / 2)(x).numpy()], [x64.sum(0)]),
        "a compiled row": (lambda: [ox.compile(lambda v: (v * 2).mean())(x).numpy()], [x64.mean() * 2]),
        "batch_norm mean": (lambda: [batch_mean(x)], [x64.mean(0)]),
        "batch_norm mean of images": (
            lambda: [batch_mean(x[:-3].reshape(-1, 3, 10, 10))], [x64[:-3].reshape(-1, 3, 100).mean((0, 2))],
        ),
        "mean of losses": (
            lambda: [ox.nn.functional.l1_loss(x, g * 0).numpy()], [np.abs(x64).mean()],
        ),
    }  # fmt: skip
    with devices.forced(executor):
        for name, (ours, exact) in cases.items():
            for y, wanted in zip(ours(), exact, strict=True):
                assert np.abs(y / wanted - 1).max() < 1e-6, name


def batch_mean(x: Any) -> Array:
    mean, variance = ox.zeros(x.shape[1]), ox.ones(x.shape[1])
    ox.nn.functional.batch_norm(x, mean, variance, training=True, momentum=1.0)
    return mean.numpy()


def around_1000(*shape: int) -> Any:
    return ox.from_numpy((1000 + R.standard_normal(shape)).astype(float32))


@rows("executor", [None, "numpy"])
@rows("width", [3, 20])
def test_sums_at_places(executor: str | None, width: int) -> None:
    """What meets at a place: scatters, histograms, and the gradients of what takes a place many times."""
    x = around_1000(ROWS, width)
    x64, column, place = exactly(x), x[:, 0].contiguous(), ox.zeros(ROWS, dtype=ox.int64)
    places, start = place[:, None].expand(ROWS, width), ox.zeros(1, width)

    def gradient(take: Callable[[Any], Any]) -> Array:
        return gradients(take, x, ox.zeros(1, width))[0][0]

    cases: dict[str, tuple[Callable[[], Any], Array]] = {
        "index_add": (lambda: start.index_add(0, place, x)[0], x64.sum(0)),
        "scatter_add": (lambda: start.scatter_add(0, places, x)[0], x64.sum(0)),
        "scatter_add along rows": (lambda: start.T.scatter_add(1, places.T, x.T)[:, 0], x64.sum(0)),
        "scatter_reduce": (
            lambda: start.scatter_reduce(0, places, x, "mean", include_self=False)[0], x64.mean(0),
        ),
        "index_reduce": (lambda: start.index_reduce(0, place, x, "mean", include_self=False)[0], x64.mean(0)),
        "index_put": (lambda: start.index_put((place,), x, accumulate=True)[0], x64.sum(0)),
        "bincount": (lambda: ox.bincount(place, column), x64[:, :1].sum(0)),
        "histogram": (lambda: ox.histogram(column, 1, weight=column).hist, x64[:, :1].sum(0)),
        "embedding": (lambda: gradient(lambda e: ox.nn.functional.embedding(place, e)), x64.sum(0)),
        "index": (lambda: gradient(lambda e: e[place]), x64.sum(0)),
        "gather": (lambda: gradient(lambda e: e.gather(0, places)), x64.sum(0)),
        "index_select": (lambda: gradient(lambda e: e.index_select(0, place)), x64.sum(0)),
        "repeat": (lambda: gradient(lambda e: e.repeat(ROWS, 1)), x64.sum(0)),
        "as_strided": (lambda: gradient(lambda e: e.as_strided((ROWS, width), (0, 1))), x64.sum(0)),
    }  # fmt: skip
    with devices.forced(executor):
        for name, (ours, exact) in cases.items():
            assert np.abs(np.asarray(ours()) / exact - 1).max() < 1e-6, name


def test_infinities_in_long_sums_are_no_warning() -> None:
    x = ox.tensor([np.inf, -np.inf] * 2000)
    with devices.forced("numpy"):
        assert (x[:80].expand(80, 80) @ ox.zeros(80, 7)).isnan().all()
        assert (x @ x).isinf()
        assert ox.nn.functional.avg_pool1d(x[None], 4000).isnan().all()
        assert ox.zeros(1, 20).index_add(0, ox.zeros(40).long(), x[:800].reshape(40, 20)).isinf().all()


@pytest.mark.parametrize("executor", [None, "numpy"])
def test_long_windows_and_products_of_vectors(executor: str | None) -> None:
    x = around_1000(1, 3, 400_009)
    x64, ones = exactly(x), ox.ones(x.shape[-1])
    cases: dict[str, tuple[Callable[[], Any], Array]] = {
        "avg_pool1d": (lambda: ox.nn.functional.avg_pool1d(x, x.shape[-1]), x64.mean(-1, keepdims=True)),
        "avg_pool1d with pads": (
            lambda: ox.nn.functional.avg_pool1d(x, 400_001, 1, 3, count_include_pad=False)[..., 3:-3],
            np.stack([x64[..., i : 400_001 + i].mean(-1) for i in range(9)], -1),
        ),
        "lp_pool1d": (
            lambda: ox.nn.functional.lp_pool1d(x, 2, x.shape[-1]), np.sqrt((x64**2).sum(-1, keepdims=True)),
        ),
        "dot of a column": (lambda: ox.dot(x[0].T.contiguous()[:, 0], ones), x64[0, 0].sum()),
        "matrix by vector": (lambda: x[0] @ ones, x64[0].sum(-1)),
        "vector by matrix": (lambda: ones @ x[0].T, x64[0].sum(-1)),
    }  # fmt: skip
    with devices.forced(executor):
        for name, (ours, exact) in cases.items():
            assert np.abs(np.asarray(ours()) / exact - 1).max() < 1e-6, name
