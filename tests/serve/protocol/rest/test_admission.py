"""What each call over HTTP needs of a key."""

from __future__ import annotations

from typing import Any

import pytest
from rows import rows

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.serve.access import Guard
from ox.serve.protocol.rest import admission
from ox.serve.protocol.rest.admission import Admission, permission_of
from ox.serve.protocol.rest.routes import TABLE
from ox.serve.protocol.rest.routing import ANY

# The model of a text is in the body, and a list of models has those that the key may read.
NO_MODEL = {"/v2", "/version", "/v1/completions", "/v1/chat/completions", "/v1/models"}
NO_MODEL |= {"/v1/embeddings", "/v1/rerank", "/tokenize", "/detokenize"}
NO_MODEL |= {"/v2/rerank", "/rerank", "/score", "/v1/score", "/embed", "/info", "/tokenizer_info"}
DIALECTS = ("/v1/responses", "/v1/messages", "/api/")  # whose models are in the bodies
NEEDS = {
    "GET /v1/models": ("read", ""),
    "GET /v1/models/m": ("read", "m"),
    "POST /v1/completions": ("infer", ""),
    "POST /v1/chat/completions": ("infer", ""),
    "GET /v1/what": ("read", "*"),
    "GET /": None,
    "GET /v2/health/live": None,
    "HEAD /v2/health/ready?verbose": None,
    "GET /docs": ("read", "*"),
    "GET /openapi.json": ("read", "*"),
    "GET /metrics": ("metrics", "*"),
    "GET /v2": ("read", ""),
    "GET /v2/": ("read", ""),
    "GET /v2/models/m": ("read", "m"),
    "GET /v2/models/m/ready": ("read", "m"),
    "GET /v2/models/m/versions/1/config": ("read", "m"),
    "GET /v2/models/m/stats": ("read", "m"),
    "GET /v2/models/stats": ("read", "*"),
    "GET http://host/v2/models/m": ("read", "m"),
    "GET //host/v2/models/m": ("read", "*"),
    "POST //v2/models/m/infer": ("read", "*"),
    "POST /v2//models/m/infer": ("read", "*"),
    "GET /v2/models/a%2Fb": ("read", "a/b"),
    "GET /v2%2Fhealth/live": ("read", "*"),
    "GET /v2/models/%6d": ("read", "m"),
    "GET /v2/models/%2A/ready": ("read", "*"),
    "POST /v2/models/m/infer": ("infer", "m"),
    "POST /v2/models/m/infer?x=/v2/health/live": ("infer", "m"),
    "POST /v2/models/m/versions/1/infer": ("infer", "m"),
    "POST /v2/models/m/generate": ("infer", "m"),
    "POST /v2/models/m/generate_stream": ("infer", "m"),
    "POST /v2/models/m/versions/2/generate_stream": ("infer", "m"),
    "POST /v2/models/m/trace/setting": ("manage", "m"),
    "GET /v2/models/m/trace/setting": ("read", "m"),
    "POST /v2/trace/setting": ("manage", "*"),
    "GET /v2/logging": ("read", "*"),
    "POST /v2/logging": ("manage", "*"),
    "POST /v2/repository/index": ("read", "*"),
    "POST /v2/repository/models/m/load": ("manage", "m"),
    "POST /v2/repository/models/m/load?/infer": ("manage", "m"),
    "POST /v2/repository/models/m/unload": ("manage", "m"),
    "GET /v2/systemsharedmemory/status": ("read", "*"),
    "POST /v2/systemsharedmemory/region/r/register": ("manage", "*"),
    "POST /v2/systemsharedmemory/unregister": ("manage", "*"),
    "POST /v2/cudasharedmemory/region/r/register": ("manage", "*"),
    "GET /v2/ox/figures": ("read", "*"),
    "GET /v2/ox/models/m/versions/1/samples/0": ("read", "m"),
    "GET /what/ever": ("read", "*"),
    "POST /": ("read", "*"),
    "POST /v2/health/live": ("read", "*"),
    "DELETE /v2/models/m": ("read", "m"),
    "OPTIONS *": ("read", "*"),
}  # fmt: skip


@rows("call", NEEDS)
def test_needs(call: str) -> None:
    method, target = call.encode().split(b" ", 1)
    assert permission_of(method, target) == NEEDS[call]


def test_every_route_is_about_its_model() -> None:
    for route in TABLE:
        path = route.path.format(model="m", version="1", region="r", number="0", response="r")
        need = permission_of(b"GET" if route.method == ANY else route.method.encode(), path.encode())
        assert (need is None) is (route.permission is None)
        if need is not None and route.permission is not None:
            assert need.action == route.permission.action, path
            no_model = path in NO_MODEL or path.startswith(DIALECTS)
            assert need.model == ("m" if "/models/m" in path else "" if no_model else "*"), path


def test_no_target_of_a_url() -> None:
    with pytest.raises(ServeError, match="not a URL"):
        permission_of(b"GET", b"http://[/v2")


class Asked(Guard):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, clock=SYSTEM)
        self.calls: list[tuple[Any, ...]] = []

    def check(self, *question: Any) -> str:
        self.calls.append(question)
        return super().check(*question)


def test_the_guard_is_asked() -> None:
    guard = Asked()
    ask = Admission(guard)
    ask(b"GET", b"/v2/health/live", {}, "1.2.3.4")
    ask(b"POST", b"/v2/models/m/infer", {b"x-api-key": b"k"}, "1.2.3.4")
    ask(b"POST", b"/v2/models/m/infer", {b"x-api-key": b"k"}, "1.2.3.4")
    with pytest.raises(ServeError, match="management calls are disabled"):
        ask(b"POST", b"/v2/repository/models/m/load", {}, "1.2.3.4")
    infer = (b"k", "infer", "m", "1.2.3.4")
    assert guard.calls == [infer, infer, (None, "manage", "m", "1.2.3.4")]


def test_a_web_page_may_not_manage() -> None:
    """The server of somebody who browses the web while it runs, open to management."""
    ask = Admission(Guard(manage=True, clock=SYSTEM))
    ask(b"POST", b"/v2/repository/models/m/unload", {}, "127.0.0.1")
    for origin in (b"https://evil.example", b"null", b"http://localhost:8000"):
        with pytest.raises(ServeError, match="web page") as caught:
            ask(b"POST", b"/v2/repository/models/m/unload", {b"origin": origin}, "127.0.0.1")
        assert caught.value.status == 403
    ask(b"POST", b"/v2/models/m/infer", {b"origin": b"http://localhost:8000"}, "127.0.0.1")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_CACHED", 10)
    ask = Admission(Guard(clock=SYSTEM))
    for n in range(100):
        ask(b"GET", b"/v2/models/%d" % n, {}, "")
    assert len(ask._permissions) <= 10
