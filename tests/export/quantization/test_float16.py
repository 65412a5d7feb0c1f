"""float16: what it cannot hold stays in float32 and is named; every value has one type, in branches and loops too."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, ExportError
from ox.export.quantization.float16 import to_float16
from ox.export.quantization.sessions import open_session
from ox.graph.reader.model_file import nodes_of

R = np.random.default_rng(0)
OTHER_MASKS = {  # ONNX Runtime gives scores behind a mask another lowest number in float16
    f"test_attention_4d_with_past_and_present_qk_matmul_bias_{rank}d_mask_causal" for rank in (3, 4)
}
ROWS = R.standard_normal((8, 3)).astype(np.float32)


def normal(*shape: int) -> Any:
    return R.standard_normal(shape).astype(np.float32)


def write(path: Path, nodes: Any, inputs: Any, outputs: Any, stored: dict[str, Any], opset: int = 18) -> None:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "g", [info(*each) for each in inputs], [info(*each) for each in outputs], tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.save(model, path)


def info(name: str, shape: Any = None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def compare(before: Path, after: Path, feed: dict[str, Any]) -> float:
    """The largest difference as a share of an output's norm; types and sizes are the same."""
    worst = 0.0
    pairs = zip(*(ort.InferenceSession(str(path)).run(None, feed) for path in (before, after)), strict=True)
    for y, z in pairs:
        assert y.dtype == z.dtype and y.shape == z.shape and np.isfinite(z).all()
        worst = max(worst, float(np.linalg.norm(y - z) / np.linalg.norm(y)))
    return worst


class Scaled(nn.Module):
    def __init__(self, scale: Any) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(3, 3), nn.Parameter(ox.tensor(scale))

    def forward(self, x: Any) -> Any:
        return self.linear(x) * self.scale


@rows(
    ("scale", "named"),
    [
        ([1e6, 2.0, 3.0], r"scale holds 1e\+06, 15\.3 times the largest number of float16: Mul '.*' stays in float32"),
        ([1e-12, -3e-12, 1e-11], r"scale holds 1e-11, which float16 rounds to 0: Mul"),
    ],
)
@rows("rows", [ROWS, None])
def test_a_constant_that_float16_cannot_hold(scale: Any, named: str, rows: Any, tmp_path: Path) -> None:
    before, after = tmp_path / "a.onnx", tmp_path / "b.onnx"
    ox.export.save(Scaled(scale), before, ROWS)
    report = ox.export.quantize(before, after, "float16", calibration=rows)
    assert report.quantized and not report.in_float
    with pytest.raises(AssertionError, match=named):
        raise AssertionError(str(report))
    assert compare(before, after, {"x": ROWS}) < 1e-2
    assert report.error is not None and report.error < 1e-2


def test_values_that_overflow_on_the_way(tmp_path: Path) -> None:
    """Each number fits, their product does not: what makes and reads it stays in float32. ONNX Runtime's CPU would not
    show it, because it computes in float32 between Casts; ox rounds each value."""
    before, after = tmp_path / "a.onnx", tmp_path / "b.onnx"
    model = nn.Sequential(nn.Linear(3, 3), Scaled([3e4, 3e4, 3e4]), nn.Linear(3, 3))
    ox.export.save(model, before, ROWS)
    report = ox.export.quantize(before, after, "float16", calibration=100 * ROWS)
    assert len(report.quantized) == 2 and len(report.in_float) == 1
    assert any("reaches" in line and "times the largest number of float16: Mul" in line for line in report.left)
    x = 100 * ROWS
    y, z = (ox.export.load(path)(ox.from_numpy(x)).detach().numpy() for path in (before, after))
    assert np.isfinite(z).all() and np.linalg.norm(y - z) < 1e-2 * np.linalg.norm(y)


def test_outputs_that_are_far_from_those_of_float32_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that was there stays. The user's own measure may accept it."""
    before, after = tmp_path / "a.onnx", tmp_path / "b.onnx"
    ox.export.save(nn.Linear(3, 3), before, ROWS)
    after.write_bytes(b"here")
    monkeypatch.setattr("ox.export.quantization.quantize_model.MAX_ERROR", 1e-6)
    for data in (ROWS, None):  # without, by the golden samples
        with pytest.raises(ExportError, match=r"other outputs than the float32 one[^~]*at most 0%[^~]*bfloat16"):
            ox.export.quantize(before, after, "float16", calibration=data)
    assert after.read_bytes() == b"here"
    report = ox.export.quantize(
        before, after, "float16", calibration=ROWS, evaluate=lambda session: 1.0, min_accuracy=0.5
    )
    assert report.error is not None and 1e-6 < report.error < 1e-2


