"""`ox.export.save`: what a file holds, and that it appears only when it has proven itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime as ort
import pytest

import ox
from ox import nn, ops, tolerance
from ox.errors import ArgumentError, ExportError
from ox.graph.contract import Contract


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.head = nn.Linear(64, 10)

    def forward(self, image: Any) -> Any:
        unused = image * 3 + self.head.weight.sum()
        del unused
        x = self.norm(self.conv(image)).relu()
        x = x.reshape(x.shape[0], 4, 4, 2, 4, 2).amax((3, 5))
        return self.head(x.reshape(x.shape[0], -1))


@pytest.fixture
def net() -> Net:
    ox.manual_seed(0)
    model = Net()
    model(images(8))  # running statistics of its own
    return model


def images(n: int) -> Any:
    return ox.from_numpy(np.random.default_rng(n).random((n, 1, 8, 8), dtype=np.float32))


def session(path: Path) -> Any:
    options = ort.SessionOptions()
    options.use_per_session_threads = False  # eager ox has given this process one pool
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def dims_of(infos: Any) -> list[list[int | str]]:
    return [[d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in infos]


def test_names_and_sizes(net: Net, tmp_path: Path) -> None:
    report = ox.export.save(net, tmp_path / "m.onnx", images(12), output_names=["logits"])
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert [i.name for i in graph.input] == ["image"] and [o.name for o in graph.output] == ["logits"]
    assert dims_of(graph.input) == [["batch", 1, 8, 8]] and dims_of(graph.output) == [["batch", 10]]
    kept = {name for name, _ in [*net.named_parameters(), *net.named_buffers()]} - {"norm.num_batches_tracked"}
    assert {t.name for t in graph.initializer} == kept, "parameters and buffers, under their names, and nothing else"
    names = [n.op_type for n in graph.node]
    assert "BatchNormalization" in names and "Mul" not in names, "dead code is gone, batch norm is one node"
    assert len({n.name for n in graph.node}) == len(names)
    conv = next(n for n in graph.node if n.op_type == "Conv")
    assert conv.name == "Net.conv/Conv" and "Net.conv (Conv2d), test_save_model.py:" in conv.doc_string
    assert report.dims == "image [batch, 1, 8, 8] → logits [batch, 10]" and report.opset == 21
    assert [row.batch for row in report.rows] == [1, 2, 7] and all(r.max_abs <= r.allowed for r in report.rows)
    assert report.size == (tmp_path / "m.onnx").stat().st_size


def test_shapes_are_folded(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        y = x.reshape(x.shape[0], x.shape[1] * x.shape[2]) * (ox.arange(12) / 4)
        return y.reshape(-1, x.shape[2], x.shape[1])

    ox.export.save(model, tmp_path / "m.onnx", np.ones((2, 3, 4), np.float32))
    graph = onnx.load(tmp_path / "m.onnx").graph
    kinds = sorted(n.op_type for n in graph.node if n.op_type != "Constant")
    assert kinds == ["Mul", "Reshape", "Reshape"], "the batch's size is copied"
    assert dims_of(graph.output) == [["batch", 4, 3]]


def test_the_model_stays_as_it_was(net: Net, tmp_path: Path) -> None:
    net.train()
    net.norm.eval()
    before = {name: x.numpy().copy() for name, x in net.state_dict().items()}
    random = ox.random.get_state()
    ox.export.save(net, tmp_path / "m.onnx", images(3))
    assert net.training and net.head.training and not net.norm.training
    for name, x in net.state_dict().items():
        np.testing.assert_array_equal(x.numpy(), before[name])
    assert ox.random.get_state() == random
    assert all(p.requires_grad and p.grad is None for p in net.parameters())


def test_inputs_of_every_form(tmp_path: Path) -> None:
    def model(a: Any, scale: Any) -> Any:
        return {"sum": (a * scale).sum(1), "largest": a.argmax(1)}

    a, scale = np.random.rand(5, 3).astype("f"), np.random.rand(5, 1).astype("f")
    for example in ((a, ox.from_numpy(scale)), {"a": a, "scale": scale}, [a, scale], {"scale": scale, "a": a}):
        report = ox.export.save(model, tmp_path / "m.onnx", example)
        assert {i.name for i in report.contract.inputs} == {"a", "scale"}
        assert report.dims.endswith("→ sum [batch], largest [batch]")
    renamed = ox.export.save(model, tmp_path / "m.onnx", (a, scale), input_names=["x", "y"])
    assert [i.name for i in renamed.contract.inputs] == ["x", "y"]


@pytest.mark.parametrize(
    ("example", "arguments", "says"),
    [
        (np.float32(3), {}, "no dimensions"),
        (np.zeros((0, 2), np.float32), {}, "is 0"),
        (np.zeros((2, 2), np.float32), {"input_names": ["a", "b"]}, "input_names"),
        (np.zeros((2, 2), np.float32), {"dims": {"y": ["n", 2]}}, "no input"),
        (np.zeros((2, 2), np.float32), {"dims": {"x": ["n", 3]}}, "do not fit"),
        (np.zeros((2, 2), np.float32), {"dims": {"x": ["n"]}}, "do not fit"),
        ("text", {}, "tensor or array"),
        (np.zeros((2, 2), np.float32), {"labels": {"other": ["a"]}}, "labels"),
    ],
)
def test_examples_that_do_not_fit(example: Any, arguments: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=says):
        ox.export.save(lambda x: x * 2, tmp_path / "m.onnx", example, **{"input_names": ["x"], **arguments})
    assert not list(tmp_path.iterdir())


def test_sizes_with_names(tmp_path: Path) -> None:
    def model(tokens: Any) -> Any:
        x = tokens.float().unsqueeze(-1)
        return x * 2, x.mean(1)

    example = np.random.default_rng(0).integers(0, 9, (4, 6))
    report = ox.export.save(model, tmp_path / "m.onnx", example, dims={"tokens": ["n", "length"]})
    assert report.dims == "tokens [n, length] → output_0 [n, length, 1], output_1 [n, 1]"
    run = session(tmp_path / "m.onnx")
    assert run.run(None, {"tokens": np.ones((3, 17), np.int64)})[0].shape == (3, 17, 1)
    fixed = ox.export.save(model, tmp_path / "m.onnx", example, dims={"tokens": [4, 6]})
    assert fixed.dims == "tokens [4, 6] → output_0 [4, 6, 1], output_1 [4, 1]"
    assert [row.batch for row in fixed.rows] == [None] and not fixed.contract.samples


@pytest.mark.parametrize("opset", range(21, 27))
def test_every_opset_runs(net: Net, opset: int, tmp_path: Path) -> None:
    assert ox.export.save(net, tmp_path / "m.onnx", images(3), opset=opset).opset == opset
    model = onnx.load(tmp_path / "m.onnx")
    assert model.opset_import[0].version == opset
    got = session(tmp_path / "m.onnx").run(None, {"image": images(5).numpy()})[0]
    assert tolerance.compare(got, net.eval()(images(5)).detach().numpy()).ok


@pytest.mark.parametrize("opset", [5, 12, 27, 99, -1])
def test_opsets_out_of_range(opset: int, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="out of range"):
        ox.export.save(lambda x: x * 2, tmp_path / "m.onnx", np.ones((2, 2), np.float32), opset=opset)


@pytest.mark.parametrize("dtype", [ox.float64, ox.float16, ox.bfloat16])
def test_other_floats(dtype: Any, tmp_path: Path) -> None:
    ox.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3), nn.Softmax(-1)).to(dtype=dtype)
    report = ox.export.save(model, tmp_path / "m.onnx", ox.randn(9, 4).to(dtype))
    assert all(row.max_abs <= row.allowed for row in report.rows)
    if dtype == ox.bfloat16:
        note = report.proof.note or ""
        assert "between Casts" in note and "has no kernel for this file" in note and note in str(report)
    assert report.contract.outputs[0].dtype == {"float64": "FP64", "float16": "FP16", "bfloat16": "BF16"}[str(dtype)]


def test_float64_that_onnxruntime_lacks(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()).to(dtype=ox.float64)
    report = ox.export.save(model, tmp_path / "m.onnx", np.random.rand(3, 1, 5, 5))
    assert report.proof.runtime.startswith("onnx.reference") and "Conv" in (report.proof.note or "")
    assert all(row.max_abs <= row.allowed < 1e-7 for row in report.rows)


def test_contract_and_golden_samples(net: Net, tmp_path: Path) -> None:
    report = ox.export.save(
        net, tmp_path / "m.onnx", images(12), output_names=["logits"], labels="0123456789", run="digits-0007",
        meaning={"image": "ink"}, metadata={"ox.recipe": "digits"},
    )  # fmt: skip
    model = onnx.load(tmp_path / "m.onnx")
    metadata = {p.key: p.value for p in model.metadata_props}
    assert metadata["ox.recipe"] == "digits" and metadata["ox.version"] == ox.__version__
    contract = Contract.from_metadata(metadata)
    assert contract.run == "digits-0007" and contract.inputs[0].meaning == "ink"
    assert contract.outputs[0].labels == tuple("0123456789")
    run = session(tmp_path / "m.onnx")
    real = images(12).numpy()
    assert len(contract.samples) == 3 == len(report.contract.samples)
    for sample in contract.samples:
        assert sample.inputs["image"].shape == (1, 1, 8, 8)
        assert real.min() <= sample.inputs["image"].min() and sample.inputs["image"].max() <= real.max()
        assert not any(np.array_equal(sample.inputs["image"][0], row) for row in real)
        assert tolerance.compare(run.run(None, dict(sample.inputs))[0], sample.outputs["logits"]).ok

    ox.export.save(net, tmp_path / "m.onnx", images(12), golden=images(2))
    given = Contract.from_metadata({p.key: p.value for p in onnx.load(tmp_path / "m.onnx").metadata_props}).samples
    np.testing.assert_array_equal(np.concatenate([s.inputs["image"] for s in given]), images(2).numpy())

    ox.export.save(net, tmp_path / "m.onnx", images(12), golden=None)
    assert "ox.golden" not in {p.key for p in onnx.load(tmp_path / "m.onnx").metadata_props}


def test_no_golden_answers_without_rows(tmp_path: Path) -> None:
    report = ox.export.save(lambda x: x.sum(), tmp_path / "m.onnx", np.ones((4, 2), np.float32))
    assert not report.contract.samples and report.dims == "x [batch, 2] → output []"


def test_shared_weights_are_one(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Any) -> Any:
            return self.b(self.a(x))

    ox.export.save(Tied(), tmp_path / "m.onnx", np.ones((2, 4), np.float32))
    assert [t.name for t in onnx.load(tmp_path / "m.onnx").graph.initializer] == ["a.weight"]


def test_names_that_meet(tmp_path: Path) -> None:
    class Meets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.Parameter(np.ones(3, np.float32))

        def forward(self, add: Any) -> Any:
            return (add + self.relu).relu() * 2

    ox.export.save(Meets(), tmp_path / "m.onnx", np.ones((2, 3), np.float32), output_names=["mul"])
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert [i.name for i in graph.input] == ["add"] and [t.name for t in graph.initializer] == ["relu"]
    with pytest.raises(ExportError, match="would be called 'relu'"):
        ox.export.save(Meets(), tmp_path / "n.onnx", np.ones((2, 3), np.float32), input_names=["relu"])


def test_large_weights_go_beside(net: Net, tmp_path: Path) -> None:
    report = ox.export.save(net, tmp_path / "m.onnx", images(3), external_above=1000)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert report.data == tmp_path / "m.onnx.data"
    assert report.size == sum(p.stat().st_size for p in tmp_path.iterdir())
    bare = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    outside = [t.name for t in bare.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    assert outside == ["head.weight"]
    expected = net.eval()(images(5)).detach().numpy()
    assert tolerance.compare(session(tmp_path / "m.onnx").run(None, {"image": images(5).numpy()})[0], expected).ok
    loaded = ox.export.load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(loaded.head.weight.array, net.head.weight.array)


def test_a_failed_export_changes_nothing(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "m.onnx"
    ox.export.save(net, target, images(3), external_above=1000)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    monkeypatch.setattr(ops.Relu, "kernel", lambda xp, X: X * 0.5)
    net.head.weight.array[...] = 1
    for limit in (1000, 1 << 30):
        with pytest.raises(ExportError) as caught:
            ox.export.save(net, target, images(3), external_above=limit)
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
        assert str(caught.value).endswith("\n  m.onnx is what it was")


def test_a_wrong_operator_is_found(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first operator whose values part is named, with the user's line, whatever comes after it."""
    monkeypatch.setattr(ops.Relu, "kernel", lambda xp, X: np.maximum(X, 0) + (X > 0.2).astype(X.dtype))
    with pytest.raises(ExportError) as caught:
        ox.export.save(net, tmp_path / "m.onnx", images(3))
    error = caught.value
    assert "test_save_model.py" in (error.where or "") and ".relu()" in (error.where or "")
    assert "first at Relu" in (error.got or "") and "max |Δ| at most" in (error.expected or "")
    assert str(error).endswith("m.onnx was not written") and not list(tmp_path.iterdir())


