"""A whole measurement: against ox's own server, and against servers that misbehave; every request is accounted for."""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from rows import rows

from ox.bench import Plan, Result, run, worker
from ox.bench.address import Address, parse
from ox.bench.completions import build
from ox.bench.pool import Pool
from ox.bench.recorder import Recorder
from ox.errors import ArgumentError, ServeError

if TYPE_CHECKING:
    from ox.serve import Server

RIGHT = {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]}
Load = Callable[..., Result]


@pytest.mark.parametrize("scheme", ["http", "grpc"])
@pytest.mark.parametrize(
    "options", [{}, {"binary": False}, {"rates": (200.0,)}, {"rates": (200.0,), "arrivals": "constant"}]
)
def test_our_own_server(here: Load, server: Server, scheme: str, options: dict[str, Any]) -> None:
    url = f"{scheme}://127.0.0.1:{server.port}"
    (step,) = here(url, model="mlp", check=True, **options).steps
    assert step.answered and not step.failures.counts and not step.failed_early.counts
    assert 0 < step.percentile(50) <= step.percentile(99) <= step.histogram.largest


def test_a_server_below_a_path(here: Load, server: Server, mlp: Path) -> None:
    from ox.serve import Server

    with pytest.raises(ServeError, match="there is no /a/b/v2/models/mlp"):
        here(f"{server.url}/a/b", model="mlp")
    with Server([mlp], root_path="/a/b") as published:
        (step,) = here(f"{published.url}/a/b", model="mlp").steps
    assert step.answered and not step.failures.counts
    address = parse("http://a/x/")
    assert build(address, "m", "p", 1).startswith(b"POST /x/v1/completions HTTP/1.1\r\n")


@pytest.mark.parametrize("scheme", ["unix", "grpc+unix"])
def test_a_unix_domain_socket(mlp: Path, scheme: str) -> None:
    from ox.serve import ModelConfig, Server

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/ox.sock"
        with Server([mlp], uds=path, port=None, options=ModelConfig(device="cpu", instances=1)):
            result = run(f"{scheme}:{path}", Plan(concurrency=(3,), seconds=0.2, warmup=0.1), model="mlp")
        assert result.good and result.steps[0].answered and not result.steps[0].failed
        with pytest.raises(ServeError, match=f"no answer from {scheme.replace('+', '.')}:{path}"):
            run(f"{scheme}:{path}", Plan(concurrency=(3,), seconds=0.2), model="mlp")


def test_each_connection_reads_its_own_first_headers(here: Load, server: Server) -> None:
    """They change the state of the decoder, so they must not be taken for those of another connection."""
    (step,) = here(f"grpc://127.0.0.1:{server.port}", model="mlp", concurrency=(40,)).steps
    assert step.answered and not step.failures.counts


def test_several_processes_and_steps(server: Server) -> None:
    plan = Plan(concurrency=(2, 3), seconds=0.2, warmup=0.1, processes=2)
    lines: list[str] = []
    result = run(server.url, plan, model="mlp", show=lines.append)
    assert [step.clients for step in result.steps] == [2, 3] and lines == ["2 clients", "3 clients"]
    assert all(step.answered and not step.failed for step in result.steps) and result.good


def test_every_request_is_accounted_for(here: Load, raw: Any, make_reply: Any) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        if number % 5 == 1:
            writer.write(make_reply({"error": "full"}, 503))
        elif number % 5 == 2:
            writer.write(make_reply({"error": "late"}, 504))
        elif number % 11 == 3:
            writer.close()
        else:
            writer.write(make_reply(RIGHT))

    with raw(behave) as server:
        result = here(server.url, binary=False)
        (step,) = result.steps
        assert step.answered + step.failed == server.asked
    counts = step.failures.counts
    assert set(counts) == {"HTTP 503", "HTTP 504", "closed"}
    assert counts["HTTP 503"] >= step.answered / 5 and counts["closed"] == step.reconnects > 0
    assert json.loads(step.failures.examples["HTTP 503"]) == {"error": "full"}
    assert result.good  # refusals are an outcome, and not a wrong answer


