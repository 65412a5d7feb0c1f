"""Connections to the store and to the coordinator of `ox launch`."""

from __future__ import annotations

import hmac
import secrets
import socket
from typing import Any

from ox._version import __version__
from ox.clock import Clock
from ox.distributed import frames
from ox.errors import DistributedError

REPLY_TIMEOUT = 10.0  # seconds in which a server answers


class NoStore(Exception):
    """Nobody listens at an address, or something that is no store."""


def connect(host: str, port: int, hello: dict[str, Any], until: float, where: str, clock: Clock) -> socket.socket:
    """A connection that both sides have found genuine. Raises NoStore, OSError or DistributedError."""
    patience = max(0.1, min(REPLY_TIMEOUT, until - clock.now()))
    connection = socket.create_connection((host, port), timeout=patience)
    frames.keep_alive(connection)
    try:
        greeting = receive(connection)
        if greeting.get("store") != "ox" or "nonce" not in greeting:
            raise NoStore("something that is no store of ox")
        if greeting.get("protocol") != frames.PROTOCOL:
            raise DistributedError(f"the store at {host}:{port} is of another version of ox",
                                   where=where, expected=f"ox {__version__}")  # fmt: skip
        nonce, secret = secrets.token_hex(16), frames.token()
        words = {**hello, "nonce": nonce, "remaining": max(0.0, until - clock.now())}
        connection.sendall(frames.frame(words, secret, b"hello", str(greeting["nonce"])))
        answer = receive(connection, secret, nonce)
        if answer is None and greeting.get("failed"):
            raise NoStore("a store of an earlier attempt")
        if answer is None:
            raise DistributedError(
                f"the store at {host}:{port} has another token", where=where,
                hint=f"the environment variable {frames.TOKEN} must be the same on all ranks",
            )  # fmt: skip
        if "error" in answer:
            raise DistributedError(str(answer["error"]), where=where, expected=answer.get("expected"),
                                   got=answer.get("got"))  # fmt: skip
        if "refused" in answer:
            raise NoStore(f"a store of ox, but {answer['refused']}")
    except BaseException as error:
        connection.close()
        if isinstance(error, ValueError):
            raise NoStore("something that is no store of ox") from error
        raise
    return connection


def receive(connection: socket.socket, secret: bytes | None = None, nonce: str = "") -> Any:
    """The next frame; None if it should prove that the store knows the `secret`, and does not."""
    body = _read(connection, int.from_bytes(_read(connection, 4), "big"))
    if secret is None:
        return frames.content(body)
    proof, body = body[: frames.MAC], body[frames.MAC :]
    return frames.content(body) if hmac.compare_digest(proof, frames.mac(secret, b"reply", nonce, body)) else None


def _read(connection: socket.socket, count: int) -> bytes:
    if count > frames.LARGEST:
        raise ValueError("a frame of this length is none of ours")
    data = b""
    while len(data) < count:
        part = connection.recv(min(count - len(data), 1 << 16))
        if not part:
            raise ConnectionResetError("the connection has ended")
        data += part
    return data
