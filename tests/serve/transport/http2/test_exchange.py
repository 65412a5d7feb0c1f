"""Plain HTTP over HTTP/2: the same exchanges as over HTTP/1.1."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest

from ox.errors import ServeError
from ox.serve.transport.http.cors import Cors
from ox.serve.transport.http2 import frames as f


def test_answers(wire: Any) -> None:
    wire.send(wire.head(1, "/a?b=c", headers=[("x-a", "1"), ("x-a", "2")]))
    status, headers, body = wire.answer(1)
    assert status == 200 and headers["content-type"] == "application/json"
    document = json.loads(body)
    assert document["path"] == "/a?b=c" and document["headers"] == {"x-a": "1, 2", "host": "test"}


def test_head_and_empty_answers_end_with_their_head(wire: Any) -> None:
    wire.send(wire.head(1, "/bytes/10", method="HEAD"), wire.head(3, "/bytes/0"))
    for stream, length in ((1, "10"), (3, "0")):
        head = wire.until(f.HEADERS, stream)
        assert head.flags & f.END_STREAM and dict(wire.decoder.decode(head.payload))["content-length"] == length


def test_errors(wire: Any) -> None:
    wire.send(wire.head(1, "/broken"), wire.head(3, "/refused"))
    status, _, body = wire.answer(1)
    assert status == 500 and b"Zero" not in body
    status, headers, body = wire.answer(3)
    assert status == 503 and headers["retry-after"] and json.loads(body) == {"error": "not now"}


@pytest.mark.parametrize("origin", ["https://example.org", "https://other.example"])
def test_pages_of_other_origins(serve: Any, limits: Any, connect: Any, origin: str) -> None:
    with serve(limits) as site, connect(site.port) as wire:
        site.listener_state.cors = Cors(["https://example.org"])
        for stream, path, status in ((1, "/a", 200), (3, "/refused", 503), (5, "/events", 200)):
            wire.send(wire.head(stream, path, headers=[("origin", origin)]))
            got, headers, _ = wire.answer(stream)
            assert got == status and headers["vary"] == "origin"
            allowed = headers.get("access-control-allow-origin")
            assert allowed == ("https://example.org" if origin == "https://example.org" else None)


def test_the_root_path(serve: Any, limits: Any, connect: Any) -> None:
    with serve(limits, root_path=b"/prefix") as site, connect(site.port) as wire:
        for stream, path in ((1, "/prefix/a?b"), (3, "/a?b"), (5, "/prefix/a?b")):
            wire.send(wire.head(stream, path))
            assert json.loads(wire.answer(stream)[2])["path"] == "/a?b"


def test_bodies_too_large(wire: Any, site: Any) -> None:
    wire.send(wire.head(1, end=False, headers=[("content-length", "100001")]))
    assert wire.answer(1)[0] == 413
    assert wire.reset_of(1) == f.NO_ERROR  # it need not send the rest
    wire.send(wire.head(3, end=False), f.frame(f.DATA, 0, 3, bytes(10_000)) * 11)
    assert wire.answer(3)[0] == 413
    wire.send(f.frame(f.DATA, 0, 3, b"late"), wire.head(5))
    assert wire.answer(5)[0] == 200
    assert site.do(lambda: site.listener_state.buffered) == 0


def test_a_refusal_that_waits_is_given_once(site: Any, connect: Any) -> None:
    with connect(site.port, {f.INITIAL_WINDOW_SIZE: 0}) as wire:
        wire.send(wire.head(1, "/" + "a" * 1001, end=False), f.frame(f.DATA, f.END_STREAM, 1, b"1"))
        wire.send(f.window_update(1, 1000))
        assert wire.answer(1)[0] == 414
        wire.alive()


def test_all_bodies_together(serve: Any, limits: Any, connect: Any) -> None:
    with serve(replace(limits, buffered=150_000)) as site, connect(site.port) as wire:
        for stream in (1, 3):
            wire.send(wire.head(stream, "/hold", end=False), f.frame(f.DATA, 0, stream, bytes(10_000)) * 9)
        status, headers, _ = wire.answer(3)
        assert status == 503 and headers["retry-after"]
        wire.send(f.frame(f.DATA, f.END_STREAM, 1, b""))
        wire.alive()
        site.do(lambda: site.held[-1].reply(200, b"fine"))
        assert wire.answer(1)[2] == b"fine"
        assert site.do(lambda: site.listener_state.buffered) == 0


def test_expect_continue(wire: Any) -> None:
    wire.send(wire.head(1, end=False, headers=[("expect", "100-continue")]))
    head = wire.until(f.HEADERS, 1)
    assert not head.flags & f.END_STREAM and dict(wire.decoder.decode(head.payload)) == {":status": "100"}
    wire.send(f.frame(f.DATA, f.END_STREAM, 1, b"123"))
    assert json.loads(wire.answer(1)[2])["size"] == 3
    wire.send(wire.head(3, end=False, headers=[("expect", "a miracle")]))
    assert wire.answer(3)[0] == 417


def test_admission(serve: Any, limits: Any, connect: Any) -> None:
    def admit(method: bytes, target: bytes, headers: dict[bytes, bytes], peer: str) -> None:
        assert peer == "127.0.0.1" and headers[b"host"] == b"test"
        if target == b"/no":
            raise ServeError("no", status=401)

    with serve(limits) as site, connect(site.port) as wire:
        site.listener_state.admit = admit
        wire.send(wire.head(1, "/no", end=False), wire.head(3, "/yes"))
        status, headers, _ = wire.answer(1)
        assert status == 401 and "Bearer" in headers["www-authenticate"]
        assert wire.answer(3)[0] == 200


# ---- clients of others


def test_the_h2_library(site: Any, connect: Any) -> None:
    client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    client.initiate_connection()
    headers = [(":method", "POST"), (":path", "/h2"), (":scheme", "http"), (":authority", "test")]
    with connect(site.port, greet=False) as wire:
        bodies: dict[int, bytes] = {}
        for stream in range(1, 11, 2):
            client.send_headers(stream, headers)
            client.send_data(stream, bytes(5000), end_stream=True)
            bodies[stream] = b""
        wire.send(client.data_to_send())
        ended: set[int] = set()
        while len(ended) < 5:
            for event in client.receive_data(wire.socket.recv(65_536)):
                if isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] += event.data
                    client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    ended.add(event.stream_id)
                else:
                    assert not isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated), event
            wire.send(client.data_to_send())
        assert all(json.loads(body)["size"] == 5000 for body in bodies.values())


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """A certificate of its own for 127.0.0.1, on a server that offers both versions."""
    x509 = pytest.importorskip("cryptography.x509", reason="cryptography is not installed")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    begin = datetime.now(UTC) - timedelta(days=1)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(begin).not_valid_after(begin + timedelta(days=9)).sign(key, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    both = tmp_path / "both.pem"
    both.write_bytes(made.public_bytes(pem) + secret)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(serve: Any, limits: Any) -> None:
    with serve(limits, mixed=True) as site:
        url = f"http://127.0.0.1:{site.port}"
        command = ["curl", "-sS", "--max-time", "20", "--http2-prior-knowledge", "-w", "%{http_version} %{http_code}"]
        done = subprocess.run([*command, f"{url}/bytes/90000"], capture_output=True, check=True)
        assert done.stdout == b"x" * 90_000 + b"2 200"
        big = [*command, "--data-binary", "@-", f"{url}/c"]
        done = subprocess.run(big, input=bytes(99_000), capture_output=True, check=True)
        assert json.loads(done.stdout.removesuffix(b"2 200"))["size"] == 99_000


@pytest.mark.skipif(shutil.which("nghttp") is None, reason="nghttp is not installed")
def test_nghttp(serve: Any, limits: Any) -> None:
    with serve(limits) as site:
        urls = [f"http://127.0.0.1:{site.port}/bytes/{size}" for size in (90_000, 5, 70_000)]
        done = subprocess.run(["nghttp", "--timeout=20", *urls], capture_output=True, check=True)
        assert len(done.stdout) == 160_005


@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load is not installed")
def test_h2load(serve: Any, limits: Any) -> None:
    with serve(limits) as site:
        command = ["h2load", "-n", "2000", "-c", "8", "-m", "10", f"http://127.0.0.1:{site.port}/bytes/300"]
        done = subprocess.run(command, capture_output=True, check=True, timeout=300, text=True)
        assert "2000 done, 2000 succeeded, 0 failed, 0 errored" in done.stdout


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_a_browser(serve: Any, limits: Any, tls: ssl.SSLContext, tmp_path: Path) -> None:
    """It speaks HTTP/2 only over TLS, and prefers it there."""
    with serve(limits, mixed=True, tls=tls) as site:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors", "--dump-dom"]
        command = ["chromium", *flags, f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000"]
        url = f"https://127.0.0.1:{site.port}/page"
        done = subprocess.run([*command, url], capture_output=True, text=True, timeout=100)
        assert re.search("<body>300000 5 70000 90000( h2){4,}</body>", done.stdout), (done.stdout, done.stderr[-2000:])


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_over_tls(serve: Any, limits: Any, tls: ssl.SSLContext) -> None:
    with serve(limits, mixed=True, tls=tls) as site:
        command = ["curl", "-sSk", "--max-time", "20", "--http2", "-w", "%{http_version}"]
        done = subprocess.run([*command, f"https://127.0.0.1:{site.port}/bytes/90000"], capture_output=True, check=True)
        assert done.stdout == b"x" * 90_000 + b"2"


def test_a_response_in_parts(site: Any, connect: Any) -> None:
    streams: list[Any] = []
    flows: list[bool] = []
    left: list[bool] = []
    with connect(site.port, {f.INITIAL_WINDOW_SIZE: 100_000}) as wire:
        wire.send(wire.head(1, "/hold"))
        wire.alive()

        def begin() -> None:
            stream = site.held.pop().stream_response(200, b"text/event-stream")
            stream.on_flow, stream.on_cancel = flows.append, lambda: left.append(True)
            streams.append(stream)

        site.do(begin)
        head = dict(wire.decoder.decode(wire.until(f.HEADERS, 1).payload))
        assert head == {":status": "200", "content-type": "text/event-stream"}
        site.do(lambda: streams[0].write(b"one"))
        assert wire.until(f.DATA, 1).payload == b"one"
        for _ in range(10):
            site.do(lambda: streams[0].write(b"x" * 10_000))
        assert flows == [True]  # the window is full
        wire.send(f.window_update(0, 1 << 20), f.window_update(1, 1 << 20))
        received = b""
        while len(received) < 100_000:
            received += wire.until(f.DATA, 1).payload
        wire.alive()
        assert flows == [True, False]
        site.do(lambda: streams[0].end())
        assert wire.until(f.DATA, 1).flags & f.END_STREAM

        wire.send(wire.head(3, "/hold"))
        wire.alive()
        site.do(begin)
        wire.send(f.rst_stream(3, f.CANCEL))
        wire.alive()
        assert left == [True]
        site.do(lambda: (streams[1].write(b"late"), streams[1].end()))  # is ignored
        wire.alive()
