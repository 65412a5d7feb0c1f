"""Attention and the Transformer without PyTorch: other formulations, properties, recordings."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from rows import rows

import ox
from ox import nn, ops
from ox.autograd import gradcheck
from ox.devices.cpu_kernels import attention as compiled_attention
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.nn import functional as F
from ox.nn.functional import attention
from ox.tolerance import compare

R = np.random.default_rng(12)


def tensor(*shape: int, dtype: Any = np.float64) -> Any:
    return ox.tensor(R.normal(size=shape).astype(dtype))


def plain(q: Any, k: Any, v: Any, bias: Any = 0.0) -> Any:
    """The formula in NumPy."""
    scores = q.array @ k.array.swapaxes(-1, -2) / np.sqrt(q.array.shape[-1]) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v.array


def test_the_formula() -> None:
    q, k, v, bias = tensor(2, 3, 4, 5), tensor(2, 3, 6, 5), tensor(2, 3, 6, 2), tensor(4, 6)
    assert compare(F.scaled_dot_product_attention(q, k, v).array, plain(q, k, v)).ok
    assert compare(F.scaled_dot_product_attention(q, k, v, bias).array, plain(q, k, v, bias.array)).ok
    below = np.where(np.tri(4, 6, dtype=bool), 0, -np.inf)
    assert compare(F.scaled_dot_product_attention(q, k, v, is_causal=True).array, plain(q, k, v, below)).ok
    assert compare(F.scaled_dot_product_attention(q, k, v, ox.tensor(below == 0)).array, plain(q, k, v, below)).ok


def test_the_operator_agrees() -> None:
    q, k, v = tensor(2, 4, 5, 3), tensor(2, 2, 6, 3), tensor(2, 2, 6, 7)
    for causal in (False, True):
        mine = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        assert compare(mine.array, ops.Attention(q, k, v, is_causal=int(causal)).array).ok


@pytest.mark.parametrize("rows", [7, 128])
def test_large_and_small_calls_agree(rows: int) -> None:
    """From some size on forward and backward are one session each, with the same numbers."""
    arrays = [R.normal(size=(4, 8, rows, 16)).astype(np.float32) for _ in range(4)]
    found = []
    for dtype in (np.float32, np.float64):
        q, k, v, g = (ox.tensor(a.astype(dtype)).requires_grad_() for a in arrays)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        found.append([y.array, *[x.array for x in ox.autograd.grad(y, [q, k, v], g.detach())]])
    for single, double in zip(*found, strict=True):
        assert compare(single, double.astype(np.float32)).ok


def test_a_row_that_may_go_nowhere_is_zero() -> None:
    q, k, v = (tensor(3, 4).requires_grad_() for _ in range(3))
    allowed = ox.tensor(np.array([[True, False, False], [False] * 3, [True] * 3]))
    y = F.scaled_dot_product_attention(q, k, v, allowed)
    assert not y.array[1].any()
    y.sum().backward()
    assert np.isfinite(q.grad.array).all()
    assert not q.grad.array[1].any()


def test_gradients_to_the_second_order() -> None:
    q, k, v, b = tensor(2, 3, 4), tensor(2, 5, 4), tensor(2, 5, 3), tensor(3, 5)
    for x in (q, k, v, b):
        x.requires_grad_()
    allowed = ox.tensor(R.random((3, 5)) > 0.3)
    gradcheck(F.scaled_dot_product_attention, [q, k, v, b], order=2, elements=5)
    gradcheck(lambda *a: F.scaled_dot_product_attention(*a, allowed), [q, k, v], order=2, elements=5)
    gradcheck(lambda *a: F.scaled_dot_product_attention(*a, is_causal=True, scale=0.4), [q, k, v], order=2, elements=5)


def test_dropout_drops_and_keeps_the_mean() -> None:
    ox.manual_seed(0)
    q, k = ox.zeros(1, 50, 4), ox.zeros(1, 400, 4)
    v = ox.ones(1, 400, 1).requires_grad_()
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.25)
    assert 0.95 < y.array.mean() < 1.05
    assert y.array.std() > 0
    y.sum().backward()
    # a value's gradient is the sum of its weights, of which a quarter were dropped
    assert 0.9 < v.grad.array.mean() * 400 / 50 < 1.1
    assert not F.scaled_dot_product_attention(q, k, v, dropout_p=1.0).array.any()


def test_dropped_weights_are_those_of_the_gradient() -> None:
    """With the same random state the gradient is that of the very weights that were kept."""
    q, k, v = (tensor(2, 3, 4).requires_grad_() for _ in range(3))

    def call(*a: Any) -> Any:
        ox.manual_seed(7)
        return F.scaled_dot_product_attention(*a, dropout_p=0.4)

    gradcheck(call, [q, k, v], order=2, elements=6)


def test_heads_are_attention_side_by_side() -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    x = tensor(3, 5, 8, dtype=np.float32)
    out, weights = module(x, x, x, average_attn_weights=False)
    q, k, v = (part for part in (x @ module.in_proj_weight.T + module.in_proj_bias).split(8, -1))
    heads = [F.scaled_dot_product_attention(*(p[..., i : i + 4] for p in (q, k, v))) for i in (0, 4)]
    assert compare(out.array, module.out_proj(ox.cat(heads, -1)).array).ok
    assert weights.shape == (3, 2, 5, 5)
    assert np.allclose(weights.array.sum(-1), 1, atol=1e-5)
    turned = nn.MultiheadAttention(8, 2)
    turned.load_state_dict(module.state_dict())
    other, _ = turned(*(x.transpose(0, 1),) * 3)
    assert compare(other.transpose(0, 1).array, out.array).ok


def test_added_keys() -> None:
    """A zero key takes a share of the weights; padding hides keys, but not the added ones."""
    module = nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True)
    x = tensor(2, 4, 8, dtype=np.float32)
    _, weights = module(x, x, x, key_padding_mask=ox.tensor(np.ones((2, 4), bool)))
    assert weights.shape == (2, 4, 6)
    assert not weights.array[..., :4].any()
    assert np.allclose(weights.array[..., 4:].sum(-1), 1, atol=1e-5)


def test_causal_stands_for_the_mask() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = tensor(2, 5, 8, dtype=np.float32)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    assert compare(layer(x, is_causal=True).array, layer(x, mask).array).ok
    padding = ox.tensor(np.array([[False] * 5, [False, False, True, True, True]]))
    assert compare(layer(x, None, padding, True).array, layer(x, mask, padding).array).ok
    longer = ox.cat([x, tensor(2, 1, 8, dtype=np.float32)], 1)
    assert compare(layer(longer, is_causal=True)[:, :5].array, layer(x, is_causal=True).array).ok


def blocks_and_weights(
    monkeypatch: pytest.MonkeyPatch, call: Any, *arrays: Any
) -> tuple[list[Any], list[Any], list[str]]:
    """The output and the gradients of a call in float32 and in float64, where all weights are made; and what ran in
    float32."""
    found, ran = [], []
    for dtype in (np.float32, np.float64):
        xs = [ox.tensor(a.astype(dtype)).requires_grad_() for a in arrays]
        with monkeypatch.context() as patch:
            for name in ("BlockwiseAttention", "ScaledAttention"):
                operator = getattr(attention, name)

                def watched(*given: Any, operator: Any = operator, **options: Any) -> Any:
                    ran.append(f"{operator.name} {given[0].dtype}")
                    return operator(*given, **options)

                patch.setattr(attention, name, watched)
            ox.manual_seed(3)
            y = call(*xs)
        # a square, so that the gradient is another one for each element
        found.append([y.array, *[x.array for x in ox.autograd.grad((y * y).sum(), xs)]])
    for single, double in zip(*found, strict=True):
        assert compare(single, double.astype(np.float32)).ok
    return *found, [name for name in ran if name.endswith("float32")]


IN_BLOCKS = ["BlockwiseAttention float32"] if compiled.library() is not None else ["ScaledAttention float32"]


@pytest.mark.parametrize("masked", [False, True])
def test_dropout_in_blocks(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It drops the weights that it drops where all of them are made, also for heads that share keys."""
    q, k = R.normal(size=(2, 6, 70, 8)), R.normal(size=(2, 2, 90, 8))
    mask = ox.tensor(R.random((2, 1, 1, 90)) > 0.2) if masked else None

    def call(q: Any, k: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, k, mask, dropout_p=0.3, enable_gqa=True)

    single, _, ran = blocks_and_weights(monkeypatch, call, q, k)
    assert ran == IN_BLOCKS
    whole = F.scaled_dot_product_attention(ox.tensor(q), ox.tensor(k), ox.tensor(k), mask, enable_gqa=True)
    assert not compare(single[0], whole.array.astype(np.float32)).ok


