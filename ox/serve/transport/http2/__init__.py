"""HTTP/2: from bytes of a socket to streams and back.

Imports ox.serve.transport, ox.serve.config and ox.serve.response_memory only.
"""

from __future__ import annotations

from ox.serve.transport.http2.exchange import HttpStream
from ox.serve.transport.http2.headers import Head, HeaderBlock, StreamFactory
from ox.serve.transport.http2.stream import Stream
from ox.serve.transport.http2.upgrade import Http2

__all__ = ["Head", "HeaderBlock", "Http2", "HttpStream", "Stream", "StreamFactory"]
