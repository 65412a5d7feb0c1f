"""The training steps of LeNet, a ResNet, GPT with dropout and an LSTM whose launches, waits and copies are counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

import ox
from ox import nn
from ox_models.digits import LeNet
from ox_models.gpt2 import GPT2Config, GPT2LMHeadModel
from ox_models.resnet import ResNet

COUNTERS = ["launches", "products", "graphs", "waits", "to device", "bytes to device", "to host"]
WAYS = ["eager", "amp", "captured", "captured amp"]
WARM_STEPS = 3  # a compiled call records in the first, replays in the second, and is captured in the third


def lenet() -> tuple[nn.Module, Any, Any]:
    numbers = np.random.default_rng(0)
    images = ox.tensor(numbers.standard_normal((8, 1, 8, 8)).astype(np.float32))
    return LeNet(), images, ox.tensor(numbers.integers(0, 10, 8))


def resnet() -> tuple[nn.Module, Any, Any]:
    """Four blocks, three of them with a stride."""
    numbers = np.random.default_rng(0)
    images = ox.tensor(numbers.standard_normal((4, 3, 8, 8)).astype(np.float32))
    return ResNet((1, 1, 1, 1), num_classes=10, small=True, width=8), images, ox.tensor(numbers.integers(0, 10, 4))


def gpt() -> tuple[nn.Module, Any, Any]:
    numbers = np.random.default_rng(0)
    config = GPT2Config(vocab_size=65, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    tokens = ox.tensor(numbers.integers(0, 65, (2, 17)))
    return GPT2LMHeadModel(config), tokens[:, :-1], tokens[:, 1:]


class Characters(nn.Module):
    """A language model of two layers of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(65, 32), nn.Linear(32, 65)
        self.layers = nn.LSTM(32, 32, 2, batch_first=True)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.layers(self.embedding(tokens))[0])


def lstm() -> tuple[nn.Module, Any, Any]:
    tokens = ox.tensor(np.random.default_rng(0).integers(0, 65, (2, 17)))
    return Characters(), tokens[:, :-1], tokens[:, 1:]


MODELS = [lenet, resnet, gpt, lstm]


def training_step(model: nn.Module, amp: bool) -> Callable[[Any, Any], Any]:
    """A step with AdamW, clipped gradients and, with `amp`, float16 and a scaled loss."""
    optimizer = ox.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = ox.GradScaler("cuda", init_scale=256.0, enabled=amp)

    def step(inputs: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        with ox.autocast("cuda", ox.float16, enabled=amp):
            outputs = model(inputs)
            loss = nn.functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def prepared(make: Callable[[], tuple[nn.Module, Any, Any]], way: str) -> Callable[[], Any]:
    """A step on the GPU as a function that returns its loss."""
    ox.manual_seed(0)
    model, inputs, targets = make()
    model, inputs, targets = model.to("cuda"), inputs.to("cuda"), targets.to("cuda")
    step = training_step(model, amp="amp" in way)
    if "captured" in way:
        step = ox.compile(step)
    return lambda: step(inputs, targets)


def losses(
    make: Callable[[], tuple[nn.Module, Any, Any]], way: str, counting: AbstractContextManager[Any]
) -> list[float]:
    """Of the first steps, and of the one that `counting` counts."""
    step = prepared(make, way)
    found = [step().item() for _ in range(WARM_STEPS)]
    with counting:
        found.append(step().item())
    return found


def names_of_types(run: Callable[[], Any]) -> int:
    """How often a call makes a text of an element type."""
    from numpy._core import _dtype  # what str(dtype) calls

    count = 0

    def see(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is _dtype.__str__.__code__

    sys.setprofile(see)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count
