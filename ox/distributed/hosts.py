"""`ox launch --hostfile`: mpiexec starts one node of the launch on each host, by ssh."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from ox.clock import SYSTEM, Clock
from ox.distributed import frames, launcher, mpi, ports
from ox.distributed.coordinator import EXIT_TIMEOUT, Coordinator
from ox.distributed.environment import check_system
from ox.distributed.node import Node, NodePlan
from ox.distributed.signals import handle_signals
from ox.errors import ArgumentError, DeviceError
from ox.installation import install_command

HOST = re.compile(r"([A-Za-z0-9_.-]+)(?::([1-9]\d*))?(\s+\w+=\S+)*")
LOCAL = ("localhost", "127.0.0.1")


def mpiexec() -> str:
    """The `mpiexec` of the MPI that mpi4py uses. Raises DeviceError if there is none."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise DeviceError("there is no mpiexec, which starts processes on other hosts", hint=install_command("mpi"))
    return found


def read(path: Path) -> list[tuple[str, int]]:
    """The hosts of a file and how many ranks each may have, in all its lines. Raises ArgumentError for an invalid
    file."""
    if not path.is_file():
        raise ArgumentError(f"there is no host file {path}", expected="lines such as node1:4")
    hosts: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        match = HOST.fullmatch(text)
        if text and match is None:
            raise ArgumentError(
                "a line of the host file names no host", where=f"{path}:{number}", expected="host, or host:slots",
                got=repr(line[:80]),
            )  # fmt: skip
        if match is not None:
            hosts[match[1]] = hosts.get(match[1], 0) + int(match[2] or 1)
    if not hosts:
        raise ArgumentError(f"the host file {path} names no host", expected="lines such as node1:4")
    return list(hosts.items())


def divide(hosts: list[tuple[str, int]], ranks: int | None) -> list[tuple[str, int]]:
    """The hosts with the ranks of each: all slots, or the first `ranks`. Raises ArgumentError if there are fewer."""
    if ranks is None:
        return hosts
    slots = sum(count for _, count in hosts)
    if slots < ranks:
        raise ArgumentError(f"the host file has {slots} slots", expected=f"at least {ranks}, as --nproc says")
    shares = []
    for host, count in hosts:
        if ranks > 0:
            shares.append((host, min(count, ranks)))
            ranks -= count
    return shares


def run(plan: launcher.Plan, path: Path, report: Callable[[str], None], clock: Clock = SYSTEM) -> int:
    """`launcher.run` on the hosts of a file. This process holds the store.

    Raises:
        ArgumentError: an invalid file, or fewer slots than ranks; and what `launcher.run` raises.
    """
    check_system()
    mpi.library()
    launcher.check(replace(plan, nodes=(1, 1)))
    shares = divide(read(path), plan.ranks)
    plan = replace(plan, nodes=(len(shares), len(shares)))
    if not os.environ.get(frames.TOKEN):
        os.environ[frames.TOKEN] = secrets.token_hex(16)
    alone = all(host in LOCAL for host, _ in shares)
    address = "127.0.0.1" if alone else socket.gethostname()
    coordinator = launcher.serve(plan, ports.listen(address, 0), clock)
    coordinator.report = report
    # One program for all hosts: mpiexec refuses several programs with a -host each.
    node = asdict(plan.of_node(0, (address, coordinator.port), False))
    line = [mpiexec(), "-hosts", ",".join(host for host, _ in shares), "-n", str(len(shares)), "-ppn", "1"]
    line += [sys.executable, "-m", "ox.distributed.hosts", json.dumps([node, [ranks for _, ranks in shares]])]
    return _wait(coordinator, line, path, report)


def _wait(coordinator: Coordinator, line: list[str], path: Path, report: Callable[[str], None]) -> int:
    """Waits for the end of the job. Signals go to the coordinator, which stops the ranks."""
    signals: list[int] = []
    told = 0
    # Its own session: Ctrl-C reaches only this process.
    with handle_signals(signals.append, coordinator.forward):
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            while not coordinator.outcome.done() and process.poll() is None:
                if len(signals) > told:
                    told += 1
                    coordinator.stop(signals[0])
                if len(signals) > 1:
                    return 128 + signals[0]
                coordinator.clock.sleep(0.05)
            if not coordinator.outcome.done():
                coordinator.stop(signals[0] if signals else 0)
                if not coordinator.attempt:
                    report(f"mpiexec ended with exit code {process.returncode}: no rank could be started on the hosts "
                           f"of {path}; try ssh HOST true")  # fmt: skip
                    return 1
                return process.returncode or 1
            outcome = coordinator.outcome.result()
            coordinator.thread.join(EXIT_TIMEOUT)
            process.wait(EXIT_TIMEOUT)
        finally:
            process.kill()
            process.wait()
    if outcome.text:
        report(outcome.text)
    return outcome.code


if __name__ == "__main__":
    plan, ranks = json.loads(sys.argv[1])
    plan |= {"store": tuple(plan["store"]), "ranks": ranks[int(os.environ["PMI_RANK"])]}
    Node(NodePlan(**plan), lambda line: None, SYSTEM).run()
