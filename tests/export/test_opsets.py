"""Files of opsets 7 to the newest: what ONNX Runtime gives for the file as it is, the loaded module gives."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, defs, helper, numpy_helper
from rows import rows

import ox
from ox.core.operator import OPS
from ox.errors import LoadError
from ox.graph.reader.version_converter import ADAPTERS, needs
from ox.tolerance import compare

R = np.random.default_rng(0)
X = R.standard_normal((2, 4, 5, 6)).astype(np.float32)
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}


def model(
    nodes: list[Any], opset: int, x: Any = X, weights: dict[str, Any] | None = None, outputs: Any = ("y",)
) -> Any:
    ends = [helper.make_tensor_value_info("x", TYPES[x.dtype], [f"d{i}" for i in range(x.ndim)])]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    stored = [numpy_helper.from_array(a, name) for name, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", ends, made, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def same(file: Any, folder: Path, x: Any = X) -> Any:
    onnx.save(file, folder / "m.onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(file.SerializeToString(), options, providers=["CPUExecutionProvider"])
    net = ox.export.load(folder / "m.onnx").eval()
    got = net(x)
    for y, e in zip(got if isinstance(got, tuple) else (got,), session.run(None, {"x": x}), strict=True):
        assert y.shape == e.shape
        assert compare(y.detach().numpy(), e).ok, compare(y.detach().numpy(), e)
    return net


def node(op: str, *inputs: str, outputs: Any = ("y",), **attributes: Any) -> Any:
    return helper.make_node(op, ["x", *inputs], list(outputs), **attributes)


FOUR = {name: R.uniform(0.5, 2, 4).astype(np.float32) for name in "sbmv"}
CASES: dict[str, Any] = {
    **{
        f"{op} along axis {a}": (node(op, axis=a), (7, 11))
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for a in (0, 1, 2, 3)
    },
    "Softmax without an axis": (node("Softmax"), (7, 12, 13)),
    "Softmax from the end": (node("Softmax", axis=-2), (11, 12, 13)),
    **{
        f"Reduce{kind}": (node(f"Reduce{kind}", axes=[1, 3], keepdims=0), (7, 11, 12, 17) if kind != "Sum" else (7, 11))
        for kind in ("Sum", "Mean", "Max", "Min", "L1", "L2", "LogSumExp", "SumSquare", "Prod")
    },
    "ReduceMean of everything": (node("ReduceMean"), (7, 11, 13, 18)),
    "Unsqueeze": (node("Unsqueeze", axes=[0, 3]), (7, 11)),
    "Slice": (node("Slice", starts=[1, -3], ends=[3, 1000], axes=[1, 3]), (7, 9)),
    "Slice without axes": (node("Slice", starts=[0, 1], ends=[2, 3]), (7,)),
    "Pad": (node("Pad", pads=[0, 1, 2, 0, 0, 0, 1, 1], value=0.5), (7, 10)),
    "Pad reflect": (node("Pad", pads=[0, 0, 2, 1, 0, 0, 1, 1], mode="reflect"), (7, 10)),
    "Clip": (node("Clip", min=-0.5, max=0.5), (7, 10)),
    "Clip above": (node("Clip", max=0.5), (7, 10)),
    "Dropout": (node("Dropout", ratio=0.3), (7, 10)),
    "Dropout without a ratio": (node("Dropout"), (7, 10, 12, 13)),
    "Split": (node("Split", outputs=("y", "z"), axis=1, split=[1, 3]), (7, 11)),
    "Split in equal parts": (node("Split", outputs=("y", "z"), axis=3), (7, 11, 13, 17)),
    "TopK": (node("TopK", outputs=("y", "i"), k=2, axis=1), (7, 9)),
    "BatchNormalization": (node("BatchNormalization", *"sbmv", epsilon=1e-3), (7, 9, 14, 15)),
    "Upsample": (node("Upsample", scales=[1.0, 1.0, 2.0, 3.0]), (7, 8)),
    "Upsample linear": (node("Upsample", scales=[1.0, 1.0, 2.0, 2.0], mode="linear"), (7, 8)),
    "Upsample by an input": (node("Upsample", "scales"), (9,)),
    "Resize": (node("Resize", "scales"), (10,)),
    "Resize linear": (node("Resize", "scales", mode="linear"), (10,)),
    "GridSample": (node("GridSample", "grid"), (16,)),
    "RoiAlign": (node("RoiAlign", "rois", "batches", output_height=2, output_width=3), (10, 15)),
    "Scatter": (node("Scatter", "places", "x2", axis=1), (9, 10)),
}  # fmt: skip
WEIGHTS = {
    **FOUR,
    "scales": np.array([1, 1, 2, 1.5], np.float32),
    "grid": R.uniform(-1, 1, (2, 3, 3, 2)).astype(np.float32),
    "rois": np.array([[0, 0, 3, 3], [1, 0.5, 4, 4.5]], np.float32),
    "batches": np.array([0, 1], np.int64),
    "places": np.array([[[[1, 0]]]], np.int64),
    "x2": np.ones((1, 1, 1, 2), np.float32),
}


@rows(("name", "opset"), [(name, v) for name, (_, versions) in CASES.items() for v in versions])
def test_old_forms(name: str, opset: int, tmp_path: Path) -> None:
    made = CASES[name][0]
    used = {k: a for k, a in WEIGHTS.items() if k in made.input}
    same(model([made], opset, weights=used, outputs=[made.output[0]]), tmp_path)


def test_old_group_normalization(tmp_path: Path) -> None:
    """ONNX Runtime has it, onnx's own meaning is the function body: one scale a group."""
    made = node("GroupNormalization", "s", "b", num_groups=2)
    scale = {"s": np.array([2, 3], np.float32), "b": np.array([0, 1], np.float32)}
    onnx.save(model([made], 18, weights=scale), tmp_path / "m.onnx")
    groups = X.reshape(2, 2, -1)
    normal = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    expected = normal * scale["s"][:, None] + scale["b"][:, None]
    np.testing.assert_allclose(
        ox.export.load(tmp_path / "m.onnx")(X).detach().numpy(), expected.reshape(X.shape), atol=1e-5
    )


