"""models/README.md speaks of every recipe, and promises what scripts/recipes.py checks."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipes import PROMISED

from ox.train.recipe import available, load

TEXT = (Path(__file__).parents[2] / "models" / "README.md").read_text()


@pytest.mark.parametrize("name", available())
def test_a_recipe_has_its_row(name: str) -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith(f"| [{name}](ox_models/{name}.py)")]
    assert len(rows) == 1
    assert f"`ox train {name}`" in rows[0]
    recipe = load(name)
    parameters = sum(p.numel() for p in recipe.model().parameters() if p.requires_grad)
    assert f"| {parameters:,} |" in rows[0]
    assert name in PROMISED
