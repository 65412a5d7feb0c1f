"""What ONNX Runtime lacks or does wrongly, and how a file avoids it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import ox


def test_a_choice_of_truth_values(tmp_path: Path) -> None:
    """In a branch, too; for ONNX Runtime has no Where of them."""

    def model(x: Any) -> Any:
        chosen = ox.where(x[:, :1] > 0, x > 1, x[:, :1] < -1)
        return chosen, ox.cond(x.sum() > 0, lambda: ox.where(chosen, x > 0.5, chosen), lambda: ~chosen)

    x = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32) + 0.5
    report = ox.export.save(model, tmp_path / "m.onnx", x)
    assert report.proof.runtime.startswith("ONNX Runtime")
    for each in (x, -x):
        got = ort.InferenceSession(tmp_path / "m.onnx").run(None, {"x": each})
        for a, b in zip(got, model(ox.from_numpy(each)), strict=True):
            assert a.shape == (9, 4) and np.array_equal(a, b.numpy())
