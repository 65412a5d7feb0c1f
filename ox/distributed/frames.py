"""The messages of the store and of `ox launch`: a length of four bytes and a JSON object. Imports nothing of ox.

A connection begins with three frames: the server's greeting with a random number, the client's hello, the reply. Hello
and reply carry an HMAC over that number, with the token as key. Lengths are limited, and nothing that is received is
executed or unpickled.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import socket
from typing import Any

TOKEN = "OX_RENDEZVOUS_TOKEN"  # the environment variable with the secret of the ranks
HEARTBEAT = "OX_HEARTBEAT_TIMEOUT"  # the environment variable with the seconds after which a silent rank counts as hung
HEARTBEAT_TIMEOUT = 60.0
LONGEST = 1e6  # the longest time limit in seconds, for the clock of asyncio
PROTOCOL = 3
FRAME = 1 << 16  # the largest frame that the server takes, in bytes
LARGEST = 1 << 24  # the largest that a client takes of a server that has proved that it knows the token
TEXT = 200  # characters of a text that a rank sends and others are shown
MAC = 32  # bytes of an HMAC
HANDSHAKE = 10.0  # seconds in which a connection must say hello
SPARE = 256  # connections beside those of the ranks that may have said no hello yet


def token() -> bytes:
    """The secret of the ranks; empty if there is none."""
    return os.environ.get(TOKEN, "").encode()


def heartbeat_timeout() -> float:
    """Seconds without a heartbeat after which a rank counts as hung; 0: never. Raises ValueError for no such number."""
    limit = float(os.environ.get(HEARTBEAT) or HEARTBEAT_TIMEOUT)
    if limit != 0 and not 1 <= limit <= LONGEST:
        raise ValueError("a time limit that is none")
    return limit


def mac(secret: bytes, kind: bytes, nonce: str, body: bytes) -> bytes:
    """Proves that the sender of a frame knows the token, and that the frame answers this nonce."""
    return hmac.digest(secret, kind + nonce.encode() + body, hashlib.sha256)


def frame(content: dict[str, Any], secret: bytes | None = None, kind: bytes = b"", nonce: str = "") -> bytes:
    """A frame to send, with an HMAC in front of the content if there is a `secret`."""
    body = json.dumps(content).encode()
    body = body if secret is None else mac(secret, kind, nonce, body) + body
    return len(body).to_bytes(4, "big") + body


def content(body: bytes) -> dict[str, Any]:
    """The object in a frame. Raises ValueError if there is none."""
    try:
        found = json.loads(body)
    except RecursionError:
        raise ValueError("a frame is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("a frame holds a JSON object")
    return found


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """The body of the next frame. Raises ValueError for one that is too long, EOFError at the end."""
    length = int.from_bytes(await reader.readexactly(4), "big")
    if not 1 < length <= FRAME:
        raise ValueError("a frame of this length is none of ours")
    return await reader.readexactly(length)


class Greeter:
    """Greets clients. `most` connections may have said no hello yet: one more closes the oldest, so that those who only
    connect keep nobody out."""

    def __init__(self, secret: bytes, most: int) -> None:
        self._secret, self.most = secret, most
        self._silent: dict[asyncio.StreamWriter, None] = {}

    async def greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, failed: bool
    ) -> tuple[dict[str, Any], bool]:
        """Greets a client. Returns its hello, and whether it knows the token. Raises ValueError for none of ours."""
        self._silent[writer] = None
        if len(self._silent) > self.most:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()
        nonce = secrets.token_hex(16)
        try:
            writer.write(frame({"store": "ox", "protocol": PROTOCOL, "nonce": nonce, "failed": failed}))
            body = await asyncio.wait_for(read_frame(reader), HANDSHAKE)
        finally:
            self._silent.pop(writer, None)
        hello = content(body[MAC:])
        return hello, hmac.compare_digest(body[:MAC], mac(self._secret, b"hello", nonce, body[MAC:]))


def reply(content: dict[str, Any], secret: bytes, hello: dict[str, Any]) -> bytes:
    """The frame that answers a hello."""
    return frame(content, secret, b"reply", hello["nonce"])


def keep_alive(connection: socket.socket) -> None:
    """Asks the system to end a connection whose other machine does not answer for about 30 seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
