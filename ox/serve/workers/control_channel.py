"""Remote procedure calls between supervisor and worker: JSON lines over a socket pair, in both directions."""

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


class ControlChannel:
    """One end of the channel. `answer` handles the other side's calls: name and arguments.

    An OxError that `answer` raises is raised again on the other side, of the same class.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
        self._reader, self._writer, self._answer = reader, writer, answer
        self._numbers = itertools.count()
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, call: str, arguments: dict[str, Any] | None = None, seconds: float | None = None) -> Any:
        """Sends a call and returns the other side's response.

        Raises:
            OxError: what the other side raised. ServeError (503): it is gone, or does not answer in time.
        """
        if self._writer.is_closing():  # the wait would never end
            raise _worker_ended()
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
        """Sends a call without waiting for a response."""
        self._send({"ask": next(self._numbers), "call": call, "with": arguments})

    async def run(self) -> None:
        """Reads messages until the other side disconnects."""
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
                        future.set_exception(_error_from_json(error))
        except (ConnectionError, ValueError):  # killed, perhaps in the middle of a line; or a line of over LONGEST
            log.debug("a control channel broke", exc_info=True)
        for future in self._open.values():
            if not future.done():
                future.set_exception(_worker_ended())
        for task in self._tasks:  # these answers are not needed
            task.cancel()
        self.close()

    def close(self) -> None:
        """Closes the connection; the other side's `run` ends."""
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


def _worker_ended() -> ServeError:
    return ServeError("a worker has ended", status=503, hint="again in a moment")


def flattened(error: OxError) -> dict[str, Any]:
    """An error as JSON."""
    fields = {name: getattr(error, name) for name in FIELDS}
    return {"kind": type(error).__name__, "status": getattr(error, "status", None), **fields}


def _error_from_json(error: dict[str, Any]) -> OxError:
    kind, status, what = error.pop("kind"), error.pop("status"), error.pop("what")
    if kind == "ServeError":
        return ServeError(what, status=status, **error)
    found: type[OxError] = getattr(errors, kind, OxError)
    return found(what, **error)
