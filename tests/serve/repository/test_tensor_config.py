"""`reshape` and `format`: clients see the configuration's dims, the model gets its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from rows import rows

from ox.errors import LoadError
from ox.graph.contract import Contract, Sample, TensorInfo
from ox.serve import ModelConfig, RequestLimits, Server

http = pytest.importorskip("tritonclient.http")
grpc = pytest.importorskip("tritonclient.grpc")

FLOAT = TensorProto.FLOAT
# Triton's quick-start, word for word but for the comments.
DENSENET = """
name: "densenet_onnx"
platform: "onnxruntime_onnx"
max_batch_size : 0
input [
  {
    name: "data_0"
    data_type: TYPE_FP32
    format: FORMAT_NCHW
    dims: [ 3, 224, 224 ]
    reshape { shape: [ 1, 3, 224, 224 ] }
  }
]
output [
  {
    name: "fc6_1"
    data_type: TYPE_FP32
    dims: [ 1000 ]
    reshape { shape: [ 1, 1000, 1, 1 ] }
    label_filename: "densenet_labels.txt"
  }
]
"""
IMAGE = np.random.default_rng(3).random((3, 224, 224), np.float32)


@pytest.fixture(scope="module")
def folder(build: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models: a stand-in for DenseNet, one of [batch] without other dimensions, one of sizes that vary."""
    root = tmp_path_factory.mktemp("reshaped")

    def model(name: str, config: str, *what: Any, **more: Any) -> None:
        (root / name / "1").mkdir(parents=True)
        build("model", *what, folder=root / name / "1", **more)
        (root / name / "config.pbtxt").write_text(config)

    weight = np.random.default_rng(5).standard_normal((1000, 3, 1, 1)).astype(np.float32)
    nodes = [("GlobalAveragePool", ["data_0"], ["mean"], {}), ("Conv", ["mean", "w"], ["fc6_1"], {})]
    ends = {"data_0": (FLOAT, [1, 3, 224, 224])}, {"fc6_1": (FLOAT, [1, 1000, 1, 1])}
    model("densenet_onnx", DENSENET, nodes, *ends, {"w": weight})
    (root / "densenet_onnx" / "densenet_labels.txt").write_text("\n".join(f"label {n}" for n in range(1000)))

    config = """
        max_batch_size: 8
        input { name: "x" data_type: TYPE_FP32 dims: [1] reshape { shape: [] } }
        output { name: "y" data_type: TYPE_FP32 dims: [1] reshape { shape: [] } }
    """
    one = np.array(1, np.float32)
    golden = [Sample({"x": np.full(1, n, np.float32)}, {"y": np.full(1, n + 1, np.float32)}) for n in range(2)]
    infos = (TensorInfo("x", "FP32", ("batch",)),), (TensorInfo("y", "FP32", ("batch",)),)
    contract = Contract(*infos, tuple(golden))
    ends = {"x": (FLOAT, ["batch"])}, {"y": (FLOAT, ["batch"])}
    model("flat", config, [("Add", ["x", "one"], ["y"], {})], *ends, {"one": one}, contract=contract)

    config = """
        max_batch_size: 4
        input { name: "x" data_type: TYPE_FP32 dims: [ 2, -1, 6 ] reshape { shape: [ 1, 2, -1, 3, 2 ] } }
        output { name: "y" data_type: TYPE_FP32 dims: [ -1, 12 ] reshape { shape: [ -1, 6, 2 ] } }
    """
    nodes = [("Transpose", ["x"], ["t"], {"perm": [0, 1, 3, 2, 4, 5]}), ("Reshape", ["t", "s"], ["y"], {})]
    ends = {"x": (FLOAT, ["n", 1, 2, "length", 3, 2])}, {"y": (FLOAT, ["n", "length", 6, 2])}
    model("varying", config, nodes, *ends, {"s": np.array([0, -1, 6, 2])})
    return root


@pytest.fixture(scope="module")
def reshaped(folder: Path) -> Any:
    with Server([folder], options=ModelConfig(instances=1), limits=RequestLimits(), manage=True) as server:
        yield server


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, reshaped: Server) -> Any:
    """Triton's module and a client of it."""
    module = http if request.param == "http" else grpc
    made = module.InferenceServerClient(f"127.0.0.1:{reshaped.port}")
    yield module, made
    made.close()


def tensor(module: Any, name: str, array: Any, **how: Any) -> Any:
    made = module.InferInput(name, list(array.shape), "FP32")
    made.set_data_from_numpy(array, **how)
    return made


