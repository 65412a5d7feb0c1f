"""ox convert, ox diff, ox prove: files written anew and compared, in Python and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from architectures import ZOO
from onnx import TensorProto, helper, numpy_helper
from rows import rows

import ox
from ox.errors import ArgumentError, ExportError
from ox_cli.main import main


def export(name: str, folder: Path) -> Path:
    model = ZOO[name]
    ox.manual_seed(0)
    ox.export.save(model.make(), folder / "m.onnx", model.example, dims=model.dims)
    return folder / "m.onnx"


@rows("name", ["ConvNeXt", "Llama", "GCN", "Diffusion"])
def test_to_an_older_opset(tmp_path: Path, name: str) -> None:
    path, new = export(name, tmp_path), tmp_path / "new.onnx"
    report, proof = ox.export.convert(path, new, opset=17, strip=True)
    assert report.opset == 17 and proof.against == str(path) and all(row.max_abs <= row.allowed for row in proof.rows)
    model, old = onnx.load(new), onnx.load(path)
    assert not any(n.doc_string or n.name for n in model.graph.node) and any(n.doc_string for n in old.graph.node)
    assert {entry.key for entry in model.metadata_props} == {"ox.contract"}
    assert ox.export.load(new).contract.rules == ox.export.load(path).contract.rules
    onnx.checker.check_model(model, full_check=True)


def test_sizes_that_are_fixed(tmp_path: Path) -> None:
    path, new = export("Diffusion", tmp_path), tmp_path / "new.onnx"
    report, _ = ox.export.convert(path, new, fix={"batch": 1, "h": 8})
    assert (
        report.dims.startswith("x [1, 3, 8, w], timesteps [1]")
        and str(report.contract.rules) == "w in 2.. in steps of 2"
    )
    with pytest.raises(ArgumentError, match="no size is called 'bach'"):
        ox.export.convert(path, new, fix={"bach": 1})
    with pytest.raises(ArgumentError, match="not for these sizes") as caught:
        ox.export.convert(path, new, fix={"h": 7})
    assert caught.value.expected == "h in 2.. in steps of 2"


def test_files_in_the_hugging_face_cache(tmp_path: Path) -> None:
    """Each is a link to a blob, which other revisions share."""
    blobs, revision = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "main"
    for folder in (blobs, revision):
        folder.mkdir(parents=True)
    ox.export.save(ox.nn.Linear(4, 3), blobs / "1234", np.ones((2, 4), np.float32), optimize=None)
    before, path = (blobs / "1234").read_bytes(), revision / "m.onnx"
    for write in (
        lambda: ox.export.convert(path, path, opset=17),
        lambda: ox.export.quantize(path, path, "float16"),
    ):
        path.unlink(missing_ok=True)
        path.symlink_to(blobs / "1234")
        write()
        assert not path.is_symlink() and ox.export.load(path)(ox.ones(2, 4)).shape == (2, 3)
        assert (blobs / "1234").read_bytes() == before and len(list(blobs.iterdir())) == 1


def test_a_foreign_file_with_unnamed_sizes(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.eye(4, 3, dtype=np.float32), "w")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, None, d]) for n, d in (("x", 4), ("y", 3))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=6), path)
    report, _ = ox.export.convert(path, tmp_path / "new.onnx")
    assert report.dims == "x [x_0, x_1, 4] → y [x_0, x_1, 3]" and report.opset == 21
    assert ox.export.diff(path, tmp_path / "new.onnx").numbers


def foreign(
    path: Path, op: str, inputs: dict[str, Any], outputs: int = 1, dims: Any = ("a", "b"), **given: Any
) -> Path:
    """x [a, b] -> op -> y, by another tool; `inputs` are constants by name, "" leaves one out."""
    names = ["x", *inputs]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    made += [helper.make_tensor_value_info("i", TensorProto.INT64, None)] * (outputs - 1)
    graph = helper.make_graph(
        [helper.make_node(op, names, [v.name for v in made], **given)],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(dims))], made,
        [numpy_helper.from_array(a, name) for name, a in inputs.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


# name -> what a foreign file has, the fewest rows that it takes
SEVERAL_ROWS: dict[str, tuple[Any, int]] = {
    "the two largest": ({"op": "TopK", "inputs": {"k": np.array([2])}, "outputs": 2, "axis": 0}, 2),
    "the nine largest": ({"op": "TopK", "inputs": {"k": np.array([9])}, "outputs": 2, "axis": 0}, 9),
    "a choice of two": ({"op": "Compress", "inputs": {"c": np.array([True, False])}, "axis": 0}, 2),
    "a reflection": ({"op": "Pad", "inputs": {"p": np.array([1, 2, 0, 1])}, "mode": "reflect"}, 2),
    "rows of four": (
        {"op": "ScatterND", "inputs": {"i": np.array([[1], [1]]), "u": np.ones((2, 4), np.float32)}}, 2,
    ),
    "a square": ({"op": "TopK", "inputs": {"k": np.array([3])}, "outputs": 2, "axis": 0, "dims": ("a", "a")}, 3),
}  # fmt: skip


@rows("name", SEVERAL_ROWS)
def test_a_foreign_file_that_needs_several_rows(tmp_path: Path, name: str) -> None:
    given, fewest = SEVERAL_ROWS[name]
    path, new = foreign(tmp_path / "m.onnx", **given), tmp_path / "new.onnx"
    assert ox.export.diff(path, path).same
    assert [row.batch for row in ox.export.prove(path).rows if (row.batch or 0) >= fewest]
    report, proof = ox.export.convert(path, new)
    assert str(report.contract.rules) == f"a in {fewest}.." and {row.batch for row in proof.rows} >= {fewest}
    assert ox.export.diff(path, new).numbers
    ox.export.convert(path, new, fix={"a": 12})
    assert ox.export.inspect(new).inputs[0].dims[0] == 12


def test_a_file_that_takes_fewer_sizes_than_another(tmp_path: Path) -> None:
    two, nine = (foreign(tmp_path / f"{k}.onnx", "TopK", {"k": np.array([k])}, outputs=2, axis=0) for k in (2, 9))
    found = ox.export.diff(two, nine)
    assert found.numbers is None and not found.same and "does not take x [2, 8]" in str(found)


@pytest.mark.parametrize("labels", [[5, 2, 9], ["red", "green", "blue"]])
def test_maps_from_labels_to_scores(tmp_path: Path, labels: list[Any]) -> None:
    """ONNX Runtime gives a list of dicts in the order of the labels' values, ox columns in the order of the file."""
    path, new = tmp_path / "m.onnx", tmp_path / "new.onnx"
    kind, suffix = (TensorProto.INT64, "int64s") if isinstance(labels[0], int) else (TensorProto.STRING, "strings")
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"], axis=1),
        helper.make_node("ZipMap", ["p"], ["y"], domain="ai.onnx.ml", **{f"classlabels_{suffix}": labels}),
    ]
    maps = helper.make_map_type_proto(kind, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    outputs = [helper.make_value_info("y", helper.make_sequence_type_proto(maps))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])], outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    ox.export.convert(path, new)
    assert all(row.max_abs < 1e-6 for row in ox.export.prove(path).rows)
    assert ox.export.diff(path, new).numbers is not None
    scores = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])]
    wrong = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], axis=0)], "g", graph.input, scores)
    onnx.save(helper.make_model(wrong, opset_imports=imports, ir_version=8), new)
    with pytest.raises(ExportError, match="gives another 'y'"):
        ox.export.prove(new, path)
    with pytest.raises(ExportError, match=r"onnx\.reference refuses"):
        ox.export.prove(path, runtime="reference")
    with pytest.raises(ArgumentError, match="an output that is no tensor"):
        ox.export.quantize(path, tmp_path / "small.onnx", "int8-dynamic")


