"""A small transformer trained in float32, in float16 with a scaler, and in bfloat16 ends at the same loss."""

from __future__ import annotations

import numpy as np
import pytest

import ox
from ox import nn

STEPS, BATCH, LENGTH, WORDS = 120, 32, 12, 16
MARGIN = 0.01  # of the loss at the end, a mean over the last 20 steps; measured: 0.0002 and 0.0005


class Model(nn.Module):
    """Which word comes next, of a chain of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 32), nn.Embedding(LENGTH, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, WORDS)

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        h = self.words(x) + self.places(ox.arange(LENGTH))
        return self.head(self.norm(self.layer(h, src_mask=mask, is_causal=True)))


def sequences(count: int) -> np.ndarray:
    """Words of which each depends on the one before: [count, LENGTH + 1]."""
    random = np.random.default_rng(1)
    chances = np.exp(2.5 * random.standard_normal((WORDS, WORDS)))
    bounds = np.cumsum(chances / chances.sum(1, keepdims=True), 1)
    words = random.integers(0, WORDS, (count, 1))
    for _ in range(LENGTH):
        drawn = (random.random((count, 1)) > bounds[words[:, -1]]).sum(1, keepdims=True)
        words = np.concatenate([words, np.minimum(drawn, WORDS - 1)], 1)
    return words


def train(dtype: ox.dtype | None, scaled: bool) -> tuple[float, list[float]]:
    ox.manual_seed(0)
    model, data = Model(), sequences(STEPS * BATCH).reshape(STEPS, BATCH, LENGTH + 1)
    optimizer = ox.optim.AdamW(model.parameters(), lr=5e-3)
    scaler = ox.GradScaler("cpu", init_scale=2.0**22, growth_interval=40, enabled=scaled)
    losses, scales = [], []
    for batch in data:
        optimizer.zero_grad()
        with ox.autocast("cpu", dtype or ox.bfloat16, enabled=dtype is not None):
            logits = model(ox.tensor(batch[:, :-1]))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ox.tensor(batch[:, 1:].ravel()))
        assert logits.dtype == (dtype or ox.float32) and loss.dtype == ox.float32
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    return float(np.mean(losses[-20:])), scales


@pytest.fixture(scope="module")
def plain() -> float:
    return train(None, False)[0]


def test_it_learns(plain: float) -> None:
    assert plain < 0.6 * np.log(WORDS)


def test_bfloat16_ends_at_the_same_loss(plain: float) -> None:
    assert train(ox.bfloat16, False)[0] == pytest.approx(plain, rel=MARGIN)


def test_float16_with_a_scaler_ends_at_the_same_loss(plain: float) -> None:
    end, scales = train(ox.float16, True)
    assert end == pytest.approx(plain, rel=MARGIN)
    assert scales[0] < 2.0**22 and max(scales) > min(scales)  # it began too high, shrank, and grew again
