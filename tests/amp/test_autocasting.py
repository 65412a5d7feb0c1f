"""Regions of autocast: which type a call runs in, what is cast once, and what backward does."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn
from ox.amp.autocasting import STATE
from ox.core.mode import MODE
from ox.core.operator import OPS

F = nn.functional
LOWER = [ox.bfloat16, ox.float16]


def f(*shape: int, seed: int = 0) -> ox.Tensor:
    return ox.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("dtype", LOWER, ids=str)
def test_the_policy_decides_the_type(dtype: Any) -> None:
    a, b = f(4, 5), f(5, 3)
    with ox.autocast("cpu", dtype):
        y = a @ b
        assert y.dtype == dtype
        assert F.softmax(y, -1).dtype == y.exp().dtype == y.sum().dtype == ox.float32
        assert (y + y).dtype == F.relu(y).dtype == dtype
        assert (y + f(4, 3)).dtype == ox.cat([y, f(4, 3)]).dtype == ox.float32
        assert F.cross_entropy(y, ox.tensor([0, 1, 2, 0])).dtype == ox.float32
        assert (a.double() @ b.double()).dtype == ox.float64
        assert OPS["Gemm"](a.array, b.array).dtype == dtype  # arrays instead of tensors
    assert (a @ b).dtype == ox.float32
    np.testing.assert_array_equal(y.array, (a.to(dtype) @ b.to(dtype)).array)


def test_a_number_of_no_dimensions_does_not_decide() -> None:
    y = f(3).bfloat16()
    with ox.autocast("cpu"):
        assert OPS["Mul"](y, ox.tensor(2.0)).dtype == ox.bfloat16
        assert OPS["Mul"](ox.tensor(2.0), ox.tensor(1.0).bfloat16()).dtype == ox.float32


def test_regions_nest_and_end() -> None:
    a = f(3, 3)
    assert not ox.is_autocast_enabled("cpu") and ox.get_autocast_dtype("cpu") == ox.bfloat16
    with ox.autocast("cpu"):
        with ox.autocast("cpu", enabled=False):
            assert (a @ a).dtype == ox.float32 and not ox.is_autocast_enabled("cpu")
            with ox.autocast("cpu", dtype=ox.float16):
                assert (a @ a).dtype == ox.float16 and ox.get_autocast_dtype("cpu") == ox.float16
        assert (a @ a).dtype == ox.bfloat16 and ox.is_autocast_enabled("cpu")
        assert not ox.is_autocast_enabled("cuda") and not ox.is_autocast_enabled()
    assert (a @ a).dtype == ox.float32 and MODE.get().autocast is None and STATE.get().outer is None


def test_a_region_ends_with_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), ox.autocast("cpu"):
        raise ZeroDivisionError
    assert MODE.get().autocast is None


def test_as_a_decorator_and_entered_twice() -> None:
    region = ox.autocast("cpu")

    @region
    def product(a: ox.Tensor, depth: int) -> ox.Tensor:
        return product(a, depth - 1) if depth else a @ a

    assert product(f(2, 2), 2).dtype == ox.bfloat16
    with region, region:
        assert product(f(2, 2), 0).dtype == ox.bfloat16
    assert (f(2, 2) @ f(2, 2)).dtype == ox.float32


def test_threads_have_their_own_regions() -> None:
    region, a, found, errors = ox.autocast("cpu"), f(2, 2), [], []
    inside, leave = threading.Barrier(2, timeout=300), threading.Barrier(2, timeout=300)

    def other() -> None:
        try:
            found.append((a @ a).dtype)  # not the region of the main thread
            with region:  # the same object in two threads
                inside.wait()
                found.append((a @ a).dtype)
                leave.wait()
            found.append((a @ a).dtype)
        except Exception as error:  # handed over to the main thread
            errors.append(error)

    with region:
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait()
    leave.wait()
    thread.join(120)
    assert not errors and found == [ox.float32, ox.bfloat16, ox.float32]
    assert (a @ a).dtype == ox.float32


def test_switches_by_hand() -> None:
    a = f(2, 2)
    ox.set_autocast_dtype("cpu", ox.float16)
    ox.set_autocast_enabled("cpu", True)
    try:
        assert (a @ a).dtype == ox.float16
        with ox.autocast("cpu", ox.bfloat16):
            ox.set_autocast_enabled("cpu", False)
            assert (a @ a).dtype == ox.float32
        assert (a @ a).dtype == ox.float16
    finally:
        ox.set_autocast_enabled("cpu", False)
        ox.set_autocast_dtype("cpu", ox.bfloat16)
    assert (a @ a).dtype == ox.float32 and ox.is_autocast_cache_enabled()
    with ox.autocast("cpu", cache_enabled=False):
        assert not ox.is_autocast_cache_enabled()
        ox.set_autocast_cache_enabled(True)
    assert ox.amp.is_autocast_available("cpu") and not ox.amp.is_autocast_available("mps")


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arrays that Cast was given, from now on."""
    casts: list[Any] = []
    kernel = OPS["Cast"].kernel

    def watched(xp: Any, x: Any, **attributes: Any) -> Any:
        casts.append(x)
        return kernel(xp, x, **attributes)

    monkeypatch.setattr(OPS["Cast"], "kernel", watched)
    return casts


