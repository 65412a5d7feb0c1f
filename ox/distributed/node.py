"""One node of `ox launch`: it runs its ranks as the coordinator says, and reports how they end."""

from __future__ import annotations

import os
import select
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ox.clock import Clock
from ox.distributed import frames
from ox.distributed.client import NoStore, connect
from ox.distributed.node_ranks import NodeRanks
from ox.distributed.ports import free_port
from ox.distributed.signals import handle_signals
from ox.errors import DistributedError

POLL = 0.05  # seconds between two looks at the ranks


@dataclass(frozen=True)
class NodePlan:
    """What a node has to know.

    Args:
        command: a script and its arguments, or ``-m``, a module and its arguments.
        ranks: how many ranks this node has.
        store: host and port of the coordinator.
        has_store: whether the coordinator is in this process.
        same: what must be equal on all nodes.
        timeout: seconds that ranks wait for each other; None for the defaults.
        patience: seconds in which the coordinator must come, or come back.
        label: print the rank at the beginning of each line of output.
        grace: seconds between a signal to stop and SIGKILL.
    """

    command: list[str]
    ranks: int
    store: tuple[str, int]
    has_store: bool
    same: dict[str, str]
    timeout: float | None
    patience: float
    label: bool
    grace: float


class Node:
    """Takes part in a job until it ends. `report` prints a line for the user."""

    def __init__(self, plan: NodePlan, report: Callable[[str], None], clock: Clock) -> None:
        self._plan, self._report, self._clock = plan, report, clock
        self._name = uuid.uuid4().hex
        self._signals: list[int] = []
        self._forwarded: list[int] = []  # those that ask for a checkpoint, until they are sent to the ranks
        self._stopped: int | None = None  # the signal that stopped this node
        self._ranks: NodeRanks | None = None
        self._deadline: float | None = None  # when the ranks are killed
        self._told_run: str | None = None

    def run(self) -> int:
        """Runs ranks until the coordinator ends the job. Returns the exit code.

        Raises:
            DistributedError: there is no coordinator, or it refuses this node, or it has gone and does not come back.
        """
        with handle_signals(self._signals.append, self._forwarded.append):
            while True:
                connection = self._connect()
                if connection is None:
                    return 128 + self._signals[0]
                with connection:
                    code = self._take_part(Connection(connection, self._clock))
                if code is not None:
                    return code
                host, port = self._plan.store
                self._report(f"the node with the store, {host}:{port}, has gone · waiting for it")

    def _connect(self) -> socket.socket | None:
        """A connection to the coordinator; None after a signal to stop."""
        (host, port), patience = self._plan.store, self._plan.patience
        until = self._clock.now() + patience
        while not self._signals:
            hello = {
                "kind": "node", "name": self._name, "processes": self._plan.ranks, "same": self._plan.same,
                "place": f"process {os.getpid()} on {socket.gethostname()}", "has_store": self._plan.has_store,
                **_master(host),
            }  # fmt: skip
            try:
                return connect(host, port, hello, until, "ox launch", self._clock)
            except (OSError, NoStore) as error:
                if self._clock.now() > until:
                    raise DistributedError(
                        f"no coordinator of ox launch at {host}:{port} within {patience:g} s", where="ox launch",
                        got=str(error), hint="--rdzv-endpoint names one of the nodes, the same on all; --timeout",
                    ) from error  # fmt: skip
            self._clock.sleep(0.2)
        return None

    def _take_part(self, coordinator: Connection) -> int | None:
        """Follows the coordinator. Returns the exit code, or None when it has gone."""
        try:
            while True:
                for message in coordinator.poll(POLL):
                    if "end" in message:
                        self._finish_ranks()
                        if message["end"]["text"]:
                            self._report(str(message["end"]["text"]))
                        return int(message["end"]["code"])
                    self._obey(message)
                self._handle_signals(coordinator)
                self._watch_ranks(coordinator)
        except (OSError, ValueError):
            self._finish_ranks()
            return None if self._stopped is None else 128 + self._stopped
        except BaseException:
            self._finish_ranks()
            raise

    def _obey(self, message: dict[str, Any]) -> None:
        if "say" in message:
            self._report(str(message["say"]))
        elif "start" in message:
            host, port = self._plan.store
            self._deadline = None
            self._ranks = NodeRanks(
                self._plan.command, self._plan.ranks, message["start"], f"{host}:{port}", self._plan.timeout,
                self._plan.label, self._clock,
            )  # fmt: skip
        elif "forward" in message:
            self._forwarded.append(int(message["forward"]))
        elif "stop" in message and self._ranks is not None:
            number = int(message["stop"])
            if number and self._stopped is None:
                self._ranks.signal(number)
            self._deadline = self._clock.now() + float(message["within"])

    def _handle_signals(self, coordinator: Connection) -> None:
        """Forwards signals to the ranks: all that ask for a checkpoint, and the first to stop, of which it tells the
        coordinator. The second to stop kills the ranks."""
        while self._forwarded:
            number = self._forwarded.pop(0)
            if self._ranks is not None:
                self._ranks.signal(number)
        if self._signals and self._stopped is None:
            self._stopped = self._signals[0]
            if self._ranks is not None:
                self._ranks.signal(self._stopped)
            self._deadline = self._clock.now() + self._plan.grace
            coordinator.send(signal=self._stopped)
        elif len(self._signals) > 1 and self._ranks is not None:
            self._ranks.kill()

    def _watch_ranks(self, coordinator: Connection) -> None:
        ranks = self._ranks
        if ranks is None:
            return
        if self._deadline is not None and self._clock.now() > self._deadline:
            ranks.kill()
        for end in ranks.poll():
            coordinator.send(
                attempt=ranks.attempt, ended=end.rank, code=end.code, text=end.text[: frames.TEXT], exited=end.exited
            )
        if ranks.run is not None and ranks.run != self._told_run:
            self._told_run = ranks.run
            coordinator.send(run=ranks.run)
        if not ranks.running:
            ranks.close()
            self._ranks = None
            coordinator.send(attempt=ranks.attempt, all_ended=True)

    def _finish_ranks(self) -> None:
        """Ends the ranks, if some still run."""
        ranks, self._ranks = self._ranks, None
        if ranks is not None:
            ranks.kill()
            while ranks.running:
                ranks.poll()
                self._clock.sleep(POLL)
            ranks.close()