def test_a_model_that_changes_with_each_call(tmp_path: Path) -> None:
    class Counts(nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * (1.0 if self.calls <= 2 else float(self.calls))

    with pytest.raises(ExportError, match="recorded graph gives another"):
        ox.export.save(Counts(), tmp_path / "m.onnx", np.ones((2, 2), np.float32))


def test_places_that_cannot_be_written(net: Net, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no folder"):
        ox.export.save(net, tmp_path / "none" / "m.onnx", images(3))
    with pytest.raises(ExportError, match="is a folder"):
        ox.export.save(net, tmp_path, images(3))
    if os.geteuid():
        tmp_path.chmod(0o500)
        with pytest.raises(ExportError, match="permission"):
            ox.export.save(net, tmp_path / "m.onnx", images(3))
        tmp_path.chmod(0o700)


def test_random_draws_become_functions(tmp_path: Path) -> None:
    """What is not an ai.onnx operator is a function of the file: stock runtimes need nothing of ours."""

    def model(x: Any) -> Any:
        return x + ox.rand(x.shape[0], 3, generator=ox.Generator(3))

    ox.export.save(model, tmp_path / "m.onnx", np.ones((2, 3), np.float32))
    file = onnx.load(tmp_path / "m.onnx")
    assert [f.domain for f in file.functions] == ["ox"]
    got = onnx.reference.ReferenceEvaluator(file).run(None, {"x": np.zeros((4, 3), np.float32)})[0]
    np.testing.assert_array_equal(got, session(tmp_path / "m.onnx").run(None, {"x": np.zeros((4, 3), np.float32)})[0])


def test_weights_that_are_not_numbers_are_refused(net: Net, tmp_path: Path) -> None:
    with ox.no_grad():
        net.head.weight[0, :2] = float("nan")
    with pytest.raises(ExportError, match=r"'head.weight' holds NaN(.|\n)*2 of 640"):
        ox.export.save(net, tmp_path / "m.onnx", images(4))
    assert not list(tmp_path.iterdir())


def test_as_many_labels_as_scores(net: Net, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"labels do not fit(.|\n)*10, one for each"):
        ox.export.save(net, tmp_path / "m.onnx", images(4), labels=list("abc"))
    assert not list(tmp_path.iterdir())
    ox.export.save(net, tmp_path / "m.onnx", images(4), labels=list("0123456789"))


@pytest.mark.parametrize("example", [None, "text", 3.5, object(), [], [[1.0, 2.0]], {}])
def test_an_example_of_another_kind_is_refused(net: Net, tmp_path: Path, example: Any) -> None:
    with pytest.raises(ox.OxError):
        ox.export.save(net, tmp_path / "m.onnx", example)
    assert not list(tmp_path.iterdir())


def test_no_model_and_no_path_are_refused(net: Net, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="model"):
        ox.export.save(None, tmp_path / "m.onnx", images(2))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="path"):
        ox.export.save(net, images(2), "m.onnx")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "shape", "dims", "expected"),
    [
        (nn.Conv1d(4, 2, 3, padding=1), (3, 4, 6), ["b", 4, "n"], ("b", 2, "n")),
        (nn.MaxPool2d(2), (3, 6, 8, 8), ["b", 6, "h", "w"], ("b", 6, "output_2", "output_3")),
        (nn.AvgPool2d(4), (3, 1, 9, 9), ["b", 1, "h", "w"], ("b", 1, "output_2", "output_3")),
        (lambda x: x.roll(1, 1), (3, 6, 4), ["b", "n", 4], ("b", "n", 4)),
        (lambda x: x[:, 1:], (3, 6, 4), ["b", "n", 4], ("b", "output_1", 4)),
        (lambda x: ox.cat([x, x], 1), (3, 6, 4), ["b", "n", 4], ("b", "output_1", 4)),
        (lambda x: x.sum(1), (3, 6, 4), ["b", "n", 4], ("b", 4)),
    ],
)
def test_a_size_that_varies_is_declared_so(
    tmp_path: Path, model: Any, shape: tuple[int, ...], dims: list[Any], expected: tuple[Any, ...]
) -> None:
    name = "input" if isinstance(model, nn.Module) else "x"
    report = ox.export.save(model, tmp_path / "m.onnx", ox.randn(*shape), dims={name: dims})
    assert report.contract.outputs[0].dims == expected
    assert dims_of(onnx.load(tmp_path / "m.onnx").graph.output) == [list(expected)]