def test_a_file_of_nothing_but_such_weights(tmp_path: Path) -> None:
    layer = nn.Linear(3, 3)
    layer.weight.data.fill_(1e9)
    ox.export.save(layer, tmp_path / "a.onnx", ROWS)
    with pytest.raises(ArgumentError, match=r"no layer of .* can be written in float16[^~]*1e\+09[^~]*bfloat16"):
        ox.export.quantize(tmp_path / "a.onnx", tmp_path / "b.onnx", "float16")
    report = ox.export.quantize(tmp_path / "a.onnx", tmp_path / "b.onnx", "bfloat16", calibration=ROWS)
    assert report.quantized and compare(tmp_path / "a.onnx", tmp_path / "b.onnx", {"input": ROWS}) < 3e-2


def test_bfloat16_leaves_what_it_rounds_to_infinity(tmp_path: Path) -> None:
    mask = np.where(np.tri(4, dtype=bool), np.float32(0), np.finfo(np.float32).min)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "mask"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]  # fmt: skip
    write(tmp_path / "a.onnx", nodes, [("x", [4, 4])], [("y", [4, 4])], {"w": normal(4, 4), "mask": mask})
    x = normal(4, 4)
    for scheme in ("bfloat16", "float16"):
        report = ox.export.quantize(tmp_path / "a.onnx", tmp_path / "b.onnx", scheme, calibration=x)
        assert any("mask holds 3.403e+38" in line for line in report.left)
        assert compare(tmp_path / "a.onnx", tmp_path / "b.onnx", {"x": x}) < 2e-2


def test_counts_beyond_2048_keep_their_digits(tmp_path: Path) -> None:
    """A position is a multiple of 2 there in float16, and its sine is another."""
    linear = nn.Linear(3, 3)
    before, after = tmp_path / "a.onnx", tmp_path / "b.onnx"
    positions = np.arange(4000, 4008)[:, None]
    data = {"x": ROWS, "position": positions}
    ox.export.save(lambda x, position: linear(x) + (position.float() * 1.001).sin(), before, data)
    ox.export.quantize(before, after, "float16", calibration=data)
    assert compare(before, after, data) < 1e-2


def branch(name: str, *nodes: onnx.NodeProto, stored: dict[str, Any] | None = None) -> onnx.GraphProto:
    tensors = [numpy_helper.from_array(np.asarray(array), key) for key, array in (stored or {}).items()]
    return helper.make_graph(list(nodes), name, [], [info(nodes[-1].output[0])], tensors)


def early_condition() -> Any:
    """An If whose condition is known before what its branches read."""
    return [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("ReduceMax", ["flag"], ["s"], keepdims=0), helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["i"], then_branch=branch("t", helper.make_node("Relu", ["h"], ["ti"])),
                         else_branch=branch("e", helper.make_node("Neg", ["h"], ["ei"]))),
        helper.make_node("MatMul", ["i", "v"], ["y"]),
    ]  # fmt: skip


def weights_in_branches() -> Any:
    """Under one name in both, as a Constant and as an initializer; an operator without float16, too."""
    weight = numpy_helper.from_array(normal(4, 4))
    return [
        helper.make_node("ReduceMax", ["flag"], ["s"], keepdims=0), helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node(
            "If", ["c"], ["y"],
            then_branch=branch("t", helper.make_node("Constant", [], ["own"], value=weight),
                               helper.make_node("MatMul", ["h", "own"], ["p"]),
                               helper.make_node("Max", ["p", "zero"], ["m"]), helper.make_node("Neg", ["m"], ["ty"])),
            else_branch=branch("e", helper.make_node("MatMul", ["h", "own"], ["p"]),
                               helper.make_node("Mul", ["p", "big"], ["ey"]), stored={"own": normal(4, 4)}),
        ),
    ]  # fmt: skip


