"""What the eager benchmarks run: training steps, single operators, and steps of small models that grow.

A workload takes a library (ox or torch: their names are the same) and a function through which its forward goes
(`torch.compile` or `as_it_is`). It returns a function that does one step.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench_resnet import resnet18
from bench_training_step import transformer as transformer_model

Forward = Callable[..., Any]
Prepare = Callable[[Forward], Forward]
Step = Callable[[], Any]
Workload = Callable[[Any, Prepare], Step]


def as_it_is(forward: Forward) -> Forward:
    return forward


def _optimizer(lib: Any, model: Any, kind: str, **options: Any) -> Any:
    fused = {"fused": True} if lib.__name__ == "torch" else {}
    return getattr(lib.optim, kind)(model.parameters(), **options, **fused)


@dataclass(frozen=True)
class Training:
    """A step: gradients away, forward with the loss, backward, update."""

    optimizer: Any
    loss: Callable[[], Any]

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()


def _step(
    lib: Any,
    prepare: Prepare,
    model: Any,
    x: Any,
    targets: Any,
    kind: str = "Adam",
    bf16: bool = False,
    smoothing: float = 0.0,
    **options: float,
) -> Training:
    """The step of a classifier; forward and loss in bfloat16 where autocast has it; `smoothing` of the labels."""
    optimizer = _optimizer(lib, model, kind, **{"lr": 1e-3, **options})
    criterion = lib.nn.CrossEntropyLoss(label_smoothing=smoothing)

    def forward(x: Any, targets: Any) -> Any:
        logits = model(x)
        return criterion(logits.reshape(-1, logits.shape[-1]), targets)

    def mixed(x: Any, targets: Any) -> Any:
        with lib.autocast("cpu", dtype=lib.bfloat16):
            return forward(x, targets)

    return Training(optimizer, partial(prepare(mixed if bf16 else forward), x, targets))


def mlp(lib: Any, prepare: Prepare, batch: int = 64, width: int = 512, depth: int = 2) -> Step:
    """`depth` hidden layers of `width`."""
    nn = lib.nn
    layers = [nn.Linear(784, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    return _step(lib, prepare, model, lib.randn(batch, 784), lib.randint(0, 10, (batch,)))


def transformer(
    lib: Any,
    prepare: Prepare,
    batch: int = 8,
    length: int = 128,
    layers: int = 4,
    width: int = 256,
    heads: int = 8,
    bf16: bool = False,
) -> Step:
    """The blocks of a GPT, without its embedding."""
    model = transformer_model(lib.nn, lib.nn.functional, layers, width, heads)
    x, targets = lib.randn(batch, length, width), lib.randint(0, 64, (batch * length,))
    return _step(lib, prepare, model, x, targets, bf16=bf16)


def cnn(lib: Any, prepare: Prepare, batch: int = 64, size: int = 32) -> Step:
    nn, layers, inside = lib.nn, [], 3
    for outside in (32, 64, 128):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        inside = outside
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * (size // 8) ** 2, 10))
    return _step(lib, prepare, model, lib.randn(batch, 3, size, size), lib.randint(0, 10, (batch,)))


def digits(lib: Any, prepare: Prepare, batch: int = 64) -> Step:
    """The network and the step of the recipe `digits`, without its data and schedule."""
    nn, layers = lib.nn, []
    for inside, outside in ((1, 32), (32, 64)):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    x, targets = lib.randn(batch, 1, 8, 8), lib.randint(0, 10, (batch,))
    return _step(lib, prepare, model, x, targets, "AdamW", smoothing=0.1, weight_decay=0.01)


def resnet(lib: Any, prepare: Prepare) -> Step:
    model = resnet18(lib.nn, lib.nn.functional)
    x, targets = lib.randn(32, 3, 32, 32), lib.randint(0, 10, (32,))
    return _step(lib, prepare, model, x, targets, "SGD", momentum=0.9, weight_decay=5e-4)


def lstm(lib: Any, prepare: Prepare) -> Step:
    model = lib.nn.LSTM(256, 256, 2)
    x = lib.randn(100, 32, 256)
    optimizer = _optimizer(lib, model, "SGD", lr=1e-2)
    loss = prepare(lambda x: model(x)[0].square().mean())

    def step() -> None:
        optimizer.zero_grad()
        loss(x).backward()
        optimizer.step()

    return step


def through(module: Callable[[Any], Any], *shape: int) -> Workload:
    """Forward and backward of a module on a random input."""

    def workload(lib: Any, prepare: Prepare) -> Step:
        model = module(lib.nn)
        x = lib.randn(*shape, requires_grad=True)
        g = lib.ones_like(model(x))
        forward = prepare(model)

        def step() -> None:
            x.grad = None
            forward(x).backward(g)

        return step

    return workload


def attention(length: int, causal: bool) -> Workload:
    def workload(lib: Any, prepare: Prepare) -> Step:
        q, k, v = (lib.randn(1, 4, length, 64, requires_grad=True) for _ in range(3))
        g = lib.ones(1, 4, length, 64)
        attended = prepare(lambda q, k, v: lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal))

        def step() -> None:
            q.grad = k.grad = v.grad = None
            attended(q, k, v).backward(g)

        return step

    return workload


def cross_entropy(lib: Any, prepare: Prepare) -> Step:
    x, targets = lib.randn(8192, 128, requires_grad=True), lib.randint(0, 128, (8192,))
    loss = prepare(lambda x, targets: lib.nn.functional.cross_entropy(x, targets))

    def step() -> None:
        x.grad = None
        loss(x, targets).backward()

    return step


def embedding(lib: Any, prepare: Prepare) -> Step:
    model, tokens = lib.nn.Embedding(10_000, 256), lib.randint(0, 10_000, (64, 64))
    g = lib.ones(64, 64, 256)
    forward = prepare(model)

    def step() -> None:
        model.weight.grad = None
        forward(tokens).backward(g)

    return step


IMAGE = (16, 64, 32, 32)
STEPS: dict[str, Workload] = {
    "step: mlp": mlp,
    "step: mlp, batch 1": partial(mlp, batch=1),
    "step: digits": digits,
    "step: digits, batch 1": partial(digits, batch=1),
    "step: transformer": transformer,
    "step: transformer, bf16": partial(transformer, bf16=True),
    "step: cnn": cnn,
    "step: resnet18": resnet,
    "step: lstm": lstm,
}
OPERATORS: dict[str, Workload] = {
    "conv 64 to 64": through(lambda nn: nn.Conv2d(64, 64, 3, padding=1), 64, 64, 32, 32),
    "conv 256 to 256": through(lambda nn: nn.Conv2d(256, 256, 3, padding=1), 32, 256, 8, 8),
    "conv depthwise": through(lambda nn: nn.Conv2d(64, 64, 3, padding=1, groups=64), *IMAGE),
    "conv groups 4": through(lambda nn: nn.Conv2d(64, 64, 3, padding=1, groups=4), *IMAGE),
    "conv transposed": through(lambda nn: nn.ConvTranspose2d(64, 64, 2, 2), *IMAGE),
    "max pool": through(lambda nn: nn.MaxPool2d(2), *IMAGE),
    "batch norm": through(lambda nn: nn.BatchNorm2d(64), *IMAGE),
    "group norm": through(lambda nn: nn.GroupNorm(8, 64), *IMAGE),
    "layer norm": through(lambda nn: nn.LayerNorm(256), 4096, 256),
    "gelu": through(lambda nn: nn.GELU(), 1024, 1024),
    "silu": through(lambda nn: nn.SiLU(), 1024, 1024),
    "softmax": through(lambda nn: nn.Softmax(-1), 8192, 128),
    "cross entropy": cross_entropy,
    "dropout": through(lambda nn: nn.Dropout(0.5), 1024, 1024),
    "embedding": embedding,
    "attention T 512, causal": attention(512, True),
    "attention T 4096": attention(4096, False),
}


@dataclass(frozen=True)
class Growth:
    """A small model's step over one of its sizes."""

    axis: str
    model: str
    sizes: tuple[int, ...]
    workload: Callable[..., Step]
    argument: str

    def name(self, size: int) -> str:
        return f"growth: {self.axis} {size}"


