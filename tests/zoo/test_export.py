"""The zoo exported: with the batch open, with every size open that can be, in old opsets and new ones, loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from architecture import Architecture, Array, flat
from architectures import ZOO

import ox
from ox.errors import ExportError
from ox.tolerance import compare

OLDEST = 13
SEED = 7
IN_EVERY_RUN = ("ResNet", "GPT", "VAE")  # convolutions, attention, random numbers; the others are slow
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
        expected = [x.numpy() for x in flat(model(*(ox.from_numpy(x.copy()) for x in inputs)))]
    for got, wanted in zip(run(path, inputs), expected, strict=True):
        assert got.shape == wanted.shape and got.dtype == wanted.dtype
        difference = compare(got, wanted)
        assert difference.ok, str(difference)
    return report


def run(path: Path, inputs: tuple[Array, ...]) -> Any:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    values = (*inputs, np.array(SEED))  # which only those take that draw random numbers
    return session.run(None, {i.name: x for i, x in zip(session.get_inputs(), values)})


@pytest.mark.parametrize("name", ZOO)
def test_with_all_sizes_open(tmp_path: Path, name: str) -> None:
    architecture = ZOO[name]
    report = check(name, tmp_path / "m.onnx", architecture.other, dims=architecture.dims)
    assert report.proof.runtime.startswith("ONNX Runtime")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.slow) for name in ZOO]
)
def test_in_every_form(tmp_path: Path, name: str, subtests: pytest.Subtests) -> None:
    architecture = ZOO[name]
    with subtests.test("with the batch open"):  # of the default opset
        options: dict[str, Any] = {"dims": architecture.batch_dims(), "optimize": "inference"}
        check(name, tmp_path / "batch.onnx", architecture.batch_sizes(), **options)
    for opset in (architecture.lowest, architecture.highest):
        path = tmp_path / f"{opset}.onnx"
        with subtests.test(opset=opset):
            plain = check(name, path, architecture.other, dims=architecture.dims, opset=opset)
            assert plain.opset == opset and plain.proof.runtime.startswith("ONNX Runtime")
            assert {i.version for i in onnx.load(path).opset_import if i.domain == ""} == {opset}
        if opset == architecture.lowest:
            with subtests.test("for inference"):
                for_inference(name, path, plain)
    with subtests.test("loaded and saved again"):
        loaded_and_saved_again(architecture, path, plain)
    with subtests.test("an opset that is too old"):
        # the error names the operator; the newest one that does not have it is no further away
        for opset in {OLDEST, architecture.lowest - 1} if architecture.lowest > OLDEST else ():
            with pytest.raises(ExportError, match=f"(has|does).* in opset {opset}"):
                check(name, tmp_path / "old.onnx", architecture.other, dims=architecture.dims, opset=opset)


def for_inference(name: str, path: Path, plain: Any) -> None:
    """Fewer nodes, with the same proof."""
    architecture = ZOO[name]
    options: dict[str, Any] = {"dims": architecture.dims, "opset": plain.opset, "optimize": "inference"}
    fast = check(name, path.with_name("fast.onnx"), architecture.other, **options)
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    norms = sum(kind in ("GroupNormalization", "OxGroupNormalization") for kind in kinds)  # six operators each
    assert fast.nodes <= plain.nodes + 5 * norms and fast.opset == plain.opset
    assert fast.dims == plain.dims and [row.at for row in fast.rows] == [row.at for row in plain.rows]


def loaded_and_saved_again(architecture: Architecture, path: Path, report: Any) -> None:
    """By the names, sizes and numbers of the first file."""
    inputs, other = architecture.example, path.with_name("again.onnx")
    given = inputs if architecture.seed is None else (*inputs, np.array(SEED))
    again = ox.export.save(ox.export.load(path), other, given, opset=report.opset)
    assert again.dims == report.dims and again.contract.rules == report.contract.rules
    for x, y in zip(run(path, inputs), run(other, inputs), strict=True):
        assert np.array_equal(x, y)


def test_an_opset_that_is_too_new_for_the_runtime(tmp_path: Path) -> None:
    architecture = ZOO["RoIHead"]
    options = {"dims": architecture.dims, "opset": architecture.highest + 1}
    report = ox.export.save(architecture.make(), tmp_path / "m.onnx", architecture.example, **options)
    assert report.proof.runtime.startswith("onnx.reference") and "no kernel" in report.proof.note
