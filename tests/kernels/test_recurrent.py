"""RNN, GRU and LSTM over time give what the loops of NumPy give, whatever the number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recurrent_calls import (
    CALLS,
    KINDS,
    SIZES,
    Arrays,
    assert_close,
    backward,
    both,
    call_of,
    forward,
    inputs_of,
    settings_of,
)
from rows import rows

from ox import devices
from ox.autograd import grad
from ox.core.operator import OPS
from ox.devices.cpu_kernels import recurrent as compiled_recurrent
from ox.kernels import Library
from ox.tensors.tensor import make_tensor


@pytest.fixture
def calls(library: Library, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that ran."""
    names: list[str] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            names.append(name)
            return getattr(library, name)

    monkeypatch.setattr(compiled_recurrent.compiled, "library", Watched)
    return names


@pytest.mark.parametrize("case", CALLS)
def test_a_kernel_gives_what_numpy_gives(case: Any, calls: list[str]) -> None:
    kind, inputs, settings = call_of(*case)
    got = both(kind, inputs, settings)
    own = f"ox_{kind.lower()}"
    directions = 2 if settings["direction"] == "bidirectional" else 1
    assert calls.count(own) == calls.count(f"{own}_backward") == directions
    calls.clear()
    with devices.forced("numpy"):
        expected = both(kind, inputs, settings)
    assert not calls, "the reference is NumPy"
    assert_close(got, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_what_may_be_left_out(kind: str, library: Library) -> None:
    """No biases, no first states; then only some cotangents; batch first."""
    settings = settings_of(kind, "reverse")
    inputs = inputs_of(kind, SIZES[1], "reverse", ended=False)
    bare = [*inputs[:3], None, None, *[None] * len(inputs[5:])]
    first = inputs_of(kind, SIZES[0], "bidirectional", ended=True, layout=1)
    found = []
    for executor in (None, "numpy"):
        with devices.forced(executor):  # type: ignore[arg-type]
            made = forward(kind, inputs, settings)
            cotangents: Arrays = [np.ones_like(y) for y in made[: 3 if kind == "LSTM" else 2]]
            found.append(
                [
                    *both(kind, bare, settings),
                    *backward(kind, inputs, made, [None, *cotangents[1:]], settings),
                    *backward(kind, inputs, made, [cotangents[0], *[None] * (len(cotangents) - 1)], settings),
                    # a gradient that repeats one number, as that of a mean does
                    *backward(
                        kind, inputs, made, [np.broadcast_to(np.float32(1), y.shape) for y in cotangents], settings
                    ),
                    *both(kind, first, settings_of(kind, "bidirectional", layout=1)),
                ]
            )
    assert_close(*found)


def test_a_gru_with_the_reset_before_the_product_stays_on_numpy(calls: list[str]) -> None:
    inputs = inputs_of("GRU", SIZES[0], "forward", ended=False)
    both("GRU", inputs, {"direction": "forward", "linear_before_reset": 0})
    assert "ox_gru" not in calls and "ox_gru_backward" not in calls


@rows("kind", [*KINDS, "RNN Relu"])
def test_the_bits_do_not_depend_on_the_threads(kind: str, library: Library) -> None:
    case = call_of(kind, SIZES[1], "bidirectional", True)
    found = []
    for threads in (1, 2, 3):
        library.set_threads(threads)
        found.append(both(*case))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@rows("value", [np.nan, np.inf, -np.inf, -0.0])
@rows("kind", [*KINDS, "RNN Relu"])
def test_what_is_not_finite_stays_in_its_sample(kind: str, value: float, library: Library) -> None:
    kind, inputs, settings = call_of(kind, SIZES[1], "forward", False)
    inputs[0][2, 7] = value
    with np.errstate(all="ignore"):
        got = both(kind, inputs, settings)
        with devices.forced("numpy"):
            expected = both(kind, inputs, settings)
    for a, b in zip(got, expected, strict=True):
        assert np.array_equal(np.isnan(a), np.isnan(b)) and np.array_equal(np.isinf(a), np.isinf(b))
    states = got[0][:, 0]
    assert np.isfinite(np.delete(states, 7, axis=1)).all() and np.isfinite(states[:2]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gates_that_are_open_or_closed(kind: str, library: Library) -> None:
    kind, inputs, settings = call_of(kind, SIZES[0], "forward", False)
    inputs[0] *= np.float32(1e4)
    got = both(kind, inputs, settings)
    with np.errstate(over="ignore"), devices.forced("numpy"):
        expected = both(kind, inputs, settings)
    assert all(np.isfinite(a).all() for a in got)
    assert_close(got[:2], expected[:2])


@pytest.mark.parametrize("kind", KINDS)
def test_second_gradients(kind: str, library: Library) -> None:
    """A gradient that is followed: from the kernel's first gradients, the same second ones as from NumPy's."""
    found = []
    for executor in (None, "numpy"):
        draw = np.random.default_rng(3)
        with devices.forced(executor):  # type: ignore[arg-type]
            T, N, size, H = SIZES[0]
            k = KINDS[kind]
            leaves = [
                make_tensor((0.4 * draw.standard_normal(s)).astype(np.float32)).requires_grad_()
                for s in ((T, N, size), (1, k * H, size), (1, k * H, H), (1, 2 * k * H))
            ]
            y = OPS[kind](*leaves, **settings_of(kind, "forward"))
            first = grad((y * y).sum(), leaves, create_graph=True)
            second = grad(sum((g * g).sum() for g in first), leaves)
            found.append([g.array for g in (*first, *second)])
    assert_close(*found)


@pytest.mark.parametrize("kind", [*KINDS, "RNN Relu"])
def test_a_large_call_without_gradients_runs_on_the_kernels(kind: str, calls: list[str]) -> None:
    kind, inputs, settings = call_of(kind, (20, 50, 40, 33), "forward", False)
    OPS[kind](*inputs, **settings)
    assert calls.count(f"ox_{kind.lower()}") == 1
    calls.clear()
    OPS[kind](*inputs, **{**settings, "clip": 3.0})
    assert not calls, "ONNX Runtime has it"


def test_without_elements(library: Library) -> None:
    for kind in KINDS:
        inputs = inputs_of(kind, (4, 0, 3, 5), "forward", ended=False)
        assert both(kind, inputs, settings_of(kind, "forward"))[0].shape == (4, 1, 0, 5)
