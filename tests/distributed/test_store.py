"""The servers at which ranks and nodes meet, in this process: who keeps them busy, and what they answer."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ox.distributed import frames, ports, rendezvous, store, store_watch
from ox.distributed.client import connect, receive
from ox.distributed.coordinator import Coordinator, Job
from ox.distributed.environment import Launch
from ox.errors import DistributedError

LIMIT = 60.0


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a store of one rank, which ends when the rank has come and gone."""
    listener = ports.listen("127.0.0.1", 0)
    number = int(listener.getsockname()[1])

    async def serve() -> None:
        await store.Store(1, frames.token(), "1", heartbeat=LIMIT).serve(listener)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    yield number
    thread.join(LIMIT)
    assert not thread.is_alive()


def hello() -> dict[str, Any]:
    return rendezvous._hello(0, 1, LIMIT, 0.0) | {"attempt": "1"}


def joined(port: int) -> socket.socket:
    """Rank 0, which the store has told that all ranks are there."""
    rank = connect("127.0.0.1", port, hello(), time.monotonic() + LIMIT, "rank 0")
    rank.settimeout(LIMIT)
    assert receive(rank)["ready"]
    return rank


def test_connections_that_say_nothing_keep_nobody_out(port: int) -> None:
    idle = [socket.create_connection(("127.0.0.1", port), LIMIT) for _ in range(frames.SPARE + 50)]
    for connection in idle:
        connection.settimeout(LIMIT)
        assert len(connection.recv(4)) in (0, 4)  # accepted: greeted, or closed for newer ones
    with joined(port):
        with connect("127.0.0.1", port, hello() | {"kind": "mpi"}, time.monotonic() + LIMIT, "rank 0"):
            pass
        ended = 0
        for connection in idle:
            connection.setblocking(False)
            try:
                while connection.recv(1 << 10):
                    pass
                ended += 1
            except BlockingIOError:
                pass
            except ConnectionResetError:
                ended += 1
            connection.close()
    assert ended >= 49, "the oldest were closed"


def test_a_rank_tries_again_when_its_connection_for_mpi_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = socket.socketpair()
    answers = [ConnectionResetError("no room"), near]

    def answer(*_: Any) -> socket.socket:
        found = answers.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(rendezvous, "connect", answer)
    with far, rendezvous._manager(Launch("torchrun", 0, 2), {"rank": 0}, "a", 1, time.monotonic() + LIMIT):
        number = int(os.environ["PMI_FD"])
        os.write(number, b"x")
        assert far.recv(1) == b"x" and not answers
    os.close(number)


def test_the_store_answers_heartbeats(port: int) -> None:
    with joined(port) as rank:
        rank.sendall(frames.frame({"idle": 0, "waits": 0, "operation": ""}))
        assert receive(rank) == {"beat": True}
        rank.sendall(frames.frame({"left": True}))
        assert receive(rank) == {"left": True}


def test_a_store_that_is_silent() -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(frames.frame({"beat": True}) + frames.frame({"alone": True}))
        assert store_watch.next_news(near, LIMIT) == {"alone": True}
        far.sendall(frames.frame({"beat": True}))
        with pytest.raises(store_watch.SilentStore):
            store_watch.next_news(near, 0.6)
        far.close()
        with pytest.raises(ConnectionResetError):
            store_watch.next_news(near, 0.0)


def test_a_rank_that_was_stopped_itself_blames_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """It wakes after the time limit, before the answers that wait for it have been read."""
    near, far = socket.socketpair()
    with near, far:
        wait, waits = store_watch.select.select, []

        def stopped(*words: Any) -> Any:
            if waits:
                return wait(*words)
            waits.append(time.sleep(1.0))
            far.sendall(frames.frame({"alone": True}))
            return [], [], []

        monkeypatch.setattr(store_watch.select, "select", stopped)
        assert store_watch.next_news(near, 0.5) == {"alone": True}


def test_what_is_wrong_with_the_address_of_rank_0() -> None:
    assert rendezvous._not_here("127.0.0.1") == ""
    assert rendezvous._not_here("192.0.2.77") == "192.0.2.77 is no address of this machine, on which rank 0 runs"
    assert rendezvous._not_here("nohost.invalid").startswith("nohost.invalid: ")


# -- the coordinator ---------------------------------------------------------------------------------------------


def coordinator() -> Coordinator:
    """One that waits for two nodes."""
    found = Coordinator(Job((2, 2), 0, LIMIT, 0.0, {"--nnodes": "2:2"}), ports.listen("127.0.0.1", 0))
    found.start()
    return found


def test_an_idle_connection_at_the_end_of_a_job(caplog: pytest.LogCaptureFixture) -> None:
    """Such as a port scan leaves: no traceback of asyncio."""
    served = coordinator()
    with socket.create_connection(("127.0.0.1", served.port), LIMIT) as idle:
        assert receive(idle)["store"] == "ox"
        served.stop(15)
        served.thread.join(LIMIT)
        assert not served.thread.is_alive() and served.outcome.result(0).code == 143
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_refused_nodes_are_named_to_those_that_miss_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(frames.TOKEN, "a")
    served = coordinator()
    node = {"kind": "node", "processes": 1, "same": {"--nnodes": "1:2"}, "place": "process 5 on node7"}
    with pytest.raises(DistributedError, match="another --nnodes than the job"):
        connect("127.0.0.1", served.port, node, time.monotonic() + LIMIT, "ox launch")
    with socket.create_connection(("127.0.0.1", served.port), LIMIT) as stranger:
        nonce = str(receive(stranger)["nonce"])
        stranger.sendall(frames.frame(node | {"nonce": "x"}, b"b", b"hello", nonce))
        assert receive(stranger, b"b", "x") is None, "the coordinator proves another token"
    served.loop.call_soon_threadsafe(served._give_up)
    assert served.outcome.result(LIMIT).text == (
        "0 of at least 2 nodes are there after 60 s"
        " · process 5 on node7 was refused: this node has another --nnodes than the job (1:2 instead of 2:2)"
        f" · from 127.0.0.1 came another {frames.TOKEN}"
    )
    served.thread.join(LIMIT)
