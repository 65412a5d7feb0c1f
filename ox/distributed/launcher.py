"""`ox launch`: starts the ranks of a program on one or more nodes, watches them and restarts them."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ox._version import __version__
from ox.clock import SYSTEM, Clock
from ox.devices import machine
from ox.distributed import frames, mpi, ports
from ox.distributed.client import receive
from ox.distributed.coordinator import EXIT_TIMEOUT, GRACE, Coordinator, Job
from ox.distributed.environment import check_heartbeat, check_system
from ox.distributed.init import START_TIMEOUT
from ox.distributed.node import Node, NodePlan
from ox.errors import ArgumentError, DistributedError

PORT = 29400  # torchrun's, where the endpoint has none


@dataclass(frozen=True)
class Plan:
    """The settings of a launch.

    Args:
        command: a script and its arguments, or ``-m``, a module and its arguments.
        ranks: how many processes on this node; default: the cores of this machine.
        nodes: the least and the largest number of nodes.
        endpoint: host and port of the store, on one of the nodes; None for one node.
        job: a name, the same on all nodes.
        restarts: how often all ranks are restarted after a failure.
        timeout: seconds that ranks and nodes wait for each other; None for the defaults.
        label: print the rank at the beginning of each line of output.
        grace: seconds between a signal to stop and SIGKILL: in which ranks write their checkpoints.
    """

    command: Sequence[str]
    ranks: int | None = None
    nodes: tuple[int, int] = (1, 1)
    endpoint: tuple[str, int] | None = None
    job: str = "none"
    restarts: int = 0
    timeout: float | None = None
    label: bool = False
    grace: float = GRACE

    @property
    def patience(self) -> float:
        """Seconds that nodes wait for each other."""
        return self.timeout or START_TIMEOUT

    def same(self) -> dict[str, str]:
        """What must be equal on all nodes."""
        nodes = "{}:{}".format(*self.nodes)
        script = _script(self.command)
        heartbeat = f"{frames.heartbeat_timeout():g} s"
        return {
            "version of ox": __version__, "--rdzv-id": self.job, "--nnodes": nodes, "script": script,
            "--heartbeat-timeout": heartbeat,
        }  # fmt: skip

    def of_node(self, ranks: int, store: tuple[str, int], has_store: bool) -> NodePlan:
        """The plan of a node."""
        return NodePlan(
            list(self.command), ranks, store, has_store, self.same(), self.timeout, self.patience, self.label,
            self.grace,
        )  # fmt: skip


def run(plan: Plan, report: Callable[[str], None], clock: Clock = SYSTEM) -> int:
    """Starts the ranks of this node and waits for them; `report` prints a line for the user. Returns the exit code.

    Raises:
        DeviceError: mpi4py or its MPI is missing. ArgumentError: no such script, too few ranks or no endpoint.
        DistributedError: the port is in use, there is no coordinator, or it refuses this node.
    """
    check_system()
    mpi.library()
    check(plan)
    cores, ranks = machine.limit().threads, plan.ranks or machine.threads()
    if ranks > cores:
        report(f"{ranks} processes on {cores} core{'s' * (cores != 1)}: they share the cores")
    if plan.endpoint is None and not os.environ.get(frames.TOKEN):
        os.environ[frames.TOKEN] = secrets.token_hex(16)  # other users of this machine do not know it
    listener = ports.listen("127.0.0.1", 0) if plan.endpoint is None else endpoint_listener(*plan.endpoint, clock)
    coordinator = None if listener is None else serve(plan, listener, clock)
    address = plan.endpoint or ("127.0.0.1", coordinator.port)  # type: ignore[union-attr]
    code = Node(plan.of_node(ranks, address, coordinator is not None), report, clock).run()
    if coordinator is not None:
        coordinator.thread.join(EXIT_TIMEOUT)
    return code


def serve(plan: Plan, listener: socket.socket, clock: Clock) -> Coordinator:
    """Starts the coordinator of a job."""
    job = Job(plan.nodes, plan.restarts, plan.patience, frames.heartbeat_timeout(), plan.same(), plan.grace)
    coordinator = Coordinator(job, listener, clock)
    coordinator.start()
    return coordinator


def endpoint_listener(host: str, port: int, clock: Clock) -> socket.socket | None:
    """The open port of an endpoint; None if it is on another machine, or a node on this machine has opened it.

    Raises:
        DistributedError: something else uses the port.
    """
    until = clock.now() + EXIT_TIMEOUT + 1.0  # the store of an earlier job may give up the port
    while ports.is_local(host):
        try:
            return ports.listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise DistributedError(f"the port {port} of --rdzv-endpoint cannot be opened", where="ox launch",
                                       got=str(error)) from error  # fmt: skip
            occupant = _greeting(host, port)
            if occupant.get("store") == "ox" and not occupant.get("failed"):
                return None
            if clock.now() > until:
                raise DistributedError(f"the port {port} of --rdzv-endpoint is in use", where="ox launch",
                                       hint="another port, the same on all nodes") from error  # fmt: skip
        clock.sleep(0.2)
    return None


def _greeting(host: str, port: int) -> dict[str, object]:
    """What a server at a port says; empty for something that is no store of ox."""
    try:
        with socket.create_connection((host, port), timeout=2.0) as connection:
            return dict(receive(connection))
    except (OSError, ValueError):
        return {}


def _script(command: Sequence[str]) -> str:
    """The script with its hash, or the module."""
    if command[0] == "-m":
        return f"-m {command[1] if len(command) > 1 else ''}"
    code = Path(command[0]).read_bytes()
    return f"{Path(command[0]).name}, SHA-256 {hashlib.sha256(code).hexdigest()[:16]}"


def check(plan: Plan) -> None:
    """Raises ArgumentError for a plan that cannot be."""
    check_heartbeat()
    if plan.restarts < 0:
        raise ArgumentError("--max-restarts is how often all ranks restart", where="", expected="0 or more",
                            got=str(plan.restarts))  # fmt: skip
    if plan.timeout is not None and not plan.timeout > 0:
        raise ArgumentError("--timeout is a time limit", where="", expected="seconds, more than 0",
                            got=f"{plan.timeout:g}")  # fmt: skip
    if not plan.grace >= 0:
        raise ArgumentError("--grace is the time between a signal to stop and SIGKILL", where="",
                            expected="seconds, 0 or more", got=f"{plan.grace:g}")  # fmt: skip
    if plan.ranks is not None and plan.ranks < 1:
        raise ArgumentError("at least one process is needed", got=str(plan.ranks))
    if not plan.command:
        raise ArgumentError("there is nothing to launch", hint="ox launch --nproc 2 -- train.py")
    if plan.command[0] != "-m" and not Path(plan.command[0]).is_file():
        raise ArgumentError(
            f"there is no script {plan.command[0]}", hint="ox launch --nproc 2 -- train.py, or -m module"
        )
    if plan.nodes[1] > 1 and plan.endpoint is None:
        raise ArgumentError("several nodes meet at one of them", expected="--rdzv-endpoint HOST:PORT, the same on all",
                            got="--nnodes without it")  # fmt: skip


def parse_nodes(text: str) -> tuple[int, int]:
    """The least and the largest number of nodes of ``2`` or ``1:4``. Raises ArgumentError."""
    least, colon, most = text.partition(":")
    if not all(part.isascii() and part.isdigit() for part in (least, *([most] if colon else []))):
        raise ArgumentError("--nnodes is a number or a range", expected="2, or 1:4", got=repr(text))
    found = int(least), int(most if colon else least)
    if not 0 < found[0] <= found[1]:
        raise ArgumentError("--nnodes is at least 1, and its first number at most its second", got=repr(text))
    return found


def parse_endpoint(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT`` or ``HOST``. Raises ArgumentError."""
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    host, port = (host, port) if colon else (text, str(PORT))
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ArgumentError("--rdzv-endpoint is the address of one of the nodes", expected="HOST:PORT", got=repr(text))
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_connection(python: str = sys.executable) -> str:
    """Starts two processes; returns whether they can connect, or why not."""
    code = (
        "from ox.distributed.launcher import Plan, run; "
        "raise SystemExit(run(Plan(['-m', 'ox.distributed.connection_check'], 2, timeout=30), print))"
    )
    try:
        done = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"two processes cannot connect: {type(error).__name__}"
    if done.returncode == 0 and done.stdout.count("sum 2") == 2:
        return "two processes connected"
    said = (done.stderr or done.stdout).strip().splitlines()
    return f"two processes cannot connect: {said[-1] if said else f'exit code {done.returncode}'}"