def test_scan_over_a_batch(tmp_path: Path) -> None:
    """Scan of opset 8 has a batch in front of everything."""
    names = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("h", "a", "g", "s")]
    body = helper.make_graph(
        [helper.make_node("Add", ["h", "a"], ["g"]), helper.make_node("Identity", ["g"], ["s"])],
        "b",
        names[:2],
        names[2:],
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["zero"], axes=[1], keepdims=0),
        helper.make_node("Scan", ["", "zero", "x"], ["y", "z"], num_scan_inputs=1, body=body, directions=[1]),
    ]
    x = X[:, :, 0, :3]
    onnx.save(model(nodes, 8, x, outputs=("y", "z")), tmp_path / "m.onnx")
    y, z = ox.export.load(tmp_path / "m.onnx")(x)
    np.testing.assert_allclose(y.numpy(), 2 * x.sum(1), atol=1e-5)
    np.testing.assert_allclose(z.numpy(), x.sum(1, keepdims=True) + np.cumsum(x[:, ::-1], 1), atol=1e-5)


@rows("given", [False, True])
@rows("scales", [[1, 1, 0.6, 0.5], [1, 1, 2, 1.5], [1, 1, 0.4, 1.7], [1, 0.5, 1, 3]])
@rows("mode", ["nearest", "linear"])
def test_resize_of_opset_10(mode: str, scales: list[float], given: bool, tmp_path: Path) -> None:
    """The nearest value is the one before where an axis grows, the one behind where it shrinks."""
    if mode == "linear" and scales[1] != 1:
        return  # ONNX Runtime has it for the last two axes only
    factors = np.array(scales, np.float32)
    nodes = [helper.make_node("Identity", ["scales"], ["moved"])] if given else []
    nodes.append(node("Resize", "moved" if given else "scales", mode=mode))
    file = model(nodes, 10, weights={"scales": factors})
    if given:  # unknown when the file is read, for a call may give others
        file.graph.input.append(helper.make_tensor_value_info("scales", TensorProto.FLOAT, [4]))
    same(file, tmp_path)


