"""The data plane of HTTP/1.1: bytes of a socket to exchanges and back. It knows nothing of inference."""

from __future__ import annotations

from ox.serve.http.exchange import JSON, Exchange
from ox.serve.http.front import Front

__all__ = ["JSON", "Exchange", "Front"]
