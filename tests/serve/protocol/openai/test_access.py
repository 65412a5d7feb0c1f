"""Keys, rates, logs, traces and statistics of texts; TLS and HTTP/2."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from span_memory import span_memory
from waiting import wait_until

from ox.serve import ModelConfig, Server
from ox.serve.access import keyfile
from ox.serve.access.key import Key, digest_of
from ox.serve.telemetry.logs import Log

ASK: dict[str, Any] = {"model": "tiny", "prompt": "the cat", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
ALICE, BOB, CAROL, DORA = "ox_alice", "ox_bob", "ox_carol", "ox_dora"


@pytest.fixture(scope="module")
def guarded(decoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server with keys and an access log, and the file of its lines."""
    folder = tmp_path_factory.mktemp("keys")
    keys = [
        Key("alice", digest_of(ALICE.encode()), tokens_per_minute=60),
        Key("bob", digest_of(BOB.encode()), models=("other*",)),
        Key("carol", digest_of(CAROL.encode()), actions=("read",)),
        Key("dora", digest_of(DORA.encode())),
    ]
    keyfile.write(folder / "keys.toml", keys)
    path = folder / "lines"
    with path.open("w") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ox.serve.telemetry.telemetry.Log", lambda form, level: Log(form, level, stream))
        with Server(
            [decoder], options=ModelConfig(threads=1), keys=folder / "keys.toml", access_log=True, log="json"
        ) as running:
            yield running, path


@pytest.fixture
def post(guarded: tuple[Server, Path], connect: Any) -> Any:
    def send(key: str | None, body: dict[str, Any], path: str = "/v1/completions") -> tuple[int, dict[str, str], Any]:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        with connect(guarded[0]) as client:
            status, fields, reply = client.ask("POST", path, json.dumps(body).encode(), headers)
        return status, fields, json.loads(reply)

    return send


def test_keys(post: Any) -> None:
    status, headers, reply = post(None, ASK)
    assert status == 401 and reply["error"]["code"] == "invalid_api_key" and "www-authenticate" in headers
    assert post("ox_nobody", ASK)[0] == 401
    for key in (BOB, CAROL):
        status, _, reply = post(key, ASK)
        assert status == 403 and reply["error"]["type"] == "permission_error", reply
    assert post(BOB, {**ASK, "model": "other1"})[0] == 404
    assert post(BOB, {"text_input": "a"}, "/v2/models/tiny/generate")[0] == 403
    for key, status in ((CAROL, 200), (BOB, 403)):
        assert post(key, {"model": "tiny"}, "/api/show")[0] == status


def test_models_are_those_that_a_key_may_read(guarded: tuple[Server, Path], connect: Any) -> None:
    for key, names in ((CAROL, ["tiny"]), (BOB, [])):
        with connect(guarded[0]) as client:
            status, _, reply = client.ask("GET", "/v1/models", b"", {"authorization": f"Bearer {key}"})
        assert status == 200 and [model["id"] for model in json.loads(reply)["data"]] == names


def test_tokens_per_minute(post: Any) -> None:
    """60 a minute: a large request takes all of them, and the next one waits; what was not used is given back."""
    status, _, reply = post(ALICE, {**ASK, "max_tokens": 10})
    used = reply["usage"]["total_tokens"]
    assert status == 200 and used < 20
    assert post(ALICE, {**ASK, "max_tokens": 45})[0] == 200  # with what is left
    status, headers, reply = post(ALICE, {**ASK, "max_tokens": 45})
    assert status == 429 and reply["error"]["code"] == "rate_limit_exceeded"
    assert "tokens a minute" in reply["error"]["message"] and 1 <= int(headers["retry-after"]) <= 60
    assert (
        post(ALICE, {"text_input": "the cat", "parameters": {"max_tokens": 50}}, "/v2/models/tiny/generate")[0] == 429
    )


def test_the_access_log_counts_tokens(guarded: tuple[Server, Path], post: Any, connect: Any) -> None:
    server, path = guarded
    usage = post(DORA, ASK)[2]["usage"]
    with connect(server) as client:
        body = json.dumps({**ASK, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: a\r\nx-request-id: streamed\r\nx-api-key: {DORA}\r\n"
        client.send(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        received = b"".join(iter(lambda: client.socket.recv(1 << 16), b""))
    assert b"x-request-id: streamed\r\n" in received
    wait_until(lambda: "streamed" in path.read_text())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    whole, streamed = [line for line in lines if line.get("completion_tokens") == 5][-2:]
    assert streamed["request_id"] == "streamed" and streamed["bytes"] > 300 and streamed["status"] == 200
    assert all(
        line["prompt_tokens"] == usage["prompt_tokens"] and line["model"] == "tiny" for line in (whole, streamed)
    )


def test_statistics_and_traces(decoder: Path, connect: Any) -> None:
    spans, memory = span_memory()
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with Server([decoder], options=ModelConfig(threads=1)) as server, connect(server) as client:
        server.service.telemetry.trace(spans)
        headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        assert client.ask("POST", "/v1/completions", json.dumps(ASK).encode(), headers)[0] == 200
        (statistics,) = json.loads(client.ask("GET", "/v2/models/tiny/stats")[2])["model_stats"]
        assert statistics["inference_stats"]["success"]["count"] == 1
    *children, whole = memory.get_finished_spans()
    assert whole.name == "generate tiny" and f"{whole.context.trace_id:032x}" == trace
    assert whole.attributes["gen_ai.usage.output_tokens"] == 5
    assert [child.name for child in children] == ["parse", "first token", "tokens"]


def over_http2(port: int, trust: ssl.SSLContext, path: str, body: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """The headers and the body of a response."""
    import h2.connection
    import h2.events

    trust.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), 60) as raw,
        trust.wrap_socket(raw, server_hostname="127.0.0.1") as client,
    ):
        assert client.selected_alpn_protocol() == "h2"
        connection = h2.connection.H2Connection()
        connection.initiate_connection()
        head = {":method": "POST", ":scheme": "https", ":path": path, ":authority": "a"}
        connection.send_headers(1, list(head.items()))
        connection.send_data(1, body, end_stream=True)
        headers: dict[bytes, bytes] = {}
        received = b""
        while True:
            client.sendall(connection.data_to_send())
            for event in connection.receive_data(client.recv(1 << 16)):
                if isinstance(event, h2.events.ResponseReceived):
                    headers = dict(event.headers)
                elif isinstance(event, h2.events.DataReceived):
                    received += event.data
                elif isinstance(event, h2.events.StreamEnded):
                    return headers, received


def test_tls_and_http2(decoder: Path, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    body = json.dumps({**ASK, "stream": True}).encode()
    with Server([decoder], options=ModelConfig(threads=1), tls_cert=cert, tls_key=key) as server:
        trust = ssl.create_default_context(cafile=str(cert))
        plain = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=trust)
        plain.request("POST", "/v1/completions", body)
        response = plain.getresponse()
        texts = [response.read()]
        assert response.status == 200
        plain.close()
        headers, text = over_http2(server.port, trust, "/v1/completions", body)
        assert headers[b":status"] == b"200" and headers[b"content-type"].startswith(b"text/event-stream")
        texts.append(text)
        headers, text = over_http2(server.port, trust, "/v1/completions", b"{}")
        assert headers[b":status"] == b"400" and json.loads(text)["error"]["param"] == "model"
    said = []
    for text in texts:
        *events, rest = text.split(b"\n\n")
        assert events.pop() == b"data: [DONE]" and rest == b""
        said.append([json.loads(event[6:])["choices"][0]["text"] for event in events])
    assert said[0] == said[1] and len(said[0]) > 1
