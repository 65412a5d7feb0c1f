"""The OpenAPI document is valid, true and complete, and its page shows all of it without the network."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from ox.serve.protocol.rest.routes import TABLE

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def validator() -> Any:
    return pytest.importorskip("openapi_spec_validator", reason="openapi-spec-validator is not installed")


@pytest.fixture
def document(manager: Any) -> Any:
    status, headers, body = manager.ask("GET", "/openapi.json")
    assert status == 200 and headers["content-type"] == "application/json"
    return json.loads(body)


def test_it_is_valid(document: Any, validator: Any) -> None:
    validator.validate(document)
    assert document["openapi"].startswith("3.1") and document["servers"] == [{"url": "."}]


def test_every_call_is_there(document: Any) -> None:
    known = [route for route in TABLE if not (route.undocumented or route.each_model)]
    assert len(known) > 30 and all(route.method.lower() in document["paths"][route.path] for route in known)
    for name in ("mlp", "mixed", "scores"):
        for path in (f"/v2/models/{name}/infer", f"/v2/models/{name}/versions/1/infer"):
            assert document["paths"][path]["post"]["summary"] == f"Runs {name}"


def schema(document: Any, path: str, reply: bool = False) -> Any:
    call = document["paths"][path]["post"]
    return (call["responses"]["200"] if reply else call["requestBody"])["content"]["application/json"]


def test_the_golden_sample_is_an_example_that_works(document: Any, manager: Any) -> None:
    path = "/v2/models/scores/infer"
    asked, answered = schema(document, path), schema(document, path, reply=True)
    jsonschema.validate(asked["example"], asked["schema"])
    jsonschema.validate(answered["example"], answered["schema"])
    status, _, body = manager.ask("POST", path, json.dumps(asked["example"]).encode())
    assert status == 200 and json.loads(body) == answered["example"]
    assert "example" not in schema(document, "/v2/models/mlp/infer")


@pytest.mark.parametrize(
    "change",
    [{"name": "z"}, {"shape": [1, 5]}, {"shape": [1]}, {"shape": [-1, 4]}, {"datatype": "FP64"}, {"data": ["a"] * 4}],
)
def test_the_schema_refuses_what_the_server_refuses(document: Any, manager: Any, change: Any) -> None:
    path = "/v2/models/scores/infer"
    asked = schema(document, path)
    wrong = {"inputs": [asked["example"]["inputs"][0] | change]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, asked["schema"])
    assert manager.ask("POST", path, json.dumps(wrong).encode())[0] == 400


def test_what_the_server_takes_fits_the_schema(document: Any, manager: Any) -> None:
    path = "/v2/models/mixed/versions/1/infer"
    wanted = {
        "id": "1",
        "parameters": {"priority": 1},
        "inputs": [
            {"name": "text", "shape": [1, 2], "datatype": "BYTES", "data": [["a", "b"]]},
            {"name": "flags", "shape": [1, 3], "datatype": "BOOL", "data": [True, False, True]},
            {"name": "image", "shape": [1, 1, 2, 2], "datatype": "FP32", "data": [1, 1, 1, 1]},
        ],
        "outputs": [{"name": "text_out"}],
    }
    jsonschema.validate(wanted, schema(document, path)["schema"])
    status, _, body = manager.ask("POST", path, json.dumps(wanted).encode())
    assert status == 200
    jsonschema.validate(json.loads(body), schema(document, path, reply=True)["schema"])


@pytest.mark.parametrize("path", ["health/live", "health/ready", "models/mlp/ready", "models/mlp/versions/1/ready"])
def test_what_health_answers_fits_the_schema(document: Any, manager: Any, path: str) -> None:
    known = f"/v2/{path}".replace("mlp", "{model}").replace("versions/1", "versions/{version}")
    responses = document["paths"][known]["get"]["responses"]
    body = json.loads(manager.ask("GET", f"/v2/{path}")[2])
    shape = responses["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(body, shape)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({}, shape)
    assert ("400" in responses) == ("ready" in path)


def test_models_come_and_go(manager: Any) -> None:
    assert manager.ask("POST", "/v2/repository/models/scores/unload")[0] == 200
    assert "/v2/models/scores/infer" not in json.loads(manager.ask("GET", "/openapi.json")[2])["paths"]
    assert manager.ask("POST", "/v2/repository/models/scores/load")[0] == 200
    assert "/v2/models/scores/infer" in json.loads(manager.ask("GET", "/openapi.json")[2])["paths"]


def test_the_page(manager: Any, document: Any) -> None:
    status, headers, body = manager.ask("GET", "/docs")
    page = body.decode()
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in headers["content-security-policy"]
    for path in document["paths"]:
        assert f"<code>{path}</code>" in page
    # nothing from elsewhere, and no script that would fetch it
    assert not re.findall(r"""(?:src|href)=["']?(?!openapi\.json)[^"'>\s]+|@import|url\(|<script""", page)
    shown = html.unescape(page)
    assert '"shape": [1, 4],' in shown and '"data": [0.5, -1.0, 2.0, 0.0]' in shown
    assert "a golden sample" in shown and '"cat"' not in shown
    assert manager.ask("GET", "/docs", headers={"accept-encoding": "gzip"})[1]["content-encoding"] == "gzip"


def test_what_a_file_says_is_only_text(build: Any, connect: Any, validator: Any) -> None:
    from onnx import TensorProto

    from ox.graph.contract import Contract, TensorInfo
    from ox.serve import Server

    ends = (TensorProto.FLOAT, ["<b>batch", 1])
    meaning = '</pre><script>alert("1")</script>'
    contract = Contract(
        (TensorInfo("<i>x", "FP32", ("<b>batch", 1), meaning),), (TensorInfo("y", "FP32", ("<b>batch", 1)),)
    )
    path = build("a {b}&", [("Identity", ["<i>x"], ["y"], {})], {"<i>x": ends}, {"y": ends}, contract=contract)
    with Server([path]) as server, connect(server) as client:
        page = client.ask("GET", "/docs")[2].decode()
        assert "<script" not in page and "<i>" not in page and "<b>batch" not in page
        document = json.loads(client.ask("GET", "/openapi.json")[2])
        validator.validate(document)
        (infer,) = [path for path in document["paths"] if path.endswith("/infer") and "versions" not in path]
        body = json.dumps({"inputs": [{"name": "<i>x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}).encode()
        assert client.ask("POST", infer, body)[0] == 200
