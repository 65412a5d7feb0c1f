"""What a training step asks of a GPU, in the third step and later: launches, waits, copies. None of it may grow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from count_table import CountTable

import ox
from ox import nn
from ox_models.digits import LeNet
from ox_models.gpt2 import GPT2Config, GPT2LMHeadModel

pytestmark = pytest.mark.gpu

COUNTERS = ["launches", "products", "graphs", "waits", "to device", "to host"]
WARM_STEPS = 3  # a compiled call records in the first, replays in the second, and is captured in the third


def lenet() -> tuple[nn.Module, Any, Any]:
    numbers = np.random.default_rng(0)
    images = ox.tensor(numbers.standard_normal((8, 1, 8, 8)).astype(np.float32))
    return LeNet(), images, ox.tensor(numbers.integers(0, 10, 8))


def gpt() -> tuple[nn.Module, Any, Any]:
    numbers = np.random.default_rng(0)
    config = GPT2Config(vocab_size=65, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    tokens = ox.tensor(numbers.integers(0, 65, (2, 17)))
    return GPT2LMHeadModel(config), tokens[:, :-1], tokens[:, 1:]


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


@pytest.mark.parametrize("make", [lenet, gpt])
@pytest.mark.parametrize("way", ["eager", "amp", "captured", "captured amp"])
def test_a_step(make: Callable[[], tuple[nn.Module, Any, Any]], way: str, count_table: CountTable) -> None:
    ox.manual_seed(0)
    model, inputs, targets = make()
    model, inputs, targets = model.to("cuda"), inputs.to("cuda"), targets.to("cuda")
    step = training_step(model, amp="amp" in way)
    if "captured" in way:
        step = ox.compile(step)
    losses = [step(inputs, targets).item() for _ in range(WARM_STEPS)]
    with count_table.counting(f"{make.__name__}, {way}", COUNTERS):
        losses.append(step(inputs, targets).item())
    assert losses[-1] < losses[0] and np.isfinite(losses).all()
