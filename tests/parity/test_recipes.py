"""Each recipe with nothing but its imports changed: from the same weights PyTorch gives the same answers."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import ox
from ox.errors import OxError
from ox.train.recipe.recipe import available

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")
torch.set_num_threads(1)  # its threads spin, and take many times as long where they must share their cores

from moved import moved  # noqa: E402 - it needs PyTorch, too

ROWS = np.arange(4)


@pytest.mark.parametrize("name", available())
def test_a_recipe_moves_over(name: str) -> None:
    page, other = importlib.import_module(f"ox_models.{name}"), moved(name)
    try:
        part = page.data()[1]
    except OxError as error:
        pytest.skip(error.one_line())
    batch = part.batch(ROWS) if hasattr(part, "batch") else ox.data.default_collate([part[int(i)] for i in ROWS])
    ours, theirs = page.model(), other.model()
    theirs.load_state_dict({key: torch.from_numpy(x.detach().numpy()) for key, x in ours.state_dict().items()})
    *inputs, targets = batch
    copies = [torch.from_numpy(x.numpy()) for x in inputs]
    with ox.no_grad(), torch.no_grad():
        got, expected = ours.eval()(*inputs), theirs.eval()(*copies)
        same(got, expected)
        same(page.loss(got, targets), other.loss(expected, torch.from_numpy(targets.numpy())))


def same(got: Any, expected: Any) -> None:
    wide = max(1.0, float(expected.abs().max()))
    np.testing.assert_allclose(got.numpy() / wide, expected.numpy() / wide, rtol=1e-4, atol=1e-5)