def test_what_differs(tmp_path: Path) -> None:
    path, new = export("TabNet", tmp_path), tmp_path / "new.onnx"
    same = ox.export.diff(path, path)
    assert same.same and same.lines == () and set(same.numbers or ()) == {"output_0", "output_1"}
    model = onnx.load(path)
    weight = next(t for t in model.graph.initializer if t.name == "out.bias")
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) + 1, "out.bias"))
    onnx.save(model, new)
    found = ox.export.diff(path, new)
    assert not found.same and [line[0] for line in found.lines] == ["weight out.bias"]
    assert found.numbers is not None and [n for n, each in found.numbers.items() if not each.ok] == ["output_0"]
    with pytest.raises(ExportError, match="gives another 'output_0' than its 3 golden samples"):
        ox.export.prove(new)
    with pytest.raises(ExportError, match="gives another 'output_0' than"):
        ox.export.prove(new, path)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_proves_nothing(tmp_path: Path, number: float) -> None:
    paths = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    for path, factor in zip(paths, (2.0, 3.0), strict=True):
        ox.export.save(lambda x, by=factor: x * by, path, np.ones((2, 3), np.float32), golden=None)
    inputs = np.full((2, 3), number, np.float32)
    for against in (paths[1], None, lambda x: x * 2):
        with pytest.raises(ExportError, match="for every example, so nothing can be proven"):
            ox.export.prove(paths[0], against, inputs=inputs)
    inputs[0, 0] = 1
    with pytest.raises(ExportError, match="gives another 'output' than"):
        ox.export.prove(paths[0], paths[1], inputs=inputs)
    ox.export.save(lambda x: x * number, paths[0], inputs, golden=None, proof="warn")
    found = ox.export.diff(paths[0], paths[0])
    assert not found.same and "nothing can be proven" in str(found)


