"""Real clients: curl and Python's own, with the flags that people use."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ox.serve import ModelConfig, RequestLimits, Server

BODY = {"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}]}


@pytest.fixture(scope="module")
def patient(mlp: Path) -> Iterator[Server]:
    with Server([mlp], options=ModelConfig(instances=1), limits=RequestLimits(linger_s=0.5)) as running:
        yield running


def curl(*arguments: str, data: bytes | None = None) -> tuple[int, str, bytes]:
    """Status, head and body of the last answer."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = ["curl", "--silent", "--show-error", "--include", "--max-time", "20", "--http1.1", *arguments]
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100"):
        head, _, body = body.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body


@pytest.fixture
def infer(patient: Server) -> str:
    return f"{patient.url}/v2/models/mlp/infer"


def test_get_head_and_options(patient: Server) -> None:
    status, head, body = curl(f"{patient.url}/v2")
    assert status == 200 and json.loads(body)["name"] == "ox" and f"content-length: {len(body)}" in head
    status, head, body = curl("--head", f"{patient.url}/v2")
    assert status == 200 and body == b"" and "content-length: 0" not in head
    status, head, body = curl("-X", "OPTIONS", f"{patient.url}/v2")
    assert status == 200 and body == b"" and "allow: get, head, options" in head
    status, head, _ = curl("-X", "DELETE", f"{patient.url}/v2")
    assert status == 405 and "allow: get, head, options" in head


def test_post(infer: str) -> None:
    status, _, body = curl("-d", json.dumps(BODY), infer)
    assert status == 200 and json.loads(body)["outputs"][0]["shape"] == [1, 10]


def test_chunked_upload_and_expect(infer: str) -> None:
    data = json.dumps({**BODY, "id": "x" * 3_000_000}).encode()  # large enough for curl to ask first
    for more in ((), ("-H", "Transfer-Encoding: chunked"), ("-H", "Expect: 100-continue"), ("-H", "Expect:")):
        status, _, body = curl("--data-binary", "@-", *more, infer, data=data)
        assert status == 200 and len(json.loads(body)["id"]) == 3_000_000, more


def test_a_body_that_is_too_large_is_refused_and_curl_sees_why(infer: str) -> None:
    status, _, body = curl("--data-binary", "@-", infer, data=bytes(17 << 20))
    assert status == 413 and b"too large" in body


def test_compressed(infer: str) -> None:
    rows = {"inputs": [{"name": "x", "shape": [100, 64], "datatype": "FP32", "data": [0.5] * 6400}]}
    data = gzip.compress(json.dumps(rows).encode())
    status, head, body = curl("--compressed", "-H", "Content-Encoding: gzip", "--data-binary", "@-", infer, data=data)
    assert (
        status == 200
        and re.search("content-encoding: (gzip|deflate)", head)
        and json.loads(body)["outputs"][0]["shape"] == [100, 10]
    )


def test_percent_encoding_and_absolute_targets(patient: Server) -> None:
    for path in ("/v2/models/%6d%6C%70", "/v2/models/mlp/", "/v2/models/mlp?a=%2F", "/v2/models/mlp?"):
        status, _, body = curl("--path-as-is", patient.url + path)
        assert status == 200 and json.loads(body)["name"] == "mlp", path
    status, _, body = curl("--proxy", patient.url, "http://elsewhere.example/v2/models/mlp")  # sends the whole URL
    assert status == 200 and json.loads(body)["name"] == "mlp"
    for path in ("/v2/models/mlp%2f", "/v2/models/mlp%00", "/V2/models/mlp", "/v2/models/%256d", "/v2/models/mlp;a"):
        assert curl("--path-as-is", patient.url + path)[0] == 404, path


def test_an_upgrade_to_http_2_is_not_taken(infer: str) -> None:
    """Both requests are answered over HTTP/1.1, on one connection."""
    if b"HTTP2" not in subprocess.run([shutil.which("curl") or "true", "--version"], capture_output=True).stdout:
        pytest.skip("no curl here that speaks HTTP/2")
    arguments = [
        "curl",
        "-sS",
        "--http2",
        "-d",
        json.dumps(BODY),
        "-w",
        "%{num_connects} %{http_version}\n",
        infer,
        infer,
    ]
    run = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert re.findall(r"}(\d) ([\d.]+)\n", run.stdout) == [("1", "1.1"), ("0", "1.1")]


def test_http_1_0(infer: str) -> None:
    status, head, body = curl("--http1.0", "-d", json.dumps(BODY), infer)
    assert status == 200 and "connection: close" in head and json.loads(body)["model_name"] == "mlp"


def test_many_on_one_connection(patient: Server) -> None:
    link = http.client.HTTPConnection(patient.host, patient.port, timeout=300)
    for n in range(50):
        link.request("POST", "/v2/models/mlp/infer", json.dumps({**BODY, "id": str(n)}))
        with link.getresponse() as reply:
            assert reply.status == 200 and json.loads(reply.read())["id"] == str(n)
        if n == 0:
            first = link.sock
        assert link.sock is first
    link.request("POST", "/v2/models/mlp/infer", iter([json.dumps(BODY).encode()]), encode_chunked=True,
                 headers={"Transfer-Encoding": "chunked"})  # fmt: skip
    with link.getresponse() as reply:
        assert reply.status == 200 and reply.read()
    link.close()


def test_keys(mlp: Path, tmp_path: Path, infer: str) -> None:
    from ox.serve.access import keyfile
    from ox.serve.access.key import Key, digest_of

    keyfile.write(tmp_path / "keys.toml", [Key("a", digest_of(b"ox_a"))])
    with Server([mlp], options=ModelConfig(instances=1), keys=tmp_path / "keys.toml") as server:
        url, data = f"{server.url}/v2/models/mlp/infer", json.dumps({**BODY, "id": "x" * 2_000_000}).encode()
        assert curl("--oauth2-bearer", "ox_a", "-d", json.dumps(BODY), url)[0] == 200
        for more in ((), ("-H", "Transfer-Encoding: chunked"), ("-H", "Expect:")):
            status, head, _ = curl("--data-binary", "@-", *more, url, data=data)
            assert status == 401 and "www-authenticate: bearer" in head, more


def test_the_others_stay_out(patient: Server, connect: Any) -> None:
    """What is HTTP for others: tunnels and mirrors."""
    for method in ("CONNECT", "TRACE", "PUT", "PATCH", "PROPFIND", "M-SEARCH", "SOURCE"):
        with connect(patient) as client:
            client.send(
                f"{method} {'a:1' if method == 'CONNECT' else '/v2'} HTTP/1.1\r\nhost: x\r\nsecret: s\r\n\r\n".encode()
            )
            status, _, body = client.reply()
            assert status == (501 if method == "CONNECT" else 405) and b"secret" not in body, method