@pytest.mark.parametrize("cache", [True, False])
def test_a_parameter_is_cast_once_a_region(monkeypatch: pytest.MonkeyPatch, cache: bool) -> None:
    w, x = nn.Parameter(f(3, 3)), f(2, 3)
    casts = counted(monkeypatch)
    with ox.autocast("cpu", cache_enabled=cache):
        first = x @ w
        with ox.autocast("cpu"):
            second = x @ w
        with ox.autocast("cpu", enabled=False):
            pass
        x @ w
    assert sum(a is w.array for a in casts) == (1 if cache else 3)
    np.testing.assert_array_equal(first.array, second.array)
    casts.clear()
    with ox.autocast("cpu"):
        x @ w  # another region
        ox.clear_autocast_cache()
        x @ w
    assert sum(a is w.array for a in casts) == 2


def test_a_write_in_place_is_seen() -> None:
    layer = nn.Linear(3, 2)
    optimizer = ox.optim.SGD(layer.parameters(), lr=1.0)
    x = f(4, 3)
    with ox.autocast("cpu"):
        before = layer(x)
        before.float().sum().backward()
        optimizer.step()
        after = layer(x)
        layer.load_state_dict({"weight": ox.zeros(2, 3), "bias": ox.ones(2)})
        loaded = layer(x)
        layer.weight.data = ox.ones(2, 3)
        replaced = layer(x)
    assert not np.array_equal(before.array, after.array)
    np.testing.assert_array_equal(loaded.array.astype(np.float32), np.ones((4, 2)))
    np.testing.assert_allclose(
        replaced.array.astype(np.float32), 1 + x.array.sum(1, keepdims=True).repeat(2, 1), rtol=0.02
    )


def test_other_memory_is_seen() -> None:
    w = nn.Parameter(f(3, 3))
    with ox.autocast("cpu"):
        f(2, 3) @ w
        w.data = ox.zeros(3, 3)  # of the same version
        assert not (f(2, 3) @ w).array.any()


def test_what_was_cast_under_no_grad_has_a_gradient_where_one_is_wanted() -> None:
    w, x = nn.Parameter(f(3, 3)), f(2, 3)
    with ox.autocast("cpu"):
        with ox.no_grad():
            assert (x @ w).node is None
        y = x @ w
        with ox.no_grad():
            assert (x @ w).node is None
    y.float().sum().backward()
    assert w.grad is not None and w.grad.dtype == ox.float32
    np.testing.assert_allclose(w.grad.array, x.array.sum(0)[:, None].repeat(3, 1), rtol=0.02)


