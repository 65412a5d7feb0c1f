"""The servers at which ranks and nodes meet, in this process: who keeps them busy, and what they answer."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from manual_clock import ManualClock

from ox.clock import Clock
from ox.distributed import environment, frames, ports, rendezvous, store, store_watch
from ox.distributed.client import connect, receive
from ox.distributed.coordinator import Coordinator, Job
from ox.distributed.environment import Launch
from ox.errors import DistributedError

LIMIT = 60.0
CLOCK = ManualClock()  # which nobody moves


@contextmanager
def served(store: store.Store, listener: socket.socket) -> Iterator[Future[None]]:
    """A store in a thread, which is ended after the block."""
    with ThreadPoolExecutor() as pool:
        end = pool.submit(lambda: store.clock.run(store.serve(listener)))
        try:
            yield end
        finally:
            for loop in list(store.clock._loops):
                with suppress(RuntimeError):  # it has just been closed
                    loop.call_soon_threadsafe(store.ended.set)


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a store of one rank, which ends when the rank has come and gone."""
    listener = ports.listen("127.0.0.1", 0)
    number = int(listener.getsockname()[1])

    with served(store.Store(1, frames.token(), CLOCK, "1", heartbeat=LIMIT), listener) as end:
        yield number
        end.result(LIMIT)


def hello(rank: int = 0, size: int = 1) -> dict[str, Any]:
    return rendezvous._hello(rank, size, LIMIT, 0.0) | {"attempt": "1"}


def joined(port: int) -> socket.socket:
    """Rank 0, which the store has told that all ranks are there."""
    rank = connect("127.0.0.1", port, hello(), CLOCK.now() + LIMIT, "rank 0", CLOCK)
    rank.settimeout(LIMIT)
    assert receive(rank)["ready"]
    return rank


def test_connections_that_say_nothing_keep_nobody_out(port: int) -> None:
    idle = [socket.create_connection(("127.0.0.1", port), LIMIT) for _ in range(frames.SPARE + 50)]
    for connection in idle:
        connection.settimeout(LIMIT)
        assert len(connection.recv(4)) in (0, 4)  # accepted: greeted, or closed for newer ones
    with joined(port):
        with connect("127.0.0.1", port, hello() | {"kind": "mpi"}, CLOCK.now() + LIMIT, "rank 0", CLOCK):
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
    clock = ManualClock()
    monkeypatch.setattr(clock, "sleep", clock.advance)
    with far, rendezvous._manager(Launch("torchrun", 0, 2), {"rank": 0}, "a", 1, clock.now() + LIMIT, clock):
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


def test_a_store_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = socket.socketpair()
    clock, wait, begun = ManualClock(), select.select, CLOCK.now()

    def waited(read: Any, write: Any, other: Any, seconds: float | None) -> Any:
        ready = wait(read, write, other, 0 if seconds else None)
        if seconds and not ready[0]:
            clock.advance(seconds)
        return ready

    monkeypatch.setattr(store_watch.select, "select", waited)
    with near, far:
        far.sendall(frames.frame({"beat": True}) + frames.frame({"alone": True}))
        assert store_watch.next_message(near, LIMIT, clock) == {"alone": True} and clock.now() == begun
        far.sendall(frames.frame({"beat": True}))
        with pytest.raises(store_watch.SilentStore):
            store_watch.next_message(near, LIMIT, clock)
        assert begun + LIMIT < clock.now() <= begun + 1.2 * LIMIT
        far.close()
        with pytest.raises(ConnectionResetError):
            store_watch.next_message(near, 0.0, clock)


def test_a_rank_that_was_stopped_itself_blames_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """It wakes after the time limit, before the answers that wait for it have been read."""
    near, far = socket.socketpair()
    with near, far:
        clock, wait, waits = ManualClock(), store_watch.select.select, []

        def stopped(*words: Any) -> Any:
            if waits:
                return wait(*words)
            waits.append(clock.advance(1.0))
            far.sendall(frames.frame({"alone": True}))
            return [], [], []

        monkeypatch.setattr(store_watch.select, "select", stopped)
        assert store_watch.next_message(near, 0.5, clock) == {"alone": True}


