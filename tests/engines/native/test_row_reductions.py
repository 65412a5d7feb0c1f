"""Regions with sums, means and maxima of rows between their pointwise operators: one kernel, with a loop for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from recorded_step import task_of

import ox
from ox import nn, tolerance
from ox.engines.native import Native
from ox.engines.native.executable import NativeExecutable
from ox.engines.native.fold import fold
from ox.engines.native.kernel_source import kernel_of
from ox.engines.native.regions import Region, fuse

RANDOM = np.random.default_rng(0)
SHAPES = [(3, 8), (4, 5, 300), (2, 3, 1, 17), (200, 129), (3, 5000), (2, 1, 4, 8), (2, 16384)]


def softmax(x: Any) -> dict[str, Any]:
    e = (x - x.amax(-1, keepdim=True)).exp()
    return {"softmax": e / e.sum(-1, keepdim=True)}


def log_sum_exp(x: Any) -> dict[str, Any]:
    """Only numbers of rows come out."""
    top = x.amax(-1, keepdim=True)
    return {"logs": (x - top).exp().sum(-1, keepdim=True).log() + top}


def normalization(x: Any) -> dict[str, Any]:
    """A mean behind a mean; rows and whole tensors come out."""
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) * (x - mean)).mean(-1, keepdim=True)
    scale = 1 / (variance + 1e-5).sqrt()
    return {"y": (x - mean) * scale, "mean": mean, "scale": scale, "double": (x - mean) * 2}


def mixed(x: Any) -> dict[str, Any]:
    """Reductions of different depths side by side."""
    a, b = x.sum(-1, keepdim=True), (x * 2).amax(-1, keepdim=True)
    c = (x * a.tanh() + b).mean(-1, keepdim=True)
    return {"y": x * c + a - b, "c": c * b}


FUNCTIONS = [softmax, log_sum_exp, normalization, mixed]


def built(function: Callable[..., Any], *arrays: Any, updates: dict[str, str] | None = None) -> NativeExecutable:
    inputs = {name: ox.from_numpy(array) for name, array in zip("abc", arrays, strict=False)}
    return Native().build(task_of(function, inputs, updates))


def numbers(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def reduced_in_regions(executable: NativeExecutable) -> int:
    """The lines of `explain` about regions with a reduction."""
    lines = executable.explain()[1:]
    return sum("Reduce" in line and not line.startswith(("by themselves", " ")) for line in lines)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_kernel_gives_what_eager_gives(function: Any, shape: tuple[int, ...], library: Any) -> None:
    x = numbers(*shape)
    executable = built(function, x)
    assert "in 1 fused regions; 1 launches" in executable.explain()[0], executable.explain()
    library.set_threads(1)
    alone = executable([x])
    library.set_threads(3)
    for one, got, want in zip(alone, executable([x]), function(ox.from_numpy(x)).values(), strict=True):
        np.testing.assert_array_equal(one, got)
        assert got.shape == want.numpy().shape
        assert tolerance.compare(got, want.numpy()).ok


@pytest.mark.parametrize(("length", "computed"), [(300, 1), (1024, 1), (1025, 2)])
def test_expensive_numbers_are_kept_for_the_next_loop(length: int, computed: int, library: Any) -> None:
    """In rows that a thread's stack holds."""
    graph = task_of(softmax, {"a": ox.from_numpy(numbers(4, length))}).graph
    folded = fold(graph)
    (region,) = fuse(graph, folded)
    assert isinstance(region, Region)
    assert kernel_of(region, folded).text.count("ox_exp(") == computed


@pytest.mark.parametrize(
    "shapes", [[(4, 6, 40), (40,)], [(4, 6, 40), (6, 1)], [(4, 6, 40), (4, 1, 40)], [(4, 6, 40), ()]]
)
def test_inputs_are_broadcast(shapes: list[tuple[int, ...]], library: Any) -> None:
    def function(a: Any, b: Any) -> dict[str, Any]:
        return {"y": a / (a * b).abs().sum(-1, keepdim=True) + b, "row": (a + b).amax(-1, keepdim=True) * 2}

    a, b = (numbers(*shape) for shape in shapes)
    executable = built(function, a, b)
    assert reduced_in_regions(executable) >= 1
    for got, want in zip(executable([a, b]), function(ox.from_numpy(a), ox.from_numpy(b)).values(), strict=True):
        assert tolerance.compare(got, want.numpy()).ok


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row(value: float, library: Any) -> None:
    x = numbers(4, 20)
    x[1, 3] = value
    x[2] = -np.inf
    for function in FUNCTIONS:
        for got, want in zip(built(function, x)([x]), function(ox.from_numpy(x)).values(), strict=True):
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want.numpy()), err_msg=function.__name__)
            np.testing.assert_array_equal(np.isinf(got), np.isinf(want.numpy()), err_msg=function.__name__)
            assert tolerance.compare(got, want.numpy()).ok


