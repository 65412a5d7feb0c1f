"""RNN, GRU and LSTM over time on a GPU: what the CPU gives, in one product and one launch a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from nvrtc import ARCHITECTURES, compiled
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
)  # fmt: skip
from rows import rows

import ox
from ox import nn
from ox.core.operator import OPS
from ox.devices.dispatch import cpu
from ox.devices.gpu import cublas, device_checks
from ox.devices.gpu import kernels as cuda_kernels
from ox.devices.gpu import recurrent as cuda_recurrent
from ox.devices.gpu.cupy_device import cupy
from ox.errors import ArgumentError
from ox.kernels.gpu_source import gpu_source

FORMS = [*KINDS, "RNN Relu", "RNN Sigmoid"]


@rows("architecture", ARCHITECTURES)
@rows("dtype", [ox.float32, ox.float64], ids=str)
def test_a_source_compiles(dtype: Any, architecture: str) -> None:
    code = compiled(gpu_source(cuda_kernels.typed(cuda_recurrent.FILE, dtype)), architecture)
    assert all(f".entry ox_device_{kind.lower()}{way}(" in code for kind in KINDS for way in ("", "_backward"))


def put(a: Any) -> Any:
    return ox.tensor(a).to("cuda")


def of_type(inputs: Arrays, dtype: Any) -> Arrays:
    return [a if a is None or a.dtype.kind == "i" else a.astype(dtype) for a in inputs]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that ran, one for each direction."""
    names: list[str] = []
    step = cuda_recurrent._step
    monkeypatch.setattr(cuda_recurrent, "_step", lambda name, *rest: (names.append(name), step(name, *rest))[1])
    return names


@pytest.mark.gpu
@pytest.mark.parametrize("case", CALLS)
def test_a_call_gives_what_the_cpu_gives(case: Any, ran: list[str]) -> None:
    kind, inputs, settings = call_of(*case)
    found = both(kind, inputs, settings, put)
    directions = 2 if settings["direction"] == "bidirectional" else 1
    name = f"ox_device_{kind.lower()}"
    assert ran == [name] * directions + [f"{name}_backward"] * directions
    assert_close([cpu(a) for a in found], both(kind, inputs, settings))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [ox.float64, ox.float16, ox.bfloat16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_types(form: str, dtype: Any, ran: list[str]) -> None:
    kind, inputs, settings = call_of(form, SIZES[0], "bidirectional", True)
    inputs = of_type(inputs, dtype)
    found = both(kind, inputs, settings, put)
    assert len(ran) == 4
    assert_close([cpu(a) for a in found], both(kind, inputs, settings))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_what_may_be_left_out(kind: str) -> None:
    """No biases, no first states; only some cotangents, and one number for all; batch first."""
    settings, first = settings_of(kind, "reverse"), settings_of(kind, "bidirectional", layout=1)
    inputs = inputs_of(kind, SIZES[1], "reverse", ended=False)
    bare = [*inputs[:3], None, None, *[None] * len(inputs[5:])]
    batch_first = inputs_of(kind, SIZES[0], "bidirectional", ended=True, layout=1)
    sides = []
    for device in ("cuda", "cpu"):
        move = [None if a is None else ox.tensor(a).to(device) for a in inputs]
        made = forward(kind, move, settings)
        ones: Arrays = [ox.ones(*y.shape, device=device) for y in made[: 3 if kind == "LSTM" else 2]]
        one = ox.ones(1, device=device)
        results = [
            *both(kind, bare, settings, lambda a, d=device: ox.tensor(a).to(d)),
            *backward(kind, move, made, [None, *ones[1:]], settings),
            *backward(kind, move, made, [ones[0], *[None] * (len(ones) - 1)], settings),
            *backward(kind, move, made, [one.expand(*y.shape) for y in ones], settings),
            *both(kind, batch_first, first, lambda a, d=device: ox.tensor(a).to(d)),
        ]
        sides.append([cpu(a) for a in results])
    assert_close(*sides)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_stays_in_its_sample(kind: str) -> None:
    kind, inputs, settings = call_of(kind, SIZES[1], "forward", False)
    for value in (np.nan, np.inf):
        inputs[0][2, 7] = value
        with np.errstate(all="ignore"):
            states = cpu(forward(kind, [None if a is None else put(a) for a in inputs], settings)[0])[:, 0]
        assert np.isfinite(np.delete(states, 7, axis=1)).all() and np.isfinite(states[:2]).all()


LEFT = {
    "an activation": ("LSTM", {"activations": ["Relu", "Tanh", "Tanh"]}),
    "clip": ("LSTM", {"clip": 0.5}),
    "input_forget": ("LSTM", {"input_forget": 1}),
    "Softsign": ("RNN", {"activations": ["Softsign"]}),
}


@pytest.mark.gpu
@pytest.mark.parametrize("what", LEFT)
def test_what_has_no_kernel_runs_in_operators(what: str, ran: list[str]) -> None:
    kind, more = LEFT[what]
    inputs = inputs_of(kind, SIZES[0], "forward", ended=True)
    sides = []
    for device in ("cuda", "cpu"):
        leaves = [None if a is None else ox.tensor(a).to(device) for a in inputs]
        for i in (0, 1, 2, 3):
            leaves[i].requires_grad_()
        y = OPS[kind](*leaves, **settings_of(kind, "forward") | more)
        y.square().sum().backward()
        sides.append([cpu(a.array) for a in (y.detach(), *(leaves[i].grad for i in (0, 1, 2, 3)))])
    assert not ran
    assert_close(*sides)


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES[:2], ids=str)
@pytest.mark.parametrize("dtype", [ox.float32, ox.float64, ox.float16], ids=str)
@pytest.mark.parametrize(("direction", "ended"), [("forward", False), ("reverse", True), ("bidirectional", True)])
def test_a_reset_before_the_product(
    direction: str, ended: bool, dtype: Any, size: tuple[int, ...], ran: list[str]
) -> None:
    """As ONNX has a GRU by default. Also without biases and first states."""
    settings = settings_of("GRU", direction) | {"linear_before_reset": 0}
    inputs = of_type(inputs_of("GRU", size, direction, ended=ended), dtype)
    for given in (inputs, [*inputs[:3], None, *inputs[4:5], None]):
        ran.clear()
        found = both("GRU", given, settings, put)
        directions = 2 if direction == "bidirectional" else 1
        names = [f"ox_device_gru_{part}" for part in ("gates", "state")]
        assert ran == names * directions + [f"{name}_backward" for name in reversed(names)] * directions
        assert_close([cpu(a) for a in found], both("GRU", given, settings))


