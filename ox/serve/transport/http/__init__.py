"""HTTP/1.1: from bytes of a socket to exchanges and back.

Imports ox.serve.transport, ox.serve.config and ox.serve.response_memory only; ox.serve.telemetry for annotations.
"""

from __future__ import annotations

from ox.serve.transport.http.exchange import JSON, Exchange
from ox.serve.transport.http.listener_state import ListenerState

__all__ = ["JSON", "Exchange", "ListenerState"]
