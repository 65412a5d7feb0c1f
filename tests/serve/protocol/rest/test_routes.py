"""Which path does what, and what is said where none does."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from rows import rows
from waiting import wait_until

import ox.serve
from ox.errors import ServeError
from ox.serve import Server
from ox.serve.access.key import ACTIONS
from ox.serve.protocol.rest import routes as table_of_routes
from ox.serve.protocol.rest import text_routes
from ox.serve.protocol.rest.openapi import openapi
from ox.serve.protocol.rest.routes import ROUTES, TABLE
from ox.serve.protocol.rest.routing import ANY
from ox.serve.protocol.rest.target import path_segments
from ox.serve.service import Service

# The model of a text is in the body, and a list of models has those that the key may read.
NO_MODEL = {"/v2", "/version", "/v1/completions", "/v1/chat/completions", "/v1/models"}
DIALECTS = ("/v1/responses", "/v1/messages", "/api/")  # whose models are in the bodies
NO_MODEL |= {"/v1/embeddings", "/v1/rerank", "/tokenize", "/detokenize"}
NO_MODEL |= {"/v2/rerank", "/rerank", "/score", "/v1/score", "/embed", "/info", "/tokenizer_info"}
OPEN = {"/", "/favicon.ico", "/v2/health/live", "/v2/health/ready", "/health", "/ping"}  # that everybody may read


def find(path: str) -> tuple[list[str], dict[str, str]] | None:
    found = ROUTES.find(path_segments(path.encode()))
    return None if found is None else (sorted(found[0]), found[1])


def test_every_route_is_found() -> None:
    for route in TABLE:
        path = route.path.replace("{", "<").replace("}", ">")
        found = ROUTES.find(path_segments(path.encode()))
        assert found is not None and found[0][route.method] is route, route.path
        assert all(value == f"<{name}>" for name, value in found[1].items())
    assert len({(route.method, route.path) for route in TABLE}) == len(TABLE)


def test_every_route_has_a_permission() -> None:
    for route in TABLE:
        if route.path in OPEN:
            assert route.permission is None and route.method != "POST"
        else:
            assert route.permission is not None and route.permission.action in ACTIONS, route.path
            assert (route.permission.model == "*") or route.path in NO_MODEL or route.path.startswith(DIALECTS)


def test_every_route_is_in_the_document_or_says_why_not(managed: Server) -> None:
    paths = openapi(managed.models, TABLE)["paths"]
    for route in TABLE:
        documented = route.method.lower() in paths.get(route.path, ())
        if route.each_model:
            wanted = [route.path.format(model=model.name, version=model.version) for model in managed.models]
            assert wanted and all(route.method.lower() in paths[path] for path in wanted)
        else:
            assert documented is (not route.undocumented) and documented is bool(route.about), route.path
        assert route.method != ANY or route.undocumented
    known = {route.path for route in TABLE if not route.undocumented}
    named = {path for path in paths if path not in known}
    assert all(find(path) is not None for path in named)


def test_no_path_is_dispatched_elsewhere(managed: Server) -> None:
    """What the router keeps for speed are routes of the table, and no other module spells a path."""
    for target, kept in managed._router._endpoints.items():
        found = ROUTES.find(path_segments(target))
        assert found is not None and found[0]["POST"].each_model and found[1]["model"] == kept.model.name
    wrong = []
    for file in Path(ox.serve.__file__).parent.rglob("*.py"):
        if file in (Path(table_of_routes.__file__), Path(text_routes.__file__)):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            text = node.value if isinstance(node, ast.Constant) else None
            text = text.decode("latin-1") if isinstance(text, bytes) else text
            if isinstance(text, str) and (text == "v2" or text.startswith(("/v2", "v2/")) or find_literal(text)):
                wrong.append(f"{file}:{node.lineno}: {text!r}")
    assert not wrong, "\n".join(wrong)


def find_literal(text: str) -> bool:
    return text != "/" and text in {route.path for route in TABLE}


@rows(
    ("path", "wanted"),
    [("/v2/models/stats", (["GET"], {})), ("/v2/models/stats/stats", (["GET"], {"model": "stats"})),
     ("/v2/models/stats/versions/1", (["GET"], {"model": "stats", "version": "1"})),
     ("/v2/logging", (["GET", "POST"], {})), ("/v2/models/{", (["GET"], {"model": "{"})), ("/v2/{", None),
     ("/v2//status", None), ("/v2/models//ready", None), ("/", (["GET"], {})), ("", (["GET"], {})),
     ("//", (["GET"], {})), ("/v2/models", None), ("/v2/models/m/versions", None),
     ("/v2/models/m/infer", (["POST"], {"model": "m"})),
     ("/v2/models/stats/infer", (["POST"], {"model": "stats"})), ("/v2/models/m/versions//infer", None),
     ("/v2/models/m/generate", (["POST"], {"model": "m"})), ("/v2/systemsharedmemory/region/r", None),
     ("/v2/systemsharedmemory/region/r/status", (["GET"], {"region": "r"})), ("/v3", None),
     ("/v2/models/m/ready/x", None), ("/v1/models/m:predict", (["POST"], {"model": "m"})),
     ("/v1/models/a:b:predict", (["POST"], {"model": "a:b"})), ("/v1/models/m%3Apredict", (["POST"], {"model": "m"})),
     ("/v1/models/:predict", (["GET"], {"model": ":predict"})), ("/v1/models/m:predict/x", None),
     ("/v1/models/predict", (["GET"], {"model": "predict"}))],
)  # fmt: skip
def test_paths(path: str, wanted: Any) -> None:
    assert find(path) == wanted


@rows(
    ("path", "body", "status", "words"),
    [("repository/index", {"ready": "yes"}, 400, "ready is not true or false"),
     ("repository/index", [], 400, "not a JSON object"), ("repository/index", b"{", 400, "not JSON"),
     ("repository/models/nope/load", {}, 404, "nope"), ("repository/models/nope/unload", {}, 404, "nope"),
     ("repository/models/mlp/load", {"parameters": 5}, 400, "'parameters' is not an object"),
     ("repository/models/mlp/load", {"parameters": {"config": "{"}}, 400, "config"),
     ("repository/models/mlp/load", {"parameters": {"file:../../x": ""}}, 400, "no file of a version"),
     ("repository/models/mlp/unload", {"parameters": {"unload_dependents": 1}}, 400, "unload_dependents"),
     ("systemsharedmemory/region/r/register", {}, 400, "no 'key'"),
     ("systemsharedmemory/region/r/register", {"key": "/x"}, 400, "no 'byte_size'"),
     ("systemsharedmemory/region/r/register", {"key": "/../x", "byte_size": 1}, 400, "invalid key of shared memory"),
     ("systemsharedmemory/region/r/register", {"key": "/ox-no-such", "byte_size": 1}, 404, "there is no shared memory"),
     ("cudasharedmemory/region/r/register", {"raw_handle": {"b64": "?"}}, 501, "no CUDA shared memory"),
     ("cudasharedmemory/region/r/register", {"raw_handle": 5}, 501, "no CUDA shared memory"),
     ("trace/setting", {"trace_rate": {}}, 400, "'trace_rate' is wrong"),
     ("trace/setting", {"trace_rate": True}, 400, "'trace_rate' is wrong"),
     ("trace/setting", {"trace_rate": [["1"]]}, 400, "'trace_rate' is wrong"),
     ("models/nope/trace/setting", {}, 404, "no model 'nope'"), ("logging", {"log_info": 5}, 400, "log_info")],
)  # fmt: skip
def test_wrong_calls(manager: Any, path: str, body: Any, status: int, words: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    got, _, reply = manager.ask("POST", f"/v2/{path}", data)
    assert got == status and words in json.loads(reply)["error"], reply
    assert manager.ask("GET", "/v2/health/ready")[0] == 200


@rows(
    ("method", "path", "allowed"),
    [("POST", "/v2", "GET, HEAD, OPTIONS"), ("POST", "/v2/models/mlp", "GET, HEAD, OPTIONS"),
     ("GET", "/v2/models/mlp/infer", "POST, OPTIONS"), ("GET", "/v2/repository/index", "POST, OPTIONS"),
     ("PUT", "/v2/logging", "GET, HEAD, POST, OPTIONS"), ("POST", "/docs", "GET, HEAD, OPTIONS"),
     ("DELETE", "/openapi.json", "GET, HEAD, OPTIONS")],
)  # fmt: skip
def test_wrong_methods(manager: Any, method: str, path: str, allowed: str) -> None:
    status, headers, reply = manager.ask(method, path)
    assert (status, headers["allow"]) == (405, allowed)
    assert json.loads(reply)["error"].startswith(f"{method} is not for {path}; expected ")


@pytest.mark.parametrize("what", ["/v2/models/mlp/generates", "/v2/models/mlp/classify", "/v9"])
def test_what_does_not_exist(manager: Any, what: str) -> None:
    status, _, reply = manager.ask("POST", what, b"{}")
    assert (
        status == 404
        and json.loads(reply)["error"] == f"there is no {what}; try /docs, /v2/models/MODEL/infer or /metrics"
    )


def test_packed_bodies_of_calls(manager: Any) -> None:
    import gzip

    packed = gzip.compress(b'{"ready": true}')
    status, _, reply = manager.ask("POST", "/v2/repository/index", packed, {"content-encoding": "gzip"})
    assert status == 200 and {"name": "mlp", "version": "1", "state": "READY"}.items() <= json.loads(reply)[0].items()
    assert manager.ask("POST", "/v2/repository/index", packed, {"content-encoding": "br"})[0] == 415


class Later(Service):
    """A service among several: its answers come later, or not at all."""

    async def statistics(self, name: str = "", version: str = "") -> Any:  # type: ignore[override]
        if name == "mlp":
            raise ServeError("somebody else failed", status=503)
        if name == "mixed":
            raise ValueError("a defect")
        return {"model_stats": []}


def test_answers_that_come_later(mlp: Any, mixed: Any, connect: Any, caplog: pytest.LogCaptureFixture) -> None:
    with Server([mlp, mixed], service=Later) as server, connect(server) as client:
        lines = [b"GET /v2/models/%sstats HTTP/1.1\r\nhost: x\r\n\r\n" % name for name in (b"", b"mlp/", b"mixed/")]
        client.send(b"".join(lines))
        assert client.reply()[::2] == (200, b'{"model_stats":[]}')
        assert client.reply()[0] == 503
        status, _, reply = client.reply()
        assert status == 500 and b"a defect" not in reply and b"the server failed" in reply
        wait_until(lambda: not server._router._tasks)
    assert "a defect" in caplog.text


@rows(
    "name",
    ["..", ".", "%2e%2e", "", "%20", "%00", "..%2F..", "%2F", "a%0D%0Ab", "%FF", "%ED%A0%80", "*", "mlp%20", "%20mlp",
     "MLP", "mlp.", "%", "x" * 300],
)  # fmt: skip
def test_names_that_are_nobodys(manager: Any, name: str) -> None:
    calls = [("GET", f"/v2/models/{name}{call}") for call in ("/ready", "/config", "/stats", "/trace/setting")]
    calls += [("POST", f"/v2/models/{name}/infer"), ("GET", f"/v2/models/{name}/versions/1")]
    calls += [("POST", f"/v2/models/mlp/versions/{name}/infer"), ("GET", f"/v2/models/mlp/versions/{name}/ready")]
    for method, path in [*calls, ("GET", f"/v2/models/{name}"), ("GET", f"/v2/models/mlp/versions/{name}")]:
        status, _, body = manager.ask(method, path, b"{}" if method == "POST" else b"")
        assert status == 404 and json.loads(body)["error"].isprintable(), (path, body)
