"""Twenty training steps on the native engine against eager ones."""

from __future__ import annotations

import numpy as np
import pytest
from recorded_step import MODELS, OPTIMIZERS, Training, Transformer, tokens

import ox
from ox.engines.native import Native

STEPS = 20


@pytest.mark.slow_after(5)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_it_ends_where_eager_training_ends(name: str, optimizer: str) -> None:
    make, data = MODELS[name]
    random = np.random.default_rng(0)
    ox.manual_seed(0)
    model = make()
    training = Training(model, OPTIMIZERS[optimizer](model.parameters()), data(random, 5))
    training.check(Native().build(training.task), [data(random, 5) for _ in range(STEPS)])


@pytest.mark.parametrize("clip", [0.05, 1e3])
def test_clipped_gradients(clip: float) -> None:
    make, data = MODELS["MLP"]
    random = np.random.default_rng(0)
    ox.manual_seed(0)
    model = make()
    training = Training(model, OPTIMIZERS["Adam"](model.parameters()), data(random, 5), clip)
    training.check(Native().build(training.task), [data(random, 5) for _ in range(STEPS)])


def test_dropout_draws_what_eager_code_draws() -> None:
    random = np.random.default_rng(0)
    ox.manual_seed(7)
    model = Transformer(dropout=0.3)
    training = Training(model, OPTIMIZERS["SGD"](model.parameters()), tokens(random, 5), draws=True)
    training.check(Native().build(training.task), [tokens(random, 5) for _ in range(STEPS)])