def expected(folder: Path, name: str, **feed: Any) -> Any:
    import onnxruntime

    path = folder / name / "1" / "model.onnx"
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)[0]


def test_densenet_is_served_in_the_clients_shape(client: Any, folder: Path) -> None:
    module, asks = client
    got = asks.infer("densenet_onnx", [tensor(module, "data_0", IMAGE)]).as_numpy("fc6_1")
    assert got.shape == (1000,)
    assert np.array_equal(got, expected(folder, "densenet_onnx", data_0=IMAGE[None]).ravel())
    wanted = module.InferRequestedOutput("fc6_1", class_count=3)
    best = asks.infer("densenet_onnx", [tensor(module, "data_0", IMAGE)], outputs=[wanted]).as_numpy("fc6_1")
    order = np.argsort(-got, kind="stable")[:3]
    assert [item.decode().split(":")[1:] for item in best.tolist()] == [[str(n), f"label {n}"] for n in order]


def test_json_and_shared_memory(reshaped: Server, folder: Path) -> None:
    shared_memory = pytest.importorskip("tritonclient.utils.shared_memory")
    asks = http.InferenceServerClient(f"127.0.0.1:{reshaped.port}")
    full = expected(folder, "densenet_onnx", data_0=IMAGE[None]).ravel()
    one = np.full((1, 1), 3, np.float32)
    output = http.InferRequestedOutput("y", binary_data=False)
    answer = asks.infer("flat", [tensor(http, "x", one, binary_data=False)], outputs=[output])
    assert answer.get_response()["outputs"][0] == {"name": "y", "datatype": "FP32", "shape": [1, 1], "data": [4.0]}
    handle = shared_memory.create_shared_memory_region("r", "/ox-reshape-test", IMAGE.nbytes + full.nbytes)
    try:
        shared_memory.set_shared_memory_region(handle, [IMAGE])
        asks.register_system_shared_memory("r", "/ox-reshape-test", IMAGE.nbytes + full.nbytes)
        made = http.InferInput("data_0", [3, 224, 224], "FP32")
        made.set_shared_memory("r", IMAGE.nbytes)
        wanted = http.InferRequestedOutput("fc6_1")
        wanted.set_shared_memory("r", full.nbytes, IMAGE.nbytes)
        answer = asks.infer("densenet_onnx", [made], outputs=[wanted])
        assert answer.get_output("fc6_1")["shape"] == [1000]
        got = shared_memory.get_contents_as_numpy(handle, np.float32, [1000], IMAGE.nbytes)
        assert np.array_equal(got, full)
        asks.unregister_system_shared_memory("r")
    finally:
        shared_memory.destroy_shared_memory_region(handle)
        asks.close()


def test_what_clients_are_told(reshaped: Server) -> None:
    asks = http.InferenceServerClient(f"127.0.0.1:{reshaped.port}")
    about = asks.get_model_metadata("densenet_onnx")
    assert about["inputs"][0]["shape"] == [3, 224, 224] and about["outputs"][0]["shape"] == [1000]
    config = asks.get_model_config("densenet_onnx")
    assert config["input"][0]["reshape"] == {"shape": [1, 3, 224, 224]}
    assert config["input"][0]["dims"] == [3, 224, 224] and config["input"][0]["format"] == "FORMAT_NCHW"
    assert config["output"][0]["reshape"] == {"shape": [1, 1000, 1, 1]} and config["output"][0]["dims"] == [1000]
    assert config["output"][0]["label_filename"] == "densenet_labels.txt"
    told = grpc.InferenceServerClient(f"127.0.0.1:{reshaped.port}").get_model_config("densenet_onnx").config
    assert list(told.input[0].reshape.shape) == [1, 3, 224, 224] and told.input[0].format == 2
    assert asks.get_model_metadata("flat")["inputs"][0]["shape"] == [-1, 1]
    assert asks.get_model_config("flat")["input"][0] == {
        "name": "x", "data_type": "TYPE_FP32", "dims": [1], "reshape": {"shape": []},
    }  # fmt: skip
    assert asks.get_model_metadata("varying")["inputs"][0]["shape"] == [-1, 2, -1, 6]
    assert asks.get_model_metadata("varying")["outputs"][0]["shape"] == [-1, -1, 12]
    flat = next(model for model in reshaped.models if model.name == "flat")
    assert flat.samples[0].inputs["x"].shape == flat.samples[0].outputs["y"].shape == (1, 1)
    asks.close()


