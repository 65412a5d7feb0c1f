"""`ox.export.quantize`: what becomes of the weights, how far outputs move, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from int8_products import skip_if_they_saturate
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, ExportError, LoadError
from ox.export.quantization.sessions import open_session, run
from ox.graph.contract import Contract
from ox.graph.reader.model_file import metadata_of

Array = np.ndarray[Any, Any]
Scores = Callable[[Any, Array], Array]
TYPE = onnx.TensorProto.DataType
# scheme -> element type of the weights, largest share of float32's size, largest error as a share of the outputs
EXPECTED = {
    "float16": ("FLOAT16", 0.6, 1e-2),
    "bfloat16": ("BFLOAT16", 0.6, 3e-2),
    "int8-dynamic": ("INT8", 0.6, 5e-2),
    "int8": ("INT8", 0.6, 5e-2),
    "int4": ("INT4", 0.6, 2e-1),
}


def types(path: Path) -> Counter[str]:
    """How many elements the initializers have, by type."""
    count: Counter[str] = Counter()
    for tensor in onnx.load(path).graph.initializer:
        count[TYPE.Name(tensor.data_type)] += int(np.prod(tensor.dims))
    return count


@pytest.mark.parametrize("scheme", EXPECTED)
def test_a_scheme(scheme: str, network: Path, images: Array, scores: Scores, tmp_path: Path) -> None:
    kind, share, error = EXPECTED[scheme]
    path = tmp_path / "small.onnx"
    if kind == "INT8":
        skip_if_they_saturate()
    report = ox.export.quantize(network, path, scheme, calibration=images)
    assert types(path)[kind] >= 288 * 32  # the large layer
    assert types(path)["FLOAT"] < 1200
    assert report.size == (network.stat().st_size, path.stat().st_size) and report.size_ratio < share
    y, near = scores(network, images), scores(path, images)
    assert y.dtype == near.dtype
    far = np.abs(y - near).max() / np.abs(y).max()
    assert 0 < far < error
    assert report.seconds is not None and all(s > 0 for s in report.seconds)
    domains = {entry.domain for entry in onnx.load(path).opset_import}
    assert domains == {node.domain for node in onnx.load(path).graph.node} | {""}


@pytest.mark.parametrize("scheme", EXPECTED)
def test_its_golden_samples_are_its_own(
    scheme: str, network: Path, images: Array, scores: Scores, tmp_path: Path
) -> None:
    path = tmp_path / "small.onnx"
    ox.export.quantize(network, path, scheme, calibration=images)
    before = Contract.from_metadata(metadata_of(onnx.load(network)))
    contract = Contract.from_metadata(metadata_of(onnx.load(path)))
    assert (contract.inputs, contract.outputs) == (before.inputs, before.outputs)
    assert len(contract.samples) == len(before.samples) == 3
    for sample, old in zip(contract.samples, before.samples, strict=True):
        (x,), (y,), (then,) = sample.inputs.values(), sample.outputs.values(), old.outputs.values()
        assert np.array_equal(y, scores(path, x)) and not np.array_equal(y, then)
    if scheme.startswith("int"):
        assert contract.tolerance == pytest.approx(
            max(np.abs(scores(network, x) - scores(path, x)).max() for x in np.split(images, 4)), rel=1e-3
        )
    else:
        assert contract.tolerance is None


def test_weights_have_a_scale_for_each_channel(network: Path, images: Array, tmp_path: Path) -> None:
    path = tmp_path / "int8.onnx"
    ox.export.quantize(network, path, "int8", calibration=images)
    scales = {node.input[0]: node.input[1] for node in onnx.load(path).graph.node if node.op_type == "DequantizeLinear"}
    sizes = {t.name: t.dims for t in onnx.load(path).graph.initializer}
    channels = {tuple(sizes[scale]) for name, scale in scales.items() if len(sizes.get(name, ())) > 1}
    assert channels == {(8,), (32,), (5,)}


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_calibration_cuts_outliers_or_not(method: str, network: Path, images: Array, tmp_path: Path) -> None:
    """One pixel of 196,608 is 1,000, which makes all steps wide, unless the method leaves it out."""
    rows = np.repeat(images, 48, 0)
    rows[0, 0, 0, 0] = 1000.0

    def step(method: str) -> float:
        path = tmp_path / f"{method}.onnx"
        ox.export.quantize(network, path, "int8", calibration=rows, method=method)
        model = onnx.load(path)
        first = next(node for node in model.graph.node if node.op_type == "QuantizeLinear")
        scale = next(t for t in model.graph.initializer if t.name == first.input[1])
        return float(onnx.numpy_helper.to_array(scale))

    assert step("minmax") > 1.9 * step(method)


class Attention(nn.Module):
    """Words, of which a mask hides some, as a transformer has them."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.q, self.k, self.v = nn.Embedding(300, 32), *(nn.Linear(32, 32) for _ in range(3))
        self.head = nn.Linear(32, 4)

    def forward(self, words: Any, mask: Any) -> Any:
        x = self.table(words)
        scores = self.q(x) @ self.k(x).transpose(1, 2) / 32**0.5
        hidden = (1 - mask.float()).unsqueeze(1) * float(np.finfo(np.float32).min)
        return self.head(((scores + hidden).softmax(-1) @ self.v(x)).mean(1))


