"""A server behind a proxy that publishes it below a path: with the path in requests, and without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.errors import ArgumentError
from ox.serve import ModelConfig, Server
from ox.serve.access import keyfile
from ox.serve.access.key import Key, digest_of
from ox.serve.transport.http.root_path import without_root


@rows(
    ("target", "rest"),
    [
        (b"/a/b", b"/"), (b"/a/b/", b"/"), (b"/a/b/v2", b"/v2"), (b"/a/b?x=1", b"/?x=1"),
        (b"/a/b/v2?x=/a/b", b"/v2?x=/a/b"),
        (b"/a/b//v2", b"//v2"), (b"/a/b/a/b/v2", b"/a/b/v2"), (b"http://host/a/b/v2", b"http://host/v2"),
        (b"http://host/a/b", b"http://host/"),
        (b"/v2", b"/v2"), (b"/a", b"/a"), (b"/a/bc", b"/a/bc"), (b"/A/b", b"/A/b"), (b"//a/b/v2", b"//a/b/v2"),
        (b"/x/a/b/v2", b"/x/a/b/v2"), (b"*", b"*"), (b"", b""), (b"http://a/b", b"http://a/b"),
        (b"http://host", b"http://host"),
        (b"/%61/b/v2", b"/v2"), (b"/a/%62?x=%61", b"/?x=%61"), (b"http://host/a/%62/v2/%62", b"http://host/v2/%62"),
        (b"/a%2fb/v2", b"/a%2fb/v2"), (b"/%61", b"/%61"), (b"/%61/bc", b"/%61/bc"), (b"/a/b%2fv2", b"/a/b%2fv2"),
        (b"/%2561/b", b"/%2561/b"),
    ],
)  # fmt: skip
def test_the_path_is_removed_once_and_as_a_whole(target: bytes, rest: bytes) -> None:
    assert without_root(target, b"/a/b") == rest
    assert without_root(target, b"") == target


@pytest.fixture(scope="module")
def published(mlp: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = tmp_path_factory.mktemp("keys") / "keys.toml"
    keyfile.write(keys, [Key("alice", digest_of(b"ox_alice"), ("mlp",), ("infer", "read"))])
    with Server([mlp], options=ModelConfig(instances=1), keys=keys, root_path="/a/b") as running:
        yield running


BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}]}).encode()
KEY = {"authorization": "Bearer ox_alice"}


@rows("root", ["", "/a/b"])
def test_calls(published: Server, connect: Any, root: str) -> None:
    with connect(published) as client:
        for _ in range(3):  # also from the cache of heads
            assert client.ask("POST", f"{root}/v2/models/mlp/infer", BODY, KEY)[0] == 200
            assert client.ask("GET", f"{root}/v2/models/mlp", b"", KEY)[0] == 200
        assert client.ask("GET", f"{root}/v2/health/ready")[0] == 200
        assert client.ask("POST", f"{root}/v2/models/mlp/infer", BODY)[0] == 401  # the same permissions
        assert client.ask("GET", f"{root}/v2/models/other", b"", KEY)[0] == 403
        status, _, body = client.ask("POST", f"{root}/v1/completions", b"{}")
        assert status == 401 and json.loads(body)["error"]["code"] == "invalid_api_key"  # the route's form of errors
        client.send(b"POST %s/v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n" % root.encode())
        status, _, body = client.reply()
        assert status == 400 and json.loads(body)["error"]["type"] == "invalid_request_error"


def test_paths_that_only_begin_like_it(published: Server, connect: Any) -> None:
    with connect(published) as client:
        for path in ("/a/bc/v2", "/a/v2", "/a/b/a/b/v2/health/ready", "/a%2fb/v2/health/ready"):
            assert client.ask("GET", path, b"", KEY)[0] in (403, 404), path


def test_the_documents_name_it(mlp: Path, connect: Any) -> None:
    with Server([mlp], options=ModelConfig(instances=1), root_path="/a/b/") as server, connect(server) as client:
        for root in ("", "/a/b"):
            document = json.loads(client.ask("GET", f"{root}/openapi.json")[2])
            assert document["servers"] == [{"url": "/a/b"}] and "/v2" in document["paths"]
            status, headers, body = client.ask("GET", f"{root}/")
            assert status == 200 and b'<base href="/a/b/">' in body
            assert "base-uri 'self'" in headers["content-security-policy"]
            assert b'href="openapi.json"' in client.ask("GET", f"{root}/docs")[2]
        assert client.ask("GET", "/a/b")[2] == body  # without the slash at the end


@rows("path", ["/v2", "/v2/models", "/v2/models/mine", "/v1", "/docs", "/metrics", "/openapi.json"])
def test_a_path_of_the_server_itself(mlp: Path, path: str) -> None:
    with pytest.raises(ArgumentError, match=r"the root path is one of the server's own paths(.|\n)*--root-path"):
        Server([mlp], root_path=path)
