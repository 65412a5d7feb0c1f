"""What bench_gpu.py runs on a GPU: training steps and operators, in sizes bound by its arithmetic or by launches.

A workload takes a library (ox or torch: their names are the same) and sizes. It returns a function that does one step
and does not wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench_training_step import transformer

Step = Callable[[], Any]
Sizes = dict[str, int]


def _update(lib: Any, model: Any, loss: Callable[[], Any], amp: bool = False, capturable: bool = False) -> Step:
    """A step with AdamW; with `amp` in float16 with a scaled loss."""
    theirs = {"fused": True, "capturable": capturable} if lib.__name__ == "torch" else {}
    optimizer = lib.optim.AdamW(model.parameters(), lr=1e-4, **theirs)
    scaler = lib.amp.GradScaler("cuda", enabled=amp)

    def step() -> None:
        optimizer.zero_grad()
        with lib.autocast("cuda", dtype=lib.float16, enabled=amp):
            found = loss()
        if amp:
            scaler.scale(found).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            found.backward()
            optimizer.step()

    return step


def lenet(lib: Any, batch: int, size: int, **options: bool) -> Step:
    nn = lib.nn
    layers: list[Any] = []
    for inside, outside in ((1, 32), (32, 64)):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.Linear(64 * (size // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, 10)]
    model = nn.Sequential(*layers).to("cuda")
    x, targets = lib.randn(batch, 1, size, size, device="cuda"), lib.randint(0, 10, (batch,), device="cuda")
    return _update(lib, model, lambda: nn.functional.cross_entropy(model(x), targets), **options)


def gpt(
    lib: Any, batch: int, length: int, layers: int, width: int, heads: int, vocabulary: int, **options: bool
) -> Step:
    """A GPT without positions, which take no time."""
    nn = lib.nn
    blocks = list(transformer(nn, nn.functional, layers, width, heads))[:-1]
    model = nn.Sequential(nn.Embedding(vocabulary, width), *blocks, nn.Linear(width, vocabulary)).to("cuda")
    tokens = lib.randint(0, vocabulary, (batch, length), device="cuda")
    targets = lib.randint(0, vocabulary, (batch * length,), device="cuda")
    loss = nn.functional.cross_entropy
    return _update(lib, model, lambda: loss(model(tokens).reshape(-1, vocabulary), targets), **options)


def lstm(lib: Any, batch: int, length: int, layers: int, width: int, vocabulary: int, **options: bool) -> Step:
    """A language model."""
    nn = lib.nn
    model = nn.ModuleList(
        [nn.Embedding(vocabulary, width), nn.LSTM(width, width, layers), nn.Linear(width, vocabulary)]
    )
    embedding, recurrent, head = model.to("cuda")
    tokens = lib.randint(0, vocabulary, (length, batch), device="cuda")
    targets = lib.randint(0, vocabulary, (length * batch,), device="cuda")

    def loss() -> Any:
        states, _ = recurrent(embedding(tokens))
        return nn.functional.cross_entropy(head(states).reshape(-1, vocabulary), targets)

    return _update(lib, model, loss, **options)


def optimizer(lib: Any, tensors: int, size: int) -> Step:
    """AdamW alone."""
    theirs = {"fused": True} if lib.__name__ == "torch" else {}
    parameters = [lib.nn.Parameter(lib.randn(size, size, device="cuda")) for _ in range(tensors)]
    for p in parameters:
        p.grad = lib.randn(size, size, device="cuda")
    return lib.optim.AdamW(parameters, lr=1e-4, **theirs).step  # type: ignore[no-any-return]


def _there_and_back(forward: Callable[[], Any], *leaves: Any) -> Step:
    """Forward and backward of a function of leaves."""
    g = forward().detach() * 0 + 1

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        forward().backward(g)

    return step


def matmul(lib: Any, size: int, half: bool = False) -> Step:
    kind = lib.float16 if half else lib.float32
    a, b = (lib.randn(size, size, device="cuda").to(kind).requires_grad_() for _ in range(2))
    return _there_and_back(lambda: a @ b, a, b)


def convolution(lib: Any, batch: int, channels: int, size: int) -> Step:
    layer = lib.nn.Conv2d(channels, channels, 3, padding=1).to("cuda")
    x = lib.randn(batch, channels, size, size, device="cuda").requires_grad_()
    return _there_and_back(lambda: layer(x), x, *layer.parameters())


def attention(lib: Any, batch: int, heads: int, length: int, half: bool = False) -> Step:
    kind = lib.float16 if half else lib.float32
    q, k, v = (lib.randn(batch, heads, length, 64, device="cuda").to(kind).requires_grad_() for _ in range(3))
    attend = lib.nn.functional.scaled_dot_product_attention
    return _there_and_back(lambda: attend(q, k, v, is_causal=True), q, k, v)


def layer_norm(lib: Any, rows: int, width: int) -> Step:
    layer = lib.nn.LayerNorm(width).to("cuda")
    x = lib.randn(rows, width, device="cuda").requires_grad_()
    return _there_and_back(lambda: layer(x), x, *layer.parameters())


def embedding(lib: Any, tokens: int, vocabulary: int, width: int) -> Step:
    layer = lib.nn.Embedding(vocabulary, width).to("cuda")
    ids = lib.randint(0, vocabulary, (tokens,), device="cuda")
    return _there_and_back(lambda: layer(ids), layer.weight)


@dataclass(frozen=True)
class Case:
    """A workload in a size, and in one for trying out."""

    make: Callable[..., Step]
    sizes: Sizes
    tiny: Sizes
    options: dict[str, bool] = field(default_factory=dict)
    captured: bool = False  # whether the whole step is launched as one CUDA graph

    def step(self, lib: Any, tiny: bool) -> Step:
        more = {"capturable": True} if self.captured else {}
        return self.make(lib, **(self.tiny if tiny else self.sizes), **self.options, **more)


LENET_SMALL, LENET, LENET_TINY = {"batch": 64, "size": 28}, {"batch": 4096, "size": 28}, {"batch": 2, "size": 8}
GPT_TINY = {"batch": 1, "length": 8, "layers": 1, "width": 16, "heads": 2, "vocabulary": 50}
GPT_SMALL = {"batch": 4, "length": 64, "layers": 4, "width": 256, "heads": 8, "vocabulary": 256}
GPT = {"batch": 16, "length": 512, "layers": 8, "width": 768, "heads": 12, "vocabulary": 50304}
LSTM_TINY = {"batch": 2, "length": 5, "layers": 2, "width": 16, "vocabulary": 50}
LSTM = {"batch": 64, "length": 100, "layers": 2, "width": 512, "vocabulary": 1000}
AMP = {"amp": True}
HALF = {"half": True}

CASES: dict[str, Case] = {
    "step: LeNet, batch 64": Case(lenet, LENET_SMALL, LENET_TINY),
    "step: LeNet, batch 64, AMP": Case(lenet, LENET_SMALL, LENET_TINY, AMP),
    "step: LeNet, batch 64, captured": Case(lenet, LENET_SMALL, LENET_TINY, captured=True),
    "step: LeNet, batch 4096": Case(lenet, LENET, LENET_TINY),
    "step: GPT of 3 M, 256 tokens": Case(gpt, GPT_SMALL, GPT_TINY),
    "step: GPT of 3 M, 256 tokens, AMP": Case(gpt, GPT_SMALL, GPT_TINY, AMP),
    "step: GPT of 3 M, 256 tokens, captured": Case(gpt, GPT_SMALL, GPT_TINY, captured=True),
    "step: GPT of 134 M, 8192 tokens": Case(gpt, GPT, GPT_TINY),
    "step: GPT of 134 M, 8192 tokens, AMP": Case(gpt, GPT, GPT_TINY, AMP),
    "step: GPT of 134 M, 8192 tokens, captured": Case(gpt, GPT, GPT_TINY, captured=True),
    "step: LSTM of 2 x 512, 100 steps": Case(lstm, LSTM, LSTM_TINY),
    "step: LSTM of 2 x 512, 100 steps, AMP": Case(lstm, LSTM, LSTM_TINY, AMP),
    "step: LSTM of 2 x 512, 100 steps, captured": Case(lstm, LSTM, LSTM_TINY, captured=True),
    "matmul 4096": Case(matmul, {"size": 4096}, {"size": 8}),
    "matmul 4096, float16": Case(matmul, {"size": 4096}, {"size": 8}, HALF),
    "matmul 128": Case(matmul, {"size": 128}, {"size": 8}),
    "conv 64 to 64, batch 64": Case(
        convolution, {"batch": 64, "channels": 64, "size": 32}, {"batch": 1, "channels": 2, "size": 4}
    ),
    "conv 64 to 64, batch 1": Case(
        convolution, {"batch": 1, "channels": 64, "size": 32}, {"batch": 1, "channels": 2, "size": 4}
    ),
    "attention, T 1024": Case(
        attention, {"batch": 8, "heads": 12, "length": 1024}, {"batch": 1, "heads": 2, "length": 8}
    ),
    "attention, T 1024, float16": Case(
        attention, {"batch": 8, "heads": 12, "length": 1024}, {"batch": 1, "heads": 2, "length": 8}, HALF
    ),
    "layer norm, 8192 rows": Case(layer_norm, {"rows": 8192, "width": 1024}, {"rows": 4, "width": 40}),
    "layer norm, 64 rows": Case(layer_norm, {"rows": 64, "width": 1024}, {"rows": 4, "width": 40}),
    "embedding of 50,304 words": Case(
        embedding, {"tokens": 8192, "vocabulary": 50304, "width": 768}, {"tokens": 8, "vocabulary": 20, "width": 16}
    ),
    "AdamW, 100 M in 100 tensors": Case(optimizer, {"tensors": 100, "size": 1000}, {"tensors": 3, "size": 8}),
    "AdamW, 1 M in 100 tensors": Case(optimizer, {"tensors": 100, "size": 100}, {"tensors": 3, "size": 8}),
}
SHORT = ("step: LeNet, batch 64", "step: GPT of 3 M, 256 tokens", "matmul 128")  # of a short run