def test_gradients_of_several_uses_add_up_in_float32() -> None:
    w, x = nn.Parameter(f(8, 8)), f(4, 8)
    uses = 50
    with ox.autocast("cpu"):
        total = sum(((x * (1 + k / 64)) @ w).float().sum() for k in range(uses))
    total.backward()
    # the same sum of what each use gives alone: in bfloat16 it would lose the small steps
    alone = np.zeros((8, 8), np.float64)
    for k in range(uses):
        v = nn.Parameter(w.detach().clone())
        with ox.autocast("cpu"):
            ((x * (1 + k / 64)) @ v).float().sum().backward()
        alone += v.grad.array
    np.testing.assert_allclose(w.grad.array, alone, rtol=1e-5)


def test_two_backwards_through_one_cast() -> None:
    w, x = nn.Parameter(f(3, 3)), f(2, 3)
    with ox.autocast("cpu"):
        one, two = (x @ w).sum(), (x @ w).sum()
        one.backward()  # inside of the region, too
    two.backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.array, 2 * x.array.sum(0)[:, None].repeat(3, 1), rtol=0.02)


def test_the_cache_keeps_nothing_alive() -> None:
    with ox.autocast("cpu"):
        w = nn.Parameter(f(3, 3))
        gone = weakref.ref(w)
        f(2, 3) @ w
        cache = STATE.get().cache
        assert cache is not None and len(cache._entries) == 1
        del w
        gc.collect()
        assert gone() is None and not cache._entries
        other = nn.Parameter(f(3, 3))
        f(2, 3) @ other
    assert not cache._entries


@pytest.mark.parametrize("dtype", LOWER, ids=str)
def test_backward_runs_in_the_types_of_the_forward(dtype: Any) -> None:
    w, x = nn.Parameter(f(3, 3)), f(2, 3)
    seen: list[Any] = []
    with ox.autocast("cpu", dtype):
        h = x @ w
        h.register_hook(lambda g: seen.append((g.dtype, ox.exp(g).dtype)))
        loss = F.mse_loss(h, ox.zeros(2, 3))
        assert loss.dtype == ox.float32
        loss.backward()
    assert seen == [(dtype, dtype)]  # exp would be float32 with autocast on
    expected = nn.Parameter(w.detach().clone())
    F.mse_loss(x @ expected, ox.zeros(2, 3)).backward()
    np.testing.assert_allclose(w.grad.array, expected.grad.array, rtol=0.1, atol=0.02)