def wrong(document: Any) -> dict[str, Any]:
    return {"outputs": [{**RIGHT["outputs"][0], **document}]}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"outputs": []}, "wrong: outputs []"),
        (wrong({"name": "z"}), "wrong: outputs ['z']"),
        (wrong({"shape": [2, 1]}), "wrong: 'y' is FP32 [2, 1], was FP32 [1, 2]"),
        (wrong({"datatype": "FP64"}), "wrong: 'y' is FP64 [1, 2], was FP32 [1, 2]"),
        (wrong({"data": [1.0]}), "wrong: unreadable"),
        (wrong({"data": [1.0, 2.5]}), "wrong: other values of 'y'"),
        (b"nonsense", "wrong: unreadable"),
        (b"", "wrong: unreadable"),
    ],
)
def test_wrong_answers(here: Load, raw: Any, make_reply: Any, answer: Any, kind: str) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(make_reply(answer))

    with raw(behave) as server:
        result = here(server.url, binary=False, check=True, seconds=0.1)
        assert result.steps[0].failed == server.asked
    (found,) = result.steps[0].failures.counts
    assert found.startswith(kind) and not result.good


def test_values_count_only_when_asked(here: Load, raw: Any, make_reply: Any) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(make_reply(wrong({"data": [1.0, 2.5 + number]})))

    with raw(behave) as server:
        (step,) = here(server.url, binary=False, seconds=0.1).steps
        assert step.answered == server.asked and not step.failed


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nshort", "timeout"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}{}", "wrong: unexpected bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "wrong: not HTTP"),
        (b"SSH-2.0-x\r\n\r\n", "wrong: not HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "wrong: not HTTP"),
        (b"HTTP/1.1 200 OK\r\nno header\r\n\r\n", "wrong: not HTTP"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "wrong: not HTTP"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n", "wrong: not HTTP"),
        (b"a" * 70_000, "wrong: not HTTP"),
        (b"", "timeout"),
    ],
)
def test_what_is_no_answer(here: Load, raw: Any, data: bytes, kind: str) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    with raw(behave) as server:
        timeout = 0.15 if kind == "timeout" else 30.0
        (step,) = here(server.url, binary=False, seconds=0.1, timeout=timeout).steps
        counts = dict(step.failures.counts)
        unconnected = counts.pop("connect", 0) if kind == "timeout" else 0  # of a busy machine, within so short a time
        assert set(counts) == {kind} and not step.answered
        assert step.failed - unconnected == server.asked > 0