@pytest.mark.gpu
def test_peepholes_run_in_operators(ran: list[str]) -> None:
    inputs = [*inputs_of("LSTM", SIZES[0], "forward", ended=False), np.full((1, 27), 0.3, np.float32)]
    found = OPS["LSTM"](*[None if a is None else put(a) for a in inputs])
    assert not ran
    assert_close([cpu(found.array)], [OPS["LSTM"](*inputs).array])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_without_kernels_the_results_are_the_same(kind: str, monkeypatch: pytest.MonkeyPatch, ran: list[str]) -> None:
    monkeypatch.setattr(cuda_recurrent, "MOST_UNITS", 0)
    kind, inputs, settings = call_of(kind, SIZES[0], "bidirectional", True)
    found = both(kind, inputs, settings, put)
    assert not ran
    assert_close([cpu(a) for a in found], both(kind, inputs, settings))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_without_elements(kind: str) -> None:
    inputs = inputs_of(kind, (4, 0, 3, 5), "forward", ended=False)
    assert both(kind, inputs, settings_of(kind, "forward"), put)[0].shape == (4, 1, 0, 5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_second_gradients(name: str) -> None:
    sides = []
    for device in ("cuda", "cpu"):
        ox.manual_seed(0)
        layer = getattr(nn, name)(3, 4)
        x = ox.randn(5, 2, 3).to(device).requires_grad_()
        layer = layer.to(device)
        (first,) = ox.autograd.grad(layer(x)[0].square().sum(), [x], create_graph=True)
        first.square().sum().backward()
        sides.append([cpu(a.array) for a in (first.detach(), *(p.grad for p in layer.parameters()))])
    assert_close(*sides)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No error is left for another test."""
    yield
    device_checks.raise_if_wrong()


@pytest.mark.gpu
@pytest.mark.parametrize("length", [7, -1])
@pytest.mark.usefixtures("nothing_left")
def test_a_wrong_length_is_told_at_the_next_wait(length: int) -> None:
    inputs = inputs_of("GRU", SIZES[0], "forward", ended=True)
    inputs[4][2] = length
    y = OPS["GRU"](*[None if a is None else put(a) for a in inputs], **settings_of("GRU", "forward"))
    with pytest.raises(ArgumentError, match=f"(?s)GRU has a sequence length outside the sequences.*0 to 6.*{length}"):
        y.sum().item()


@pytest.mark.gpu
def test_tf32_is_by_the_switch_of_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    handle, seen = cublas.cublas(cupy()), set[int]()
    multiply = handle._multiply
    monkeypatch.setattr(handle, "_multiply", lambda *a: (seen.add(a[-2]), multiply(*a))[1])
    kind, inputs, settings = call_of("LSTM", SIZES[0], "forward", False)
    for allowed, kind_of_sums in ((False, cublas.FLOAT32), (True, cublas.FAST_TF32)):
        seen.clear()
        with ox.backends.cudnn.flags(allow_tf32=allowed):
            both(kind, inputs, settings, put)
        assert seen == {kind_of_sums}


STEP = ["launches", "products", "fills", "on device"]


@pytest.mark.gpu
@pytest.mark.parametrize("ended", [False, True], ids=["whole", "lengths"])
@pytest.mark.parametrize(
    ("kind", "products", "more"), [*((kind, 1, {}) for kind in KINDS), ("GRU", 2, {"linear_before_reset": 0})]
)
def test_a_step_is_a_product_and_a_launch(kind: str, products: int, more: dict[str, Any], ended: bool) -> None:
    """So many more for each further step, forward and backward; nothing is copied, and nothing waits. Two of each where
    the reset is before the product."""
    host_cuda = pytest.importorskip("host_cuda", reason="counts what CuPy asks of a device")
    settings, totals = settings_of(kind, "bidirectional") | more, []
    for steps in (3, 8):
        inputs = inputs_of(kind, (steps, 2, 3, 4), "bidirectional", ended=ended)
        there = [None if a is None else put(a) for a in inputs]
        made = forward(kind, there, settings)
        cotangents = [ox.ones(*y.shape, device="cuda") for y in made[: 3 if kind == "LSTM" else 2]]
        with host_cuda.counting() as counts:
            backward(kind, there, forward(kind, there, settings), cotangents, settings)
        assert not counts["waits"] and not counts["to host"] and not counts["to device"]
        totals.append([counts[name] for name in STEP])
    added = np.subtract(totals[1], totals[0])
    assert added.tolist() == [2 * 2 * 5 * products] * 2 + [0, 0]  # of two directions, there and back


@pytest.mark.gpu
@pytest.mark.parametrize("ended", [False, True], ids=["whole", "lengths"])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_a_compiled_step_is_one_graph(name: str, ended: bool) -> None:
    """With the lengths of the sequences, too; its results are those of eager calls."""
    sides = []
    lengths = [4, 6, 1] if ended else [6, 6, 6]
    for compiled_call in (False, True):
        ox.manual_seed(0)
        layer = getattr(nn, name)(5, 4, num_layers=2, bidirectional=True).to("cuda")
        optimizer = ox.optim.SGD(layer.parameters(), lr=0.05)
        lens = ox.tensor(np.array(lengths, np.int32)).to("cuda") if ended else None

        def step(x: Any, layer: Any = layer, optimizer: Any = optimizer, lens: Any = lens) -> Any:
            optimizer.zero_grad()
            loss = layer._run(x, None, lens)[0].square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        call = ox.compile(step) if compiled_call else step
        ox.manual_seed(1)
        sides.append(np.array([call(ox.randn(6, 3, 5).to("cuda")).item() for _ in range(5)], np.float32))
    assert "one CUDA graph" in str(call.explain()) and f"ox.{name}Gradient" in str(call.explain())
    assert_close([sides[1]], [sides[0]])