@pytest.mark.parametrize("dtype", LOWER, ids=str)
def test_second_order(dtype: Any) -> None:
    w, x = nn.Parameter(f(3, 3)), f(2, 3)
    with ox.autocast("cpu", dtype):
        y = ((x @ w) ** 2).sum()
    (g,) = ox.autograd.grad(y, w, create_graph=True)
    g.sum().backward()
    expected = 2 * x.array.T @ x.array
    np.testing.assert_allclose(w.grad.array, expected.sum(0)[:, None].repeat(3, 1), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", LOWER, ids=str)
def test_a_checkpoint_runs_again_as_it_ran(dtype: Any) -> None:
    w, x = nn.Parameter(f(3, 3)), f(2, 3)
    seen: list[Any] = []

    def part(x: ox.Tensor) -> ox.Tensor:
        seen.append((ox.is_autocast_enabled("cpu"), ox.get_autocast_dtype("cpu"), (x @ w).dtype))
        with ox.autocast("cpu", enabled=False):
            y = x @ w
        return (x @ w) + y

    with ox.autocast("cpu", dtype):
        y = ox.utils.checkpoint.checkpoint(part, x, use_reentrant=False)
    y.sum().backward()
    assert seen == [(True, dtype, dtype)] * 2
    v = nn.Parameter(w.detach().clone())
    w, kept = v, w
    with ox.autocast("cpu", dtype):
        y = part(x)
    y.sum().backward()
    np.testing.assert_array_equal(kept.grad.array, v.grad.array)
    assert not ox.is_autocast_enabled("cpu")


def test_policies_of_ones_own() -> None:
    a = f(3, 3)
    with ox.autocast("cpu", policy={"Softmax": "lower", "MatMul": "float32", "mse_loss": "keep", "Exp": "keep"}):
        assert (a @ a).dtype == ox.float32
        assert F.softmax(a, -1).dtype == ox.bfloat16
        assert a.bfloat16().exp().dtype == ox.bfloat16
        assert F.mse_loss(a.bfloat16(), a).dtype == ox.float32
        with ox.autocast("cpu"):
            assert (a @ a).dtype == ox.bfloat16  # every region begins with the table
    with pytest.raises(ox.errors.ArgumentError, match="'Matmul'"):
        ox.autocast("cpu", policy={"Matmul": "lower"})
    with pytest.raises(ox.errors.ArgumentError, match="policy is a dict"):
        ox.autocast("cpu", policy=["MatMul"])
    with pytest.raises(ox.errors.ArgumentError, match="lower or float32 or widest or keep"):
        ox.autocast("cpu", policy={"MatMul": "bfloat16"})


def test_bad_input_is_told() -> None:
    with pytest.raises(ox.errors.ArgumentError, match="no device 'mps'"):
        ox.autocast("mps")
    with pytest.raises(ox.errors.DTypeError, match="does not lower to float32"):
        ox.autocast("cpu", dtype=ox.float32)
    with pytest.raises(ox.errors.DTypeError, match="does not lower to int8"):
        ox.set_autocast_dtype("cpu", ox.int8)
    with pytest.raises(ox.errors.ArgumentError, match="no device"):
        ox.get_autocast_dtype("tpu")


def test_cuda_without_a_gpu_warns_and_does_nothing() -> None:
    if ox.cuda.is_available():
        pytest.skip("this machine has a GPU")
    a = f(2, 2)
    with pytest.warns(UserWarning, match="CUDA is not available"), ox.autocast("cuda"):
        assert (a @ a).dtype == ox.float32 and not ox.is_autocast_enabled("cuda")
    with pytest.warns(UserWarning, match="CUDA is not available"):
        ox.cuda.amp.autocast()
    with ox.cpu.amp.autocast():
        assert (a @ a).dtype == ox.bfloat16
    ox.cuda.amp.autocast(enabled=False)


class Power(ox.autograd.Function):
    """x ** 2 · w, whose both ways say what they see."""

    seen: list[Any] = []  # noqa: RUF012

    @staticmethod
    @ox.amp.custom_fwd(device_type="cpu", cast_inputs=ox.float32)
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        Power.seen.append((x.dtype, ox.is_autocast_enabled("cpu")))
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @ox.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, g: Any) -> Any:
        x, w = ctx.saved_tensors
        y = g @ w.T
        Power.seen.append((y.dtype, ox.is_autocast_enabled("cpu")))
        return y, x.T @ g


class Product(ox.autograd.Function):
    seen: list[Any] = []  # noqa: RUF012

    @staticmethod
    @ox.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @ox.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, g: Any) -> Any:
        x, w = ctx.saved_tensors
        Product.seen.append((g @ w.T).dtype)
        return (g @ w.T).float(), (x.T @ g).float()


def test_functions_of_ones_own() -> None:
    x, w = f(2, 3).requires_grad_(), f(3, 3)
    with ox.autocast("cpu"):
        y = Power.apply(x.bfloat16(), w)
        assert y.dtype == ox.float32
        z = Product.apply(x, w)
        assert z.dtype == ox.bfloat16
    y.sum().backward()
    z.float().sum().backward()
    assert Power.seen == [(ox.float32, False), (ox.float32, False)]
    assert Product.seen == [ox.bfloat16] and (x @ w).dtype == ox.float32


@pytest.mark.parametrize("dtype", LOWER, ids=str)
def test_vmap_and_control_flow(dtype: Any) -> None:
    w, x = nn.Parameter(f(3, 3)), f(5, 3)
    with ox.autocast("cpu", dtype):
        y = ox.vmap(lambda row: F.softmax(row @ w, -1))(x)
        assert y.dtype == ox.float32
        one = F.softmax(x @ w, -1)
        np.testing.assert_allclose(y.array, one.array, atol=1e-6)
        d = ox.vmap(lambda row: ox.dot(row, w[0]))(x)  # float32 inside, though it is a product
        assert d.dtype == ox.dot(x[0], w[0]).dtype == ox.float32
        np.testing.assert_allclose(d.array, x.array @ w.array[0], atol=1e-5)
        z = ox.cond(x.sum() > 0, lambda x: x @ w, lambda x: (x @ w) * 2, (x,))
        assert z.dtype == dtype
    z.float().sum().backward()
    assert w.grad.dtype == ox.float32