def test_a_connection_that_took_too_long_is_one_failure(
    here: Load, raw: Any, make_reply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio closes it when it is cancelled, and tells its protocol: no answer of the server."""
    connect, tried = Address.connect, 0

    async def slow(self: Address, factory: Callable[[], Any], context: Any) -> Any:
        nonlocal tried
        tried += 1
        if tried > 2:
            return await connect(self, factory, context)
        protocol = factory()
        try:
            protocol.connection_made(mock.Mock())
            await asyncio.Event().wait()
        finally:
            protocol.connection_lost(None)

    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(make_reply(RIGHT))

    monkeypatch.setattr(Address, "connect", slow)
    with raw(behave) as server:
        (step,) = here(server.url, binary=False, timeout=0.15).steps
    counts = step.failures.counts
    assert step.answered and set(counts) <= {"connect", "timeout"} and counts["connect"] >= 2


def test_answers_in_pieces_in_chunks_and_by_new_connections(here: Load, raw: Any, make_reply: Any) -> None:
    body = json.dumps(RIGHT).encode()

    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        if number % 3 == 0:
            for byte in make_reply(RIGHT):
                writer.write(bytes((byte,)))
                if number < 12:
                    await asyncio.sleep(0)  # noqa: TID251  # the loop sends this byte
        elif number % 3 == 1:
            head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
            writer.write(head + b"3;x=y\r\n" + body[:3] + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.001)  # noqa: TID251  # the client reads it in two pieces
            writer.write(b"%x\r\n" % len(body[3:]) + body[3:] + b"\r\n0\r\ntrailer: 1\r\n\r\n")
        else:
            writer.write(make_reply(RIGHT, connection="close"))
            writer.close()

    with raw(behave) as server:
        (step,) = here(server.url, binary=False).steps
        assert step.answered == server.asked and not step.failed and (step.reconnects or server.asked <= 3)


def test_a_stall_is_charged_to_everybody_who_would_have_come(here: Load, raw: Any, make_reply: Any) -> None:
    """One connection, 200 requests a second, and a server that holds one of them for 0.4 s: 80 are late, not one."""

    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        if number == 10:
            await asyncio.sleep(0.4)  # noqa: TID251  # what the client measures
        writer.write(make_reply(RIGHT))

    with raw(behave) as server:
        result = here(server.url, binary=False, rates=(200.0,), arrivals="constant", concurrency=(1,), seconds=0.6)
    (step,) = result.steps
    assert step.answered == 120 and not step.failed
    assert step.percentile(60) > 0.1


def test_what_cannot_be_sent_in_time_is_not_forgotten(here: Load, raw: Any) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    with raw(behave) as server:
        plan: dict[str, Any] = {"rates": (100.0,), "arrivals": "constant", "concurrency": (2,), "timeout": 0.1}
        (step,) = here(server.url, binary=False, seconds=0.5, **plan).steps
    assert step.failures.counts["timeout"] == 50 and not step.answered
    # a busy machine may need more than 0.1 s for a connection, too, which is counted beside the requests
    assert set(step.failures.counts) <= {"timeout", "connect", "closed"}


def test_a_server_that_goes_away(here: Load, raw: Any, make_reply: Any) -> None:
    """What is refused while it is gone counts as failed, and the load ends in time."""

    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(make_reply(RIGHT))
        if number == 20:
            listener.over.set()

    with raw(behave) as listener:
        (step,) = here(listener.url, binary=False, seconds=0.5, timeout=0.5).steps
    assert step.answered and step.failures.counts["connect"] and set(step.failures.counts) <= {"connect", "closed"}


def test_requests_differ_and_name_what_they_send(here: Load, raw: Any, make_reply: Any) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(make_reply(RIGHT))

    with raw(behave) as server:
        here(server.url, binary=True, rows=3, key="secret")
        head, body = server.heads[-1].decode(), server.bodies[-1]
        assert len(set(server.bodies)) == 8
        length = int(head.split("inference-header-content-length: ")[1].split("\r\n")[0])
        (entry,) = json.loads(body[:length])["inputs"]
        assert entry["shape"] == [3, 2] and len(body) - length == 24 == entry["parameters"]["binary_data_size"]
        assert "authorization: Bearer secret\r\n" in head and "POST /v2/models/m/infer HTTP/1.1\r\n" in head


def test_data_of_a_file(here: Load, server: Server, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((2, 64)))
    result = here(server.url, model="mlp", data=tmp_path / "x.npz")
    assert result.sent == "x FP32 [2, 64]" and result.steps[0].answered


@pytest.mark.parametrize(
    ("metadata", "answer", "words"),
    [
        ({}, RIGHT, "metadata of m cannot be read"),
        ({"inputs": [], "outputs": []}, RIGHT, "metadata of m cannot be read"),
        (None, {"outputs": []}, "the output 'y' is missing"),
        (None, {"outputs": [{**RIGHT["outputs"][0], "shape": [1, 1, 2]}]}, r"expected \[-1, 2\]"),
        (None, {"outputs": [*RIGHT["outputs"], {**RIGHT["outputs"][0], "name": "z"}]}, "an output 'z'"),
        (None, wrong({"datatype": "INT32", "data": [1, 2]}), "is INT32, expected FP32"),
        (None, b"?", "cannot be read"),
    ],
)
def test_the_first_answer_must_be_what_was_promised(
    here: Load, raw: Any, make_reply: Any, metadata: Any, answer: Any, words: str
) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(make_reply(answer))

    options = {} if metadata is None else {"metadata": metadata}
    with raw(behave, probes=0, **options) as server, pytest.raises(ServeError) as caught:
        here(server.url, binary=False)
    assert words.replace("\\", "") in str(caught.value)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_servers_that_are_not_there_or_say_no(here: Load, server: Server, scheme: str) -> None:
    with pytest.raises(ServeError, match="no answer") as caught:
        here(f"{scheme}://127.0.0.1:1", model="mlp")
    assert "ox serve" in str(caught.value.hint)
    with pytest.raises(ServeError, match="the request for model nothing failed") as caught:
        here(f"{scheme}://127.0.0.1:{server.port}", model="nothing")
    assert ("404" if scheme == "http" else "NOT_FOUND") in str(caught.value.got)


@pytest.mark.parametrize("metadata", [["m"], None, "m", 3, {"inputs": [1], "outputs": {}}, {"inputs": [{"name": "x"}]}])
def test_metadata_of_odd_servers(here: Load, raw: Any, metadata: Any) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        return

    with raw(behave, metadata=metadata) as server, pytest.raises(ServeError, match="metadata of m") as caught:
        here(server.url, model="m")
    assert "name, datatype and shape" in str(caught.value.expected) and "Error" not in str(caught.value.got)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_tls_where_there_is_none(here: Load, server: Server, scheme: str) -> None:
    with pytest.raises(ServeError, match="no answer") as caught:
        here(f"{scheme}s://127.0.0.1:{server.port}", model="mlp")
    assert "TLS failed" in str(caught.value.got) and f"{scheme}://127.0.0.1" in str(caught.value.hint)


def test_a_refused_first_request(here: Load, raw: Any, make_reply: Any) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(make_reply({"error": "ids out of range"}, 400))

    with raw(behave, probes=0) as server, pytest.raises(ServeError, match="refuses the first request") as caught:
        here(server.url)
    assert "HTTP 400" in str(caught.value.got) and "ids out of range" in str(caught.value.got)


@rows(
    "plan",
    [
        {"concurrency": (0,)},
        {"seconds": 0.0},
        {"rates": (0.0,)},
        {"timeout": 0.0},
        {"processes": 2, "concurrency": (1,)},
        {"arrivals": "often"},
        {"rows": 0},
        {"rates": (1.0,), "concurrency": (1, 2)},
    ],
)
def test_plans_that_make_no_sense(plan: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        Plan(**plan)


class Full:
    """Takes the first connections, and refuses the rest: with an answer before any question, or by closing them."""

    def __init__(self, server: Any, most: int, refusal: bytes) -> None:
        self.server, self.most, self.refusal, self.open, self.refused = server, most, refusal, 0, 0
        self.whole = server._client
        server._client = self.client

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.open >= self.most:
            self.refused += 1
            writer.write(self.refusal)
            writer.close()
            return
        self.open += 1
        try:
            await self.whole(reader, writer)
        finally:
            self.open -= 1


class Paced(Recorder):
    """Measures from a failure in the warm-up until there are `ENOUGH` and a right answer, by no clock."""

    ENOUGH = 20

    def failed(self, meant: float, kind: str, example: str = "") -> None:
        super().failed(meant, kind, example)
        if meant < self.start < math.inf:  # the warm-up has begun
            self.start = meant
        if self.times and sum(self.failures.counts.values()) >= self.ENOUGH:
            self.stop = self.start


@pytest.mark.parametrize("load", [{"concurrency": (12,)}, {"rates": (100.0,), "concurrency": (12,)}])
@pytest.mark.parametrize("warmup", [0.0, 60.0])
@pytest.mark.parametrize("kind", ["HTTP 503", "closed"])
def test_clients_that_are_refused_count(
    here: Load, raw: Any, make_reply: Any, monkeypatch: Any, kind: str, warmup: float, load: dict[str, Any]
) -> None:
    """Some never get a connection: each is seen among the failures, and none in a warm-up that there was not."""

    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(make_reply(RIGHT))

    monkeypatch.setattr(worker, "Recorder", Paced)
    made = raw(behave)
    full = Full(made, 4, make_reply({"error": "too many"}, 503) if kind == "HTTP 503" else b"")
    with made as server:
        (step,) = here(server.url, model="m", binary=False, seconds=60.0, warmup=warmup, **load).steps
    assert step.answered and set(step.failures.counts) <= {kind, "closed", "connect"}
    assert step.failures.counts[kind] and step.failed >= Paced.ENOUGH
    # one refusal for each client may arrive when the load is over
    assert step.failed + sum(step.failed_early.counts.values()) >= full.refused - 12
    assert bool(step.failed_early.counts) == bool(warmup)


def test_a_connection_that_fails_among_others_counts(
    here: Load, raw: Any, make_reply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(make_reply(RIGHT))

    true, tried = Pool._connect, 0

    async def connect(self: Pool, refusals: int) -> Any:
        nonlocal tried
        tried += 1
        if tried > 3:
            raise OSError("no descriptors left")
        return await true(self, refusals)

    monkeypatch.setattr(Pool, "_connect", connect)
    with raw(behave) as server:
        (step,) = here(server.url, binary=False, concurrency=(5,), seconds=0.2).steps
    assert step.answered and step.failures.counts == {"connect": tried - 3} and tried >= 5
    assert step.failures.examples == {"connect": "no descriptors left"}
