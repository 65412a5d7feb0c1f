"""What every path answers to every method, and what a key must permit for it: as clients know it, written out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.serve import ModelConfig, Server
from ox.serve.protocol.rest.admission import permission_of
from ox.serve.protocol.rest.routes import ROUTES, TABLE
from ox.serve.protocol.rest.target import path_segments

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
ALL, SCORES = ("read", "*"), ("read", "scores")
READ = {"GET": (200, ALL)}
MODEL = {"GET": (200, SCORES)}
INFER = {"POST": (400, ("infer", "scores"))}  # 400: the body that the test sends asks for nothing
MANAGE = ("manage", "*")
# For each path what its methods answer, and the permission; every other method is refused, HEAD is GET, and OPTIONS
# tells the methods.
PATHS: dict[str, dict[str, tuple[int, Any]]] = {
    "/": {"GET": (200, None)},
    "/docs": READ,
    "/openapi.json": READ,
    "/metrics": {"GET": (200, ("metrics", "*"))},
    "/v2": {"GET": (200, ("read", ""))},
    "/v2/health/live": {"GET": (200, None)},
    "/v2/health/ready": {"GET": (200, None)},
    "/health": {"GET": (200, None)},
    "/ping": {"GET": (200, None)},
    "/version": {"GET": (200, ("read", ""))},
    "/v2/models/stats": READ,
    "/v2/models/scores": MODEL,
    "/v2/models/scores/ready": MODEL,
    "/v2/models/scores/config": MODEL,
    "/v2/models/scores/stats": MODEL,
    "/v2/models/scores/infer": INFER,
    "/v2/models/scores/versions/1": MODEL,
    "/v2/models/scores/versions/1/ready": MODEL,
    "/v2/models/scores/versions/1/config": MODEL,
    "/v2/models/scores/versions/1/stats": MODEL,
    "/v2/models/scores/versions/1/infer": INFER,
    "/v2/models/scores/generate": INFER,  # it makes no texts
    "/v2/models/scores/generate_stream": INFER,
    "/v2/models/scores/versions/1/generate": INFER,
    "/v2/models/scores/versions/1/generate_stream": INFER,
    "/v1/completions": {"POST": (400, ("infer", ""))},  # the model is in the body
    "/v1/chat/completions": {"POST": (400, ("infer", ""))},
    "/v1/models": {"GET": (200, ("read", ""))},
    "/v1/models/scores:predict": INFER,
    "/v1/models/scores": {"GET": (404, SCORES)},
    "/v2/models/scores/trace/setting": {"GET": (200, SCORES), "POST": (200, ("manage", "scores"))},
    "/v2/trace/setting": {"GET": (200, ALL), "POST": (200, MANAGE)},
    "/v2/logging": {"GET": (200, ALL), "POST": (200, MANAGE)},
    "/v2/repository/index": {"POST": (200, ALL)},
    "/v2/repository/models/scores/load": {"POST": (200, ("manage", "scores"))},
    "/v2/repository/models/gone/unload": {"POST": (404, ("manage", "gone"))},
    "/v2/systemsharedmemory/status": READ,
    "/v2/systemsharedmemory/region/r/status": {"GET": (404, ALL)},
    "/v2/systemsharedmemory/region/r/register": {"POST": (400, MANAGE)},
    "/v2/systemsharedmemory/region/r/unregister": {"POST": (200, MANAGE)},
    "/v2/systemsharedmemory/unregister": {"POST": (200, MANAGE)},
    "/v2/cudasharedmemory/status": READ,
    "/v2/cudasharedmemory/region/r/status": {"GET": (404, ALL)},
    "/v2/cudasharedmemory/region/r/register": {"POST": (501, MANAGE)},
    "/v2/cudasharedmemory/region/r/unregister": {"POST": (200, MANAGE)},
    "/v2/cudasharedmemory/unregister": {"POST": (200, MANAGE)},
    "/v1/responses": {"POST": (400, ("infer", ""))},
    "/v1/responses/input_tokens": {"POST": (400, ("infer", ""))},
    "/v1/responses/resp_a": dict.fromkeys(("GET", "DELETE", "POST"), (404, ("infer", ""))),
    "/v1/responses/resp_a/cancel": {"POST": (404, ("infer", ""))},
    "/v1/responses/resp_a/input_items": {"GET": (404, ("infer", ""))},
    "/v1/messages": {"POST": (400, ("infer", ""))},
    "/v1/messages/count_tokens": {"POST": (400, ("infer", ""))},
    "/api/chat": {"POST": (400, ("infer", ""))},
    "/api/generate": {"POST": (400, ("infer", ""))},
    "/api/embed": {"POST": (400, ("infer", ""))},
    "/api/embeddings": {"POST": (400, ("infer", ""))},
    "/api/show": {"POST": (400, ("read", ""))},
    "/api/tags": {"GET": (200, ("read", ""))},
    "/api/ps": {"GET": (200, ("read", ""))},
    "/api/version": {"GET": (200, ("read", ""))},
    "/api/pull": {"POST": (501, ("read", ""))},
    "/api/push": {"POST": (501, ("read", ""))},
    "/api/create": {"POST": (501, ("read", ""))},
    "/api/copy": {"POST": (501, ("read", ""))},
    "/api/delete": {"DELETE": (501, ("read", ""))},
    "/v1/embeddings": {"POST": (404, ("infer", ""))},  # it has no model that reads texts
    "/v1/rerank": {"POST": (404, ("infer", ""))},
    "/v2/rerank": {"POST": (404, ("infer", ""))},
    "/score": {"POST": (404, ("infer", ""))},
    "/v1/score": {"POST": (404, ("infer", ""))},
    "/rerank": {"POST": (404, ("infer", ""))},
    "/embed": {"POST": (404, ("infer", ""))},
    "/info": {"GET": (404, ("read", ""))},
    "/tokenize": {"POST": (404, ("infer", ""))},  # no model has a tokenizer
    "/detokenize": {"POST": (404, ("infer", ""))},
    "/tokenizer_info": {"GET": (404, ("read", ""))},
    "/v2/ox/figures": READ,
    "/v2/ox/models/scores/versions/1/samples/0": MODEL,
    "/v2/ox/models/scores/versions/1/random": MODEL,
}
# Paths that answer 404 whatever the method, with the permissions for GET and POST.
NOTHING: dict[str, tuple[Any, Any]] = {
    "/favicon.ico": (None, ALL),
    "/nowhere": (ALL, ALL),
    "/v2/health": (ALL, ALL),
    "/v2/models": (ALL, ALL),
    "/v2/models/scores/classify": (SCORES, SCORES),
    "/v2/models/scores/versions": (SCORES, SCORES),
    "/v2/ox/models/scores": (SCORES, SCORES),
    "//v2/models/scores/infer": (ALL, ALL),
}
# Calls of the dialects that this server does not have, with some of the paths that the error names.
DIALECTS = {
    "/v1/responses/compact": ("POST", ["/v1/responses, ", "/v1/responses/input_tokens", "/v1/responses/{response}"]),
    "/v1/responses/resp_a/compact": ("POST", ["/v1/responses/{response}/cancel"]),
    "/v1/messages/batches": ("POST", ["/v1/messages or /v1/messages/count_tokens"]),
    "/v1/messages/batches/b/results": ("GET", ["/v1/messages or /v1/messages/count_tokens"]),
    "/v1/chat/completions/c/messages": ("GET", ["try /v1/chat/completions"]),
    "/v1/conversations": ("POST", ["/v1/responses", "/v1/embeddings"]),
    "/v1/audio/speech": ("POST", ["/v1/responses", "/v1/embeddings"]),
    "/api/blobs/sha256:a": ("POST", ["/api/chat", "/api/tags"]),
    "/api/web_search": ("POST", ["/api/chat", "/api/tags"]),
}


@pytest.fixture(scope="module")
def everything(scores: Path) -> Iterator[Server]:
    with Server([scores], options=ModelConfig(device="cpu", instances=1), manage=True) as running:
        yield running


def test_every_route_is_here() -> None:
    found = [ROUTES.find(path_segments(path.encode())) for path in (*PATHS, *NOTHING)]
    here = {(route.method, route.path) for each in found if each is not None for route in each[0].values()}
    left_out = {(route.method, route.path) for route in TABLE} - here
    assert not left_out, f"say what they answer, in PATHS: {left_out}"


@rows("method", METHODS)
@rows("path", PATHS)
def test_every_method_of_every_path(everything: Server, connect: Any, path: str, method: str) -> None:
    methods = PATHS[path]
    allowed = ", ".join("GET, HEAD" if each == "GET" else each for each in methods)
    known = "GET" if method == "HEAD" else method
    with connect(everything) as client:
        client.send(f"{method} {path} HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\n{{}}".encode())
        if method == "HEAD":  # the length of a body that does not come
            head = client.socket.recv(65536)
            while b"\r\n\r\n" not in head:
                head += client.socket.recv(65536)
            assert head.endswith(b"\r\n\r\n")
            assert int(head.split()[1]) == (methods[known][0] if known in methods else 405)
            return
        status, headers, body = client.reply()
    if known in methods:
        assert status == methods[known][0], body
        assert "allow" not in headers
    elif method == "OPTIONS":
        assert (status, headers["allow"], body) == (200, f"{allowed}, OPTIONS", b"")
    else:
        assert (status, headers["allow"]) == (405, f"{allowed}, OPTIONS")
        error = json.loads(body)["error"]
        message = error["message"] if isinstance(error, dict) else error
        assert message == f"{method} is not for {path}; expected {allowed}"


@rows("method", METHODS)
@rows("path", PATHS)
def test_every_permission(path: str, method: str) -> None:
    methods = PATHS[path]
    known = "GET" if method == "HEAD" else method
    need = permission_of(method.encode(), path.encode())
    if known in methods:
        assert need == methods[known][1]
        return
    permissions = [permission for _, permission in methods.values()]
    if permissions == [None] and method != "POST":
        assert need is None
    elif permissions == [None]:  # nobody sends something to an open path without a key
        assert need == ALL
    else:  # refused in any case; about the same model
        assert need is not None and need[1] == permissions[0][1]


@rows("path", NOTHING)
def test_paths_without_anything(everything: Server, connect: Any, path: str) -> None:
    reads, sends = NOTHING[path]
    for method in METHODS:
        needed = reads if method != "POST" else sends
        assert permission_of(method.encode(), path.encode()) == needed
        if method == "HEAD":  # an answer without the body that is looked at below
            continue
        with connect(everything) as client:
            status, headers, body = client.ask(method, path, b"{}")
        assert status == 404 and "allow" not in headers
        assert json.loads(body)["error"].startswith(f"there is no /{path.removeprefix('/')}; try /docs")


@rows("path", ["/chat/completions", "/responses", "/embeddings"])
def test_a_path_without_v1(everything: Server, connect: Any, path: str) -> None:
    with connect(everything) as client:
        status, _, body = client.ask("POST", path, b"{}")
    assert status == 404 and json.loads(body)["error"] == f"there is no {path}; try /v1{path}"


@rows("path", DIALECTS)
def test_calls_that_a_dialect_does_not_have(everything: Server, connect: Any, path: str) -> None:
    method, named = DIALECTS[path]
    with connect(everything) as client:
        status, _, body = client.ask(method, path, b"{}")
    error = json.loads(body)["error"]
    anthropic = path.startswith("/v1/messages")
    assert (
        type(error) is (str if path.startswith("/api/") else dict) and (set(error) == {"type", "message"}) == anthropic
    )
    message = error if isinstance(error, str) else error["message"]
    assert status == 404 and message.startswith(f"there is no {path}; try ")
    assert all(each in message for each in named) and len(message) < 600, message
