"""Questions and answers between the supervisor and a worker: lines of JSON over a socket pair, both ways at once."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from ox import errors
from ox.errors import OxError, ServeError

log = logging.getLogger("ox.serve")

Answer = Callable[[str, dict[str, Any]], Awaitable[Any]]
LONGEST = 1 << 30  # bytes of a line: a model's file may travel in it
FIELDS = ("what", "where", "expected", "got", "hint")


class Link:
    """One end. `answer` gets what the other side asks: the call's name and its arguments.

    An OxError that `answer` raises is raised again on the other side, of the same class.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
        self._reader, self._writer, self._answer = reader, writer, answer
        self._numbers = itertools.count()
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, call: str, arguments: dict[str, Any] | None = None, seconds: float | None = None) -> Any:
        """The other side's answer.

        Raises:
            OxError: what the other side raised. ServeError (503): it is gone, or does not answer in time.
        """
        if self._writer.is_closing():  # nobody would ever end the wait
            raise _ended()
        number = next(self._numbers)
        future = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"ask": number, "call": call, "with": arguments or {}})
            return await asyncio.wait_for(future, seconds)
        except TimeoutError:
            raise ServeError(f"a worker did not answer '{call}' in {seconds:g} s", status=503) from None
        finally:
            del self._open[number]

    def tell(self, call: str, arguments: dict[str, Any]) -> None:
        """Like `ask`, for what needs no answer."""
        self._send({"ask": next(self._numbers), "call": call, "with": arguments})

    async def run(self) -> None:
        """Reads until the other side is gone."""
        try:
            while line := await self._reader.readline():
                message = orjson.loads(line)
                if "ask" in message:
                    task = asyncio.ensure_future(self._reply(message))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                elif (future := self._open.get(message["answer"])) is not None and not future.done():
                    error = message.get("error")
                    if error is None:
                        future.set_result(message["value"])
                    else:
                        future.set_exception(_revived(error))
        except (ConnectionError, ValueError):  # killed, perhaps in the middle of a line; or a line of over LONGEST
            log.debug("a link broke off", exc_info=True)
        for future in self._open.values():
            if not future.done():
                future.set_exception(_ended())
        for task in self._tasks:  # nobody waits for these answers
            task.cancel()
        self.close()

    def close(self) -> None:
        """Says goodbye: the other side's `run` ends."""
        self._writer.close()

    async def _reply(self, message: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"answer": message["ask"]}
        try:
            reply["value"] = await self._answer(message["call"], message["with"])
        except Exception as error:
            if not isinstance(error, OxError):
                log.exception("the call '%s' failed", message["call"])
                error = ServeError("the server failed on this request", status=500, hint="its log")
            reply["error"] = flattened(error)
        self._send(reply)

    def _send(self, message: dict[str, Any]) -> None:
        if not self._writer.is_closing():
            self._writer.write(orjson.dumps(message) + b"\n")


def _ended() -> ServeError:
    return ServeError("a worker has ended", status=503, hint="again in a moment")


def flattened(error: OxError) -> dict[str, Any]:
    """An error as JSON."""
    fields = {name: getattr(error, name) for name in FIELDS}
    return {"kind": type(error).__name__, "status": getattr(error, "status", None), **fields}


def _revived(error: dict[str, Any]) -> OxError:
    kind, status, what = error.pop("kind"), error.pop("status"), error.pop("what")
    if kind == "ServeError":
        return ServeError(what, status=status, **error)
    found: type[OxError] = getattr(errors, kind, OxError)
    return found(what, **error)
