"""Types and encodings of bodies: what clients really send is read, the rest is named."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest
from rows import rows

X = [0.5] * 64
INFER = "/v2/models/mlp/infer"
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": X}]}).encode()


@rows(
    "kind",
    [None, "", "application/json", "application/json; charset=utf-8", "Application/JSON", "application/octet-stream",
     "application/x-www-form-urlencoded", "text/plain;charset=UTF-8", "application/vnd.something+json"],
)  # fmt: skip
def test_types_that_are_read(client: Any, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    assert client.ask("POST", INFER, BODY, headers)[0] == 200


@rows(
    "kind",
    ["multipart/form-data; boundary=x", "application/grpc", "application/x-protobuf", "image/png", "text/html",
     "nonsense", "application/", "x" * 3000],
)  # fmt: skip
def test_types_that_are_not(client: Any, kind: str) -> None:
    status, _, reply = client.ask("POST", INFER, BODY, {"content-type": kind})
    message = json.loads(reply)["error"]
    assert status == 415 and "expected application/json, or application/octet-stream" in message and len(message) < 400
    assert client.ask("POST", INFER, BODY)[0] == 200  # the same connection goes on


def test_curl_as_it_comes(server: Any) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    done = subprocess.run(
        [curl, "-s", "--max-time", "20", "--compressed", "-d", BODY.decode(), server.url + INFER],
        capture_output=True,
        timeout=300,
    )
    assert json.loads(done.stdout)["outputs"][0]["shape"] == [1, 10]


def test_a_failure_is_counted(client: Any) -> None:
    def failed() -> int:
        stats = json.loads(client.ask("GET", "/v2/models/mlp/stats")[2])["model_stats"][0]
        return int(stats["inference_stats"]["fail"]["count"])

    before = failed()
    client.ask("POST", INFER, BODY, {"content-type": "image/png"})
    client.ask("POST", INFER, b"{")
    client.ask("POST", INFER, BODY, {"inference-header-content-length": "9999999"})
    assert failed() == before + 3