def test_sizes_that_are_too_small_for_the_model_are_not_tried(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv1d(1, 2, 6), nn.ReLU(), nn.AvgPool1d(2))
    report = ox.export.save(model, tmp_path / "m.onnx", ox.randn(3, 1, 8), dims={"input": ["b", 1, "n"]})
    assert [row.sizes["n"] for row in report.rows] == [8, 7, 7, 17]


@pytest.mark.parametrize(
    "index",
    [
        lambda n: ox.arange(n - 1, -1, -1),
        lambda n: ox.arange(n - 1, 0, -2),
        lambda n: ox.arange(-n, 0),
        lambda n: ox.arange(-1, -n - 1, -1),
        lambda n: ox.arange(n - 2, n),
    ],
)
def test_places_that_go_down_or_from_the_end(tmp_path: Path, index: Any) -> None:
    def model(x: Any) -> Any:
        return x[:, index(x.shape[1])]

    ox.export.save(model, tmp_path / "m.onnx", ox.randn(3, 5), dims={"x": ["b", "n"]})
    x = ox.randn(2, 9)
    (y,) = ort.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x.numpy()})
    assert np.array_equal(y, model(x).numpy())


def test_a_report_is_short(tmp_path: Path) -> None:
    report = ox.export.save(nn.Linear(3, 4), tmp_path / "m.onnx", ox.randn(8, 3))
    first, dims, *rows = str(report).splitlines()
    assert first == f"{tmp_path / 'm.onnx'}: Linear, 1 node, opset 21, {report.size:,} bytes"
    assert dims == "  input [batch, 3] → output [batch, 4]" and len(rows) == 3 and "batch 7: max |Δ|" in rows[2]
