"""Idle connections and pings with grpcio, as with ox's own HTTP/2."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
from rows import rows

from ox.serve import ModelConfig, RequestLimits, Server

transport = pytest.importorskip("ox.serve.transport.grpc.grpcio_transport", reason="grpcio is not installed")


class Wire:
    """A client that says nothing by itself."""

    def __init__(self, link: socket.socket) -> None:
        self.link, self.connection = link, h2.connection.H2Connection(h2.config.H2Configuration())
        self.connection.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.link.sendall(self.connection.data_to_send())

    def events(self) -> list[Any]:
        """What the server sends next; empty when it has closed the connection."""
        data = self.link.recv(1 << 16)
        return [*self.connection.receive_data(data), None] if data else []


@contextmanager
def connected(mlp: Path, kind: str, limits: RequestLimits) -> Iterator[Wire]:
    with (
        Server([mlp], options=ModelConfig(instances=1), grpc=kind, grpc_port=0, limits=limits) as server,
        socket.create_connection(("127.0.0.1", server.grpc_port or 0), timeout=300) as link,
    ):
        yield Wire(link)


@pytest.mark.parametrize("kind", ["own", "grpcio"])
def test_a_client_may_ping_often(mlp: Path, kind: str) -> None:
    """gRPC's clients do so with `keepalive_time`, also without calls."""
    with connected(mlp, kind, RequestLimits()) as wire:
        for number in range(100):
            wire.connection.ping(b"%08d" % number)
            wire.flush()
            seen: list[Any] = []
            while not any(isinstance(event, h2.events.PingAckReceived) for event in seen):
                seen += (events := wire.events())
                assert events and not any(isinstance(event, h2.events.ConnectionTerminated) for event in events)


def test_an_idle_connection_is_closed(mlp: Path) -> None:
    with connected(mlp, "grpcio", RequestLimits(idle_s=0.01)) as wire:
        seen: list[Any] = []
        while events := wire.events():
            seen += events
        assert any(isinstance(event, h2.events.ConnectionTerminated) for event in seen)


@rows(
    ("limits", "milliseconds"),
    [
        (RequestLimits(), (75_000, 75_000, 30_000, 30_000)),
        (RequestLimits(idle_s=0.5, write_s=2, request_s=3), (500, 500, 2000, 3000)),
        (RequestLimits(idle_s=1e9, write_s=1e9, request_s=1e9), (2**31 - 1,) * 4),
    ],
)
def test_times_are_those_of_the_limits(limits: RequestLimits, milliseconds: tuple[int, ...]) -> None:
    options = dict(transport.keepalive_options(limits))
    names = ("max_connection_idle_ms", "keepalive_time_ms", "keepalive_timeout_ms", "server_handshake_timeout_ms")
    assert tuple(options[f"grpc.{name}"] for name in names) == milliseconds
