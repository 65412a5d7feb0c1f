"""The zoo: with the batch open, with every size open that can be, in old opsets and new ones, and loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from architecture import Array
from architectures import ZOO

import ox
from ox.errors import ExportError
from ox.tolerance import compare

OLDEST = 13
SEED = 7
COUNTS = ("Swin",)  # which make a plain number of a size: int(windows.shape[0] / (H * W / size / size))


def check(name: str, path: Path, sizes: dict[str, int], **options: Any) -> Any:
    """Export a model of the zoo, and run the file and the model at sizes that no recording and no proof has seen."""
    architecture = ZOO[name]
    ox.manual_seed(0)
    model = architecture.make().eval()
    report = ox.export.save(model, path, architecture.example, seed=architecture.seed, **options)
    assert bool(report.unstated) == (name in COUNTS) and not report.proof.failed
    inputs = architecture.inputs(**sizes)
    ox.manual_seed(SEED)
    with ox.no_grad():
        expected = flat(model(*(ox.from_numpy(x.copy()) for x in inputs)))
    for got, wanted in zip(run(path, inputs), expected, strict=True):
        assert got.shape == wanted.shape and got.dtype == wanted.dtype
        difference = compare(got, wanted)
        assert difference.ok, str(difference)
    return report


def flat(result: Any) -> list[Array]:
    """What a model returned, in the order of the outputs of its file."""
    several = result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else [result]
    return [x.numpy() for x in several]


def run(path: Path, inputs: tuple[Array, ...]) -> Any:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = (*inputs, np.array(SEED))  # which only those take that draw random numbers
    return session.run(None, {i.name: x for i, x in zip(session.get_inputs(), given)})


@pytest.mark.slow_after(12)
@pytest.mark.parametrize("name", ZOO)
def test_with_the_batch_open(tmp_path: Path, name: str) -> None:
    architecture = ZOO[name]
    check(name, tmp_path / "m.onnx", architecture.batch_sizes(), dims=architecture.batch_dims())


@pytest.mark.slow_after(6)
@pytest.mark.parametrize("oldest", [True, False])
@pytest.mark.parametrize("name", ZOO)
def test_for_inference(tmp_path: Path, name: str, oldest: bool) -> None:
    """Fewer nodes, with the same proof."""
    architecture = ZOO[name]
    options: dict[str, Any] = {"dims": architecture.dims, "opset": architecture.lowest if oldest else None}
    plain = check(name, tmp_path / "plain.onnx", architecture.other, **options)
    fast = check(name, tmp_path / "fast.onnx", architecture.other, **options, optimize="inference")
    kinds = [node.op_type for node in onnx.load(tmp_path / "plain.onnx").graph.node]
    norms = sum(kind in ("GroupNormalization", "OxGroupNormalization") for kind in kinds)  # six operators each
    assert fast.nodes <= plain.nodes + 5 * norms and fast.opset == plain.opset
    assert fast.dims == plain.dims and [row.at for row in fast.rows] == [row.at for row in plain.rows]


@pytest.mark.parametrize("name", ZOO)
def test_with_all_sizes_open(tmp_path: Path, name: str) -> None:
    architecture = ZOO[name]
    report = check(name, tmp_path / "m.onnx", architecture.other, dims=architecture.dims)
    assert report.proof.runtime.startswith("ONNX Runtime")


@pytest.mark.slow
@pytest.mark.parametrize("end", ["lowest", "highest"])
@pytest.mark.parametrize("name", ZOO)
def test_the_oldest_and_the_newest_opset(tmp_path: Path, name: str, end: str) -> None:
    architecture, path = ZOO[name], tmp_path / "m.onnx"
    opset = getattr(architecture, end)
    report = check(name, path, architecture.other, dims=architecture.dims, opset=opset)
    assert report.opset == opset and report.proof.runtime.startswith("ONNX Runtime")
    assert {i.version for i in onnx.load(path).opset_import if i.domain == ""} == {opset}


@pytest.mark.parametrize("name", [name for name, each in ZOO.items() if each.lowest > OLDEST])
def test_an_opset_that_is_too_old(tmp_path: Path, name: str) -> None:
    """The error names the operator; the newest one that does not have it is no further away."""
    architecture = ZOO[name]
    for opset in (OLDEST, architecture.lowest - 1):
        with pytest.raises(ExportError, match=f"(has|does).* in opset {opset}"):
            check(name, tmp_path / "m.onnx", architecture.other, dims=architecture.dims, opset=opset)


def test_an_opset_that_is_too_new_for_the_runtime(tmp_path: Path) -> None:
    architecture = ZOO["RoIHead"]
    options = {"dims": architecture.dims, "opset": architecture.highest + 1}
    report = ox.export.save(architecture.make(), tmp_path / "m.onnx", architecture.example, **options)
    assert report.proof.runtime.startswith("onnx.reference") and "no kernel" in report.proof.note


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("name", ZOO)
def test_loaded_and_saved_again(tmp_path: Path, name: str) -> None:
    """By the names, sizes and numbers of the first file."""
    architecture = ZOO[name]
    inputs, seed = architecture.example, architecture.seed
    report = ox.export.save(architecture.make(), tmp_path / "m.onnx", inputs, dims=architecture.dims, seed=seed)
    loaded = ox.export.load(tmp_path / "m.onnx")
    again = ox.export.save(loaded, tmp_path / "again.onnx", inputs if seed is None else (*inputs, np.array(SEED)))
    assert again.dims == report.dims and again.contract.rules == report.contract.rules
    for x, y in zip(run(tmp_path / "m.onnx", inputs), run(tmp_path / "again.onnx", inputs), strict=True):
        assert np.array_equal(x, y)