def test_a_mask_does_not_take_the_range(tmp_path: Path) -> None:
    """The lowest float in a sum would make every step as wide as all other values."""
    skip_if_they_saturate()
    random = np.random.default_rng(0)
    words, mask = random.integers(0, 300, (64, 6)), np.arange(6) < random.integers(1, 7, (64, 1))
    data = {"words": words, "mask": mask}
    before, after = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    ox.export.save(Attention(), before, data)
    report = ox.export.quantize(before, after, "int8", calibration=data)
    y, near = (ort.InferenceSession(str(path)).run(None, data)[0] for path in (before, after))
    assert 0 < np.abs(y - near).max() < 0.1 * np.abs(y).max()
    assert len(report.quantized) == 5 and types(after)["INT8"] + types(after)["UINT8"] > 300 * 32


def test_a_file_that_is_not_accurate_enough_does_not_appear(network: Path, images: Array, tmp_path: Path) -> None:
    path = tmp_path / "int8.onnx"
    path.write_bytes(b"what was here")
    answers = iter([0.9, 0.8])
    with pytest.raises(ExportError, match=r"less accurate[^~]*0\.85 or more \(float32: 0\.9\)[^~]*got *0\.8"):
        ox.export.quantize(
            network, path, "int8", calibration=images, evaluate=lambda _: next(answers), min_accuracy=0.85
        )
    assert path.read_bytes() == b"what was here" and list(tmp_path.iterdir()) == [path]


def test_an_accuracy_near_the_limit(network: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"0\.99999 or more \(float32: 0\.99998\)[^~]*got *0\.99998"):
        ox.export.quantize(
            network, tmp_path / "a.onnx", "float16", evaluate=lambda _: 0.99998, min_accuracy=0.99999
        )  # fmt: skip


def test_an_accuracy_that_is_no_number_is_not_enough(network: Path, images: Array, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="less accurate"):
        ox.export.quantize(
            network, tmp_path / "a.onnx", calibration=images, evaluate=lambda _: float("nan"), min_accuracy=0.1
        )
    assert not list(tmp_path.iterdir())


