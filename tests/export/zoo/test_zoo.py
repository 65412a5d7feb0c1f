"""The zoo, with every size open that can be: in old opsets and new ones, and loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from architectures import ZOO

import ox
from ox.errors import ExportError

LOWEST = {"GNN": 16}  # ScatterElements adds from opset 16 on


def exported(name: str, path: Path, **options: Any) -> Any:
    make, example, dims = ZOO[name]
    ox.manual_seed(0)
    return ox.export.save(make(), path, example, dims=dims, **options)


@pytest.mark.parametrize("opset", [13, 15, 17, 18, 20, 22, 26])
@pytest.mark.parametrize("name", ZOO)
def test_every_opset(tmp_path: Path, name: str, opset: int) -> None:
    """The proof compares ONNX Runtime with the model at several sizes."""
    if opset < LOWEST.get(name, 13):
        with pytest.raises(ExportError, match="ScatterElements has no attribute reduction"):
            exported(name, tmp_path / "m.onnx", opset=opset)
        return
    report = exported(name, tmp_path / "m.onnx", opset=opset)
    assert report.opset == opset and report.proof.runtime.startswith("ONNX Runtime") and not report.unstated
    model = onnx.load(tmp_path / "m.onnx")
    assert {i.version for i in model.opset_import if i.domain == ""} == {opset}


@pytest.mark.parametrize("name", ZOO)
def test_loaded_and_saved_again(tmp_path: Path, name: str) -> None:
    """By the names, sizes and numbers of the first file."""
    report = exported(name, tmp_path / "m.onnx")
    loaded = ox.export.load(tmp_path / "m.onnx")
    example = ZOO[name][1]
    inputs = example if isinstance(example, tuple) else (example,)
    again = ox.export.save(loaded, tmp_path / "again.onnx", example)
    assert again.dims == report.dims and again.contract.rules == report.contract.rules
    with ox.no_grad():
        expected, got = loaded(*inputs), ox.export.load(tmp_path / "again.onnx")(*inputs)
    for x, y in zip(*(r if isinstance(r, tuple) else (r,) for r in (expected, got)), strict=True):
        assert np.array_equal(x.numpy(), y.numpy())
