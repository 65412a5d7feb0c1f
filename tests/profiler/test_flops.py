"""Multiplications and additions under the profiler, beside the counts of a pencil."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn
from ox.core.operator import OPS
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.profiler import profile

F = nn.functional


def data(*shape: int) -> ox.Tensor:
    return ox.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32)).requires_grad_()


def counted(step: Callable[[], ox.Tensor]) -> tuple[int, int]:
    """FLOPs of a forward, and of its backward."""
    with profile(with_flops=True) as p:
        step().sum().backward()
    phases = [sum(e.flops for e in p.events() if e.backward is backward) for backward in (False, True)]
    return phases[0], phases[1]


class Block(nn.Module):
    """A transformer block: attention of several heads, then two layers."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Any) -> Any:
        n, t, width = x.shape
        parts = self.qkv(self.norm1(x)).reshape(n, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@pytest.mark.parametrize("forced", [None, "numpy"])
def test_a_transformer_block(forced: str | None) -> None:
    n, t, width, heads, hidden = 3, 10, 16, 2, 40
    block, x = Block(width, heads, hidden), data(n, t, width)
    with ox.devices.forced(forced):
        forward, backward = counted(lambda: block(x))
    layers = 2 * n * t * (3 * width * width + width * width + 2 * width * hidden)
    scores = weighted = 2 * n * t * t * width
    assert forward == layers + scores + weighted
    # towards input and weights of each product; the compiled kernel keeps no scores but makes them again
    again = scores if forced is None and compiled.library() is not None else 0
    assert backward == 2 * (layers + scores + weighted) + again


def test_a_transformer_layer() -> None:
    n, t, width, hidden = 2, 6, 8, 20
    layer, x = nn.TransformerEncoderLayer(width, 2, hidden, dropout=0.0, batch_first=True), data(n, t, width)
    forward, backward = counted(lambda: layer(x))
    assert forward == 2 * n * t * (4 * width * width + 2 * width * hidden) + 4 * n * t * t * width
    scores_again = 0 if compiled.library() is None else 2 * n * t * t * width
    assert backward == 2 * forward + scores_again


def test_attention_counts_what_its_body_counts() -> None:
    """Widths of keys and values that differ, and other numbers of queries and keys."""
    q, k, v = data(2, 3, 5, 4), data(2, 3, 7, 4), data(2, 3, 7, 6)
    places = 2 * 3 * 5 * 7

    def step() -> ox.Tensor:
        return ox.ops.ScaledAttention(q, k, v, outputs=1)

    assert counted(step) == (2 * places * (4 + 6), 4 * places * (4 + 6))
    with ox.devices.forced("onnxruntime"):
        assert counted(step) == (2 * places * (4 + 6), 4 * places * (4 + 6))

    def blockwise() -> ox.Tensor:
        return ox.ops.BlockwiseAttention(q, k, v, outputs=1)

    assert counted(blockwise) == (2 * places * (4 + 6), 2 * places * (3 * 4 + 2 * 6))
    with ox.devices.forced("onnxruntime"):
        forward, backward = counted(blockwise)
    assert forward == 2 * places * (4 + 6)
    assert backward == 2 * places * (2 * 4 + 2 * 6)  # the body's own operators keep what the function makes again


@rows(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@rows("batch_first", [False, True])
def test_a_recurrent_network(kind: str, gates: int, batch_first: bool) -> None:
    T, N, I, H = 6, 4, 3, 5  # noqa: E741
    layer = getattr(nn, kind)(I, H, num_layers=2, bidirectional=True, batch_first=batch_first)
    x = data(N, T, I) if batch_first else data(T, N, I)
    product = 2 * T * N * 2 * gates * H  # for each number that goes in: both directions
    whole = product * (I + H) + product * (2 * H + H)
    assert counted(lambda: layer(x)[0]) == (whole, 2 * whole)
    # towards the data only where it is wanted
    assert counted(lambda: layer(x.detach())[0]) == (whole, 2 * whole - product * I)
    with ox.no_grad(), profile(with_flops=True) as p:
        layer(x)
    assert p.key_averages().total_average().flops == whole


@pytest.mark.parametrize(("kind", "gates"), [("GRU", 3), ("LSTM", 4)])
def test_gates_that_are_made_again_count_again(kind: str, gates: int) -> None:
    """The operator itself keeps no gates, as in a loaded file: its gradient runs the forward once more."""
    T, N, I, H = 6, 4, 3, 5  # noqa: E741
    X, W, R = data(T, N, I), data(1, gates * H, I), data(1, gates * H, H)
    gY = data(T, 1, N, H)
    with ox.no_grad():
        Y = getattr(ox.ops, kind)(X, W, R, hidden_size=H)
        gradient = OPS[f"ox.{kind}Gradient"]
        given = [X, W, R, None, None, None, *([None, None] if kind == "LSTM" else []), gY]
        given += [None, None, Y] if kind == "LSTM" else [None, Y]
        with profile(with_flops=True) as p:
            gradient(*given, outputs=6 if kind == "LSTM" else 5)
    assert p.key_averages().total_average().flops == 3 * 2 * T * N * gates * H * (I + H)


def test_a_convolution() -> None:
    x, weight = data(2, 6, 9, 9), data(8, 3, 3, 3)
    with profile(with_flops=True) as p:
        F.conv2d(x, weight, padding=1, groups=2).sum().backward()
    product = 2 * 2 * 8 * 9 * 9 * 3 * 3 * 3
    rows = {(r.key, r.phase): r.flops for r in p.key_averages() if r.flops}
    assert rows["Conv", "forward"] == rows["ConvWeights", "backward"] == product


def test_element_wise_work_counts_nothing() -> None:
    x, scores = data(2, 3, 8, 8), data(4, 7)
    assert counted(lambda: F.gelu(x)) == (0, 0)
    assert counted(lambda: F.max_pool2d(x, 2)) == (0, 0)
    assert counted(lambda: F.cross_entropy(scores, ox.arange(4))) == (0, 0)
