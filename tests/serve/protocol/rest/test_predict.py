"""KServe's V1 protocol: rows in, rows out, for models of one and of several inputs; what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from rows import rows

from ox.serve import ModelConfig, RequestLimits, Server

Ask = Callable[[str, Any], tuple[int, Any]]
F, S, WHOLE = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64


@pytest.fixture(scope="module")
def server(build: Any, scores: Path, mixed: Path) -> Iterator[Server]:
    """Beside them a model without batches, one of a string a row, one whose outputs have no rows, and one with a
    default value."""
    single = {"x": (F, [3])}
    paths = [
        scores,
        mixed,
        build("single", [("Neg", ["x"], ["y"], {})], single, {"y": (F, [3])}),
        build("words", [("Identity", ["w"], ["v"], {})], {"w": (S, ["batch", 1])}, {"v": (S, ["batch", 1])}),
        build("sums", [("ReduceSum", ["x"], ["y"], {"keepdims": 0})], {"x": (F, ["batch", 2])}, {"y": (F, [])}),
        build("halves", [("Cast", ["x"], ["y"], {"to": TensorProto.BFLOAT16})], {"x": (F, ["batch"])},
              {"y": (TensorProto.BFLOAT16, ["batch"])}),
        build("named", [("Neg", ["b64"], ["y"], {})], {"b64": (WHOLE, ["batch"])}, {"y": (WHOLE, ["batch"])}),
        build("shifted", [("Add", ["x", "by"], ["y"], {})], {"x": (WHOLE, ["batch", 2]), "by": (WHOLE, [2])},
              {"y": (WHOLE, ["batch", 2])}, {"by": np.array([10, 20])}),
        build("whole", [("Neg", ["x"], ["y"], {})], {"x": (WHOLE, ["batch"])}, {"y": (WHOLE, ["batch"])}),
    ]  # fmt: skip
    limits = RequestLimits(json=50_000, reply=2_000, rows=100)
    with Server(paths, options=ModelConfig("cpu", instances=1, max_rows=0), limits=limits) as running:
        yield running


@pytest.fixture(scope="module")
def ask(server: Server, connect: Any) -> Iterator[Ask]:
    with connect(server) as client:

        def send(model: str, document: Any) -> tuple[int, Any]:
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            status, _, reply = client.ask("POST", f"/v1/models/{model}:predict", body)
            return status, json.loads(reply)

        yield send


ROW = [0.5, -1, 2, 0]
MIXED = {"image": [[[1.0, 1], [1, 1]]], "text": ["a", "true"], "flags": [True, False, True]}
ECHO = {"image_out": MIXED["image"], "text_out": ["a", "true"], "flags_out": [False, True, False],
        "log": [[[0.0, 0], [0, 0]]]}  # fmt: skip
ANSWERS: dict[str, tuple[str, Any, Any]] = {
    "rows": ("scores", {"instances": [ROW, ROW]}, [ROW, ROW]),
    "whole numbers": ("whole", {"instances": [1, 1 << 40]}, [-1, -(1 << 40)]),
    "rows by name": ("scores", {"instances": [{"x": ROW}]}, [ROW]),
    "the other word": ("scores", {"inputs": [ROW, ROW]}, [ROW, ROW]),
    "a whole tensor by name": ("scores", {"inputs": {"x": [ROW, ROW, ROW]}}, [ROW, ROW, ROW]),
    "a null beside them": ("scores", {"instances": [ROW], "inputs": None, "signature_name": "x"}, [ROW]),
    "several inputs and outputs": ("mixed", {"instances": [MIXED, MIXED]}, [ECHO, ECHO]),
    "several whole tensors": ("mixed", {"inputs": {k: [v] for k, v in MIXED.items()}}, [ECHO]),
    "a model without batches": ("single", {"instances": [[1, 2, 3]]}, [[-1, -2, -3]]),
    "its tensor by name": ("single", {"inputs": {"x": [1, 2, 3]}}, [[-1, -2, -3]]),
    "a default value": ("shifted", {"instances": [[1, 2], [3, 4]]}, [[11, 22], [13, 24]]),
    "in place of a default": ("shifted", {"instances": [{"x": [1, 2], "by": [1, 1]}] * 2}, [[2, 3], [2, 3]]),
    "the same for one instance": ("shifted", {"instances": [{"x": [1, 2], "by": [1, 1]}]}, [[2, 3]]),
    "the same for whole tensors": ("shifted", {"inputs": {"x": [[1, 2], [3, 4]], "by": [5, 6]}}, [[6, 8], [8, 10]]),
    "a string a row": ("words", {"instances": ["a", "ü"]}, [["a"], ["ü"]]),
    "a list of a string": ("words", {"instances": [["a"], ["ü"]]}, [["a"], ["ü"]]),
    "strings in base64": ("words", {"instances": [{"b64": "YQ=="}, "ü", {"b64": "w7w="}]}, [["a"], ["ü"], ["ü"]]),
    "one of several inputs": ("mixed", {"instances": [MIXED | {"text": ["a", {"b64": "dHJ1ZQ=="}]}]}, [ECHO]),
    "an input of that name": ("named", {"instances": [{"b64": 2}]}, [-2]),
    "an output without rows": ("sums", {"instances": [[1, 2], [3, 4]]}, [10.0]),
    "bfloat16": ("halves", {"instances": [1.5]}, [1.5]),
}


@rows("name", ANSWERS)
def test_answers(ask: Ask, name: str) -> None:
    model, document, predictions = ANSWERS[name]
    assert ask(model, document) == (200, {"predictions": predictions})


WRONG: dict[str, tuple[str, Any, int, str]] = {
    "an unknown model": ("nothing", {"instances": [ROW]}, 404, "nothing"),
    "no JSON": ("scores", b"{", 400, "not JSON"),
    "no instances": ("scores", {"rows": [ROW]}, 400, 'expected {"instances": [...]}'),
    "both words": ("scores", {"instances": [ROW], "inputs": [ROW]}, 400, "instances and inputs"),
    "an empty list": ("scores", {"instances": []}, 400, "a list of 0"),
    "an object of instances": ("scores", {"instances": {"x": [ROW]}}, 400, "an object of 1"),
    "an unknown input": ("scores", {"instances": [{"y": ROW}]}, 400, "there is no input 'y'"),
    "lists for several inputs": ("mixed", {"instances": [ROW]}, 400, "an instance is an object"),
    "a missing input": ("mixed", {"instances": [{"image": MIXED["image"]}]}, 400, "'text', 'flags' is missing"),
    "instances that differ": ("mixed", {"instances": [MIXED, {"image": 1}]}, 400, "in instance 1 image"),
    "an instance among objects": ("scores", {"instances": [{"x": ROW}, ROW]}, 400, "in instance 1 a list of 4"),
    "an object among lists": ("scores", {"instances": [ROW, {"x": ROW}]}, 400, "in instance 0 a list of 4"),
    "a short row": ("scores", {"instances": [ROW[:3]]}, 400, "shape [1, 3]"),
    "rows of two lengths": ("scores", {"instances": [ROW, ROW[:3]]}, 400, "does not have shape [2, 4]"),
    "another type": ("scores", {"instances": [["a", 0, 0, 0]]}, 400, "'a' as element 0"),
    "a flag as a number": ("scores", {"instances": [[True, 0, 0, 0]]}, 400, "true or false"),
    "fractions": ("whole", {"instances": [1.5]}, 400, "1.5 as element 0"),
    "two of a model without batches": ("single", {"instances": [[1, 2, 3], [1, 2, 3]]}, 400, "shape [2, 3]"),
    "two values for a default": (
        "shifted",
        {"instances": [{"x": [1, 2], "by": [n, 1]} for n in (1, 2)]},
        400,
        "different values of 'by', which is for the whole request",
    ),
    "too many": ("whole", {"instances": [1] * 101}, 413, "at most 100"),
    "too much JSON": ("scores", {"instances": [ROW], "more": "a" * 50_000}, 413, "--limit json"),
    "a large answer": ("scores", {"instances": [[0.123456] * 4] * 100}, 413, "--limit reply"),
    "no base64": ("words", {"instances": [{"b64": "a b"}]}, 400, "base64 of a text in UTF-8}; got 'a b'"),
    "no text in base64": ("words", {"instances": [{"b64": 1}]}, 400, "got 1"),
    "base64 of other bytes": ("words", {"instances": [["a"], [{"b64": "/w=="}]]}, 400, "got '/w=='"),
    "base64 for a number": ("whole", {"instances": [{"b64": "YQ=="}]}, 400, "as element 0"),
    "NaN": ("mixed", {"instances": [MIXED | {"image": [[[-1, 1], [1, 1]]]}]}, 500, "output 'log' holds NaN"),
}


@rows("name", WRONG)
def test_wrong_requests(ask: Ask, name: str) -> None:
    model, document, status, words = WRONG[name]
    got, answer = ask(model, document)
    assert got == status and list(answer) == ["error"] and words in answer["error"], answer


def test_what_fails_is_counted(server: Server, ask: Ask, connect: Any) -> None:
    def failed() -> int:
        with connect(server) as client:
            stats = json.loads(client.ask("GET", "/v2/models/whole/stats")[2])["model_stats"][0]
        return int(stats["inference_stats"]["fail"]["count"])

    before = failed()
    assert ask("whole", {"instances": ["a"]})[0] == 400
    assert failed() == before + 1


def test_it_batches_with_v2(managed: Server, connect: Any) -> None:
    """The same numbers as in V2."""
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    with connect(managed) as client:
        tensor = {"name": "x", "shape": [3, 64], "datatype": "FP32", "data": x.ravel().tolist()}
        nested = json.dumps({"instances": [x.tolist()]}).encode()
        status, _, body = client.ask("POST", "/v1/models/mlp:predict", nested)
        assert status == 400 and b"shape [1, 3, 64]" in body
        v2 = json.loads(client.ask("POST", "/v2/models/mlp/infer", json.dumps({"inputs": [tensor]}).encode())[2])
        v1 = json.loads(client.ask("POST", "/v1/models/mlp:predict", json.dumps({"instances": x.tolist()}).encode())[2])
    assert np.allclose(np.ravel(v1["predictions"]), v2["outputs"][0]["data"], atol=1e-6)
