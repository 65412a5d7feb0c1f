"""Free ports: outside of those that outgoing connections get, and nobody listens at them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ox.distributed import ports

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.mark.skipif(not RANGE.exists(), reason="no Linux")
def test_no_outgoing_connection_takes_it() -> None:
    low, high = map(int, RANGE.read_text().split())
    if low < ports.PORTS.stop:
        pytest.skip(f"this system gives the ports from {low} on to outgoing connections")
    assert not low <= ports.free_port() <= high


def test_one_that_is_in_use_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ATTEMPTS", 2)
    monkeypatch.setattr(ports, "PORTS", range(first := ports.free_port(), first + 2))
    with socket.create_server(("", first)):
        assert ports.free_port() == first + 1
        with socket.create_server(("", first + 1)), pytest.raises(OSError, match=r"2 ports .* are all in use"):
            ports.free_port()
