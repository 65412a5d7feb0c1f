"""The data plane of HTTP/2: bytes of a socket to streams and back. It knows nothing of inference or gRPC."""

from __future__ import annotations

from ox.serve.http2.exchange import Plain
from ox.serve.http2.front import Http2
from ox.serve.http2.headers import Block, Head, Maker
from ox.serve.http2.stream import Stream

__all__ = ["Block", "Head", "Http2", "Maker", "Plain", "Stream"]