def test_batches_of_reshaped_tensors(client: Any, folder: Path, reshaped: Server) -> None:
    module, asks = client
    assert {model.name: model.proof.max_rows for model in reshaped.models} == {
        "densenet_onnx": 1, "flat": 8, "varying": 4,
    }  # fmt: skip
    rows = np.arange(3, dtype=np.float32).reshape(3, 1)
    assert np.array_equal(asks.infer("flat", [tensor(module, "x", rows)]).as_numpy("y"), rows + 1)
    for length in (1, 5):
        x = np.random.default_rng(length).random((2, 2, length, 6), np.float32)
        got = asks.infer("varying", [tensor(module, "x", x)]).as_numpy("y")
        whole = expected(folder, "varying", x=x.reshape(2, 1, 2, length, 3, 2))
        assert got.shape == (2, length, 12) and np.array_equal(got, whole.reshape(2, length, 12))


@pytest.mark.parametrize(
    ("model", "name", "shape", "words"),
    [("densenet_onnx", "data_0", (1, 3, 224, 224), "[3, 224, 224]"), ("flat", "x", (2,), "[batch, 1]"),
     ("varying", "x", (1, 1, 2, 1, 3, 2), "[n, 2, length, 6]")],
)  # fmt: skip
def test_errors_name_the_clients_shape(client: Any, model: str, name: str, shape: Any, words: str) -> None:
    module, asks = client
    with pytest.raises(Exception) as caught:
        asks.infer(model, [tensor(module, name, np.zeros(shape, np.float32))])
    assert words in str(caught.value)


@rows(
    ("text", "words"),
    [
        ("input { name: 'x' dims: [4] reshape { shape: [2, 3] } }", "cannot be reshaped"),
        ("input { name: 'x' dims: [-1, 4] reshape { shape: [-1, -1] } }", "cannot be reshaped"),
        ("input { name: 'x' dims: [2, -1, 2] reshape { shape: [4, -1] } }", "cannot be reshaped"),
        ("output { name: 'y' dims: [2] reshape { shape: [] } }", "cannot be reshaped"),
        ("input { name: 'x' dims: [4] reshape { shape: [4, 0] } }", "wrong reshape"),
        ("input { name: 'x' dims: [4] reshape { shape: [-4] } }", "wrong reshape"),
        ("input { name: 'x' reshape { shape: [1] } }", "wrong reshape"),
        ("input { name: 'x' dims: [4] format: FORMAT_NHWC }", "no image"),
        ("input { name: 'x' dims: [1, 2, 2, 1] format: FORMAT_NCHW }", "no image"),
        ("max_batch_size: 2 input { name: 'x' dims: [5] reshape { shape: [5, 1] } }", "does not match the file"),
        ("max_batch_size: 2 input { name: 'x' dims: [1, 6] reshape { shape: [6] } }", "does not match the file"),
    ],
)
def test_what_cannot_be(make: Any, serve: Any, tmp_path: Path, text: str, words: str) -> None:
    make(tmp_path / "m" / "1" / "model.onnx", 1)
    (tmp_path / "m" / "config.pbtxt").write_text(text)
    with pytest.raises(LoadError, match=words) as caught:
        serve(tmp_path)
    assert str(caught.value).count("'x'") + str(caught.value).count("'y'")


def test_a_model_that_gives_another_shape_than_it_says(build: Any, tmp_path: Path) -> None:
    """The file leaves the size open, and the configuration is wrong about it."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    ends = {"x": (FLOAT, ["n", 4])}, {"y": (FLOAT, ["n", "m"])}
    nodes = [
        ("Gather", ["x", "zero"], ["row"], {}),
        ("Cast", ["row"], ["condition"], {"to": TensorProto.BOOL}),
        ("Compress", ["x", "condition"], ["y"], {"axis": 1}),
    ]
    build("model", nodes, *ends, {"zero": np.array(0)}, folder=tmp_path / "m" / "1")
    text = "max_batch_size: 2 output { name: 'y' dims: [4] reshape { shape: [4] } }"
    (tmp_path / "m" / "config.pbtxt").write_text(text)
    with Server([tmp_path]) as server:
        asks = http.InferenceServerClient(f"127.0.0.1:{server.port}")
        assert asks.infer("m", [tensor(http, "x", np.ones((1, 4), np.float32))]).as_numpy("y").shape == (1, 4)
        with pytest.raises(Exception, match="another shape than in the configuration"):
            asks.infer("m", [tensor(http, "x", np.eye(1, 4, dtype=np.float32))])
        asks.close()