class Connection:
    """Frames to and from the coordinator, and the heartbeat of this node."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        connection.settimeout(max(frames.heartbeat_timeout(), frames.HANDSHAKE))
        self._connection, self._clock = connection, clock
        self._unread = b""
        self._limit = frames.heartbeat_timeout()
        self._heard = self._beat = self._clock.now()

    def poll(self, pause: float) -> Iterator[dict[str, Any]]:
        """The messages that come within `pause` seconds. Raises OSError when the coordinator has gone."""
        now = self._clock.now()
        if self._limit and now - self._beat > self._limit / 6:
            self._beat = now
            self.send(beat=True)
        if select.select([self._connection], [], [], pause)[0]:
            data = self._connection.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the connection has ended")
            self._unread, self._heard = self._unread + data, self._clock.now()
        elif self._limit and now - self._heard > self._limit:
            raise TimeoutError(f"no heartbeat for {now - self._heard:.0f} s")
        while len(self._unread) >= 4 and len(self._unread) - 4 >= (size := int.from_bytes(self._unread[:4], "big")):
            body, self._unread = self._unread[4 : 4 + size], self._unread[4 + size :]
            yield frames.content(body)

    def send(self, **message: Any) -> None:
        self._connection.sendall(frames.frame(message))


def _master(host: str) -> dict[str, Any]:
    """MASTER_ADDR and MASTER_PORT if rank 0 is on this node: for scripts that connect by themselves."""
    address = "127.0.0.1"
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((host, 9))  # sends nothing: chooses the address by which this node reaches the others
        address = way.getsockname()[0]
    return {"address": address, "port": free_port()}
