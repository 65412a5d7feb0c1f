"""Inputs that the user gives to convert, prove and quantize, for files that take no random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ox
from ox.errors import ArgumentError, ExportError, LoadError
from ox_cli.main import main

R = np.random.default_rng(0)
INPUTS = {"x": R.standard_normal((10, 4)).astype(np.float32), "length": np.array([3], np.int64)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Takes a length of 3 alone, and a number of rows that 5 divides."""
    nodes = [
        helper.make_node("Gather", ["table", "length"], ["size"]),
        helper.make_node("Concat", ["size", "rest"], ["shape"], axis=0),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Reshape", ["h", "shape"], ["y"]),
    ]
    table = np.array([-7, -7, -7, 5])
    stored = {"table": table, "rest": np.array([-1, 4]), "w": R.standard_normal((4, 4)).astype(np.float32)}
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [tensor("x", TensorProto.FLOAT, ["n", 4]), tensor("length", TensorProto.INT64, [1])],
        [tensor("y", TensorProto.FLOAT, ["a", "b", 4])],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    np.savez(tmp_path / "inputs.npz", **INPUTS)
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("given", ["file", "arrays", "tensors"])
def test_a_file_that_takes_no_random_numbers(given: str, path: Path, tmp_path: Path) -> None:
    for refused in (lambda: ox.export.prove(path), lambda: ox.export.convert(path, tmp_path / "c.onnx")):
        with pytest.raises(ExportError, match=r"no input was found[^~]*--inputs FILE"):
            refused()
    inputs: Any = {"file": path.with_name("inputs.npz"), "arrays": INPUTS, "tensors": {}}[given]
    inputs = inputs or {name: ox.from_numpy(x) for name, x in INPUTS.items()}
    assert [row.batch for row in ox.export.prove(path, inputs=inputs).rows] == [None]
    assert ox.export.prove(path, path, inputs=inputs).against == str(path)
    feeds = [INPUTS] if given != "file" else None
    report = ox.export.quantize(path, tmp_path / "q.onnx", "float16", calibration=feeds)
    assert (report.error is None) == (given == "file")


def test_a_converted_file(tmp_path: Path, path: Path) -> None:
    _, proof = ox.export.convert(path, tmp_path / "c.onnx", opset=17, inputs=path.with_name("inputs.npz"))
    assert len(proof.rows) == 1 and proof.against == str(path)


def test_the_command_line(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = str(path.with_name("inputs.npz"))
    assert main(["prove", str(path), "--inputs", inputs]) == 0
    assert "max |Δ|" in capsys.readouterr().out
    assert main(["convert", str(path), str(tmp_path / "c.onnx"), "--opset", "17", "--inputs", inputs]) == 0
    ox.export.save(ox.nn.Linear(4, 3), tmp_path / "linear.onnx", INPUTS["x"])
    np.save(tmp_path / "rows.npy", INPUTS["x"])
    line = ["quantize", str(tmp_path / "linear.onnx"), "--scheme", "int8", "--inputs", str(tmp_path / "rows.npy")]
    capsys.readouterr()
    assert main(line) == 0
    assert "of the outputs" in capsys.readouterr().out and (tmp_path / "linear.int8.onnx").exists()
    assert main([*line, "--samples", "3"]) != 0
    assert "--inputs and --samples" in capsys.readouterr().err


X, LENGTH = INPUTS["x"], INPUTS["length"]
WRONG: dict[str, tuple[Any, str]] = {
    "another name": ({"x": X, "size": LENGTH}, r"other names[^~]*x, length[^~]*x, size"),
    "one missing": ({"x": X}, r"other names"),
    "one array": (X, r"one array is given for several inputs[^~]*x, length"),
    "another type": ({"x": X.astype(np.float64), "length": LENGTH}, r"does not fit[^~]*x FP32[^~]*float64"),
    "another size": ({"x": X[:, :3], "length": LENGTH}, r"does not fit[^~]*\[n, 4\][^~]*\[10, 3\]"),
    "another rank": ({"x": X[0], "length": LENGTH}, r"does not fit"),
    "values that it does not take": ({"x": X, "length": np.array([99])}, r"cannot run with these inputs"),
}


@pytest.mark.parametrize("name", WRONG)
def test_inputs_that_do_not_fit(name: str, path: Path, tmp_path: Path) -> None:
    inputs, said = WRONG[name]
    before = path.read_bytes()
    with pytest.raises(ArgumentError, match=said):
        ox.export.prove(path, inputs=inputs)
    with pytest.raises(ArgumentError, match=said):
        ox.export.convert(path, path, inputs=inputs)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.npz", None, "there is no input file"),
        ("text.npz", b"no arrays", "no file of arrays, or damaged"),
        ("cut.npz", "cut", "no file of arrays, or damaged"),
        ("empty.npy", b"", "no file of arrays, or damaged"),
        ("objects.npz", "objects", "no file of arrays, or damaged"),
        ("inputs.txt", b"1 2 3", r"unknown file type[^~]*\.npz"),
    ],
)
def test_files_that_hold_no_inputs(name: str, content: Any, said: str, path: Path, tmp_path: Path) -> None:
    file = tmp_path / name
    if content == "objects":  # which would be unpickled
        np.savez(file, x=np.array([{}], object), length=LENGTH)
    elif content == "cut":
        file.write_bytes(path.with_name("inputs.npz").read_bytes()[:200])
    elif content is not None:
        file.write_bytes(content)
    for take in (
        lambda: ox.export.prove(path, inputs=file),
        lambda: ox.export.convert(path, tmp_path / "c.onnx", inputs=file),
        lambda: ox.export.quantize(path, tmp_path / "q.onnx", "float16", calibration=file),
    ):
        with pytest.raises(LoadError, match=said):
            take()
    assert not (tmp_path / "c.onnx").exists() and not (tmp_path / "q.onnx").exists()


def test_a_length_that_is_1_at_least(tmp_path: Path) -> None:
    """No length of 0 runs, so numbers are drawn from 1 on."""
    nodes = [helper.make_node("Squeeze", ["length"], ["end"]), helper.make_node("Range", ["zero", "end", "one"], ["i"])]
    nodes += [helper.make_node("Gather", ["x", "i"], ["rows"]), helper.make_node("ReduceMax", ["rows"], ["y"])]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [tensor("x", TensorProto.FLOAT, [5, 4]), tensor("length", TensorProto.INT64, [1])],
        [tensor("y", TensorProto.FLOAT, [1, 1])],
        [numpy_helper.from_array(np.int64(n), name) for n, name in ((0, "zero"), (1, "one"))],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    assert ox.export.prove(tmp_path / "m.onnx").rows
    assert ox.export.convert(tmp_path / "m.onnx", tmp_path / "c.onnx")[1].rows
