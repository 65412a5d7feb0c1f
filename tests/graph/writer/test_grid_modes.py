"""The modes of GridSample had other names before opset 20."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from rows import rows

import ox
from ox.nn import functional as F

R = np.random.default_rng(0)


@rows("opset", [16, 17, 19, 20])
@rows("mode", ["bilinear", "nearest", "bicubic"])
def test_modes_of_a_grid_have_other_names(tmp_path: Path, opset: int, mode: str) -> None:
    """Until opset 20 linear was called bilinear, and ONNX's checker lets every name pass."""

    def look(x: Any, grid: Any) -> Any:
        return F.grid_sample(x, grid, mode=mode, align_corners=False)

    x, grid = R.normal(size=(4, 2, 5, 6)).astype(np.float32), R.uniform(-1, 1, (4, 3, 3, 2)).astype(np.float32)
    ox.export.save(look, tmp_path / "m.onnx", (x, grid), opset=opset)
    assert onnx.load(tmp_path / "m.onnx").opset_import[0].version == opset
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": x, "grid": grid})
    assert np.allclose(result, look(ox.tensor(x), ox.tensor(grid)).numpy(), atol=1e-5)
    loaded = ox.export.load(tmp_path / "m.onnx")
    assert np.allclose(loaded(ox.tensor(x), ox.tensor(grid)).numpy(), result, atol=1e-5)
