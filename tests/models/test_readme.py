"""models/README.md has a row for every recipe, from which scripts/recipes.py reads the result that it checks."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipes import expected
from rows import rows

from ox.train.recipe.recipe import available, load

TEXT = (Path(__file__).parents[2] / "models" / "README.md").read_text()


@rows("name", available())
def test_a_recipe_has_its_row(name: str) -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith(f"| [{name}](ox_models/{name}.py)")]
    assert len(rows) == 1
    assert f"`ox train {name}`" in rows[0]
    recipe = load(name)
    parameters = sum(p.numel() for p in recipe.model().parameters() if p.requires_grad)
    assert f"| {parameters:,} |" in rows[0]
    metric, bound, least = expected(name)
    assert 0 < bound < (1 if metric == "accuracy" else 10) and least is (metric == "accuracy")


def test_a_recipe_without_a_row_is_found() -> None:
    with pytest.raises(LookupError, match=r"models/README\.md"):
        expected("nothing")
