"""`ox serve --workers 2` as a user meets it: one address, workers that come back, one end for all."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_decoder import write_scripted_decoder
from waiting import wait_until

ROOT = Path(__file__).parents[3]
CODE = "import sys; sys.path[:0] = sys.argv[1].split(':'); from ox_cli.main import main; sys.exit(main(sys.argv[2:]))"


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", CODE, f"{ROOT}:{ROOT / 'cli'}", "serve", "--workers", "2", *map(str, arguments)]


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], SimpleNamespace, list[str]]]:
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        lines: list[str] = []
        while not lines or "http://" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        found = re.search(r"http://(.+?):(\d+)", lines[-1])
        assert found
        yield process, SimpleNamespace(host=found[1], port=int(found[2])), lines
    finally:
        process.kill()
        process.communicate()


def children(process: subprocess.Popen[str]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def answers(connect: Any, address: SimpleNamespace) -> bool:
    """Whether 20 connections, which fall to either worker, are answered."""
    for _ in range(20):
        with connect(address) as client:
            if client.ask("GET", "/v2/models/mlp/ready")[0] != 200:
                return False
    return True


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks /proc for a process's children")


@needs_proc
def test_a_killed_worker_comes_back_and_all_end_together(mlp: Path, connect: Any) -> None:
    with serving(mlp, "--port", 0) as (process, address, lines):
        assert lines[-1].startswith("2 workers · ready in")
        first = children(process)
        assert len(first) == 2 and answers(connect, address)
        os.kill(first[0], signal.SIGKILL)
        wait_until(lambda: not alive(first[0]))
        assert answers(connect, address)  # by the other one
        wait_until(lambda: len(children(process)) == 2)
        assert process.stdout is not None
        assert "was killed by signal 9 · restarting it" in process.stdout.readline()
        second = children(process)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0 and err == "" and re.search(r"stopped after \d+ answers", out)
        assert not any(map(alive, [*first, *second]))


@needs_proc
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_workers_share_addresses_of_both_kinds(mlp: Path, connect: Any) -> None:
    with serving("--host", "::", "--port", 0, "--grpc-port", 0, mlp) as (_, address, lines):
        assert address.host == "[::]" and "listening on :: without authentication" in lines[-2]
        for host in ("127.0.0.1", "::1"):
            for _ in range(8):
                with connect(SimpleNamespace(host=host, port=address.port)) as client:
                    assert client.ask("GET", "/v2/models/mlp/ready")[0] == 200


def test_workers_do_not_outlive_their_supervisor(mlp: Path) -> None:
    with serving(mlp, "--port", 0) as (process, _, _lines):
        pids = children(process)
        process.kill()
        process.wait()
        wait_until(lambda: not any(map(alive, pids)))


@pytest.mark.slow
def test_what_hinders_a_worker_is_said_once(mlp: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x08\x0a broken")
    with serving(mlp, "--port", 0) as (_, address, _lines):
        cases = [((broken,), "LoadError"), ((mlp, "--port", address.port), f"port {address.port} is in use")]
        for arguments, words in cases:
            done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300)
            assert done.returncode == 1 and done.stderr.count(words) == 1 and "Traceback" not in done.stderr


@needs_proc
def test_calls_concern_all_workers_also_those_that_come_later(mlp: Path, connect: Any) -> None:
    tensor = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}
    body = json.dumps({"inputs": [tensor]}).encode()
    with serving(mlp, "--port", 0, "--manage") as (process, address, _lines):

        def ask(method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
            with connect(address) as client:  # a new connection falls to either worker
                status, _, reply = client.ask(method, target, body)
                return status, reply

        assert [ask("POST", "/v2/models/mlp/infer", body)[0] for _ in range(30)] == [200] * 30
        for _ in range(10):
            entry = json.loads(ask("GET", "/v2/models/mlp/stats")[1])["model_stats"][0]
            assert entry["inference_stats"]["success"]["count"] == 30
            assert b'nv_inference_request_success{model="mlp",version="1"} 30.0' in ask("GET", "/metrics")[1]
        assert ask("POST", "/v2/repository/models/mlp/unload") == (200, b"")
        assert {ask("GET", "/v2/models/mlp/ready")[0] for _ in range(20)} == {400}
        first = children(process)
        os.kill(first[0], signal.SIGKILL)
        wait_until(lambda: len(set(children(process)) - set(first)) == 1)
        wait_until(lambda: len({pid for pid in children(process) if listens(pid, address.port)}) == 2)
        assert {ask("GET", "/v2/models/mlp/ready")[0] for _ in range(20)} == {400}  # the new one was told, too
        assert ask("POST", "/v2/repository/models/mlp/load") == (200, b"")
        assert {ask("POST", "/v2/models/mlp/infer", body)[0] for _ in range(20)} == {200}
        status, reply = ask("POST", "/v2/repository/models/nobody/load")
        assert status == 404 and b"nobody" in reply


@pytest.mark.slow
@needs_proc
def test_counts_of_a_worker_that_died_are_kept(mlp: Path, connect: Any) -> None:
    """Whatever was shown once is never more than what is shown later."""
    tensor = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}
    body = json.dumps({"inputs": [tensor]}).encode()
    with serving(mlp, "--port", 0) as (process, address, _lines):

        def ask(method: str, target: str, body: bytes = b"") -> bytes:
            while True:
                try:
                    with connect(address) as client:  # a new connection falls to either worker
                        status, _, reply = client.ask(method, target, body)
                except ConnectionError:  # that worker has just been killed
                    continue
                assert status == 200
                return bytes(reply)

        def counted() -> tuple[int, int]:
            entry = json.loads(ask("GET", "/v2/models/mlp/stats"))["model_stats"][0]
            shown = re.search(
                r'^ox_batch_rows_sum{model="mlp",version="1"} (.+)', ask("GET", "/metrics").decode(), re.M
            )
            assert shown is not None
            return entry["inference_stats"]["success"]["count"], int(float(shown[1]))

        for _ in range(30):
            ask("POST", "/v2/models/mlp/infer", body)
        assert counted() == (30, 30)
        first = children(process)
        for pid in first:
            os.kill(pid, signal.SIGKILL)
            others = set(children(process)) - {pid}
            wait_until(lambda pid=pid: not alive(pid))  # type: ignore[misc]
            while not any(listens(new, address.port) for new in set(children(process)) - others):
                assert counted() == (30, 30)
        for _ in range(5):
            ask("POST", "/v2/models/mlp/infer", body)
        assert counted() == (35, 35)


@pytest.mark.slow_after(1)
@needs_proc
@pytest.mark.parametrize("stopped", [1, 2])
def test_a_worker_that_is_stopped_is_replaced(mlp: Path, connect: Any, stopped: int) -> None:
    """Under load; what the stopped one held is lost, and everybody else is answered, soon by both again."""
    ending, lost, got = threading.Event(), Counter[type[Exception]](), Counter[int]()

    def load() -> None:
        while not ending.is_set():
            try:
                with connect(address) as client:
                    got[client.ask("GET", "/v2/models/mlp/ready")[0]] += 1
            except OSError as error:
                lost[type(error)] += 1

    with serving(mlp, "--port", 0) as (process, address, _lines):
        clients = [threading.Thread(target=load) for _ in range(3)]
        for client in clients:
            client.start()
        first = children(process)
        for pid in first[:stopped]:
            os.kill(pid, signal.SIGSTOP)
        assert process.stdout is not None
        said = {process.stdout.readline() for _ in range(2 * stopped)}
        assert sum("has been stopped (SIGSTOP) · killing it" in line for line in said) == stopped
        assert sum("was killed by signal 9 · restarting it" in line for line in said) == stopped
        wait_until(lambda: not any(map(alive, first[:stopped])) and len(children(process)) == 2)
        wait_until(lambda: all(listens(pid, address.port) for pid in children(process)))
        before = sum(got.values())
        wait_until(lambda: sum(got.values()) > before + 50)
        ending.set()
        for client in clients:
            client.join()
        assert answers(connect, address) and set(got) == {200}
        assert set(children(process)) & set(first) == set(first[stopped:])  # who was not stopped goes on
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=300)[1] == "" and process.returncode == 0


@pytest.mark.slow
@needs_proc
def test_a_worker_that_is_stopped_does_not_hold_up_the_end(mlp: Path) -> None:
    with serving(mlp, "--port", 0) as (process, _, _lines):
        pids = children(process)
        process.send_signal(signal.SIGTERM)
        os.kill(pids[0], signal.SIGSTOP)
        assert process.communicate(timeout=300)[1] == "" and process.returncode == 0 and not any(map(alive, pids))


@pytest.mark.slow
@needs_proc
def test_a_region_that_is_gone_hinders_no_new_worker(mlp: Path, connect: Any) -> None:
    region = Path(f"/dev/shm/ox-test-{os.getpid()}")
    region.write_bytes(bytes(64))
    with serving(mlp, "--port", 0, "--manage") as (process, address, _lines):
        try:
            with connect(address) as client:
                body = json.dumps({"key": f"/{region.name}", "offset": 0, "byte_size": 64}).encode()
                assert client.ask("POST", "/v2/systemsharedmemory/region/r/register", body)[0] == 200
        finally:
            region.unlink()
        first = children(process)
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not set(children(process)) & set(first) and len(children(process)) == 2)
        wait_until(lambda: all(listens(pid, address.port) for pid in children(process)))
        assert answers(connect, address)


def listens(pid: int, port: int) -> bool:
    """Whether a process has a socket that listens on a port."""
    entries = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    inodes = {entry[9] for entry in entries if entry[3] == "0A" and int(entry[1].split(":")[1], 16) == port}
    try:
        links = [os.readlink(channel) for channel in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:  # it is just ending
        return False
    return any(f"socket:[{inode}]" in links for inode in inodes)


@needs_proc
def test_workers_share_stored_responses(tmp_path: Path, connect: Any) -> None:
    """A conversation goes on in either worker, and the file of the responses goes with the server."""
    pytest.importorskip("tokenizers", reason="the extra text is not installed")
    pytest.importorskip("jinja2", reason="the extra text is not installed")
    with serving(write_scripted_decoder(tmp_path / "tiny", {}, temperature=0), "--port", 0) as (process, address, _):
        links = [Path(os.readlink(entry)) for entry in Path(f"/proc/{process.pid}/fd").iterdir()]
        (folder,) = {link.parent for link in links if link.parent.name.startswith("ox-workers-")}  # of its lock
        assert folder.stat().st_mode & 0o777 == 0o700
        body: dict[str, Any] = {"model": "tiny", "input": "hi"}
        for _ in range(20):  # connections fall to either worker
            with connect(address) as client:
                status, _, reply = client.ask("POST", "/v1/responses", json.dumps(body).encode())
            assert status == 200, reply
            body["previous_response_id"] = json.loads(reply)["id"]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
        assert not folder.exists()


def test_workers_share_a_unix_domain_socket(mlp: Path, connect: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/ox.sock"

        class Local(connect):  # type: ignore[misc]
            def __init__(self) -> None:
                self.socket, self.buffer = socket.socket(socket.AF_UNIX), b""
                self.socket.settimeout(120)
                self.socket.connect(path)

        def status() -> int:
            with Local() as client:
                return int(client.ask("GET", "/v2/models/mlp/ready")[0])

        with serving("--uds", path, "--port", 0, mlp) as (process, _, lines):
            assert f"unix:{path}" in lines[-1]
            assert {status() for _ in range(20)} == {200}
            os.kill(children(process)[0], signal.SIGKILL)
            assert {status() for _ in range(20)} == {200}  # the other one, or the new one
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0 and not os.path.exists(path)