def test_mixed_leaves_the_most_sensitive_layer_in_float(scores: Scores, tmp_path: Path) -> None:
    """Two layers of whole numbers that int4 has, and one with outliers between them, which int4 rounds away."""
    random = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    with ox.no_grad():
        for layer, unit in ((model[0], 1 / 64), (model[4], 1 / 16)):
            whole = random.integers(-7, 8, layer.weight.shape)
            whole[:, 0] = -8
            layer.weight.copy_(ox.from_numpy((whole * unit).astype(np.float32)))
        outliers = random.normal(size=(32, 32)).astype(np.float32) / 5
        outliers[:, 3] = 5
        model[2].weight.copy_(ox.from_numpy(outliers))
    x = random.normal(size=(48, 32)).astype(np.float32)
    before, after = tmp_path / "float.onnx", tmp_path / "int4.onnx"
    ox.export.save(model, before, x)
    y = scores(before, x)

    def same(session: Any) -> float:
        return float((np.abs(scores(session, x) - y) < 0.1).mean())

    plain = ox.export.quantize(before, after, "int4", calibration=x, evaluate=same)
    assert plain.accuracy is not None and plain.accuracy[1] < 0.9 and len(plain.quantized) == 3
    report = ox.export.quantize(before, after, "int4", calibration=x, evaluate=same, min_accuracy=0.99, mixed=True)
    assert report.accuracy is not None and report.accuracy[1] >= 0.99
    (sensitive,) = report.in_float
    assert sensitive == plain.quantized[1] and report.quantized == (plain.quantized[0], plain.quantized[2])
    assert [n.op_type for n in onnx.load(after).graph.node].count("DequantizeLinear") == 2


@pytest.mark.parametrize("answer", [None, "good"])
def test_an_accuracy_that_is_of_another_type(answer: Any, network: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"`evaluate` returned no number[^~]*0\.97[^~]*(NoneType|str)"):
        ox.export.quantize(network, tmp_path / "a.onnx", "float16", evaluate=lambda _: answer)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_data_that_are_not_finite(value: float, method: str, network: Path, images: Array, tmp_path: Path) -> None:
    """One pixel is enough to make every step infinite."""
    rows = images.copy()
    rows[5, 0, 3, 3] = value
    with pytest.raises(ArgumentError, match=rf"not finite[^~]*'input', row 5[^~]*{value}[^~]*1 of 64"):
        ox.export.quantize(network, tmp_path / "a.onnx", calibration=rows, method=method)
    with pytest.raises(ArgumentError, match=r"not finite[^~]*'input', run 1, row 1"):
        ox.export.quantize(
            network, tmp_path / "a.onnx", calibration=[{"input": rows[:4]}, {"input": rows[4:8]}], method=method
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")  # NumPy's, of ONNX Runtime's calibration
@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
def test_activations_that_are_not_finite(method: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    with ox.no_grad():
        model[0].weight.fill_(1e30)
    ox.export.save(model, tmp_path / "float.onnx", np.full((4, 4), 1e-9, np.float32))
    with pytest.raises(ArgumentError, match=r"not finite|finds no ranges"):
        ox.export.quantize(
            tmp_path / "float.onnx", tmp_path / "a.onnx", calibration=np.full((4, 4), 1e9, np.float32), method=method
        )
    assert not (tmp_path / "a.onnx").exists()


def test_infinities_of_a_mask_are_data_where_nothing_is_calibrated(tmp_path: Path) -> None:
    layer = nn.Linear(32, 32)
    x = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
    mask = np.where(np.arange(32) % 4, 0, -np.inf).astype(np.float32) * np.ones((8, 1), np.float32)
    ox.export.save(lambda x, mask: (layer(x) + mask).softmax(-1), tmp_path / "float.onnx", (x, mask))
    assert ox.export.quantize(tmp_path / "float.onnx", tmp_path / "a.onnx", "int4", calibration=(x, mask)).quantized


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"calibration": np.zeros((0, 1, 8, 8), np.float32)}, "calibration data are empty"),
        ({"calibration": []}, "calibration data are empty"),
        ({"calibration": {"picture": np.zeros((4, 1, 8, 8), np.float32)}}, "other names[^~]*input[^~]*picture"),
        ({"calibration": (np.zeros((4, 1, 8, 8), np.float32),) * 2}, "do not fit the inputs"),
        ({"calibration": np.zeros((4, 1, 8, 8))}, r"do not fit input[^~]*float32[^~]*float64"),
        ({"calibration": np.zeros((4, 1, 9, 8), np.float32)}, r"do not fit input[^~]*\[4, 1, 9, 8\]"),
        ({"scheme": "int8"}, "int8 needs calibration data"),
        ({"scheme": "int3"}, "no scheme 'int3'[^~]*int4"),
        ({"scheme": "int4", "block_size": 24}, "no such block size"),
        ({"scheme": "int4", "block_size": 512}, "no weight of[^~]*int4[^~]*rows, a block 512"),
        ({"scheme": "float16", "min_accuracy": 0.5}, "needs `evaluate`"),
        ({"scheme": "float16", "mixed": True}, "mixed precision needs"),
        ({"scheme": "float16", "method": "guess"}, "no calibration 'guess'"),
    ],
)
def test_options_and_data_that_do_not_fit(given: dict[str, Any], said: str, network: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=said):
        ox.export.quantize(network, tmp_path / "a.onnx", **given)
    assert not list(tmp_path.iterdir())


