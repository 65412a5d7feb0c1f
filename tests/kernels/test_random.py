"""Numbers that a kernel draws, and dropout with them, have the bits of the generator's definition in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ox
from ox import devices
from ox.autograd import grad
from ox.core.operator import OPS
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.devices.cpu_kernels import random as compiled_random
from ox.graph.record.recording import record
from ox.graph.replay import replay
from ox.graph.writer.write import to_model
from ox.kernels import Library
from ox.nn import functional as F

SIZES = [(compiled_random.SMALLEST,), (1025,), (1026,), (1027,), (3, 333), (64, 100), (1 << 17,)]


@pytest.fixture
def calls(library: Library, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that ran."""
    names: list[str] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            names.append(name)
            return getattr(library, name)

    monkeypatch.setattr(compiled, "library", Watched)
    for name in ("ox.PhiloxDropout", "ox.RandomUniform"):
        monkeypatch.setattr(OPS[name], "_plans", {})
    return names


def drawn(draw: Callable[[], Any], numpy: bool) -> tuple[Any, Any]:
    """The result and the state of the generator behind it."""
    ox.manual_seed(12345)
    ox.rand(3)
    if numpy:
        with devices.forced("numpy"):
            return draw(), ox.random.get_state()
    return draw(), ox.random.get_state()


@pytest.mark.parametrize("shape", SIZES)
def test_uniform_numbers(shape: tuple[int, ...], calls: list[str]) -> None:
    got, state = drawn(lambda: ox.rand(*shape).array, numpy=False)
    assert calls == ["ox_random_uniform"]
    expected, same = drawn(lambda: ox.rand(*shape).array, numpy=True)
    assert calls == ["ox_random_uniform"] and state == same
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("counter", [0, 2**32 - 5, 2**63 - 3, 2**64 - 7])
def test_counters_and_keys_of_all_64_bits(counter: int, calls: list[str]) -> None:
    """Also where a counter passes the end of a word within a call."""
    for key in (0, 2**63 + 11, 2**64 - 1):
        given = [np.array(key, np.uint64), np.array(counter, np.uint64), np.array([4000])]
        got = [y.array for y in OPS["ox.RandomUniform"](*given, outputs=2)]
        with devices.forced("numpy"):
            expected = [y.array for y in OPS["ox.RandomUniform"](*given, outputs=2)]
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a, b)
    assert calls.count("ox_random_uniform") == 3


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.999])
def test_dropout_and_its_gradient(shape: tuple[int, ...], p: float, calls: list[str]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x.reshape(-1)[:5] = [np.nan, np.inf, -np.inf, -0.0, 0.0]

    def draw() -> list[Any]:
        leaf = ox.tensor(x, requires_grad=True)
        y = F.dropout(leaf, p)
        (first,) = grad((y * y).sum(), [leaf], create_graph=True)
        (second,) = grad(first.sum(), [leaf])
        return [a.array.view(np.uint32) for a in (y, first.detach(), second)]

    got, state = drawn(draw, numpy=False)
    assert calls.count("ox_dropout") >= 2
    calls.clear()
    with np.errstate(invalid="ignore"):
        expected, same = drawn(draw, numpy=True)
    assert state == same and "ox_dropout" not in calls
    for a, b in zip(got, expected, strict=True):
        nan = np.isnan(b.view(np.float32))
        np.testing.assert_array_equal(np.isnan(a.view(np.float32)), nan)
        np.testing.assert_array_equal(a[~nan], b[~nan])


def test_a_gradient_that_is_not_followed_runs_on_the_kernel(calls: list[str]) -> None:
    x = ox.ones(50, 60).requires_grad_()
    y = F.dropout(x, 0.3)
    y.sum().backward()
    assert calls.count("ox_dropout") == 2
    np.testing.assert_array_equal(x.grad.array, y.array)


def test_a_layer_twice_draws_anew(library: Library) -> None:
    x = ox.ones(50, 60)
    one, two = F.dropout(x, 0.5), F.dropout(x, 0.5)
    assert (one.array != two.array).any()


def test_transposed_and_shared_inputs(library: Library) -> None:
    """The mask follows the places of elements, not how they lie; in place writes over the input."""
    x = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)

    def draw() -> list[Any]:
        turned = F.dropout(ox.tensor(x).T, 0.5).array
        channels = F.dropout1d(ox.tensor(x[:, :, None].repeat(20, 2)), 0.5).array
        written = ox.tensor(x)
        assert F.dropout(written, 0.5, inplace=True) is written
        return [turned, channels, written.array]

    (got, _), (expected, _) = drawn(draw, numpy=False), drawn(draw, numpy=True)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_generators_of_their_own(library: Library) -> None:
    own = ox.Generator().manual_seed(3)
    before = ox.random.get_state()
    first = F.dropout(ox.ones(1000), 0.5, generator=own).array
    assert ox.random.get_state() == before and own.get_state()["counter"] == 250
    np.testing.assert_array_equal(F.dropout(ox.ones(1000), 0.5, generator=own.manual_seed(3)).array, first)


def test_a_recorded_step_draws_the_same_and_holds_plain_operators(library: Library) -> None:
    x = ox.ones(64, 64)
    own = ox.Generator().manual_seed(9)
    eager = F.dropout(x, 0.5, generator=own).array
    own.manual_seed(9)
    graph = record(lambda x: [F.dropout(x, 0.5, generator=own)], {"x": x})
    kinds = {node.op_type for node in to_model(graph).graph.node}
    assert "PhiloxDropout" not in kinds and "Mul" in kinds
    np.testing.assert_array_equal(np.asarray(replay(graph, [x.array])[0]), eager)


def test_the_bits_do_not_depend_on_the_threads(library: Library) -> None:
    found = []
    for threads in (1, 2, 3):
        library.set_threads(threads)
        ox.manual_seed(1)
        found.append((ox.rand(300_001).array, F.dropout(ox.ones(300_001), 0.5).array))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