def loop() -> Any:
    """Adds a weighted state five times; what is carried starts at a number that float16 cannot hold."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on"], ["on2"]), helper.make_node("MatMul", ["x", "w"], ["p"]),
            helper.make_node("Max", ["state", "p"], ["next"]), helper.make_node("Identity", ["p"], ["each"]),
        ],
        "body",
        [info("i", [], TensorProto.INT64), info("on", [], TensorProto.BOOL), info("state", None)],
        [info("on2", [], TensorProto.BOOL), info("next", None), info("each", None)],
    )  # fmt: skip
    return [
        helper.make_node("ReduceMax", ["flag"], ["s"], keepdims=0),
        helper.make_node("Loop", ["count", "", "low"], ["last", "all"], body=body),
        helper.make_node("ReduceSum", ["all"], ["sum"], keepdims=0), helper.make_node("Add", ["last", "sum"], ["t"]),
        helper.make_node("Add", ["t", "s"], ["y"]),
    ]  # fmt: skip


def microsoft() -> Any:
    """Operators of ONNX Runtime, whose types onnx does not infer; one output of the file is read inside, too."""
    return [
        helper.make_node("ReduceMax", ["flag"], ["s"], keepdims=0), helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("BiasGelu", ["h", "bias"], ["b"], domain="com.microsoft"),
        helper.make_node("FusedMatMul", ["b", "v"], ["y"], domain="com.microsoft", alpha=0.5),
        helper.make_node("Add", ["y", "s"], ["k"]), helper.make_node("TopK", ["k", "two"], ["z", "places"]),
    ]  # fmt: skip


STORED = {
    "w": normal(4, 4), "v": normal(4, 4), "zero": np.float32(0), "big": np.float32(1e5), "bias": normal(4),
    "count": np.int64(5), "low": np.full((2, 4), -1e30, np.float32), "two": np.array([2], np.int64),
}  # fmt: skip


@rows("scheme", ["float16", "bfloat16", "int8-dynamic", "int8", "int4"])
@rows("kind", [early_condition, weights_in_branches, loop, microsoft])
def test_branches_and_loops(scheme: str, kind: Any, tmp_path: Path) -> None:
    nodes = kind()
    outputs = [("y", None), ("z", None)][: 2 if kind is microsoft else 1]
    read = {name for node in nodes for name in node.input}
    for node in nodes:
        for graph in (a.g for a in node.attribute if a.HasField("g")):
            read |= {name for inner in graph.node for name in inner.input}
    stored = {name: array for name, array in STORED.items() if name in read}
    before, after = tmp_path / "a.onnx", tmp_path / "b.onnx"
    write(before, nodes, [("flag", ["n"]), ("x", [2, 4])], outputs, stored, opset=21)
    feeds = [{"flag": np.float32([sign]), "x": normal(2, 4)} for sign in (-1.0, 1.0)]
    if scheme == "int4":  # its blocks need 16 rows at least
        with pytest.raises(ArgumentError, match=r"4 rows, a block 16|no layer that int4|can be quantized"):
            ox.export.quantize(before, after, scheme, calibration=feeds, block_size=16)
        return
    if scheme.startswith("int8") and kind is loop:
        with pytest.raises(ArgumentError, match=f"no layer that {scheme} quantizes[^~]*float16 or bfloat16"):
            ox.export.quantize(before, after, scheme, calibration=feeds)
        return
    report = ox.export.quantize(before, after, scheme, calibration=feeds)
    assert report.error is not None
    for feed in feeds:
        error = compare(before, after, feed)
        assert error < 0.04 or scheme.startswith("int8")  # whose sums saturate on some processors
    if scheme == "float16" and kind is weights_in_branches:
        assert {t.data_type for t in onnx.load(after).graph.initializer if t.dims[1:]} == {TensorProto.FLOAT16}
        assert any("big holds 1e+05" in line for line in report.left)


@rows("kind", [nn.LSTM, nn.GRU, nn.RNN])
@rows("scheme", ["float16", "bfloat16"])
def test_recurrent_layers_of_ox(kind: Any, scheme: str, tmp_path: Path) -> None:
    """Their weights are put into ONNX's order by nodes."""
    layer, x = kind(8, 16, batch_first=True), normal(8, 5, 8)
    before, after = tmp_path / "a.onnx", tmp_path / "b.onnx"
    ox.export.save(lambda x: layer(x)[0], before, x)
    report = ox.export.quantize(before, after, scheme, calibration=x)
    assert len(report.quantized) == 1
    assert compare(before, after, {"x": x}) < 2e-2
    assert after.stat().st_size < before.stat().st_size


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:::onnx")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of cases that overflow
def test_the_node_cases_of_onnx() -> None:
    """What ONNX Runtime runs in float32 it runs in float16, too, with nearly the same numbers."""
    from onnx import inliner
    from onnx.backend.test.case.node import collect_testcases

    bad, count = [], 0
    for case in collect_testcases(None):
        model = copy.deepcopy(case.model)  # onnx keeps one of each case for all that ask
        ends = [info.type for info in (*model.graph.input, *model.graph.output)] if model is not None else []
        # a sequence as an input or output stays one of float32, which is refused
        if not ends or "expanded" in case.name or any(kind.WhichOneof("value") != "tensor_type" for kind in ends):
            continue
        if not any(kind.tensor_type.elem_type == TensorProto.FLOAT for kind in ends) or case.name in OTHER_MASKS:
            continue
        # copies, too: between casts, ONNX Runtime's BatchNormalization writes its statistics over what it is fed
        arrays = copy.deepcopy(case.data_sets[0][0])
        feed = {i.name: x for i, x in zip(model.graph.input, arrays, strict=False) if x is not None}
        try:
            expected = open_session(model, case.name).run(None, feed)
        except Exception:  # ONNX Runtime lacks it, or an input; its exceptions share no base class
            continue
        named = inliner.inline_local_functions(model) if model.functions else model
        for number, each in enumerate(nodes_of(named)):
            each.name = f"node_{number}"
        count += 1
        try:
            got = open_session(to_float16(named, ()).model, case.name).run(None, feed)
        except ExportError as error:
            bad.append(f"{case.name}: {error.got}")
            continue
        for y, z in zip(expected, got, strict=True):
            there = np.isfinite(y) if y.dtype.kind == "f" else None
            if there is None:
                continue
            largest = np.abs(y[there]).max(initial=1e-3)
            if y.dtype != z.dtype or y.shape != z.shape or not np.allclose(y[there], z[there], atol=2e-2 * largest):
                bad.append(case.name)
    assert not bad and count > 500