def test_what_is_quantized_already(network: Path, images: Array, tmp_path: Path) -> None:
    once, half = tmp_path / "once.onnx", tmp_path / "half.onnx"
    ox.export.quantize(network, once, "int8-dynamic")
    with pytest.raises(ArgumentError, match=r"quantized already[^~]*DynamicQuantizeLinear[^~]*--adopt"):
        ox.export.quantize(once, tmp_path / "twice.onnx", "int8", calibration=images)
    ox.export.quantize(network, half, "float16")
    with pytest.raises(ArgumentError, match=r"no float32 weights[^~]*FLOAT16"):
        ox.export.quantize(half, tmp_path / "twice.onnx", "int8-dynamic")
    ox.export.quantize(network, half, "bfloat16")  # the biases stay in float32
    for scheme in ("int8", "int4"):
        with pytest.raises(ArgumentError, match=r"lower precision already[^~]*float32[^~]*BFLOAT16"):
            ox.export.quantize(half, tmp_path / "twice.onnx", scheme, calibration=images)


def test_a_layer_whose_weights_are_computed_is_not_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Only its bias is in the file."""
    first, scale, bias = nn.Linear(32, 32), nn.Parameter(ox.randn(32, 1)), nn.Parameter(ox.randn(32))
    x = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
    y = np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32)
    ox.export.save(
        lambda x, y: nn.functional.linear(first(x), y * scale, bias),
        tmp_path / "float.onnx", (x, y), dims={"x": ["batch", 32], "y": [32, 32]},
    )  # fmt: skip
    assert sum(n.op_type in ("Gemm", "MatMul") for n in onnx.load(tmp_path / "float.onnx").graph.node) == 2
    report = ox.export.quantize(tmp_path / "float.onnx", tmp_path / "a.onnx", calibration=[{"x": x, "y": y}])
    assert len(report.quantized) == 1
    assert types(tmp_path / "a.onnx")["INT8"] >= 32 * 32  # of a function, so that the file has no parameters
    assert not caplog.records


@rows("scheme", ["int8", "int8-dynamic", "float16", "bfloat16"])
@rows("in_file", [True, False])
@rows("second", ["scalar", "fixed", "named"])
def test_inputs_without_rows_in_common_are_one_run(scheme: str, in_file: bool, second: str, tmp_path: Path) -> None:
    layer, x = nn.Linear(32, 32), np.random.default_rng(0).normal(size=(40, 32)).astype(np.float32)
    rate, dims = {
        "scalar": (np.array(3), []), "fixed": (np.array([1, 2]), [2]), "named": (np.arange(5), ["rates"])
    }[second]  # fmt: skip
    ox.export.save(
        lambda x, rate: layer(x) * rate.sum().float(), tmp_path / "float.onnx", (x, rate),
        dims={"x": ["batch", 32], "rate": dims},
    )  # fmt: skip
    data: Any = {"x": x, "rate": rate}
    if in_file:
        np.savez(tmp_path / "x.npz", **data)
        data = tmp_path / "x.npz"
    report = ox.export.quantize(tmp_path / "float.onnx", tmp_path / "a.onnx", scheme, calibration=data)
    assert report.quantized and report.calibrated == 1


def test_different_numbers_of_the_same_rows(tmp_path: Path) -> None:
    layer, x = nn.Linear(32, 32), np.ones((4, 32), np.float32)
    ox.export.save(lambda x, y: layer(x) + y, tmp_path / "float.onnx", (x, x))
    with pytest.raises(ArgumentError, match="different numbers of rows"):
        ox.export.quantize(tmp_path / "float.onnx", tmp_path / "a.onnx", calibration={"x": x, "y": x[:3]})


@pytest.mark.parametrize("scatter", ["scatter_add", "index_add", "scatter_reduce"])
def test_sums_at_places_stay_in_float32(scatter: str, scores: Scores, tmp_path: Path) -> None:
    """ONNX Runtime's CPU has no kernel for them in float16."""
    layer, x = nn.Linear(6, 6), np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)

    def model(x: Any) -> Any:
        y = layer(x)
        if scatter == "index_add":
            return y.index_add(1, ox.tensor([0, 0, 1, 2, 3, 5]), y)
        places = (x > 0).long()
        return y.scatter_add(1, places, y) if scatter == "scatter_add" else y.scatter_reduce(1, places, y, "sum")

    ox.export.save(model, tmp_path / "float.onnx", x)
    ox.export.quantize(tmp_path / "float.onnx", tmp_path / "half.onnx", "float16", calibration=x)
    before, after = (scores(tmp_path / name, x) for name in ("float.onnx", "half.onnx"))
    assert 0 < np.abs(before - after).max() < 1e-2 * np.abs(before).max()


