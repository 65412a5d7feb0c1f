"""A server with keys: every call is asked who calls, over every transport, and strangers learn nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.serve import ModelConfig, Server
from ox.serve.access import file_watcher, keyfile
from ox.serve.access.key import Key, digest_of
from ox.serve.protocol.rest.routes import TABLE
from ox.serve.protocol.rest.routing import ANY

ALICE, BOB, SLOW = "ox_alice", "ox_bob", "ox_slow"
KEYS = [
    Key("alice", digest_of(ALICE.encode()), ("mlp*",), ("infer", "read")),
    Key("bob", digest_of(BOB.encode()), ("*",), ("infer", "read", "manage", "metrics")),
    Key("slow", digest_of(SLOW.encode()), rate=0.01, burst=2),
]
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}]}).encode()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    keyfile.write(path, KEYS)
    return path


@pytest.fixture(scope="module")
def guarded(mlp: Path, mixed: Path, keys: Path) -> Iterator[Server]:
    with Server([mlp, mixed], options=ModelConfig(instances=1), keys=keys) as running:
        yield running


@pytest.fixture
def caller(guarded: Server, connect: Any) -> Iterator[Any]:
    with connect(guarded) as connected:
        yield connected


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


CALLS = sorted({("POST" if route.method == ANY else route.method, route.path) for route in TABLE} | {
    ("GET", "/nowhere"), ("DELETE", "/v2/models/{model}"), ("OPTIONS", "/v2"),
})  # fmt: skip
PROBES = {("GET", "/v2/health/live"), ("GET", "/v2/health/ready"), ("GET", "/health"), ("GET", "/ping"), ("GET", "/")}


@rows("model", ["mlp", "nope"])
@rows(("method", "path"), CALLS)
def test_without_a_key(caller: Any, method: str, path: str, model: str) -> None:
    target = path.replace("{model}", model).replace("{version}", "1").replace("{number}", "0")
    status, headers, body = caller.ask(method, target, b"{}" if method == "POST" else b"")
    if (method, path) in PROBES:
        assert status == 200
    else:
        assert status == 401 and headers["www-authenticate"].startswith("Bearer")
        error = json.loads(body)["error"]
        message = error["message"] if isinstance(error, dict) else error
        assert message.startswith("an API key is required") and model.encode() not in body


def test_what_needs_none(caller: Any) -> None:
    for method, path in sorted(PROBES):
        assert caller.ask(method, path)[0] == 200


def test_permissions(caller: Any) -> None:
    ask = caller.ask
    for headers in (bearer(ALICE), {"X-API-Key": ALICE}, {"authorization": f"bearer {ALICE}"}):
        assert ask("POST", "/v2/models/mlp/infer", BODY, headers)[0] == 200
    assert ask("POST", "/v2/models/ml%70/infer", BODY, bearer(ALICE))[0] == 200
    assert ask("GET", "/v2/models/mlp", b"", bearer(ALICE))[0] == 200
    assert ask("GET", "/v2", b"", bearer(ALICE))[0] == 200
    for method, path in (
        ("GET", "/v2/models/mixed"), ("GET", "/v2/models/nope"), ("POST", "/v2/models/mixed/infer"),
        ("POST", "/v2/models/mi%78ed/infer"), ("POST", "/v2//models/mixed/infer"), ("GET", "/v2/models/mlp/../mixed"),
        ("POST", "/v2/repository/index"), ("GET", "/metrics"), ("POST", "/v2/repository/models/mlp/load"),
        ("GET", "/v2/models/stats"), ("GET", "/v2/ox/figures"), ("POST", "/v2/logging"),
    ):  # fmt: skip
        status, _, body = ask(method, path, b"{}" if method == "POST" else b"", bearer(ALICE))
        assert status in (403, 404) and "outputs" not in json.loads(body), (method, path)
        assert status == 403 or ".." in path or "//" in path, (method, path)
    assert ask("GET", "/v2/models/nope", b"", bearer(BOB))[0] == 404
    assert ask("GET", "/metrics", b"", bearer(BOB))[0] == 200
    assert ask("GET", "/v2/models/mixed", b"", bearer(BOB))[0] == 200


def test_a_wrong_name_tells_no_others(guarded: Server, caller: Any) -> None:
    for method, path, body in (
        ("GET", "/v2/models/mlpzzz", b""), ("POST", "/v2/models/mlpzzz/infer", BODY),
        ("GET", "/v2/models/mlpzzz/versions/1/stats", b""), ("GET", "/v2/models/mlpzzz/config", b""),
        ("GET", "/v2/models/mlpzzz/trace/setting", b""), ("GET", "/v2/models/mlpzzz/ready", b""),
    ):  # fmt: skip
        status, _, answer = caller.ask(method, path, body, bearer(ALICE))
        assert status == 404 and b"mixed" not in answer and b"'mlp'" not in answer, (method, path)
    status, _, answer = caller.ask("POST", "/v2/repository/models/mlpzzz/load", b"{}", bearer(BOB))
    assert status == 404 and b"mixed" not in answer
    grpc = pytest.importorskip("tritonclient.grpc", reason="gRPC's own client is not installed")
    with grpc.InferenceServerClient(f"{guarded.host}:{guarded.grpc_port}") as client:
        for call in (
            lambda: client.infer("mlpzzz", [], headers=bearer(ALICE)),
            lambda: client.get_model_metadata("mlpzzz", headers=bearer(ALICE)),
        ):
            with pytest.raises(Exception, match="there is no model 'mlpzzz'") as caught:
                call()
            assert "mixed" not in str(caught.value)


def test_wrong_keys_learn_nothing(caller: Any) -> None:
    wrong = [bearer(key) for key in ("", "ox_alic", ALICE + "x", f"{ALICE}, Bearer {BOB}")]
    for headers in (*wrong, {"authorization": f"Basic {ALICE}"}, {"x-api-key": "sha256:" + "0" * 64}):
        status, _, body = caller.ask("POST", "/v2/models/mlp/infer", BODY, headers)
        assert status == 401 and b"alice" not in body and b"ox_" not in body


def test_a_rate(caller: Any) -> None:
    answers = [caller.ask("POST", "/v2/models/mlp/infer", BODY, bearer(SLOW)) for _ in range(4)]
    assert [status for status, _, _ in answers] == [200, 200, 429, 429]
    assert 1 <= int(answers[-1][1]["retry-after"]) <= 100
    assert caller.ask("POST", "/v2/models/mlp/infer", BODY, bearer(ALICE))[0] == 200


def test_grpc_asks_too(guarded: Server) -> None:
    grpc = pytest.importorskip("tritonclient.grpc", reason="gRPC's own client is not installed")
    import numpy as np

    with grpc.InferenceServerClient(f"{guarded.host}:{guarded.grpc_port}") as client:
        tensor = grpc.InferInput("x", [1, 64], "FP32")
        tensor.set_data_from_numpy(np.full((1, 64), 0.5, np.float32))
        for headers in (None, bearer("ox_nobody"), {"x-api-key": "ox"}):
            for call in (
                lambda: client.infer("mlp", [tensor], headers=headers),  # noqa: B023
                lambda: client.get_model_metadata("mlp", headers=headers),  # noqa: B023
                lambda: client.get_model_repository_index(headers=headers),  # noqa: B023
                lambda: client.unload_model("mlp", headers=headers),  # noqa: B023
            ):
                with pytest.raises(Exception, match="UNAUTHENTICATED"):
                    call()
        for call in (
            lambda: client.infer("mixed", [tensor], headers=bearer(ALICE)),
            lambda: client.unload_model("mlp", headers=bearer(ALICE)),
            lambda: client.get_inference_statistics(headers=bearer(ALICE)),
        ):
            with pytest.raises(Exception, match="PERMISSION_DENIED"):
                call()
        assert client.infer("mlp", [tensor], headers=bearer(ALICE)).as_numpy("y").shape == (1, 10)
        assert client.infer("mlp", [tensor], headers={"x-api-key": BOB}).as_numpy("y").shape == (1, 10)


def test_keys_rotate_while_it_serves(mlp: Path, connect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watcher, "EVERY_S", 0.0)
    path = tmp_path / "keys.toml"
    keyfile.write(path, KEYS[:1])
    with Server([mlp], options=ModelConfig(instances=1), keys=path) as server, connect(server) as client:
        assert client.ask("GET", "/v2", b"", bearer(ALICE))[0] == 200
        keyfile.write(path, KEYS[1:])
        assert client.ask("GET", "/v2", b"", bearer(ALICE))[0] == 401
        assert client.ask("GET", "/v2", b"", bearer(BOB))[0] == 200
        path.write_text("[keys.")
        assert client.ask("GET", "/v2", b"", bearer(BOB))[0] == 200


def test_management_is_off(mlp: Path, connect: Any) -> None:
    calls = [(route.method, route.path) for route in TABLE if "repository/models" in route.path]
    calls += [
        ("POST", "/v2/systemsharedmemory/region/r/register"),
        ("POST", "/v2/logging"),
        ("POST", "/v2/trace/setting"),
    ]
    with Server([mlp], options=ModelConfig(instances=1)) as server, connect(server) as client:
        for method, path in calls:
            status, _, body = client.ask(method, path.replace("{model}", "mlp"), b"{}")
            assert status == 403 and b"--manage" in body, path
        assert client.ask("POST", "/v2/models/mlp/infer", BODY)[0] == 200
    with Server([mlp], options=ModelConfig(instances=1), manage=True) as server, connect(server) as client:
        assert client.ask("POST", "/v2/logging", b"{}")[0] == 200
        status, _, body = client.ask("POST", "/v2/logging", b"{}", {"origin": "https://evil.example"})
        assert status == 403 and b"web page" in body


def test_a_rate_without_keys(mlp: Path, connect: Any) -> None:
    with Server([mlp], options=ModelConfig(instances=1), rate=0.01) as server, connect(server) as client:
        assert [client.ask("GET", "/v2")[0] for _ in range(3)] == [200, 429, 429]
        assert client.ask("GET", "/v2/health/live")[0] == 200


def test_secrets_are_not_logged(guarded: Server, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(self.format(record) + repr(record.__dict__))

    listener, log = Listener(0), logging.getLogger("ox.serve")
    log.addHandler(listener)
    try:
        with connect(guarded) as client:
            for headers in (bearer(ALICE), bearer("ox_mistyped"), {"x-api-key": BOB}):
                client.ask("POST", "/v2/models/mlp/infer", BODY, headers)
                client.ask("POST", "/v2/models/mlp/infer", b"{", headers)
    finally:
        log.removeHandler(listener)
    assert not any(secret in line for line in said for secret in (ALICE, BOB, "ox_mistyped"))


def test_wrong_settings(mlp: Path, tmp_path: Path) -> None:
    from ox.errors import ArgumentError

    with pytest.raises(ArgumentError, match="cannot be read"):
        Server([mlp], keys=tmp_path / "nope.toml")
    for rate in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ArgumentError, match="rate is out of range"):
            Server([mlp], rate=rate)


def test_a_key_file_without_keys_is_said(mlp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watcher, "EVERY_S", 0.0)
    path = tmp_path / "keys.toml"
    keyfile.write(path, [])
    with Server([mlp], options=ModelConfig(instances=1), keys=path) as server:
        assert [line for line in server.greeting() if line.startswith("warning: the key file has no valid keys")]
        keyfile.write(path, KEYS)
        assert not [line for line in server.greeting() if "warning" in line]


@rows(
    ("settings", "warned"),
    [
        ({"host": "127.0.0.1"}, False), ({"host": "127.9.9.9"}, False), ({"host": "::1"}, False),
        ({"host": "localhost"}, False), ({"host": "0.0.0.0"}, True), ({"host": "::"}, True),
        ({"host": "10.1.2.3"}, True), ({"host": "example.org"}, True),
        ({"host": "0.0.0.0", "keys": "k"}, False),
        ({"host": "0.0.0.0", "tls_cert": "c", "tls_key": "k", "tls_client_ca": "a"}, False),
        ({"host": "0.0.0.0", "tls_cert": "c", "tls_key": "k"}, True),
    ],
)  # fmt: skip
def test_strangers_and_nobody_asks(settings: dict[str, Any], warned: bool) -> None:
    from ox.serve.config.server_config import ServerConfig

    for manage in (False, True):
        warning = ServerConfig(**settings, manage=manage).exposed()
        assert (warning is not None) is warned
        assert warning is None or ("load and unload" in warning) is manage
