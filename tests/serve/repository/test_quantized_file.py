"""A file that ONNX Runtime's tools quantized: its golden samples are those of the model before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnxruntime.quantization import quantize_dynamic

import ox
from ox import nn
from ox.errors import LoadError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.model import Model


@pytest.mark.filterwarnings("ignore")
def test_refused_with_the_way_out(tmp_path: Path) -> None:
    ox.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    rows = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)
    ox.export.save(model, tmp_path / "float.onnx", rows)
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "small.onnx")
    with pytest.raises(LoadError, match="does not compute its golden outputs") as caught:
        Model(tmp_path / "small.onnx", ModelConfig("cpu"), RequestLimits())
    assert "`ox convert small.onnx` draws new ones" in str(caught.value.hint)
    ox.export.convert(tmp_path / "small.onnx", tmp_path / "small.onnx")
    served = Model(tmp_path / "small.onnx", ModelConfig("cpu"), RequestLimits())
    assert len(served.samples) == 3
