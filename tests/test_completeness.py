"""Whatever a user can name has a test that names it: layers, metrics, optimizers and recipes.

Operators and routes have generated tests (tests/ops, tests/serve/protocol/rest), which ask for samples and paths.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from rows import rows

from ox import nn, optim
from ox.train import metrics
from ox.train.recipe.recipe import available

TESTS = Path(__file__).parent


@cache
def words(*folders: str) -> frozenset[str]:
    """All names and words in the tests of some folders."""
    files = [path for folder in folders for path in (TESTS / folder).rglob("*.py")]
    assert files
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text()))


LAYERS = [name for name, value in vars(nn).items() if isinstance(value, type) and issubclass(value, nn.Module)]
METRICS = [
    name for name, value in vars(metrics).items() if isinstance(value, type) and issubclass(value, metrics.Metric)
]
OPTIMIZERS = [name for name, value in vars(optim).items() if isinstance(value, type)]


@rows("name", LAYERS)
def test_a_layer_has_a_test(name: str) -> None:
    family = re.sub(r"[123]d$", "", name)  # the tests loop over the numbers of dimensions
    found = [word for word in words("nn", "parity") if word.startswith(family)]
    assert name in found or (family != name and found), f"test {name} in tests/nn/layers"


@rows("name", METRICS)
def test_a_metric_has_a_test(name: str) -> None:
    assert name in words("train/metrics"), f"compare {name} with a plain definition in tests/train/metrics"


@rows("name", OPTIMIZERS)
def test_an_optimizer_has_a_test(name: str) -> None:
    assert name in words("optim", "parity"), f"add {name} to tests/optim/optimizer_cases.py"


@rows("name", available())
def test_a_recipe_has_a_test(name: str) -> None:
    assert name in words("models"), f"train, export and serve {name} in tests/models"
