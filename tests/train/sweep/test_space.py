"""Search spaces as words."""

from __future__ import annotations

import pytest
from rows import rows

from ox.errors import ArgumentError
from ox.train import load
from ox.train.sweep.space import Choice, Range, read_space

SPACES = {
    "lr=1e-4..1e-1:log": {"lr": Range(1e-4, 1e-1, log=True)},
    "lr=0.1..1": {"lr": Range(0.1, 1.0)},
    "epochs=1..8": {"epochs": Range(1, 8)},
    "batch=32,64,128": {"batch_size": Choice((32, 64, 128))},
    "batch-size=8": {"batch_size": Choice((8,))},
    "lr=0.1,0.2 clip=1": {"lr": Choice((0.1, 0.2)), "clip": Choice((1.0,))},
    "drop_last=true,false amp=bf16": {"drop_last": Choice((True, False)), "amp": Choice(("bf16",))},
}
MISTAKES = {
    "": "needs an option",
    "lr": "is no part",
    "lr=": "is no part",
    "rl=1..2": "no option 'rl'.*lr=1..2",
    "workers=1,2": "no option 'workers'",
    "lr=1..2 lr=3": "given twice",
    "lr=fast": "no value 'fast'.*a number",
    "epochs=1.5": "no value '1.5'.*whole number",
    "drop_last=1": "no value '1'.*true or false",
    "lr=2..1": "empty range",
    "lr=0..1:log": "empty range",
    "lr=1..2:exp": "is no range",
    "amp=a..b": "is no range",
    "batch=0,32": "batch_size must be",
    "lr=-1..1": "lr must be",
    "amp=int8": "amp has no type",
}


@rows("words", SPACES)
def test_spaces(words: str) -> None:
    assert read_space(words.split(), load("digits")) == SPACES[words]


@rows("words", MISTAKES)
def test_mistakes(words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        read_space(words.split(), load("digits"))
    first, _, rest = MISTAKES[words].partition(".*")
    assert first in str(caught.value) and rest in str(caught.value)


def test_distributions() -> None:
    optuna = pytest.importorskip("optuna", reason='Optuna is not installed: pip install "ox-onnx[sweep]"')
    space = read_space(["lr=1e-4..1e-1:log", "epochs=1..8", "batch=32,64"], load("digits"))
    assert [part.distribution() for part in space.values()] == [
        optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True),
        optuna.distributions.IntDistribution(1, 8),
        optuna.distributions.CategoricalDistribution((32, 64)),
    ]
