"""Which addresses a host stands for, and what is said of those that cannot be had."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows

from ox.errors import ServeError
from ox.serve import ModelConfig, Server
from ox.serve.transport.address import client_address
from ox.serve.transport.sockets import bind

IPV4, IPV6 = socket.AF_INET, socket.AF_INET6


def has_ipv6() -> bool:
    try:
        with socket.socket(IPV6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
LIVE = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@contextmanager
def bound(*arguments: Any, **options: Any) -> Iterator[list[socket.socket]]:
    sockets = bind(*arguments, **options)
    try:
        yield sockets
    finally:
        for each in sockets:
            each.close()


def names(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Every host name leads to these addresses."""

    def lookup(host: Any, port: Any, *_: Any, **__: Any) -> Any:
        kinds = {name: IPV6 if ":" in name else IPV4 for name in addresses}
        ends = {IPV4: (), IPV6: (0, 0)}
        return [(kind, socket.SOCK_STREAM, 6, "", (name, port, *ends[kind])) for name, kind in kinds.items()]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


def answers(address: str, port: int) -> bool:
    try:
        client = socket.create_connection((address, port), timeout=300)
    except OSError:
        return False
    with closing(client):
        client.sendall(LIVE)
        return client.recv(4096).startswith(b"HTTP/1.1 200")


def test_one_address() -> None:
    with bound("127.0.0.1", 0) as (only,):
        host, port = only.getsockname()
        assert host == "127.0.0.1" and port
    with bound("127.0.0.1", port, share=True), bound("127.0.0.1", port, share=True):
        pass


@needs_ipv6
def test_all_addresses_of_both_kinds_by_one_socket() -> None:
    with bound("::", 0) as (only,):
        assert only.family == IPV6 and not only.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    with bound("::1", 0) as (only,):
        assert only.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)


@needs_ipv6
def test_a_name_of_two_addresses_has_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "127.0.0.1", "::1")
    with bound("both", 0) as (first, second):
        assert first.getsockname()[1] == second.getsockname()[1] != 0
        assert {first.family, second.family} == {IPV4, IPV6}


@needs_ipv6
def test_a_free_port_is_free_at_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "127.0.0.1", "::1")
    taken: list[socket.socket] = []
    plain = socket.socket.bind

    def first_is_taken(self: socket.socket, address: Any) -> None:
        if self.family == IPV6 and not taken:  # somebody is quicker
            taken.append(socket.socket(IPV6, socket.SOCK_STREAM))
            plain(taken[0], address)
            taken[0].listen()
        plain(self, address)

    monkeypatch.setattr(socket.socket, "bind", first_is_taken)
    with bound("both", 0) as (first, second):
        assert first.getsockname()[1] == second.getsockname()[1] != taken[0].getsockname()[1]
    taken[0].close()


def test_an_address_that_is_not_here_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "192.0.2.1", "127.0.0.1")  # the first is nobody's
    with bound("both", 0) as (only,):
        assert only.getsockname()[0] == "127.0.0.1"
    names(monkeypatch, "192.0.2.1")
    with pytest.raises(ServeError, match=r"cannot listen on nowhere, port \d+"):
        bind("nowhere", 0)


def test_a_port_that_is_taken_at_one_address_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with bound("127.0.0.1", 0) as (first,):
        first.listen()
        port = first.getsockname()[1]
        names(monkeypatch, "127.0.0.2", "127.0.0.1")
        with pytest.raises(ServeError, match=f"port {port} is in use"):
            bind("both", port)


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
@pytest.mark.parametrize("host", ["::", "::1"])
def test_without_ipv6(monkeypatch: pytest.MonkeyPatch, number: int, host: str) -> None:
    def refuse(self: socket.socket, address: Any) -> None:
        raise OSError(number, "not here")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(ServeError) as caught:
        bind(host, 8000)
    assert caught.value.what == f"cannot listen on {host}, port 8000: this system has no such IPv6 address"
    assert caught.value.hint == ("--host 0.0.0.0" if host == "::" else "--host 127.0.0.1")


@pytest.mark.parametrize("host", ["a..b", "x" * 300])
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(ServeError, match=re.escape(f"cannot listen on {host}")):
        bind(host, 0)


def test_a_host_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ServeError, match=r"cannot listen on nobody, port 0(.|\n)*Name or service not known"):
        bind("nobody", 0)


@needs_ipv6
@pytest.mark.parametrize("grpc_port", [None, 0])
def test_a_server_of_both_kinds(mlp: Path, grpc_port: int | None) -> None:
    options = ModelConfig(device="cpu", instances=1)
    with Server([mlp], host="::", options=options, grpc_port=grpc_port, access_log=True) as server:
        assert server.url == f"http://[::]:{server.port}"
        assert answers("127.0.0.1", server.port) and answers("::1", server.port)
        if grpc_port is not None:
            client = pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed")
            for host in ("127.0.0.1", "[::1]"):
                with client.InferenceServerClient(f"{host}:{server.grpc_port}") as asked:
                    assert asked.is_server_live()
                    tensor = client.InferInput("x", [1, 64], "FP32")
                    tensor.set_data_from_numpy(np.zeros((1, 64), np.float32))
                    assert asked.infer("mlp", [tensor]).as_numpy("y").shape == (1, 10)


@rows(
    ("name", "told"),
    [(("127.0.0.1", 5), "127.0.0.1"), (("::ffff:127.0.0.1", 5, 0, 0), "127.0.0.1"), (("::1", 5, 0, 0), "::1"),
     (("::ffff:0:1", 5, 0, 0), "::ffff:0:1"), ("", ""), (b"", ""), (None, "")],
)  # fmt: skip
def test_a_client_of_ipv4_has_an_address_of_ipv4(name: Any, told: str) -> None:
    class Transport:
        def get_extra_info(self, what: str) -> Any:
            return name if what == "peername" else None

    assert client_address(Transport()) == told  # type: ignore[arg-type]