GROWTH = (
    Growth("batch", "MLP 784-512-512-10", (1, 8, 64, 256, 1024), mlp, "batch"),
    Growth("width", "MLP with two hidden layers, batch 64", (64, 128, 256, 512, 1024), mlp, "width"),
    Growth("depth", "MLP with hidden layers of 256, batch 64", (1, 2, 4, 8, 16), partial(mlp, width=256), "depth"),
    Growth(
        "sequence length",
        "transformer, 2 layers of 128, 4 heads, batch 4",
        (32, 64, 128, 256, 512),
        partial(transformer, batch=4, layers=2, width=128, heads=4),
        "length",
    ),
    Growth("image size", "CNN with three convolutions, batch 8", (16, 32, 48, 64, 96), partial(cnn, batch=8), "size"),
)
WORKLOADS: dict[str, Workload] = {
    **STEPS,
    **OPERATORS,
    **{each.name(size): partial(each.workload, **{each.argument: size}) for each in GROWTH for size in each.sizes},
}


def words_of(description: str | None, arguments: list[str] | None = None) -> list[str]:
    """The words on the command line; ends with an error where no workload's name contains one."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only workloads whose name contains one of these")
    words: list[str] = parser.parse_args(arguments).words
    check(parser, words)
    return words


def check(parser: argparse.ArgumentParser, words: Iterable[str]) -> None:
    """An error of the parser for a word that no workload's name contains."""
    for word in words:
        if not chosen([word]):
            parser.error(f"no workload has {word!r} in its name; there are: {', '.join(WORKLOADS)}")


def chosen(words: Iterable[str]) -> dict[str, Workload]:
    """The workloads whose name contains one of the words; all of them if there are none."""
    words = list(words)
    return {name: w for name, w in WORKLOADS.items() if not words or any(word in name for word in words)}
