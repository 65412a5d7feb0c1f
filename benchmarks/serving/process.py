"""A server as a process: started, waited for until it answers rightly, looked at, stopped with all of its children."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from serving.peers import Peer, Request, environment, request

from ox.bench.address import parse
from ox.bench.answer import read
from ox.bench.queries import QueryClient
from ox.errors import OxError

PATIENCE = 60.0  # seconds until a server answers, or is left out
TICK = os.sysconf("SC_CLK_TCK")


class StartError(Exception):
    """A server that does not start or does not answer rightly."""


class Running:
    def __init__(self, peer: Peer, port: int, process: subprocess.Popen[bytes], asked: dict[str, Request]) -> None:
        self.peer, self.port, self.process, self.asked = peer, port, process, asked
        self.start_s = 0.0

    def port_of(self, kind: str) -> int:
        return self.peer.grpc_port(self.port) if kind == "grpc" else self.port

    def pids(self) -> list[int]:
        """The server and all that it started."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except (OSError, IndexError):
                    continue
                children.setdefault(parent, []).append(int(entry.name))
        found, at = [self.process.pid], 0
        while at < len(found):
            found += children.get(found[at], [])
            at += 1
        return found

    def cpu_s(self) -> float:
        """Processor time so far."""
        total = 0
        for pid in self.pids():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += int(fields[11]) + int(fields[12])
        return total / TICK

    def memory_mb(self) -> float:
        """Resident memory; pages that its processes share count once."""
        pids = self.pids()
        kind = "Rss:" if len(pids) == 1 else "Pss:"
        total = 0
        for pid in pids:
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith(kind))
        return total / 1000


@contextmanager
def serving(peer: Peer, envs: Path, model: Path, threads: int) -> Iterator[Running]:
    """Raises StartError."""
    with np.load(model.with_suffix(".npz")) as held:
        x, y = held["x"], held["y"]
    port = _free_ports()
    asked = {
        kind: request(form, model.stem, x, peer.grpc_port(port) if kind == "grpc" else port)
        for kind, form in peer.forms.items()
    }
    with tempfile.TemporaryFile() as log:
        begun = time.perf_counter()
        process = subprocess.Popen(
            peer.command(envs, model, port, threads),
            stdout=log,
            stderr=log,
            env=environment(peer.tree) if peer.env is None else None,
            cwd=peer.tree,
            start_new_session=True,
        )
        running = Running(peer, port, process, asked)
        try:
            for number, kind in enumerate(asked):
                why = "?"
                while True:
                    try:
                        wrong = _wrong(running, kind, y)
                        if wrong is None:
                            break
                        raise StartError(f"{kind}: {wrong}")
                    except (OSError, OxError, http.client.HTTPException, Refused) as error:
                        why = str(error).splitlines()[0] if str(error) else type(error).__name__
                    if time.perf_counter() - begun > PATIENCE or process.poll() is not None:
                        log.seek(0)
                        tail = log.read()[-300:].decode(errors="replace").strip()
                        raise StartError(f"{kind}: {why}; it says: {tail}")
                    time.sleep(0.005)
                if number == 0:
                    running.start_s = time.perf_counter() - begun
            yield running
        finally:
            _stop(running)


class Refused(Exception):
    """An answer that is an error; a server that is not yet ready gives one."""


def _wrong(running: Running, kind: str, y: np.ndarray[Any, Any]) -> str | None:
    """What is wrong with the answer to the one row that everybody is asked for."""
    asked, port = running.asked[kind], running.port_of(kind)
    if asked.form == "grpc":
        reply = QueryClient(parse(f"grpc://127.0.0.1:{port}"), 10).infer(asked.body)
        if reply.failure is not None:
            raise Refused(f"{reply.failure}: {reply.body[:200]!r}")
        got = read(reply, grpc=True)[0].values
    else:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            link.request("POST", asked.path, asked.body, asked.headers)
            answer = link.getresponse()
            body = answer.read()
        finally:
            link.close()
        if answer.status != 200:
            raise Refused(f"HTTP {answer.status}: {body[:200]!r}")
        got = asked.answer(body)
    far = float(np.abs(np.ravel(got) - y.ravel()).max()) if np.size(got) == y.size else float("inf")
    return None if far < 1e-4 else f"a wrong answer, {far:.1e} off"


def _free_ports() -> int:
    """The first of three that are free."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        try:
            for more in (1, 2):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + more))
        except OSError:
            continue
        return port


def _stop(running: Running) -> None:
    pids = running.pids()
    running.process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        running.process.wait(8)
    for pid in pids:  # what a server left behind would disturb the next one
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    running.process.wait()
