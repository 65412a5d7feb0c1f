"""The cache of Hugging Face: files of a snapshot are links to blobs beside it, the model and its external data too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rows import rows

import ox
from ox.errors import LoadError
from ox.serve.repository.layout import Layout
from ox.serve.runtime.source import read

WEIGHT = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)


def cache(folder: Path, location: str = "model.onnx_data") -> Path:
    """The model of a snapshot, whose data is at `location`."""
    blobs, snapshot = folder / "blobs", folder / "snapshots" / "revision" / "onnx"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 64])] for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", *ends, [numpy_helper.from_array(WEIGHT, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, blobs / "111", save_as_external_data=True, location="222", size_threshold=0)
    model = onnx.load(blobs / "111", load_external_data=False)
    next(e for e in model.graph.initializer[0].external_data if e.key == "location").value = location
    onnx.save(model, blobs / "111")
    for name, blob in (("model.onnx", "111"), ("model.onnx_data", "222")):
        (snapshot / name).symlink_to(os.path.relpath(blobs / blob, snapshot))
    return snapshot / "model.onnx"


def test_every_command_takes_it(tmp_path: Path) -> None:
    path = cache(tmp_path / "models--a--b")
    assert np.allclose(ox.export.load(path)(ox.from_numpy(X)).detach().numpy(), X @ WEIGHT, atol=1e-4)
    for runtime in ("onnxruntime", "reference"):
        assert ox.export.prove(path, runtime=runtime).rows
    assert ox.export.convert(path, tmp_path / "converted.onnx")[1].rows
    assert ox.export.inspect(path).size > WEIGHT.nbytes
    assert ox.export.diff(path, tmp_path / "converted.onnx").numbers["y"].ok
    for scheme in ("float16", "int8-dynamic", "int4"):
        report = ox.export.quantize(path, tmp_path / "small.onnx", scheme, calibration=X)
        assert report.quantized and report.size_ratio < 0.7
    assert read(path).operators == {"MatMul"}  # as the server does before a runtime may
    assert [m.problem for m in Layout([path.parent]).scan().models.values()] == [None]


def elsewhere(repository: Path, data: Path, secret: Path) -> None:
    data.symlink_to(secret)


def through_blobs(repository: Path, data: Path, secret: Path) -> None:
    (repository / "blobs" / "222").unlink()
    (repository / "blobs" / "222").symlink_to(secret)
    data.symlink_to(repository / "blobs" / "222")


def all_blobs(repository: Path, data: Path, secret: Path) -> None:
    moved = repository.parent / "moved"
    (repository / "blobs").rename(moved)
    (repository / "blobs").symlink_to(moved)
    data.symlink_to(repository / "blobs" / "222")


def other_repository(repository: Path, data: Path, secret: Path) -> None:
    other = cache(repository.parent / "models--c--d")
    data.symlink_to(other.parents[3] / "blobs" / "222")


@rows("link", [elsewhere, through_blobs, all_blobs, other_repository])
def test_links_that_leave_the_cache_are_refused(link: Any, tmp_path: Path) -> None:
    repository, secret = tmp_path / "models--a--b", tmp_path / "secret"
    path = cache(repository)
    secret.write_bytes(b"x" * (repository / "blobs" / "222").stat().st_size)
    data = path.with_name("model.onnx_data")
    data.unlink()
    link(repository, data, secret)
    if link is all_blobs:  # the model, too
        path.unlink()
        path.symlink_to(tmp_path / "moved" / "111")
    for take in (ox.export.load, read):
        with pytest.raises(LoadError, match="outside its folder"):
            take(path)
    (found,) = Layout([path.parent]).scan().models.values()
    assert (found.problem is not None) == (link is all_blobs)  # the link of the model itself leads out there alone


@pytest.mark.parametrize("location", ["../../../blobs/222", "/etc/passwd", "../onnx/model.onnx_data"])
def test_a_location_that_climbs_is_refused(location: str, tmp_path: Path) -> None:
    path = cache(tmp_path / "models--a--b", location)
    with pytest.raises(LoadError, match="outside its folder"):
        ox.export.load(path)
