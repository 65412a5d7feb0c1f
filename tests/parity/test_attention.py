"""Attention as functions and as a module, beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sides import assert_same, check_error, check_gradient, check_value, names, split, torch

import ox
from ox.core.operator import OPS
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.tolerance import compare

R = np.random.default_rng(31)
ALLOWED = R.random((5, 6)) > 0.4
ALLOWED[:, 0] = True
SOME = ALLOWED.copy()
SOME[2] = False  # a row that may go nowhere
ARRAYS = {
    "q": R.normal(size=(2, 4, 5, 3)),
    "k": R.normal(size=(2, 4, 6, 3)),
    "v": R.normal(size=(2, 4, 6, 7)),
    "k2": R.normal(size=(2, 2, 6, 3)),
    "v2": R.normal(size=(2, 2, 6, 7)),
    "k1": R.normal(size=(1, 1, 6, 3)),
    "v1": R.normal(size=(6, 7)),
    "f": R.normal(size=(2, 4, 6, 3)).astype(np.float32),
    "h": R.normal(size=(2, 4, 6, 3)).astype(np.float16),
    "a": ALLOWED,
    "some": SOME,
    "m": R.normal(size=(5, 6)),
    "b": R.normal(size=(2, 1, 5, 6)),
    "n": np.where(ALLOWED, 0.0, -np.inf),
    "i": np.ones((5, 6), np.int64),
}
FUNCTIONS = """
F.scaled_dot_product_attention(q, k, v); F.scaled_dot_product_attention(q, k, v, is_causal=True)
F.scaled_dot_product_attention(q, k, v, scale=0.3); F.scaled_dot_product_attention(q, k, v, a)
F.scaled_dot_product_attention(q, k, v, some); F.scaled_dot_product_attention(q, k, v, m)
F.scaled_dot_product_attention(q, k, v, b); F.scaled_dot_product_attention(q, k, v, n)
F.scaled_dot_product_attention(q, k2, v2, enable_gqa=True); F.scaled_dot_product_attention(q[0], k[0], v[0])
F.scaled_dot_product_attention(q[0, 0], k[0, 0], v[0, 0], is_causal=True)
F.scaled_dot_product_attention(q, k2, v2, is_causal=True, scale=1, enable_gqa=True)
F.scaled_dot_product_attention(q, k1.expand(2, 4, 6, 3), v); F.scaled_dot_product_attention(q, k1, v[:1, :1])
F.scaled_dot_product_attention(q, k, v, dropout_p=0.0)
"""
VALUES = f"""
{FUNCTIONS.strip()}
F.scaled_dot_product_attention(f, f, f); F.scaled_dot_product_attention(f, f, f, is_causal=True)
F.scaled_dot_product_attention(h, h, h); F.scaled_dot_product_attention(f, f[:, :2], f[:, :2], enable_gqa=True)
"""
ERRORS = """
F.scaled_dot_product_attention(q, k, v, m, is_causal=True); F.scaled_dot_product_attention(q, k[..., :2], v)
F.scaled_dot_product_attention(q, k, v[:, :, :5]); F.scaled_dot_product_attention(q, k, v, i)
F.scaled_dot_product_attention(q, k2, v2); F.scaled_dot_product_attention(q, k, v, m[:4])
F.scaled_dot_product_attention(q, k, v.float()); F.scaled_dot_product_attention(q, k[:, :3], v[:, :3], enable_gqa=True)
F.scaled_dot_product_attention(q, k, v, dropout_p=1.5)
"""


@pytest.mark.parametrize("expression", split(VALUES))
def test_values(expression: str) -> None:
    check_value(expression, ARRAYS)


@pytest.mark.parametrize("expression", split(FUNCTIONS))
def test_gradients(expression: str) -> None:
    import re

    used = sorted(set(re.findall(r"\b(?:q|k|v|k2|v2|k1|m|b)\b", expression)))
    check_gradient(expression, ARRAYS, used)


@pytest.mark.parametrize("expression", split(ERRORS))
def test_errors(expression: str) -> None:
    check_error(expression, ARRAYS)


def hidden(*shape: int) -> Any:
    """A mask with a query that may go nowhere."""
    mask = R.random(shape) > 0.3
    mask[..., 0] = True
    mask.reshape(-1, shape[-1])[-1] = False
    return mask


# Calls of float32, which the compiled kernels run: shapes of query, key and value, and the other arguments
BLOCKS: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "groups": (((2, 8, 70, 16), (2, 2, 140, 16), (2, 2, 140, 24)), {"enable_gqa": True}),
    "groups, causal": (((2, 6, 70, 16), (2, 2, 140, 16), (2, 2, 140, 16)), {"enable_gqa": True, "is_causal": True}),
    "one head of keys": (((5, 70, 33), (1, 40, 33), (1, 40, 33)), {"enable_gqa": True, "is_causal": True}),
    "groups, padding": (
        ((2, 4, 70, 16), (2, 2, 140, 16), (2, 2, 140, 16)),
        {"enable_gqa": True, "attn_mask": hidden(2, 1, 1, 140)},
    ),
    "fewer heads of values": (((2, 4, 9, 8), (2, 4, 7, 8), (2, 2, 7, 8)), {"enable_gqa": True}),
    "one query": (((2, 4, 1, 16), (2, 4, 300, 16), (2, 4, 300, 5)), {}),
    "one query, groups": (((2, 4, 1, 16), (2, 1, 300, 16), (2, 1, 300, 16)), {"enable_gqa": True, "scale": -0.7}),
    "bool": (((2, 3, 70, 8), (2, 3, 90, 8), (2, 3, 90, 8)), {"attn_mask": hidden(70, 90)}),
    "bool, a batch": (((2, 3, 70, 8), (2, 3, 90, 8), (2, 3, 90, 8)), {"attn_mask": hidden(2, 1, 70, 90)}),
    "bool, a head": (((2, 3, 70, 8), (2, 3, 90, 8), (2, 3, 90, 8)), {"attn_mask": hidden(3, 70, 90)}),
    "padding": (((2, 3, 70, 8), (2, 3, 90, 8), (2, 3, 90, 8)), {"attn_mask": hidden(2, 1, 1, 90)}),
    "queries": (((2, 3, 70, 8), (2, 3, 90, 8), (2, 3, 90, 8)), {"attn_mask": hidden(70, 2)[:, 1:]}),
    "added": (((2, 3, 70, 8), (2, 3, 90, 8), (2, 3, 90, 8)), {"attn_mask": R.normal(size=(70, 90))}),
    "added, a head": (((2, 3, 70, 8), (2, 3, 90, 8), (2, 3, 90, 8)), {"attn_mask": R.normal(size=(1, 3, 70, 90))}),
    "added, one query": (((2, 3, 1, 8), (2, 3, 90, 8), (2, 3, 90, 8)), {"attn_mask": R.normal(size=(2, 1, 1, 90))}),
    "nothing added": (
        ((2, 3, 70, 8), (2, 3, 90, 8), (2, 3, 90, 8)),
        {"attn_mask": np.where(hidden(70, 90), 0.5, -np.inf)},
    ),
    "five dimensions": (
        ((2, 2, 3, 70, 8), (2, 2, 3, 90, 8), (2, 2, 3, 90, 8)),
        {"attn_mask": hidden(2, 1, 3, 70, 90)},
    ),
}


@pytest.mark.parametrize("case", BLOCKS)
def test_blocks(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of the kernel for the output, one for the gradients; beside PyTorch in float64, to the second order."""
    shapes, options = BLOCKS[case]
    arrays = [R.normal(size=shape) for shape in shapes]
    arrays.append(R.normal(size=(*shapes[0][:-1], shapes[2][-1])))
    found, calls = [], []
    for T, kind in ((ox, np.float32), (torch, np.float64)):
        given: dict[str, Any] = {k: x if np.isscalar(x) else T.tensor(x) for k, x in options.items()}
        if "attn_mask" in given and given["attn_mask"].dtype != T.bool:
            given["attn_mask"] = T.tensor(options["attn_mask"].astype(kind))
        q, k, v, g = (T.tensor(x.astype(kind), requires_grad=True) for x in arrays)
        with monkeypatch.context() as patch:
            if T is ox and compiled.library() is not None:
                patch.setattr(compiled, "KERNELS", {n: watched(n, *e, calls) for n, e in compiled.KERNELS.items()})
                for op in OPS.values():
                    patch.setattr(op, "_plans", {})
            y = T.nn.functional.scaled_dot_product_attention(q, k, v, **given)
            first = T.autograd.grad((y * g).sum(), [q, k, v])
        with T.nn.attention.sdpa_kernel(T.nn.attention.SDPBackend.MATH):  # the others of PyTorch end at the first order
            again = T.nn.functional.scaled_dot_product_attention(q, k, v, **given)
        followed = T.autograd.grad((again * g).sum(), [q, k, v], create_graph=True)
        second = T.autograd.grad(sum((x * x).sum() for x in followed), [q, k, v, g])
        found.append([x.detach().numpy() for x in (y, *first, *second)])
    if compiled.library() is not None:
        assert calls == ["ox.BlockwiseAttention", "ox.BlockwiseAttentionGradient"]
    for got, expected in zip(*found, strict=True):
        assert np.isfinite(got).all()
        assert compare(got, expected.astype(np.float32)).ok, compare(got, expected.astype(np.float32))