@pytest.mark.parametrize(("scale", "warned"), [(2.5, True), (2.0, False)])
def test_corners_of_fractional_scales(scale: float, warned: bool, tmp_path: Path) -> None:
    made = node("Resize", "", "scales", mode="linear", coordinate_transformation_mode="align_corners")
    made.name = "up/Resize"
    onnx.save(model([made], 17, weights={"scales": np.array([1, 1, scale, scale], np.float32)}), tmp_path / "m.onnx")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ox.export.load(tmp_path / "m.onnx")
    assert [("up/Resize" in str(w.message), Path(w.filename).name) for w in caught] == [
        (True, "test_opsets.py")
    ] * warned


def test_signals_of_two_dimensions(tmp_path: Path) -> None:
    x = R.standard_normal((2, 32)).astype(np.float32)
    weights = {"step": np.array(8), "window": np.hanning(16).astype(np.float32)}
    same(model([node("STFT", "step", "window")], 17, x, weights), tmp_path, x)


@rows(
    ("made", "opset", "says"),
    [
        (node("BatchNormalization", *"sbmv", spatial=0), 7, "spatial=0"),
        (node("Resize", "", "up", coordinate_transformation_mode="tf_half_pixel_for_nn"), 11, "tf_half_pixel_for_nn"),
        (helper.make_node("Scan", ["x", "x"], ["y"], num_scan_inputs=1, body=onnx.GraphProto()), 8, "sequence lengths"),
        (helper.make_node("Upsample", [], ["y"]), 9, "not what opset 9 wants"),
    ],
)
def test_forms_without_a_newer_one(made: Any, opset: int, says: str, tmp_path: Path) -> None:
    onnx.save(model([made], opset, weights=FOUR), tmp_path / "m.onnx")
    with pytest.raises(LoadError, match=says):
        ox.export.load(tmp_path / "m.onnx")


def forms(op: str) -> list[tuple[int, Any]]:
    """The schemas of an operator from opset 7 on, with the last opset that has each."""
    found: dict[int, tuple[int, Any]] = {}
    for v in range(7, defs.onnx_opset_version() + 1):
        try:
            schema = defs.get_schema(op, v, "")
        except defs.SchemaError:
            continue
        found[schema.since_version] = (v, schema)
    return list(found.values())


@rows("op", sorted(name for name in OPS if "." not in name))
def test_every_change_has_an_adapter(op: str) -> None:
    """Attributes that went, defaults that moved, operators that were replaced: each old form is lifted."""
    versions = forms(op)
    if not versions:
        return
    newest = versions[-1][1]
    lacking = []
    for last, schema in versions:
        gone = set(schema.attributes) - set(newest.attributes)
        moved = {
            name
            for name in set(schema.attributes) & set(newest.attributes)
            if schema.attributes[name].default_value != newest.attributes[name].default_value
        }
        if (gone or moved or schema.deprecated) and needs(helper.make_node(op, [], []), last) is None:
            lacking.append(f"opset {last}: {sorted(gone | moved) or 'deprecated'}")
    assert not lacking


def test_the_newest_forms_need_no_adapter() -> None:
    for op in ADAPTERS:
        # in every opset STFT's signals may lack a dimension, and an input of Resize be an empty tensor
        if op not in ("Resize", "Scatter", "STFT", "Upsample"):
            assert needs(helper.make_node(op, [], []), defs.onnx_opset_version()) is None


def test_a_bound_that_the_type_cannot_hold(tmp_path: Path) -> None:
    nodes = [node("Cast", outputs=("u",), to=TensorProto.UINT8), helper.make_node("Clip", ["u"], ["y"], min=-1)]
    onnx.save(model(nodes, 10, np.zeros((1, 2), np.int64)), tmp_path / "m.onnx")
    with pytest.raises(LoadError, match="cannot hold"):
        ox.export.load(tmp_path / "m.onnx")