@pytest.fixture
def no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name is known: a name server answers when it likes, now and then after five seconds."""
    look_up = socket.getaddrinfo

    def known(host: Any, *words: Any, **named: Any) -> Any:
        if host == "nohost.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *words, **named)

    monkeypatch.setattr(socket, "getaddrinfo", known)


@pytest.mark.usefixtures("no_name_server")
def test_what_is_wrong_with_the_address_of_rank_0() -> None:
    assert rendezvous._not_here("127.0.0.1") == ""
    assert rendezvous._not_here("192.0.2.77") == "192.0.2.77 is no address of this machine, on which rank 0 runs"
    assert rendezvous._not_here("nohost.invalid").startswith("nohost.invalid: ")


# -- ranks that do not come --------------------------------------------------------------------------------------


def expire(clock: ManualClock) -> None:
    """The time limit is over, after what the store is at."""
    for loop in list(clock._loops):
        loop.call_soon_threadsafe(clock.advance, LIMIT)


def did_not_come(connection: socket.socket, rank: int, clock: Clock) -> DistributedError:
    with pytest.raises(DistributedError, match="did not come") as raised:
        rendezvous._wait_for_all(connection, rank, "127.0.0.1", 1, clock.now() + LIMIT, clock)
    return raised.value


def test_a_rank_that_is_missing_is_named_to_all_others() -> None:
    clock, listener = ManualClock(), ports.listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    with served(store.Store(3, frames.token(), clock, "1"), listener):
        there = {
            rank: connect("127.0.0.1", port, hello(rank, 3), clock.now() + LIMIT, f"rank {rank}", clock)
            for rank in (0, 2)
        }
        expire(clock)
        for rank, connection in there.items():
            said = did_not_come(connection, rank, clock)
            assert said.what == "rank 1 did not come to init_process_group within 60 s"


def test_a_rank_with_another_token_is_told_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, listener = ManualClock(), ports.listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    monkeypatch.setenv(frames.TOKEN, "a")
    with served(store.Store(2, frames.token(), clock, "1"), listener):
        zero = connect("127.0.0.1", port, hello(0, 2), clock.now() + LIMIT, "rank 0", clock)
        monkeypatch.setenv(frames.TOKEN, "b")
        with pytest.raises(DistributedError, match="has another token") as refused:
            connect("127.0.0.1", port, hello(1, 2), clock.now() + LIMIT, "rank 1", clock)
        assert frames.TOKEN in str(refused.value)
        expire(clock)
        said = did_not_come(zero, 0, clock)
        assert said.what == "rank 1 did not come to init_process_group within 60 s"
        assert said.extra == {"127.0.0.1": f"from here came another {frames.TOKEN}"}


@pytest.mark.usefixtures("no_name_server")
def test_rank_0_is_not_at_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, listener = ManualClock(), ports.listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    monkeypatch.setattr(clock, "sleep", clock.advance)
    monkeypatch.setattr(rendezvous, "_start_store", lambda *_: None)
    monkeypatch.setenv(environment.ATTEMPT, "1")
    monkeypatch.setenv("MASTER_ADDR", "nohost.invalid")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.delenv(rendezvous.PORT, raising=False)
    wait_for_all = rendezvous._wait_for_all

    def expired(*words: Any) -> None:
        expire(clock)
        wait_for_all(*words)

    monkeypatch.setattr(rendezvous, "_wait_for_all", expired)
    with served(store.Store(2, frames.token(), clock, "1"), listener):
        with (
            pytest.raises(DistributedError, match="rank 1 did not come to init_process_group within 60 s") as zero,
            rendezvous.met(Launch("torchrun", 0, 2), LIMIT, 0.0, clock),
        ):
            pass
        assert zero.value.extra["MASTER_ADDR"].startswith("nohost.invalid: ")
    with (
        pytest.raises(DistributedError, match="rank 0 did not come") as one,
        rendezvous.met(Launch("torchrun", 1, 2), LIMIT, 0.0, clock),
    ):
        pass
    what = "rank 0 did not come to init_process_group within 60 s: no store of ox at nohost.invalid"
    assert one.value.what.startswith(what)


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\2[]"])
def test_a_port_in_use(greeting: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program listens there that says this to everybody."""
    clock, limit = ManualClock(), 0.2
    monkeypatch.setattr(clock, "sleep", clock.advance)

    def say(listener: socket.socket) -> None:
        with suppress(OSError):  # it is closed
            while True:
                connections.append(listener.accept()[0])
                connections[-1].send(greeting)

    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        pool.submit(say, listener)
        port = listener.getsockname()[1]
        with pytest.raises(DistributedError) as zero:
            rendezvous._start_store("127.0.0.1", port, rendezvous._hello(0, 2, limit, 0.0), clock)
        with pytest.raises(DistributedError, match="rank 0 did not come to init_process_group"):
            rendezvous._join(hello(1, 2), "127.0.0.1", port, limit, clock.now() + limit, clock)
        listener.shutdown(socket.SHUT_RDWR)
    for connection in connections:
        connection.close()
    assert zero.value.what == f"port {port} is in use"
    assert "something that is no store of ox" in zero.value.extra["there"]
    assert "another MASTER_PORT, or OX_RENDEZVOUS_PORT" in str(zero.value.hint)


# -- the coordinator ---------------------------------------------------------------------------------------------


def coordinator(clock: Clock = CLOCK) -> Coordinator:
    """One that waits for two nodes."""
    found = Coordinator(Job((2, 2), 0, LIMIT, 0.0, {"--nnodes": "2:2"}), ports.listen("127.0.0.1", 0), clock)
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
        connect("127.0.0.1", served.port, node, CLOCK.now() + LIMIT, "ox launch", CLOCK)
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