def watched(name: str, smallest: int, run: Any, calls: list[str]) -> Any:
    """An entry of `compiled.KERNELS` that says when it was used."""

    def watch(*given: Any) -> Any:
        result = run(*given)
        if "Attention" in name:
            calls.append(name if result is not None else f"{name} elsewhere")
        return result

    return smallest, watch


T_FIRST = {"q": R.normal(size=(5, 3, 8)), "k": R.normal(size=(6, 3, 8)), "v": R.normal(size=(6, 3, 8))}
OTHERS = {"k": R.normal(size=(6, 3, 6)), "v": R.normal(size=(6, 3, 10))}
PADDING = np.array([[False, False, True, True, False, True], [False] * 6, [False, True, False, False, False, False]])
CAUSAL = np.triu(np.ones((5, 6), bool), 1)
HEADS = np.broadcast_to(CAUSAL, (6, 5, 6)) ^ (R.random((6, 5, 6)) > 0.8)
HEADS[:, :, 0] = False
MAKES = """
MultiheadAttention(8, 2); MultiheadAttention(8, 4, bias=False); MultiheadAttention(8, 2, batch_first=True)
MultiheadAttention(8, 2, add_bias_kv=True); MultiheadAttention(8, 2, add_zero_attn=True)
MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True)
MultiheadAttention(8, 2, kdim=6, vdim=10); MultiheadAttention(8, 1, 0.0, True, True, False, 6, 10, True)
"""
CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no weights": {"need_weights": False},
    "every head": {"average_attn_weights": False},
    "padding": {"key_padding_mask": PADDING},
    "added padding": {"key_padding_mask": np.where(PADDING, -np.inf, 0.25)},
    "mask": {"attn_mask": CAUSAL},
    "added mask": {"attn_mask": np.where(CAUSAL, -np.inf, 0.5), "need_weights": False},
    "a mask a head": {"attn_mask": HEADS},
    "both": {"attn_mask": CAUSAL, "key_padding_mask": PADDING},
    "both added": {"attn_mask": np.where(HEADS, -np.inf, 0.5), "key_padding_mask": np.where(PADDING, -np.inf, 0.0)},
    "causal": {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False},
    "causal with padding": {"attn_mask": CAUSAL, "is_causal": True, "key_padding_mask": PADDING},
}