def test_a_model_that_cannot_run(network: Path) -> None:
    session = open_session(onnx.load(network), "the model")
    with pytest.raises(ExportError, match=r"ONNX Runtime [\d.]+ cannot run the model[^~]*got"):
        run(session, {session.get_inputs()[0].name: np.zeros((1, 2, 8, 8), np.float32)})


def test_an_opset_that_is_too_old(images: Array, tmp_path: Path) -> None:
    ox.export.save(nn.Linear(64, 4), tmp_path / "old.onnx", images.reshape(64, 64), opset=13)
    with pytest.raises(ArgumentError, match=r"opset too old for int4[^~]*21 or newer[^~]*opset 13[^~]*ox convert"):
        ox.export.quantize(tmp_path / "old.onnx", tmp_path / "new.onnx", "int4")
    assert ox.export.quantize(tmp_path / "old.onnx", tmp_path / "new.onnx", "int8-dynamic").quantized


def test_a_model_without_layers(tmp_path: Path) -> None:
    table = ox.randn(4)
    ox.export.save(lambda x: (x * table).tanh(), tmp_path / "plain.onnx", ox.randn(4, 4))
    with pytest.raises(ArgumentError, match=r"no layer that int8-dynamic quantizes[^~]*MatMul[^~]*1 Mul, 1 Tanh"):
        ox.export.quantize(tmp_path / "plain.onnx", tmp_path / "a.onnx", "int8-dynamic")


