"""Thousands of connections that do nothing."""

from __future__ import annotations

import resource
import socket
from typing import Any

import pytest

from ox.serve import RequestLimits

COUNT = 5000


def test_idle_connections(listen: Any, connect: Any) -> None:
    """They are let in by the limits as they are, and whoever asks meanwhile is answered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * COUNT + 200:
        pytest.skip(f"the system allows {hard} open files, and both ends of {COUNT} connections take {2 * COUNT}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    links: list[socket.socket] = []
    try:
        with listen() as plane:
            assert RequestLimits().connections > COUNT
            for _ in range(COUNT):
                links.append(socket.create_connection((plane.host, plane.port), timeout=300))
            with connect(plane) as client:
                client.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                assert client.reply()[0] == 200
            assert plane.on_loop(lambda: len(plane.listener_state.connections)) >= COUNT
            for link in links[::500]:
                link.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                assert link.recv(12) == b"HTTP/1.1 200"
    finally:
        for link in links:
            link.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
