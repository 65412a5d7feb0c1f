"""Questions and answers over a socket pair."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from manual_clock import pass_time, run_jumping

from ox.errors import LoadError, ServeError
from ox.serve.workers.control_channel import ControlChannel


async def echo(call: str, arguments: dict[str, Any]) -> Any:
    if call == "load":
        raise LoadError("m.onnx is damaged", where="node 3", got="nonsense", hint="another file")
    if call == "find":
        raise ServeError("there is no model 'x'", status=404, expected="'y'")
    if call == "fail":
        raise ZeroDivisionError("a secret")
    if call == "never":
        await asyncio.Event().wait()
    await pass_time(arguments.get("after", 0))
    return [call, arguments]


def linked(body: Callable[[ControlChannel, ControlChannel], Awaitable[None]]) -> None:
    """Runs `body` with both ends of a link."""

    async def run() -> None:
        ends = []
        for end in socket.socketpair():
            reader, writer = await asyncio.open_unix_connection(sock=end)
            ends.append(ControlChannel(reader, writer, echo))
        reading = [asyncio.ensure_future(end.run()) for end in ends]
        await body(*ends)
        for end in ends:
            end.close()
        await asyncio.gather(*reading)

    run_jumping(run())


def test_answers_find_their_questions() -> None:
    async def body(one: ControlChannel, other: ControlChannel) -> None:
        asked = [one.ask("a", {"after": 0.05, "n": 1}), one.ask("b", {"n": 2}), other.ask("c")]
        assert await asyncio.gather(*asked) == [["a", {"after": 0.05, "n": 1}], ["b", {"n": 2}], ["c", {}]]

    linked(body)


def test_errors_keep_their_class_and_words(caplog: pytest.LogCaptureFixture) -> None:
    async def body(one: ControlChannel, other: ControlChannel) -> None:
        with pytest.raises(LoadError, match="damaged") as load:
            await one.ask("load")
        assert load.value.fields() == {"in": "node 3", "got": "nonsense", "try": "another file"}
        with pytest.raises(ServeError, match="no model 'x'") as found:
            await other.ask("find")
        assert found.value.status == 404 and found.value.expected == "'y'"
        with pytest.raises(ServeError, match="the server failed") as failed:
            await one.ask("fail")
        assert failed.value.status == 500 and "secret" not in str(failed.value) and "a secret" in caplog.text

    linked(body)


def test_nobody_waits_for_who_is_gone_or_silent() -> None:
    async def body(one: ControlChannel, other: ControlChannel) -> None:
        with pytest.raises(ServeError, match=r"did not answer 'never' in 0\.05 s"):
            await one.ask("never", seconds=0.05)
        waiting = asyncio.ensure_future(one.ask("never"))
        await pass_time(0.05)  # the question comes to the other side
        other.close()
        for late in (waiting, asyncio.ensure_future(one.ask("never"))):
            with pytest.raises(ServeError, match="has ended"):
                await late

    linked(body)


def test_a_line_cut_short_is_the_end() -> None:
    async def body() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        channel = ControlChannel(reader, writer, echo)
        reading = asyncio.ensure_future(channel.run())
        waiting = asyncio.ensure_future(channel.ask("a"))
        await pass_time(0.05)
        theirs.send(b'{"answer": 0, "val')
        theirs.close()
        with pytest.raises(ServeError, match="has ended"):
            await waiting
        await reading

    run_jumping(body())