def test_a_learned_bias_keeps_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, bias = R.normal(size=(2, 4, 70, 8)), R.normal(size=(2, 2, 90, 8)), R.normal(size=(4, 1, 90))

    def call(q: Any, k: Any, bias: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, k, bias, enable_gqa=True)

    single, _, ran = blocks_and_weights(monkeypatch, call, q, k, bias)
    assert ran == ["ScaledAttention float32"] and single[-1].any()

    def without_its_gradient(q: Any, k: Any) -> Any:
        return call(q, k, ox.tensor(bias.astype(q.array.dtype)))

    _, _, ran = blocks_and_weights(monkeypatch, without_its_gradient, q, k)
    assert ran == IN_BLOCKS


@pytest.mark.parametrize("groups", [1, 3])
def test_three_dimensions_with_groups(groups: int) -> None:
    """[heads, time, width] without a batch, in float64 too."""
    q, k = tensor(2 * groups, 5, 4), tensor(2, 6, 4)
    y = F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    for i in range(2 * groups):
        assert compare(y.array[i], plain(q[i], k[i // groups], k[i // groups])).ok


@rows("batch_first", [True, False])
@rows("call", ["plain", "padding", "causal", "mask", "mask and padding", "added", "cross"])
def test_modules_attend_in_blocks(call: str, batch_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder's layer makes no weights, and no copy of its heads."""
    layer = nn.TransformerEncoderLayer(32, 4, 16, dropout=0.0, batch_first=batch_first).double()
    with ox.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(tensor(*parameter.shape) * 0.3)
    x = R.normal(size=(2, 40, 32) if batch_first else (40, 2, 32))
    padding = ox.tensor(np.arange(40) >= np.array([[33], [40]]))
    mask = ox.tensor(np.triu(np.ones((40, 40), bool), 1))
    options: dict[str, Any] = {
        "plain": {},
        "padding": {"src_key_padding_mask": padding},
        "causal": {"is_causal": True},
        "mask": {"src_mask": mask},
        "mask and padding": {"src_mask": mask, "src_key_padding_mask": padding},
        "added": {"src_mask": nn.Transformer.generate_square_subsequent_mask(40), "src_key_padding_mask": padding},
        "cross": {},
    }[call]

    def run(x: Any) -> Any:
        module = layer.to(x.dtype)
        return module.self_attn(x * 2, x, x, need_weights=False)[0] if call == "cross" else module(x, **options)

    with monkeypatch.context() as patch:
        rows = compiled_attention._rows

        def view(library: Any, x: Any) -> Any:
            found = rows(library, x)
            assert np.shares_memory(found, x)
            return found

        patch.setattr(compiled_attention, "_rows", view)
        _, _, ran = blocks_and_weights(monkeypatch, run, x)
    assert ran == IN_BLOCKS


MODULES: dict[str, tuple[Any, Any]] = {
    "attention": (nn.MultiheadAttention(8, 2, batch_first=True), lambda m, x: m(x, x, x)[0]),
    "time first": (nn.MultiheadAttention(8, 2), lambda m, x: m(*(x.transpose(0, 1),) * 3)[0]),
    "added": (
        nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True),
        lambda m, x: m(x, x, x, key_padding_mask=x[..., 0] > 1)[0],
    ),
    "causal": (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2),
        lambda m, x: m(x, is_causal=True),
    ),
    "transformer": (
        nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True),
        lambda m, x: m(x, x[:, :3], tgt_is_causal=True, src_key_padding_mask=x[..., 0] > 1),
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_recorded_with_batch_and_length_open(name: str) -> None:
    module, call = MODULES[name]

    def run(x: Any) -> Any:
        return call(module, x)

    graph = record(run, {"x": tensor(2, 4, 8, dtype=np.float32)}, dims={"x": ["rows", "length", 8]})
    assert {node.domain for node in graph.nodes} == {""}
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    x = tensor(3, 6, 8, dtype=np.float32)
    (found,) = session.run(None, {"x": x.array})
    assert compare(found, run(x).array).ok


def test_refusals() -> None:
    q, k = tensor(2, 3, 4), tensor(2, 5, 4)
    with pytest.raises(ArgumentError, match="not both"):
        F.scaled_dot_product_attention(q, k, k, tensor(3, 5), is_causal=True)
    with pytest.raises(ShapeError, match="attn_mask"):
        F.scaled_dot_product_attention(q, k, k, tensor(3, 4))
    with pytest.raises(DTypeError, match="masks of type int64"):
        F.scaled_dot_product_attention(q, k, k, ox.tensor(np.ones((3, 5), np.int64)))
    with pytest.raises(ShapeError, match="enable_gqa"):
        F.scaled_dot_product_attention(tensor(4, 3, 2), tensor(2, 3, 2), tensor(2, 3, 2))
    with pytest.raises(ShapeError, match="key_padding_mask"):
        nn.MultiheadAttention(4, 2)(*(tensor(3, 2, 4, dtype=np.float32),) * 3, ox.tensor(np.ones((3, 2), bool)))
    with pytest.raises(ShapeError, match="src and tgt"):
        nn.Transformer(4, 2, 1, 1, 8)(tensor(3, 2, 4), tensor(3, 1, 4))
    with pytest.raises(ArgumentError, match="activation"):
        nn.TransformerDecoderLayer(4, 2, activation="swish")
