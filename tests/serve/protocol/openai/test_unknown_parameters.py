"""Unknown parameters: ignored, named in a header and counted; refused by a strict server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.serve import ModelConfig, Server
from ox.serve.protocol.text.remarks import Remarks

HI = [{"role": "user", "content": "Hi"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": "tiny", "prompt": "a", "max_tokens": 1},
    "/v1/chat/completions": {"model": "tiny", "messages": HI, "max_tokens": 1},
    "/v1/responses": {"model": "tiny", "input": "Hi"},
    "/v1/messages": {"model": "tiny", "messages": HI, "max_tokens": 1},
    "/v2/models/tiny/generate": {"text_input": "a"},
    "/v2/models/tiny/generate_stream": {"text_input": "a"},
    "/tokenize": {"model": "tiny", "prompt": "a"},
}
COUNTED = {path: body for path, body in ROUTES.items() if path != "/tokenize"}  # it runs no model


@pytest.fixture(scope="module")
def strict(scripted_folder: Path) -> Iterator[Server]:
    with Server([scripted_folder], options=ModelConfig(threads=1), strict=True) as running:
        yield running


def post(connect: Any, server: Server, path: str, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    with connect(server) as client:
        found: tuple[int, dict[str, str], bytes] = client.ask("POST", path, json.dumps(body).encode())
    return found


@rows("path", list(ROUTES))
def test_they_are_named_in_a_header_and_counted(connect: Any, scripted: Server, path: str) -> None:
    stages = scripted.service.repository.find("tiny").stages
    before = stages.unknown_parameters
    status, headers, _ = post(connect, scripted, path, {**ROUTES[path], "temprature": "secret", "foo": {"bar": 1}})
    like = "" if path == "/tokenize" else " (try temperature)"
    assert status == 200 and headers["ox-warning"] == f"unknown=temprature{like}, foo"
    assert stages.unknown_parameters == before + (path in COUNTED)
    status, headers, _ = post(connect, scripted, path, ROUTES[path])
    assert status == 200 and "ox-warning" not in headers and stages.unknown_parameters == before + (path in COUNTED)


@rows("path", list(ROUTES))
def test_a_strict_server_refuses_them(connect: Any, strict: Server, path: str) -> None:
    status, headers, answer = post(connect, strict, path, {**ROUTES[path], "temprature": 1})
    assert status == 400 and "Unknown parameter: 'temprature'" in answer.decode() and "ox-warning" not in headers
    assert path == "/tokenize" or "try 'temperature'" in answer.decode()
    assert post(connect, strict, path, ROUTES[path])[0] == 200
    assert strict.service.repository.find("tiny").stages.unknown_parameters == 0


def test_a_strict_server_reads_long_requests_in_threads(connect: Any, strict: Server) -> None:
    body = {**ROUTES["/v1/completions"], "user": "u" * 10_000, "foo": 1}
    assert post(connect, strict, "/v1/completions", body)[0] == 400
    assert post(connect, strict, "/v1/completions", {**body, "foo": None})[0] == 200


@rows(
    ("body", "header"),
    [({"stream": True, "stream_options": {"x": 1}}, "unknown=stream_options.x"),
     ({"reasoning_effort": "low", "store": True, "verbosity": "low"}, "unused=store, verbosity, reasoning_effort"),
     ({"store": False, "service_tier": "auto", "user": "me", "metadata": {"a": "b"}}, None),
     ({"input": "a", "temp": 1, "maxtokens": 1}, "unknown=input, temp, maxtokens (try max_tokens)"),
     ({"reasoning_effort": "low", "a": 1}, "unused=reasoning_effort; unknown=a"),
     ({"structured_outputs": {"choice": ["a"], "b": 1}}, "unknown=structured_outputs.b")],
)  # fmt: skip
def test_inside_of_objects_and_without_effect(
    connect: Any, scripted: Server, body: dict[str, Any], header: str | None
) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    path = "/v1/chat/completions"
    status, headers, _ = post(connect, scripted, path, {**ROUTES[path], **body})
    assert status == 200 and headers.get("ox-warning") == header


def test_a_header_is_short_and_safe(connect: Any, scripted: Server) -> None:
    evil = ["a\r\nset-cookie: b=1", "é\u2028", "c; unused=d", "x" * 5000, *(f"name{index}" for index in range(100))]
    path = "/v1/completions"
    status, headers, _ = post(connect, scripted, path, {**ROUTES[path], **dict.fromkeys(evil, "secret")})
    names = headers["ox-warning"].removeprefix("unknown=").removesuffix(" and 96 more").split(", ")
    assert status == 200 and "set-cookie" not in headers and len(headers["ox-warning"]) < 500
    assert names == ["a??set-cookie??b?1", "??", "c??unused?d", "x" * 40, "name0", "name1", "name2", "name3"]


def test_the_metric_has_no_names_of_clients(connect: Any, scripted_folder: Path) -> None:
    with Server([scripted_folder], options=ModelConfig(threads=1)) as server, connect(server) as client:
        assert b"ox_unknown_parameters" not in client.ask("GET", "/metrics")[2]
        for name in ("foo", "bar"):
            assert post(connect, server, "/v1/completions", {**ROUTES["/v1/completions"], name: 1})[0] == 200
        lines = client.ask("GET", "/metrics")[2].decode().splitlines()
    assert [line for line in lines if line.startswith("ox_unknown_parameters_total")] == [
        'ox_unknown_parameters_total{model="tiny",version="1"} 2.0'
    ]


def test_remarks_keep_little() -> None:
    remarks = Remarks()
    assert remarks.header() == b"" and remarks.first_unknown is None
    for index in range(100_000):
        remarks.add_unknown(f"n{index}", None)
    assert remarks.unknown == 100_000 and remarks.first_unknown == ("n0", None)
    assert remarks.header().endswith(b"n7 and 99992 more\r\n")