@pytest.mark.parametrize("shape", [(5, 7), (2, 16385), (1, 30)])
def test_short_and_long_rows_and_a_single_one_are_reduced_elsewhere(shape: tuple[int, ...], library: Any) -> None:
    x = numbers(*shape)
    executable = built(softmax, x)
    assert any(line.startswith("by themselves: ") and "ReduceMax 1" in line for line in executable.explain())
    assert tolerance.compare(executable([x])[0], softmax(ox.from_numpy(x))["softmax"].numpy()).ok


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_other_types_are_reduced_elsewhere(dtype: Any, library: Any) -> None:
    x = (100 * numbers(4, 20)).astype(dtype)

    def function(x: Any) -> dict[str, Any]:
        return {"y": x * 2 - (x + 1).sum(-1, keepdim=True, dtype=x.dtype)}

    executable = built(function, x)
    assert not reduced_in_regions(executable)
    np.testing.assert_allclose(executable([x])[0], function(ox.from_numpy(x))["y"].numpy())


def test_axes_that_go_and_other_axes(library: Any) -> None:
    x = numbers(6, 10, 12)

    def function(x: Any) -> dict[str, Any]:
        first, whole = x.exp().mean(1, keepdim=True), (x * x).mean((1, 2), keepdim=True)
        return {"y": x - first + whole, "gone": (x + 1).sum(-1) * 2}

    executable = built(function, x)
    assert not reduced_in_regions(executable)
    for got, want in zip(executable([x]), function(ox.from_numpy(x)).values(), strict=True):
        assert tolerance.compare(got, want.numpy()).ok


def test_a_reduction_alone_runs_by_itself(library: Any) -> None:
    x = numbers(30, 40)
    executable = built(lambda x: {"sum": x.sum(-1, keepdim=True), "top": x.amax(-1, keepdim=True)}, x)
    assert executable.explain()[0].startswith("0 of 2 nodes")
    total, top = executable([x])
    np.testing.assert_allclose(total, x.sum(-1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(top, x.max(-1, keepdims=True))


def test_a_state_is_written_over_after_its_row_was_read(library: Any) -> None:
    x = numbers(50, 33)
    want = normalization(ox.from_numpy(x.copy()))["y"].numpy()
    executable = built(lambda x: {"next": normalization(x)["y"]}, x, updates={"next": "a"})
    (got,) = executable([x])
    assert got is x
    assert tolerance.compare(x, want).ok


def test_a_product_between_rows_is_no_part_of_their_region(library: Any) -> None:
    """What runs elsewhere may lie between two nodes of a region only if it would then run in a circle: it may not."""
    x, w = numbers(6, 16), numbers(16, 16)

    def function(x: Any, w: Any) -> dict[str, Any]:
        a = x - x.mean(-1, keepdim=True)
        b = a @ w
        return {"y": a * b / (1 + (a * b).sum(-1, keepdim=True).abs())}  # a sum near 0 would enlarge its rounding

    for got, want in zip(
        built(function, x, w)([x, w]), function(ox.from_numpy(x), ox.from_numpy(w)).values(), strict=True
    ):
        assert tolerance.compare(got, want.numpy()).ok


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int, library: Any) -> None:
    sizes = np.random.default_rng(seed)
    shape = (*map(int, sizes.integers(1, 6, 2)), int(sizes.integers(8, 40)))

    def function(a: Any, b: Any, c: Any) -> dict[str, Any]:
        random = np.random.default_rng(seed)
        known = [a, b, c]
        for _ in range(25):
            x, y = (known[random.integers(max(0, len(known) - 6), len(known))] for _ in range(2))
            kind = random.integers(8)
            known.append(
                x.sum(-1, keepdim=True) * 0.1 if kind == 0 and x.shape[-1] > 1
                else x.mean(-1, keepdim=True) if kind == 1 and x.shape[-1] > 1
                else x.amax(-1, keepdim=True) if kind == 2 and x.shape[-1] > 1
                else x.tanh() if kind == 3
                else x * y if kind == 4
                else x - y if kind == 5
                else (x * 0.5).sigmoid() if kind == 6
                else x + y * 0.5
            )  # fmt: skip
        return {f"y{i}": known[i] for i in random.choice(range(3, len(known)), 5, replace=False)}

    a, b, c = numbers(*shape), numbers(shape[-1]), numbers(shape[0], 1, 1)
    got = built(function, a, b, c)([a, b, c])
    for one, want in zip(got, function(*map(ox.from_numpy, (a, b, c))).values(), strict=True):
        assert tolerance.compare(one, want.numpy()).ok


class Handwritten(nn.Module):
    """Normalization and attention as a user writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(ox.ones(24))
        self.q, self.k, self.v, self.head = (nn.Linear(24, n) for n in (24, 24, 24, 3))

    def forward(self, x: Any) -> Any:
        x = x * ox.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight
        scores = self.q(x) @ self.k(x).transpose(1, 2) * 0.2
        weights = softmax(scores)["softmax"]
        return self.head((x + weights @ self.v(x)).mean(1))


def test_training_steps_are_those_of_eager(library: Any) -> None:
    x, target = ox.from_numpy(numbers(5, 12, 24)), ox.from_numpy(RANDOM.integers(0, 3, 5))
    losses = []
    for compiled in (False, True):
        ox.manual_seed(0)
        model = Handwritten()
        optimizer = ox.optim.Adam(model.parameters(), lr=1e-3)

        def step(model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = ox.compile(step, backend="native", fullgraph=True) if compiled else step
        losses.append([float(run()) for _ in range(20)])
        if compiled:
            assert "ReduceMean" in str(run.explain()) and "ReduceMax" in str(run.explain())
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][-1] < losses[0][0]
