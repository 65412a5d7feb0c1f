"""Ids of requests, and the access log."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from ox.clock import SYSTEM
from ox.serve import ModelConfig, Server
from ox.serve.telemetry.access_log import AccessLog
from ox.serve.telemetry.logs import LOGGER, Log

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize("given", [b"a", b"7f3c-1", b"req:1/2+3=@x._", b"x" * 128])
def test_a_decent_id_is_kept(given: bytes) -> None:
    assert AccessLog(False, SYSTEM).identify({b"x-request-id": given}) == given


@pytest.mark.parametrize("given", [b"", b"-a", b"a b", b"a\nb", b"a\n", b"x" * 129, "é".encode(), b'"', b"a, b"])
def test_another_one_is_replaced(given: bytes) -> None:
    access_log = AccessLog(False, SYSTEM)
    first, second = access_log.identify({b"x-request-id": given}), access_log.identify({})
    assert first != second and all(re.fullmatch(rb"[0-9a-f]{12}-[0-9a-f]+", ident) for ident in (first, second))


def test_workers_make_different_ids() -> None:
    assert AccessLog(False, SYSTEM).identify({}) != AccessLog(False, SYSTEM).identify({})


@pytest.mark.parametrize(
    ("parent", "trace"),
    [
        (PARENT, TRACE),
        (f"cc{PARENT[2:]}-more", TRACE),  # a later version of the header
        (PARENT.upper(), None),
        (PARENT[:-1], None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        ("", None),
    ],
)
def test_the_clients_trace(parent: str, trace: str | None) -> None:
    entry = AccessLog(False, SYSTEM).fields({b"traceparent": parent.encode()}, b"1")
    assert entry == ({"request_id": "1"} if trace is None else {"request_id": "1", "trace_id": trace})


@pytest.fixture(scope="module")
def logged(mlp: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server with an access log, and the file that its lines go to."""
    path = tmp_path_factory.mktemp("log") / "lines"
    with path.open("w") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ox.serve.telemetry.telemetry.Log", lambda form, level: Log(form, level, stream))
        with Server([mlp], options=ModelConfig(device="cpu", instances=1), log="json", access_log=True) as server:
            yield server, path


def asked(logged: tuple[Server, Path], connect: Any, target: str, headers: dict[str, str]) -> tuple[Any, list[Any]]:
    """The answer, and the lines of the log that hold its id, once they are there."""
    server, path = logged
    with connect(server) as client:
        answer = client.ask("GET", target, headers=headers)
    ident = answer[1]["x-request-id"]
    found: list[Any] = []

    def is_there() -> bool:
        found[:] = [line for line in map(json.loads, path.read_text().splitlines()) if line.get("request_id") == ident]
        return any(line["message"] == "request" for line in found)

    wait_until(is_there)  # a thread writes the log
    return answer, found


def test_a_line_for_a_request(logged: tuple[Server, Path], connect: Any) -> None:
    _, (line,) = asked(logged, connect, "/v2?a=%0a", {"x-request-id": "mine", "traceparent": PARENT})
    assert {**line, "time": "", "ms": 0, "bytes": 0} == {
        "time": "", "level": "info", "message": "request", "method": "GET", "target": "/v2?a=%0a", "status": 200,
        "bytes": 0, "ms": 0, "peer": "127.0.0.1", "request_id": "mine", "trace_id": TRACE,
    }  # fmt: skip
    assert line["ms"] > 0 and line["bytes"] > 10


def test_an_error_of_ours_is_logged_with_its_stack_and_told_without(
    logged: tuple[Server, Path], connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise ZeroDivisionError("a secret of ours")

    monkeypatch.setattr(logged[0].service, "server_metadata", broken)
    (status, headers, body), found = asked(logged, connect, "/v2", {})
    assert status == 500 and b"secret" not in body and re.fullmatch(r"[0-9a-f]{12}-[0-9a-f]+", headers["x-request-id"])
    error, line = found  # both have the id that the client got
    assert "ZeroDivisionError: a secret of ours" in error["stack"] and error["level"] == "error"
    assert line["status"] == 500


def test_without_a_log_there_are_no_ids(server: Server, client: Any) -> None:
    _, headers, _ = client.ask("GET", "/v2", headers={"x-request-id": "mine"})
    assert "x-request-id" not in headers


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger of all servers of this process, at a level that none of them sets; at the end as it was."""
    before = LOGGER.level
    LOGGER.setLevel(17)
    yield LOGGER
    LOGGER.setLevel(before)


def test_without_a_log_the_logger_stays_as_it_is(mlp: Path, connect: Any, logger: logging.Logger) -> None:
    """A program that runs a server in a thread has its own settings."""
    before = logger.propagate, list(logger.handlers), list(logger.filters)
    with Server([mlp], options=ModelConfig(device="cpu", instances=1)) as server, connect(server) as client:
        assert client.ask("GET", "/v2")[0] == 200
        assert logger.level == 17 and (logger.propagate, logger.handlers, logger.filters) == before
    assert logger.level == 17 and (logger.propagate, logger.handlers, logger.filters) == before


def test_equal_requests_have_different_ids(logged: tuple[Server, Path], connect: Any) -> None:
    """Also where the server remembers what it made of equal heads."""
    with connect(logged[0]) as client:
        idents = [client.ask("GET", "/v2")[1]["x-request-id"] for _ in range(5)]
    assert len(set(idents)) == 5
