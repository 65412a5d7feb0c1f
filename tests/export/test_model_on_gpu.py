"""Files of models on a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ox
from ox import nn

pytestmark = pytest.mark.gpu


def test_a_model_is_saved_from_where_it_is(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()).to("cuda")
    x = ox.rand(6, 3, device="cuda")
    model(x)
    before = {name: t.array for name, t in model.state_dict().items()}
    ox.export.save(model, tmp_path / "m.onnx", x)
    assert all(t.array is before[name] for name, t in model.state_dict().items()) and model.training
    loaded = ox.export.load(tmp_path / "m.onnx")
    np.testing.assert_allclose(
        loaded(x.cpu()).detach().numpy(), model.eval()(x).detach().cpu().numpy(), rtol=1e-4, atol=1e-5
    )


def test_it_is_where_it_was_after_an_error(tmp_path: Path) -> None:
    model = nn.Linear(3, 4).to("cuda")
    with pytest.raises(ox.errors.OxError):
        ox.export.save(model, tmp_path / "m.onnx", ox.rand(6, 2, device="cuda"))
    assert model.weight.is_cuda
