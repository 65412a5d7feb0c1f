"""The compiled kernels of bfloat16: conversions, element by element, and products."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import ox
from ox.core.operator import OPS
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.dtypes import bfloat16, float32
from ox.kernels import Library, address
from tests.kernels.test_kernels import CASES, call

R = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return R.standard_normal(shape).astype(bfloat16)


def bits(a: Any) -> Any:
    return np.ascontiguousarray(a).view(np.uint16)


@pytest.fixture(autouse=True)
def for_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "KERNELS", {name: (0, run) for name, (_, run) in compiled.KERNELS.items()})
    for op in OPS.values():
        monkeypatch.setattr(op, "_plans", {})


def test_conversions_are_those_of_ml_dtypes(library: Library) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(bfloat16)
    wide = np.empty(every.size, np.float32)
    library.ox_from_bfloat16(every.size, address(every), address(wide))
    np.testing.assert_array_equal(wide.view(np.uint32), every.astype(np.float32).view(np.uint32))
    x = np.concatenate([R.integers(0, 1 << 32, 200_000, np.uint64).astype(np.uint32).view(np.float32), wide])
    ties = (np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8000).view(np.float32)  # halfway between two numbers
    x = np.concatenate([x, ties])
    x = np.where(np.isnan(x), np.copysign(np.float32(np.nan), x), x)  # of a NaN the sign is kept, and nothing else
    narrow = np.empty(x.size, bfloat16)
    library.ox_to_bfloat16(x.size, address(x), address(narrow))
    with np.errstate(all="ignore"):
        expected = x.astype(bfloat16)
    np.testing.assert_array_equal(bits(narrow), bits(expected))


@pytest.mark.parametrize("name", sorted(compiled.OF_BFLOAT16 - {"Cast", "MatMul", "Gemm"}))
def test_an_element_is_that_of_float32_rounded_once(name: str, library: Library) -> None:
    for arrays, attributes in CASES[name]():
        halves = [a.astype(bfloat16) for a in arrays]
        for a in halves:
            a.reshape(-1)[:4] = np.inf, -np.inf, np.nan, -0.0
        (got,) = call(name, halves, attributes)
        (wide,) = call(name, [a.astype(np.float32) for a in halves], attributes)
        assert got.dtype == bfloat16
        nan = np.isnan(wide)
        assert np.array_equal(np.isnan(got), nan)
        np.testing.assert_array_equal(bits(got)[~nan], bits(wide.astype(bfloat16))[~nan])


PRODUCTS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "large": ("MatMul", [f(150, 700), f(700, 290)], {}),
    "odd depth": ("MatMul", [f(9, 1025), f(1025, 40)], {}),
    "of one": ("MatMul", [f(1, 1), f(1, 1)], {}),
    "depth of one": ("MatMul", [f(30, 1), f(1, 70)], {}),
    "a row": ("MatMul", [f(1, 300), f(300, 500)], {}),
    "a column": ("MatMul", [f(300, 511), f(511, 1)], {}),
    "first turned": ("MatMul", [f(301, 75).T, f(301, 66)], {}),
    "second turned": ("MatMul", [f(75, 301), f(66, 301).T], {}),
    "both turned": ("MatMul", [f(513, 75).T, f(66, 513).T], {}),
    "every second": ("MatMul", [f(80, 600)[::2, ::2], f(300, 90)[:, ::2]], {}),
    "a stack by a matrix": ("MatMul", [f(3, 40, 50), f(50, 60)], {}),
    "stacks": ("MatMul", [f(2, 3, 40, 51), f(2, 3, 51, 60)], {}),
    "stacks of turned": ("MatMul", [f(2, 3, 51, 40).swapaxes(-1, -2), f(2, 3, 60, 51).swapaxes(-1, -2)], {}),
    "bias": ("Gemm", [f(70, 520), f(90, 520), f(90)], {"transB": 1}),
    "bias, turned": ("Gemm", [f(520, 70), f(520, 90), f(90)], {"transA": 1}),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_a_product_is_rounded_once(case: str, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    name, arrays, attributes = PRODUCTS[case]
    used = []
    run = compiled.KERNELS[name][1]
    monkeypatch.setitem(compiled.KERNELS, name, (0, lambda *given: used.append(run(*given)) or used[-1]))
    (got,) = call(name, arrays, attributes)
    assert got.dtype == bfloat16 and used[0] is not None
    a, b, *bias = [x.astype(np.float64) for x in arrays]
    a, b = a.T if attributes.get("transA") else a, b.T if attributes.get("transB") else b
    exact = a @ b + (bias[0] if bias else 0.0)
    size = np.abs(a) @ np.abs(b) + 1
    # half a place of bfloat16's 8 bits, and what sums of float32 lose
    assert (np.abs(got.astype(np.float64) - exact) <= 2**-8 * np.abs(exact) + 1e-5 * size).all()


@pytest.mark.parametrize("case", PRODUCTS)
def test_the_bits_do_not_depend_on_the_threads(case: str, library: Library) -> None:
    name, arrays, attributes = PRODUCTS[case]
    found = []
    for threads in (1, 2, 3):
        library.set_threads(threads)
        found.append(bits(call(name, arrays, attributes)[0]))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_what_is_not_finite_stays_visible(library: Library) -> None:
    a, b = f(40, 60), f(60, 50)
    a[3, 7], a[4, 8], b[9, 11] = np.nan, np.inf, -np.inf
    a[5, 9] = 0.0  # by an infinity: NaN
    (got,) = call("MatMul", [a, b], {})
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(bfloat16)
    assert np.array_equal(np.isnan(got), np.isnan(expected)) and np.isnan(got[5, 11])
    assert np.array_equal(np.isinf(got), np.isinf(expected))
    assert np.isinf(np.delete(got[4], 11)).all()


def test_a_step_under_autocast_is_near_that_of_float32(library: Library) -> None:
    losses = {}
    for enabled in (False, True):
        ox.manual_seed(0)
        layer = ox.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        model = ox.nn.Sequential(layer, ox.nn.Linear(64, 10))
        optimizer = ox.optim.SGD(model.parameters(), lr=0.1)
        x, y = ox.randn(4, 16, 64), ox.randint(0, 10, (64,))
        for _ in range(5):
            optimizer.zero_grad()
            with ox.autocast("cpu", enabled=enabled):
                loss = ox.nn.functional.cross_entropy(model(x).reshape(-1, 10), y)
            loss.backward()
            optimizer.step()
            assert all(p.grad is not None and p.grad.array.dtype == float32 for p in model.parameters())
        losses[enabled] = loss.item()
    assert losses[True] != losses[False]
    assert abs(losses[True] - losses[False]) < 0.03 * losses[False]


@pytest.mark.parametrize(
    ("dtype", "said"),
    [("float16", "it computes float16 in float32"), ("bfloat16", "it has no instructions for bfloat16")],
)
def test_autocast_says_once_that_it_gains_nothing(dtype: str, said: str, library: Library) -> None:
    code = (
        "import ox\n"
        "from ox.devices.cpu_kernels import kernel_table as compiled\n"
        "compiled.library().multiplies_bfloat16 = False\n"
        "for _ in range(3):\n"
        f"    with ox.autocast('cpu', dtype=ox.{dtype}):\n"
        "        ox.ones(2, 2) @ ox.ones(2, 2)\n"
        f"with ox.autocast('cpu', dtype=ox.{dtype}, enabled=False):\n"
        "    pass\n"
    )
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("does not make this CPU faster") == 1 and said in done.stderr


def test_autocast_says_nothing_where_it_gains(library: Library) -> None:
    code = (
        "import ox\n"
        "from ox.devices.cpu_kernels import kernel_table as compiled\n"
        "compiled.library().multiplies_bfloat16 = True\n"
        "with ox.autocast('cpu'):\n"
        "    pass\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_autocast_without_kernels_names_them() -> None:
    code = "import ox\nwith ox.autocast('cpu'):\n    pass\n"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, timeout=300,
        env={**os.environ, "OX_KERNELS": "0"},
    )  # fmt: skip
    assert done.returncode == 0 and "ox doctor" in done.stderr, done.stderr


@pytest.mark.parametrize("lowered", ["autocast", "tensors"])
def test_attention_makes_no_weights(lowered: str, library: Library) -> None:
    """It is computed in float32, between two conversions, and near the attention of operators."""
    q, k, v = (ox.tensor(R.standard_normal((2, 4, 70, 16)).astype(np.float32), requires_grad=True) for _ in range(3))
    sdpa = ox.nn.functional.scaled_dot_product_attention

    def grads(run: Any) -> list[Any]:
        for x in (q, k, v):
            x.grad = None
        run().float().square().sum().backward()
        return [x.grad.array for x in (q, k, v)]

    def half() -> Any:
        if lowered == "tensors":
            return sdpa(q.bfloat16(), k.bfloat16(), v.bfloat16(), is_causal=True)
        with ox.autocast("cpu", dtype=ox.bfloat16):
            return sdpa(q, k, v, is_causal=True)

    with ox.profiler.profile() as p:
        y = half()
    assert y.dtype == bfloat16 and "BlockwiseAttention" in {e.name for e in p.events()}
    exact = sdpa(q, k, v, is_causal=True)
    assert np.abs(y.array.astype(np.float32) - exact.array).max() < 0.03
    for got, wanted in zip(grads(half), grads(lambda: sdpa(q, k, v, is_causal=True)), strict=True):
        assert got.dtype == np.float32
        assert np.abs(got - wanted).max() < 0.03 * np.abs(wanted).max()