def test_layers_with_states() -> None:
    x = f(2, 5, 4)
    with ox.autocast("cpu"):
        for layer in (nn.LSTM(4, 6, batch_first=True), nn.GRU(4, 6, batch_first=True), nn.RNN(4, 6, batch_first=True)):
            y, _ = layer(x)
            assert y.dtype == ox.bfloat16
            y.float().sum().backward()
            assert all(p.grad is not None and p.grad.dtype == ox.float32 for p in layer.parameters())
        norm = nn.BatchNorm1d(5)
        assert norm(x.bfloat16()).dtype == ox.bfloat16
        assert norm.running_mean.dtype == ox.float32 and norm.running_mean.array.any()
        attention = nn.MultiheadAttention(4, 2, batch_first=True)
        out, _ = attention(x, x, x)
        assert out.dtype == ox.bfloat16
        assert nn.Embedding(4, 3)(ox.tensor([1])).dtype == ox.float32


def test_a_call_that_fails_names_the_users_line() -> None:
    with ox.autocast("cpu"), pytest.raises(ox.errors.ShapeError, match=r"f\(2, 3\) @ f\(2, 3\)"):
        f(2, 3) @ f(2, 3)


HALF, WHOLE = ox.bfloat16, ox.float32
M, V, B = ox.ones(4, 4), ox.ones(4), ox.ones(2, 4, 4)
# functions made of products, with the type that PyTorch 2.13 gives on a CPU
PRODUCTS: dict[str, tuple[Any, Any]] = {
    "tensordot": (lambda: ox.tensordot(M, M, 1), HALF),
    "tensordot to a number": (lambda: ox.tensordot(M, M, ([0, 1], [1, 0])), WHOLE),
    "inner": (lambda: ox.inner(M, M), HALF),
    "inner of vectors": (lambda: ox.inner(V, V), WHOLE),
    "Tensor.inner": (lambda: M.inner(M), HALF),
    "vecdot": (lambda: ox.linalg.vecdot(M, M), HALF),
    "dot": (lambda: ox.dot(V, V), WHOLE),
    "outer": (lambda: ox.outer(V, V), WHOLE),
    "kron": (lambda: ox.kron(M, M), WHOLE),
    "einsum": (lambda: ox.einsum("ij,jk->ik", M, M), HALF),
    "einsum of batches": (lambda: ox.einsum("bij,bjk->bik", B, B), HALF),
    "einsum of three": (lambda: ox.einsum("ij,jk,kl", M, M, M), HALF),
    "einsum, element by element": (lambda: ox.einsum("ij,ij->ij", M, M), WHOLE),
    "einsum, outer": (lambda: ox.einsum("i,j->ij", V, V), WHOLE),
    "einsum, a sum": (lambda: ox.einsum("ij->i", M), WHOLE),
    "chain_matmul": (lambda: ox.chain_matmul(M, M, M), HALF),
    "multi_dot": (lambda: ox.linalg.multi_dot([M, M, M]), HALF),
    "matrix_power": (lambda: ox.linalg.matrix_power(M, 3), HALF),
    "addmm": (lambda: ox.addmm(M, M, M), HALF),
    "addbmm": (lambda: ox.addbmm(M, B, B), HALF),
    "baddbmm": (lambda: ox.baddbmm(B, B, B), HALF),
    "matmul of vectors": (lambda: V @ V, HALF),
    "bilinear": (lambda: ox.nn.functional.bilinear(M, M, B), WHOLE),
}


@rows("name", PRODUCTS)
def test_functions_made_of_products(name: str) -> None:
    call, expected = PRODUCTS[name]
    with ox.autocast("cpu", dtype=ox.bfloat16):
        assert call().dtype == expected
    assert call().dtype == ox.float32
