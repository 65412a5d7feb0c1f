"""`ox.export.adopt`: files that ONNX Runtime's own tools quantized."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import quantize_dynamic

import ox
from ox.errors import ArgumentError, ExportError, LoadError
from ox.graph.contract import Contract
from ox.graph.reader.model_file import metadata_of
from ox.serve.config.model_config import ModelConfig
from ox.serve.config.request_limits import RequestLimits
from ox.serve.repository.model import Model

Array = np.ndarray[Any, Any]


@pytest.fixture
def theirs(network: Path, tmp_path: Path) -> Path:
    path = tmp_path / "theirs.onnx"
    quantize_dynamic(network, path)
    return path


def serve(path: Path) -> Model:
    return Model(path, ModelConfig(instances=1, threads=1), RequestLimits())


def test_the_server_says_how_and_then_takes_it(
    theirs: Path, network: Path, images: Array, scores: Callable[..., Array]
) -> None:
    with pytest.raises(LoadError, match=r"golden outputs[^~]*quantized after it was proven: ox quantize --adopt"):
        serve(theirs)
    contract, accuracy = ox.export.adopt(theirs)
    assert accuracy is None and contract.tolerance is not None and len(contract.samples) == 3
    serve(theirs)
    before = Contract.from_metadata(metadata_of(onnx.load(network)))
    after = Contract.from_metadata(metadata_of(onnx.load(theirs)))
    assert (after.inputs, after.outputs, after.run) == (before.inputs, before.outputs, before.run)
    moved = [
        np.abs(a.outputs["output"] - b.outputs["output"]).max()
        for a, b in zip(after.samples, before.samples, strict=True)
    ]
    assert after.tolerance == pytest.approx(max(moved))
    again, _ = ox.export.adopt(theirs)
    assert again.tolerance == after.tolerance  # and not 0, because nothing moved since


@pytest.mark.parametrize("scheme", ["float16", "bfloat16", "int8-dynamic", "int8", "int4"])
def test_the_server_takes_what_quantize_writes(scheme: str, network: Path, images: Array, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    ox.export.quantize(network, path, scheme, calibration=images)
    model = serve(path)
    assert (model.proof.max_rows > 1) == (scheme != "int8-dynamic")  # whose scale is that of the whole batch


def test_another_model_is_still_refused(network: Path, images: Array, tmp_path: Path) -> None:
    """The tolerance of a quantized file is no leave to compute something else."""
    path = tmp_path / "small.onnx"
    ox.export.quantize(network, path, "int8", calibration=images)
    model = onnx.load(path)
    scale = next(t for t in model.graph.initializer if t.name == "6.weight_scale")
    values = onnx.numpy_helper.to_array(scale) * 1.5
    scale.CopyFrom(onnx.numpy_helper.from_array(values, scale.name))
    onnx.save(model, path)
    with pytest.raises(LoadError, match="golden outputs"):
        serve(path)


def test_a_file_that_is_not_accurate_enough_stays(theirs: Path) -> None:
    before = theirs.read_bytes()
    with pytest.raises(ExportError, match=r"less accurate[^~]*0\.9 or more[^~]*got *0\.5"):
        ox.export.adopt(theirs, evaluate=lambda _: 0.5, min_accuracy=0.9)
    assert theirs.read_bytes() == before


def test_a_file_without_golden_samples(theirs: Path) -> None:
    model = onnx.load(theirs)
    del model.metadata_props[:]
    onnx.save(model, theirs)
    with pytest.raises(ArgumentError, match="no golden samples"):
        ox.export.adopt(theirs)


def test_a_float32_file_stays(network: Path, tmp_path: Path) -> None:
    """A tolerance of its own would hide what changes in it later."""
    path = tmp_path / "float32.onnx"
    path.write_bytes(network.read_bytes())
    with pytest.raises(ArgumentError, match=r"is not quantized[^~]*lower precision[^~]*float32"):
        ox.export.adopt(path)
    assert path.read_bytes() == network.read_bytes()


def test_an_accuracy_near_the_limit_is_shown(theirs: Path) -> None:
    with pytest.raises(ExportError, match=r"0\.99999 or more[^~]*got *0\.99998"):
        ox.export.adopt(theirs, evaluate=lambda _: 0.99998, min_accuracy=0.99999)