def both(make: str, inputs: dict[str, Any], options: dict[str, Any], alone: bool = False) -> list[list[Any]]:
    """Outputs and all gradients of a module with the same weights on both sides."""
    found = []
    for side in (0, 1):
        given = names({**inputs, **options}, side)
        T = given["T"]
        module = eval(f"nn.{make}", given).double()
        values = np.random.default_rng(5)
        state = {k: T.tensor(values.normal(size=tuple(x.shape)) * 0.5) for k, x in module.state_dict().items()}
        module.load_state_dict(state)
        xs = [given[name] for name in inputs]
        if getattr(module, "batch_first", False):
            xs = [x.transpose(0, 1) for x in xs]
        xs = [(x[:, 0] if alone and not module.batch_first else x[0] if alone else x).clone() for x in xs]
        xs = [x.requires_grad_() for x in xs]
        out, weights = module(*xs, **{k: given[k] for k in options})
        total = (out * out * out).sum() + (0.0 if weights is None else (weights * weights).sum())
        total.backward()
        grads = [p.grad for _, p in sorted(module.named_parameters())]
        found.append([sorted(state), out, *([] if weights is None else [weights]), *[x.grad for x in xs], *grads])
    return found


@pytest.mark.parametrize("make", split(MAKES))
@pytest.mark.parametrize("call", CALLS)
def test_multi_head(make: str, call: str) -> None:
    if call == "causal" and ("add_" in make or "True, True" in make):
        pytest.skip("here PyTorch takes the hint for the mask, and hides the keys that it added")
    inputs = {**T_FIRST, **(OTHERS if "10" in make else {})}
    assert_same(*both(make, inputs, {k: fitted(x, make) for k, x in CALLS[call].items()}), rtol=1e-6, atol=1e-8)


