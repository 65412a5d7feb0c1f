"""Files that must not be served, and devices that are not there: refused at start, with the reason."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from rows import rows

from ox.devices.cuda_installation import Problem
from ox.devices.machine import Driver
from ox.errors import ArgumentError, DeviceError, LoadError, OxError
from ox.graph.contract import Contract, Sample, TensorInfo
from ox.installation import install_command
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.repository.model import Model
from ox.serve.runtime import providers, session
from ox.serve.runtime.source import read

F = TensorProto.FLOAT
ENDS: tuple[Any, Any] = ({"x": (F, ["batch", 4])}, {"y": (F, ["batch", 4])})


def load(path: Path, **options: Any) -> Model:
    return Model(path, ModelConfig(**options), RequestLimits())


def test_damaged_files(mlp: Path, tmp_path: Path) -> None:
    whole = mlp.read_bytes()
    path = tmp_path / "m.onnx"
    for data in (b"", b"not a model", whole[:10], whole[:-200], whole[: len(whole) // 2], b"\xff" * 100, whole[::-1]):
        path.write_bytes(data)
        with pytest.raises(LoadError) as caught:
            load(path)
        assert "m.onnx" in caught.value.what
    with pytest.raises(LoadError, match="no file") as caught:
        load(tmp_path / "n.onnx")
    assert caught.value.hint == "one of m.onnx"
    with pytest.raises(LoadError, match="cannot be read"):
        load(tmp_path)


def test_runtime_refuses(build: Any) -> None:
    with pytest.raises(LoadError) as caught:
        load(build("new", [("Relu", ["x"], ["y"], {})], *ENDS, opset=999))
    assert caught.value.got == "opset 999" and "or lower" in str(caught.value.expected)
    with pytest.raises(LoadError, match="cannot load") as caught:
        load(build("ir", [("Relu", ["x"], ["y"], {})], *ENDS, ir_version=99))
    assert "99" in str(caught.value.got)
    with pytest.raises(LoadError) as caught:
        load(build("odd", [("Frobnicate", ["x"], ["y"], {})], *ENDS))
    assert "Frobnicate" in str(caught.value)


def test_types_that_the_protocol_lacks(build: Any) -> None:
    float8 = (TensorProto.FLOAT8E4M3FN, ["batch", 4])
    with pytest.raises(LoadError, match="carries only") as caught:
        load(build("tiny", [("Identity", ["x"], ["y"], {})], {"x": float8}, {"y": float8}))
    assert caught.value.got == "tensor(float8e4m3fn)" and caught.value.hint is None


def test_the_maps_of_scikit_learns_converters(tmp_path: Path) -> None:
    """What skl2onnx writes for a classifier unless it is told otherwise."""
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3])
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])
    graph = helper.make_graph([node], "g", [x], [helper.make_value_info("y", kind)])
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=10), tmp_path / "m.onnx")
    with pytest.raises(LoadError, match="carries only tensors") as caught:
        load(tmp_path / "m.onnx")
    assert caught.value.got == "seq(map(int64,tensor(float)))"
    assert caught.value.hint is not None and "zipmap=False" in caught.value.hint


def external(folder: Path, location: str, where: str = "initializer") -> Path:
    """A model whose one weight lies at `location`; as an initializer, in a constant, or in a subgraph."""
    weight = onnx.TensorProto(name="w", data_type=F, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    value = [helper.make_tensor_value_info(name, F, ["batch", 4]) for name in "xy"]
    initializers, nodes = [], []
    if where == "initializer":
        initializers.append(weight)
    elif where == "constant":
        nodes.append(helper.make_node("Constant", [], ["w"], value=weight))
    else:
        inner = helper.make_node("Constant", [], ["i"], value=weight)
        branch = helper.make_graph([inner], "b", [], [helper.make_tensor_value_info("i", F, [4])])
        nodes.append(helper.make_node("If", ["yes"], ["w"], then_branch=branch, else_branch=branch))
        initializers.append(helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
    nodes.append(helper.make_node("Add", ["x", "w"], ["y"]))
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@rows("where", ["initializer", "constant", "subgraph"])
@rows("location", ["../secret", "ABSOLUTE", "link", "linked/secret", "", "a/../../secret"])
def test_external_data_stays_inside(tmp_path: Path, where: str, location: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"\0" * 16)
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "link").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path)
    path = external(folder, str(secret) if location == "ABSOLUTE" else location, where)
    with pytest.raises(LoadError, match="outside its folder") as caught:
        load(path)
    assert caught.value.where == "tensor 'w'"


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    path = external(tmp_path, "weights.bin")
    with pytest.raises(LoadError, match="lacks its external data"):
        load(path)
    (tmp_path / "weights.bin").write_bytes(np.ones(4, np.float32).tobytes())
    assert load(path).proof.why is None


def sampled(y: float, **changes: Any) -> Contract:
    rows = [np.full((1, 4), value, np.float32) for value in (1, 2)]
    samples = tuple(Sample({"x": row}, {"y": row + y}) for row in rows)
    info = TensorInfo("x", "FP32", ("batch", 4), "four numbers")
    out = TensorInfo("y", "FP32", ("batch", 4), None, ("a", "b", "c", "d"))
    return replace(Contract((info,), (out,), samples, "0.1.0", "run-1"), **changes)


def test_golden_samples(build: Any, connect: Any) -> None:
    nodes = [("Identity", ["x"], ["y"], {})]
    path = build("gold", nodes, *ENDS, contract=sampled(0))
    with Server([path]) as server, connect(server) as client:
        body = client.ask("GET", "/v2/models/gold")[2]
        assert b'"meaning":"four numbers"' in body and b'"labels":["a","b","c","d"]' in body
    with pytest.raises(LoadError, match="golden outputs") as caught:
        load(build("gold", nodes, *ENDS, contract=sampled(0.01)))
    assert caught.value.where == "golden sample 0 of 2, output 'y'" and "1.0e-02" in str(caught.value.got)
    wrong = (Sample({"z": np.zeros((1, 4), np.float32)}, {}),)
    with pytest.raises(LoadError, match="its golden sample"):
        load(build("gold", nodes, *ENDS, contract=sampled(0, samples=wrong)))
    other = (TensorInfo("x", "INT64", ("batch", 4)),)
    with pytest.raises(LoadError, match="does not match"):
        load(build("gold", nodes, *ENDS, contract=sampled(0, inputs=other)))


def test_golden_range_is_used(build: Any) -> None:
    """Log of a normal number is NaN half the time; within the golden rows' range it is not."""
    rows = [np.full((1, 4), value, np.float32) for value in (1, 2)]
    samples = tuple(Sample({"x": row}, {"y": np.log(row)}) for row in rows)
    path = build("log", [("Log", ["x"], ["y"], {})], *ENDS, contract=sampled(0, samples=samples))
    assert load(path).proof.why is None


