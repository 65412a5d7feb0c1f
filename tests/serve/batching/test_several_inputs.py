"""Several inputs whose first dimensions have no name, or several: they share batches where a configuration says so."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from rows import rows

from ox.serve import ModelConfig, Server

INT, FLOAT, TEXT = TensorProto.INT32, TensorProto.FLOAT, TensorProto.STRING


def simple(path: Path, first: tuple[str | None, str | None]) -> None:
    """Triton's example: sum and difference of two vectors of 16."""
    nodes = [helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
             helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"])]  # fmt: skip
    write(path, nodes, {f"INPUT{n}": (INT, [first[n], 16]) for n in (0, 1)},
          {f"OUTPUT{n}": (INT, [None, 16]) for n in (0, 1)})  # fmt: skip


def columns(path: Path, first: tuple[str | None, ...]) -> None:
    """What scikit-learn's ColumnTransformer with a classifier behind it becomes: a column an input, [None, 1]."""
    ml = {"domain": "ai.onnx.ml"}
    nodes = [
        helper.make_node("Concat", ["age", "fare"], ["numbers"], axis=1),
        helper.make_node("Imputer", ["numbers"], ["whole"], imputed_value_floats=[30.0, 14.0],
                         replaced_value_float=float("nan"), **ml),
        helper.make_node("Scaler", ["whole"], ["scaled"], offset=[30.0, 14.0], scale=[0.1, 0.05], **ml),
        helper.make_node("OneHotEncoder", ["port"], ["encoded"], cats_strings=["C", "Q", "S"], zeros=1, **ml),
        helper.make_node("Reshape", ["encoded", "two"], ["flat"]),
        helper.make_node("Concat", ["scaled", "flat"], ["features"], axis=1),
        helper.make_node("LinearClassifier", ["features"], ["label", "scores"], classlabels_ints=[0, 1],
                         coefficients=[-1.0, 0.5, 0.1, 0.2, 0.3, 1.0, -0.5, -0.1, -0.2, -0.3], intercepts=[0.1, -0.1],
                         post_transform="SOFTMAX", **ml),
    ]  # fmt: skip
    kinds = (FLOAT, FLOAT, TEXT)
    inputs = {name: (kinds[place], [first[place], 1]) for place, name in enumerate(("age", "fare", "port"))}
    outputs = {"label": (TensorProto.INT64, [None]), "scores": (FLOAT, [None, 2])}
    write(path, nodes, inputs, outputs, [helper.make_tensor("two", TensorProto.INT64, [2], [-1, 3])])


def write(path: Path, nodes: Any, inputs: Any, outputs: Any, weights: Any = ()) -> None:
    ends = [[helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in group.items()]
            for group in (inputs, outputs)]  # fmt: skip
    graph = helper.make_graph(nodes, "g", *ends, list(weights))
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    path.parent.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=versions, ir_version=8), path)


def post(server: Server, name: str, arrays: dict[str, Any]) -> tuple[int, Any]:
    kinds = {"i": "INT32", "f": "FP32", "O": "BYTES"}
    tensors = [{"name": key, "shape": list(array.shape), "datatype": kinds[array.dtype.kind],
                "data": array.ravel().tolist()} for key, array in arrays.items()]  # fmt: skip
    try:
        with urllib.request.urlopen(
            f"{server.url}/v2/models/{name}/infer", json.dumps({"inputs": tensors}).encode()
        ) as reply:
            outputs = json.loads(reply.read())["outputs"]
            return reply.status, {each["name"]: np.reshape(each["data"], each["shape"]) for each in outputs}
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())["error"]


def draw_simple(random: np.random.Generator, rows: int) -> dict[str, Any]:
    return {f"INPUT{n}": random.integers(0, 100, (rows, 16)).astype(np.int32) for n in (0, 1)}


def draw_columns(random: np.random.Generator, rows: int) -> dict[str, Any]:
    numbers = {name: random.standard_normal((rows, 1)).astype(np.float32) for name in ("age", "fare")}
    return {**numbers, "port": random.choice(np.array(["C", "Q", "S", "?"], object), (rows, 1))}


CASES: list[tuple[str, Callable[..., None], Callable[..., dict[str, Any]], tuple[str | None, ...]]] = [
    ("simple", simple, draw_simple, (None, None)),
    ("simple", simple, draw_simple, ("n", "m")),
    ("columns", columns, draw_columns, (None, None, None)),
    ("columns", columns, draw_columns, ("a", None, "c")),
]


@rows("where", ["config.pbtxt", "ox.toml", "options"])
@rows(("name", "make", "draw", "first"), CASES)
def test_batches_where_a_configuration_says_so(
    tmp_path: Path, name: str, make: Any, draw: Any, first: Any, where: str
) -> None:
    import onnxruntime

    make(tmp_path / name / "1" / "model.onnx", first)
    options = ModelConfig("cpu", instances=1, max_wait_ms=5, max_rows=8 if where == "options" else None)
    if where == "config.pbtxt":
        (tmp_path / name / where).write_text("max_batch_size: 8")
    elif where == "ox.toml":
        (tmp_path / where).write_text(f"[models.{name}]\nmax_rows = 8")
    truth = onnxruntime.InferenceSession(tmp_path / name / "1" / "model.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in truth.get_outputs()]

    def ask(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(4):
            feed = draw(random, int(random.integers(1, 4)))
            status, got = post(server, name, feed)
            assert status == 200, got
            for key, expected in zip(names, truth.run(None, feed), strict=True):
                assert np.allclose(got[key], expected, atol=1e-5)

    with Server([tmp_path], options=options) as server, ThreadPoolExecutor(12) as pool:
        assert "batch size up to 8, proven" in server.models[0].describe()
        assert server.service.model_config(name)["max_batch_size"] == 8
        list(pool.map(ask, range(12)))
        assert server.models[0].stages.batch_rows.counts[0] < 48  # some did share one
        feed = draw(np.random.default_rng(0), 3)
        last = list(feed)[-1]
        status, error = post(server, name, feed | {last: feed[last][:2]})
        assert status == 400 and f"is 2 in input '{last}'" in error and "3, as in input" in error, error


def test_without_one_each_request_runs_alone(tmp_path: Path) -> None:
    simple(tmp_path / "simple" / "1" / "model.onnx", (None, None))
    with Server([tmp_path]) as server:
        assert "batching off: the inputs do not share one named first dimension" in server.models[0].describe()
        assert post(server, "simple", draw_simple(np.random.default_rng(0), 2))[0] == 200
