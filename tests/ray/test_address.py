"""Addresses of clusters: what is wrong with one is said within the time limit, and not by Ray after minutes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from rows import rows

from ox.errors import DistributedError

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason='Ray is not installed: pip install "ox-onnx[ray]"')


@pytest.fixture(params=[b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x00\x00"], ids=["HTTP", "nothing", "two bytes"])
def stranger(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that is not Ray: it answers something and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(request.param)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(60)


@rows("address", ["", "head", "head:", "head:0", "head:70000", "head:http", ":6379", "ray://head"])
def test_no_address(address: str) -> None:
    from ox.ray.cluster import connect

    with pytest.raises(DistributedError, match="not the address of a Ray cluster"):
        connect(address)


def test_something_else_listens(stranger: str) -> None:
    from ox.ray.cluster import connect

    with pytest.raises(DistributedError, match="not Ray"):
        connect(stranger)


def test_a_server_that_says_nothing() -> None:
    from ox.ray.cluster import connect

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(DistributedError, match=r"nobody answers at 127.0.0.1:\d+ \(time limit 0.2 s\)"):
            connect(address, 0.2)


def test_no_cluster_here(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    import ray

    from ox.ray.cluster import connect

    def init(address: str) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(DistributedError, match="no Ray cluster at auto") as caught:
        connect("auto")
    assert caught.value.got == "Could not find any running Ray instance."


@pytest.mark.parametrize(("address", "hint"), [("127.0.0.1:6379", "RAY_AUTH_MODE=token"), ("auto", "ray start --head")])
def test_a_cluster_that_refuses(address: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray only says that it cannot connect, also where a token is missing."""
    from ox.ray import cluster

    def refuse(address: str) -> None:
        raise ConnectionError(f"Failed to connect to Ray cluster at {address}")

    monkeypatch.setattr("ray.init", refuse)
    monkeypatch.setattr(cluster, "_check", lambda address, timeout: None)
    with pytest.raises(DistributedError, match="Ray cluster at") as caught:
        cluster.connect(address)
    assert hint in str(caught.value.hint) and "Failed to connect" in str(caught.value.got)