def test_a_weight_that_is_shared_stays_in_float(scores: Scores, tmp_path: Path) -> None:
    """The table of an embedding that is the head, too: ONNX's MatMul reads it transposed, so it is not quantized."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.body = nn.Parameter(ox.randn(64, 64)), nn.Linear(64, 64)

        def forward(self, words: Any) -> Any:
            return self.body(self.table[words]) @ self.table

    words = np.random.default_rng(0).integers(0, 64, (16, 3))
    before, after = tmp_path / "tied.onnx", tmp_path / "int4.onnx"
    ox.export.save(Tied(), before, words)
    report = ox.export.quantize(before, after, "int4", calibration=words)
    assert any("table is shared with Gather" in reason for reason in report.left)
    y = scores(before, words)
    assert 0 < np.abs(scores(after, words) - y).max() < 0.3 * np.abs(y).max()


def test_a_scheme_that_the_runtime_lacks() -> None:
    """float8 sums of ONNX Runtime's CPU."""
    node = onnx.helper.make_node("MatMul", ["x", "x"], ["y"])
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.BFLOAT16, [2, 2]) for name in "xy"]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", ends[:1], ends[1:]), opset_imports=[onnx.helper.make_opsetid("", 21)],
        ir_version=10,
    )  # fmt: skip
    with pytest.raises(ExportError, match=r"ONNX Runtime [\d.]+ has no kernel for the model"):
        open_session(model, "the model")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="there is no file"):
        ox.export.quantize(tmp_path / "none.onnx", tmp_path / "a.onnx", "float16")


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int8", "int4"])
def test_sizes_in_an_initializer(scheme: str, tmp_path: Path) -> None:
    """As exporters write the sizes of a Reshape, in raw bytes."""
    numbers = np.random.default_rng(0)
    stored = {"w": numbers.standard_normal((64, 64)).astype(np.float32), "sizes": np.array([0, 8, 8])}
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["h"]),
        onnx.helper.make_node("Reshape", ["h", "sizes"], ["y"]),
    ]
    ends = [
        [onnx.helper.make_tensor_value_info(name, 1, dims)] for name, dims in (("x", ["n", 64]), ("y", ["n", 8, 8]))
    ]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = onnx.helper.make_graph(nodes, "g", *ends, tensors)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "a.onnx")
    rows = numbers.standard_normal((64, 64)).astype(np.float32)
    report = ox.export.quantize(tmp_path / "a.onnx", tmp_path / "b.onnx", scheme, calibration=rows)
    assert len(report.quantized) == 1 and report.error is not None and np.isfinite(report.error)


@pytest.mark.parametrize("bias", [True, False])
def test_a_grouped_transposed_convolution(bias: bool, tmp_path: Path) -> None:
    """ONNX Runtime's tool gives its bias the scales of one group alone."""
    x = np.random.default_rng(0).standard_normal((16, 4, 9, 9)).astype(np.float32)
    model = nn.Sequential(nn.ConvTranspose2d(4, 8, 3, 2, groups=2, bias=bias), nn.ReLU(), nn.Conv2d(8, 3, 3))
    ox.export.save(model, tmp_path / "a.onnx", x)
    report = ox.export.quantize(tmp_path / "a.onnx", tmp_path / "b.onnx", "int8", calibration=x)
    assert len(report.quantized) == 2 and report.error is not None and report.error < 0.1


@pytest.mark.parametrize("scheme", ["int8", "float16"])
def test_calibration_without_rows(scheme: str, network: Path, images: Array, tmp_path: Path) -> None:
    """An empty run has no range, and nothing to compare."""
    for data in (images[:0], [], [{"input": images[:2]}, {"input": images[:0]}]):
        with pytest.raises(ArgumentError, match=r"data are empty|calibration run is empty[^~]*run 1"):
            ox.export.quantize(network, tmp_path / "b.onnx", scheme, calibration=data)
    assert not list(tmp_path.iterdir())


def test_a_tool_that_stops_is_an_error_of_ox(
    network: Path, images: Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: Any, **options: Any) -> None:
        raise KeyError("a name")

    monkeypatch.setattr("ox.export.quantization.integers.quantize_static", stop)
    with pytest.raises(ExportError, match=r"quantization tool stops[^~]*KeyError: 'a name'[^~]*float16"):
        ox.export.quantize(network, tmp_path / "b.onnx", "int8", calibration=images)
    assert not list(tmp_path.iterdir())