def test_against_a_module(tmp_path: Path) -> None:
    path = export("GCN", tmp_path)
    ox.manual_seed(0)
    right = ZOO["GCN"].make().eval()
    assert ox.export.prove(path, right).against == "GCN"
    with pytest.raises(ExportError, match="another 'output' than GCN"):
        ox.export.prove(path, ZOO["GCN"].make().eval())
    with pytest.raises(ArgumentError, match="there is no runtime 'tensorflow'"):
        ox.export.prove(path, runtime="tensorflow")


@rows("runtime", ["onnxruntime", "openvino", "reference", "ox"])
def test_in_every_runtime(tmp_path: Path, runtime: str) -> None:
    if runtime == "openvino":
        pytest.importorskip("openvino", reason="openvino is not installed")
    proof = ox.export.prove(export("ResNet", tmp_path), runtime=runtime)
    assert [row.batch for row in proof.rows] == [1, 1, 1] and "3 golden samples" in str(proof)


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(export("ConvNeXt", tmp_path).parent)
    assert main(["convert", "m.onnx", "new.onnx", "--opset", "17", "--fix", "batch=2", "--strip"]) == 0
    shown = capsys.readouterr().out
    assert "opset 17" in shown and "x [2, 3, h, w] → output [2, 10]" in shown and "against m.onnx" in shown
    assert main(["diff", "m.onnx", "m.onnx"]) == 0
    assert main(["diff", "m.onnx", "new.onnx"]) == 1
    shown = capsys.readouterr().out
    assert "opset: 21 → 17" in shown and "operator Gelu: 2 → none" in shown and "numbers of output: max |Δ|" in shown
    assert main(["prove", "m.onnx"]) == 0 and "against its 3 golden samples" in capsys.readouterr().out
    assert main(["prove", "new.onnx", "--against", "m.onnx", "--runtime", "ox"]) == 0
    assert "new.onnx in ox, against m.onnx" in capsys.readouterr().out
    assert main(["convert", "m.onnx", "--fix", "batch"]) == 2