def test_devices(mlp: Path) -> None:
    assert load(mlp, device="cpu").engine.provider == "CPUExecutionProvider"
    chosen = load(mlp, device="auto")
    assert chosen.engine.provider in chosen.describe()
    with pytest.raises(ArgumentError, match="unknown device"):
        load(mlp, device="tpu")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(DeviceError, match="CUDA execution provider did not load") as caught:
            load(mlp, device="cuda")
        assert "CPUExecutionProvider" in str(caught.value.got) and "--device auto" in str(caught.value.hint)


def test_a_session_that_falls_back_to_the_cpu_is_not_cuda(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, a CUDA build lists CUDA, raises nothing and runs on the CPU."""
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    real = onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda *args, providers, **_: real(*args, providers=providers[-1:])
    )
    monkeypatch.setattr(providers, "driver_problem", lambda _: None)
    with pytest.raises(DeviceError) as caught:
        load(mlp, device="cuda")
    assert str(caught.value.got).startswith("CPUExecutionProvider")
    assert load(mlp, device="auto").engine.device == "cpu"


def test_what_keeps_cuda_from_working_is_named_and_cuda_is_not_tried(
    mlp: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    problem = Problem("the NVIDIA driver is too old: it is for CUDA 11.4", "a newer driver")
    monkeypatch.setattr(providers, "driver_problem", lambda _: problem)
    with pytest.raises(DeviceError, match="did not load") as caught:
        load(mlp, device="cuda")
    assert caught.value.got == f"CPUExecutionProvider ({problem.what})"
    assert caught.value.hint == "a newer driver; or --device auto to accept the CPU"
    assert load(mlp, device="auto").engine.device == "cpu"
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(providers, "nvidia_driver", lambda: Driver((13, 0), ("H200",)))
    monkeypatch.setattr(providers, "driver_problem", lambda _: None)
    monkeypatch.setattr(providers, "missing_library", lambda *_: "libcublasLt.so.13 is not installed")
    with pytest.raises(DeviceError, match="libcublasLt"):
        load(mlp, device="cuda")
    with caplog.at_level(logging.WARNING, "ox.serve"):
        assert load(mlp, device="auto").engine.device == "cpu"
    assert "libcublasLt" in caplog.text


def test_a_session_that_chooses_the_cpu(
    mlp: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = onnxruntime.InferenceSession

    def make(*args: Any, providers: list[Any], **_: Any) -> Any:
        return real(*args, providers=providers[-1:])  # as ONNX Runtime does, without an error

    monkeypatch.setattr(providers, "choose", lambda *_: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", make)
    with pytest.raises(DeviceError, match="did not load"):
        load(mlp, device="cuda")
    with caplog.at_level(logging.WARNING, "ox.serve"):
        assert load(mlp, device="auto").engine.device == "cpu"
    assert "although this machine has a GPU" in caplog.text


def test_a_cuda_that_fails(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = onnxruntime.InferenceSession

    def make(*args: Any, providers: list[Any], **_: Any) -> Any:
        if len(providers) > 1:
            raise RuntimeError("CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version")
        return real(*args, providers=providers)

    monkeypatch.setattr(providers, "choose", lambda *_: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", make)
    problem = Problem("onnxruntime-gpu 1.31.1 is for CUDA 13, and the driver for CUDA 12.8", "another wheel")
    for found, hint in ((problem, "another wheel"), (None, "pip install")):
        monkeypatch.setattr(session, "first_problem", lambda _, found=found: found)
        with pytest.raises(DeviceError, match="did not load") as caught:
            load(mlp, device="cuda")
        assert "CUDA failure 35" in str(caught.value.got) and hint in str(caught.value.hint)
        assert found is None or found.what in str(caught.value.got)
    assert load(mlp, device="auto").engine.device == "cpu"


def test_two_versions_of_cudnn(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDNN failure 1002: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH ; GPU=0 ; hostname=x")

    monkeypatch.setattr(providers, "choose", lambda *_: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", fail)
    monkeypatch.setattr(session, "first_problem", lambda _: None)
    with pytest.raises(DeviceError, match="did not load") as caught:
        load(mlp, device="cuda")
    assert "parts of two versions of cuDNN" in str(caught.value.got)
    assert "no other cuDNN in LD_LIBRARY_PATH" in str(caught.value.hint)


def test_without_a_runtime(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(DeviceError, match="not installed") as caught:
        load(mlp)
    assert install_command("cpu") in str(caught.value.hint)


@rows(
    "options",
    [
        {"max_rows": -1},
        {"instances": 0},
        {"threads": -1},
        {"max_wait_ms": -1},
        {"deadline_ms": 0},
        {"max_queue": 0},
        {"max_wait_ms": 2000, "deadline_ms": 100},
        {"max_rows": 1 << 21},
        {"instances": 1025},
        {"threads": 1025},
    ],
)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(options))):
        ModelConfig(**options)


def test_servers_that_cannot_start(mlp: Path, tmp_path: Path) -> None:
    with pytest.raises(OxError, match="no model"):
        Server([])
    with pytest.raises(OxError, match="same name"):
        Server([mlp, tmp_path / "mlp.onnx"])
    with pytest.raises(OxError, match="out of range"):
        Server([mlp], port=65536)
    with Server([mlp]) as first:
        with pytest.raises(OxError, match=f"port {first.port} is in use") as caught, Server([mlp], port=first.port):
            pass
        assert "0 takes a free one" in str(caught.value.hint)
    with pytest.raises(OxError, match="cannot listen"), Server([mlp], host="203.0.113.1"):
        pass


def test_several_instances_of_several_threads(mlp: Path) -> None:
    model = load(mlp, instances=2, threads=2)
    assert len(model.engine._runs) == 2 and "2 instances × 2 threads" in model.describe()


@pytest.mark.parametrize(
    ("kind", "count", "size"),
    [
        ("INT4", 1001, 501),
        ("UINT4", 1000, 500),
        ("FLOAT4E2M1", 1000, 500),
        ("INT8", 1000, 1000),
        ("FLOAT16", 1000, 2000),
    ],
)
def test_the_bytes_of_weights(tmp_path: Path, kind: str, count: int, size: int) -> None:
    """Where they are in the bytes of the file, in its lists of wider numbers, or in another file."""
    number = TensorProto.DataType.Value(kind)
    wider = helper.make_tensor("wider", number, [count], np.full(count, -1 if kind == "INT8" else 1))
    exact = helper.make_tensor("exact", number, [count], bytes(size), raw=True)
    other = TensorProto(name="other", data_type=number, dims=[count], data_location=TensorProto.EXTERNAL)
    other.external_data.add(key="location", value="weights.bin")
    (tmp_path / "weights.bin").write_bytes(bytes(size))
    text = helper.make_tensor("text", TensorProto.STRING, [1], [b"x" * 1000])
    for weight in (wider, exact, other, text):
        y = helper.make_tensor_value_info(weight.name, weight.data_type, [*weight.dims])
        onnx.save(helper.make_model(helper.make_graph([], "g", [], [y], [weight])), tmp_path / "m.onnx")
        weights = read(tmp_path / "m.onnx").weights
        assert 1000 <= weights < 1100 if weight is text else weights == size