def fitted(mask: Any, make: str) -> Any:
    """A mask a head for the module's number of heads."""
    heads = int(make.split(",")[1].rstrip(")"))
    return mask[np.arange(3 * heads) % 6].copy() if getattr(mask, "ndim", 0) == 3 else mask


@pytest.mark.parametrize("make", split(MAKES))
def test_multi_head_without_a_batch(make: str) -> None:
    inputs = {**T_FIRST, **(OTHERS if "10" in make else {})}
    for options in ({}, {"key_padding_mask": PADDING[0]}, {"attn_mask": CAUSAL}, {"attn_mask": HEADS[:2].copy()}):
        if "attn_mask" in options and options["attn_mask"].ndim == 3 and "4" in make.split(",")[1]:
            continue
        if "(8, 1" in make and "attn_mask" in options:
            continue
        assert_same(*both(make, inputs, options, alone=True), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("batch_first", [False, True])
def test_self_attention(batch_first: bool) -> None:
    found = []
    for side in (0, 1):
        given = names(T_FIRST, side)
        module = given["nn"].MultiheadAttention(8, 2, batch_first=batch_first).double()
        values = np.random.default_rng(5)
        state = {k: given["T"].tensor(values.normal(size=tuple(x.shape))) for k, x in module.state_dict().items()}
        module.load_state_dict(state)
        x = given["q"].requires_grad_()
        out, weights = module(x, x, x)
        (out * weights.sum()).sum().backward()
        found.append([out, weights, x.grad, *[p.grad for _, p in sorted(module.named_parameters())]])
    assert_same(*found, rtol=1e-6, atol=1e-8)


def test_static_keys_and_values() -> None:
    found = []
    for side in (0, 1):
        given = names({**T_FIRST, "sk": R0["sk"], "sv": R0["sv"], "w": R0["w"], "o": R0["o"]}, side)
        call = (
            "F.multi_head_attention_forward(q, k, v, 8, 2, w, None, None, None, False, 0.0, o, None, True, "
            "static_k=sk, static_v=sv)"
        )
        found.append(list(eval(call, given)))
    assert_same(*found)


R0 = {
    "sk": R.normal(size=(6, 7, 4)),
    "sv": R.normal(size=(6, 7, 4)),
    "w": R.normal(size=(24, 8)),
    "o": R.normal(size=(8, 8)),
}
MODULE_ERRORS = """
nn.MultiheadAttention(8, 3); nn.MultiheadAttention(8, 2)(q[:, :, :6], k, v); nn.MultiheadAttention(8, 2)(q, k, v[:3])
nn.MultiheadAttention(8, 2)(q, k[:, :2], v[:, :2]); nn.MultiheadAttention(8, 2)(q, k[0], v[0])
nn.MultiheadAttention(8, 2)(q, k, v, attn_mask=T.zeros(4, 6)); nn.MultiheadAttention(8, 2)(q, k, v, T.zeros(2, 6))
nn.MultiheadAttention(8, 2)(q, k, v, attn_mask=T.zeros(5, 6).long())
nn.MultiheadAttention(8, 2)(q, k, v, attn_mask=T.zeros(5, 5, 6))
"""


@pytest.mark.parametrize("expression", split(MODULE_ERRORS))
def test_module_errors(expression: str) -> None:
    check_error(expression, {n: x.astype(np.float32) for n, x in T_FIRST.items()})
