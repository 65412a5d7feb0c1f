"""The server as a process: what it prints, how fast it is ready, how it stops."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from waiting import wait_until

ROOT = Path(__file__).parents[2]
CODE = "import sys; sys.path[:0] = sys.argv[1].split(':'); from ox_cli.main import main; sys.exit(main(sys.argv[2:]))"


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", CODE, f"{ROOT}:{ROOT / 'cli'}", "serve", *map(str, arguments)]


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], SimpleNamespace, list[str]]]:
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        lines = []
        while not lines or "http://" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        found = re.search(r"http://(.+):(\d+)", lines[-1])
        assert found
        yield process, SimpleNamespace(host=found[1], port=int(found[2])), lines
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def slow(build: Any) -> Path:
    """Hundredths of a second a row: x [batch, 1] through many products."""
    random = np.random.default_rng(0)
    size = 512
    weights = {"up": np.ones((1, size * size), np.float32), "shape": np.array([-1, size, size])}
    weights["w"] = (random.standard_normal((size, size)) / size**0.5).astype(np.float32)
    nodes: list[Any] = [("MatMul", ["x", "up"], ["a"], {}), ("Reshape", ["a", "shape"], ["m0"], {})]
    nodes += [("MatMul", [f"m{i}", "w"], [f"m{i + 1}"], {}) for i in range(12)]
    nodes += [("ReduceMean", ["m12"], ["y"], {"axes": [1, 2], "keepdims": 0})]
    f = TensorProto.FLOAT
    return Path(build("slow", nodes, {"x": (f, ["batch", 1])}, {"y": (f, ["batch"])}, weights, opset=13))


def request(model: str, **entry: Any) -> bytes:
    body = json.dumps({"inputs": [{"datatype": "FP32", **entry}]}).encode()
    return (
        b"POST /v2/models/%s/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (model.encode(), len(body))
        + body
    )


def refused(connect: Any, address: SimpleNamespace) -> None:
    """Waits until nobody is let in any more."""

    def is_refused() -> bool:
        try:
            connect(address).socket.close()
        except ConnectionResetError:  # it was in the queue of the port when that was closed
            return False
        except ConnectionRefusedError:
            return True
        return False

    wait_until(is_refused)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_drains_and_exits_with_zero(slow: Path, connect: Any, number: signal.Signals) -> None:
    ways = ("--port", 0, "--max-rows", 1, "--instances", 1, "--deadline-ms", 600_000)
    with ExitStack() as stack, serving(slow, *ways) as (process, address, lines):
        model, where = lines[-2:]  # before them it may be said that loading takes its time
        assert re.match(r"slow 1 · cpu \(CPUExecutionProvider\) · 1 instance × 1 thread · batching off", model)
        assert "ready in" in where and "V2 protocol · metrics /metrics · Ctrl-C stops the server" in where
        *clients, idle = (stack.enter_context(connect(address)) for _ in range(6))
        for client in clients[:4]:
            client.send(request("slow", name="x", shape=[1, 1], data=[1.0]))
        half = request("slow", name="x", shape=[1, 1], data=[1.0])
        clients[4].send(half[:-10])
        assert idle.ask("GET", "/v2")[0] == 200  # so the others' bytes have come, too
        process.send_signal(number)
        refused(connect, address)
        clients[4].send(half[-10:])
        for client in clients:
            status, headers, _ = client.reply()
            assert status == 200 and client.closed()
        assert headers["connection"] == "close"  # of the last, which is certainly of after the signal
        assert idle.closed()
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0 and err == "" and "stopped after 6 answers" in out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_imports_is_a_stop(mlp: Path, tmp_path: Path, number: signal.Signals) -> None:
    """The import of NumPy stands for all of them: it says that it has come so far, and takes its time."""
    (tmp_path / "numpy.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(300)\n")
    line = command(mlp, "--port", 0)
    line[3] = f"{tmp_path}:{line[3]}"
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "importing\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=100)
        assert (process.returncode, out, err) == (0, "stopped after 0 answers\n", "")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_who_reads_the_address_may_ask_at_once(mlp: Path, connect: Any) -> None:
    """How long it takes to be ready is measured by benchmarks/bench_start.py."""
    for _ in range(3):
        with serving(mlp, "--port", 0) as (_, address, _lines), connect(address) as client:
            client.send(request("mlp", name="x", shape=[1, 64], data=[0.0] * 64))
            assert client.reply()[0] == 200


def test_errors_have_an_exit_code(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x08\x0a broken")
    done = subprocess.run(command(broken), capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "LoadError" in done.stderr and "Traceback" not in done.stderr


def test_what_serving_imports() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import ox.serve\n"
        "walls = 'ox.train', 'ox.nn', 'ox.export', 'onnxruntime', 'torch'\n"
        "assert not [name for name in sys.modules if name.startswith(walls)]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("more", [(), pytest.param(("--workers", 2), marks=pytest.mark.slow)])
def test_all_lines_are_those_of_the_log(mlp: Path, more: tuple[object, ...]) -> None:
    process = subprocess.Popen(
        command(mlp, "--port", 0, "--log", "json", *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        said = []
        while not said or "http://" not in said[-1]["message"]:
            said.append(json.loads(process.stderr.readline()))
        process.send_signal(signal.SIGTERM)
        out, rest = process.communicate(timeout=300)
        said += map(json.loads, rest.splitlines())
        assert process.returncode == 0 and out == ""
        assert [entry["message"] for entry in said[-2:]] == ["draining", "stopped after 0 answers"]
        assert {entry["level"] for entry in said} == {"info"}
    finally:
        process.kill()
        process.communicate()


def test_an_error_at_the_start_is_a_line_of_the_log(tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path / "no.onnx", "--log", "json"), capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and done.stdout == ""
    entry = json.loads(done.stderr)
    assert entry["level"] == "error" and "no.onnx" in entry["message"] and "try" in entry


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_log_that_nobody_can_take_is_no_failure(mlp: Path, connect: Any) -> None:
    with open("/dev/full", "w") as full:
        address = SimpleNamespace(host="127.0.0.1", port=free_port())
        line = command(mlp, "--port", address.port, "--log", "json", "--access-log")
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=full, text=True)

        def answers() -> bool:
            try:
                with connect(address) as client:
                    return bool(client.ask("GET", "/v2")[0] == 200)
            except OSError:
                return False

        try:
            wait_until(answers, process=process)
            assert all(answers() for _ in range(20))
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=300)
            assert process.returncode == 0 and out == ""
        finally:
            process.kill()
            process.communicate()
