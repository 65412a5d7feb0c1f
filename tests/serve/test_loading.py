"""Loads that never end, met as a user meets them: `ox serve` as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
from onnx import TensorProto, helper
from waiting import wait_until

ROOT = Path(__file__).parents[2]
CODE = "import sys; sys.path[:0] = sys.argv[1].split(':'); from ox_cli.main import main; sys.exit(main(sys.argv[2:]))"
F = TensorProto.FLOAT
ENDS: tuple[Any, Any] = ({"x": (F, ["batch", 4])}, {"y": (F, ["batch", 4])})
needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks /proc what a process does")


class Process:
    """`ox serve`, with what it has said so far."""

    def __init__(self, *arguments: object) -> None:
        line = [sys.executable, "-c", CODE, f"{ROOT}:{ROOT / 'cli'}", "serve", *map(str, arguments), "--port", "0"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(line, stdout=pipe, stderr=pipe, text=True)
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def says(self, pattern: str) -> re.Match[str]:
        """Waits for a line."""

        def found() -> re.Match[str] | None:
            return next((match for line in list(self.lines) if (match := re.search(pattern, line))), None)

        wait_until(lambda: found() is not None or self.process.poll() is not None)
        match = found()
        assert match is not None, (self.lines, self.process.poll())
        return match

    def ask(self, target: str, body: Any = None) -> tuple[int, Any]:
        port = self.says(r"(?:listening on |http://)127\.0\.0\.1:(\d+)")[1]
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(f"http://127.0.0.1:{port}{target}", data, timeout=60) as reply:
                text = reply.read()
                return reply.status, json.loads(text) if text else None
        except HTTPError as error:
            with error:
                text = error.read()
                return error.code, json.loads(text) if text else None

    def infer(self, model: str, value: float = 1.0) -> tuple[int, Any]:
        entry = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [value] * 4}
        return self.ask(f"/v2/models/{model}/infer", {"inputs": [entry]})

    def state(self, name: str) -> tuple[str, str]:
        _, rows = self.ask("/v2/repository/index", {})
        return next((row["state"], row["reason"]) for row in rows if row["name"] == name)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and what stands on standard error."""
        self.process.send_signal(number)
        assert self.process.stderr is not None
        err = self.process.stderr.read()
        code = self.process.wait(120)
        self.reader.join(120)
        return code, err


@contextmanager
def serving(*arguments: object) -> Iterator[Process]:
    server = Process(*arguments)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        server.reader.join(120)
        assert server.process.stdout is not None and server.process.stderr is not None
        server.process.stdout.close()
        server.process.stderr.close()


def rests(pid: int) -> bool:
    """Whether a process and its children use no processor for half a second, but for what serving costs."""

    def used() -> int:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        fields = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in (pid, *children)]
        return sum(int(entry[11]) + int(entry[12]) for entry in fields)

    before = used()
    time.sleep(0.5)
    return used() - before < 0.2 * os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def good(build: Any) -> Path:
    return Path(build("good", [("Add", ["x", "w"], ["y"], {})], *ENDS, {"w": np.ones(4, np.float32)}))


@pytest.fixture(scope="module")
def endless(build: Any) -> Path:
    """A loop whose condition is always true."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["v", "one"], ["w"])],
        "body",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("v", F, None)],
        [value("d", TensorProto.BOOL, []), value("w", F, None)],
    )
    weights = {"go": np.array(True), "one": np.ones(1, np.float32)}
    return Path(build("endless", [("Loop", ["", "go", "x"], ["y"], {"body": body})], *ENDS, weights))


@pytest.fixture(scope="module")
def heavy(build: Any) -> Path:
    """One operator that works for an hour: the largest of 2 million numbers, 2 million times."""
    nodes: list[Any] = [("ReduceMean", ["x"], ["mean"], {"keepdims": 0}), ("Mul", ["a", "mean"], ["c"], {})]
    nodes += [("MatMul", ["c", "b"], ["d"], {}), ("MaxPool", ["d"], ["e"], {"kernel_shape": [1500, 1500]})]
    nodes += [("ReduceMax", ["e"], ["m"], {"keepdims": 0}), ("Add", ["x", "m"], ["y"], {})]
    weights = {"a": np.ones((1, 1, 3000, 1), np.float32), "b": np.ones((1, 1, 1, 3000), np.float32)}
    return Path(build("heavy", nodes, *ENDS, weights))


def folder(path: Path, *models: Path, hurried: str = "") -> Path:
    """A folder of models, one of which has five seconds to load."""
    path.mkdir()
    if hurried:
        (path / "ox.toml").write_text(f"[models.{hurried}]\nload_timeout_s = 5\n")
    for model in models:
        (path / model.name).write_bytes(model.read_bytes())
    return path


@pytest.mark.slow_after(1)
@needs_proc
@pytest.mark.parametrize("kind", ["endless", "heavy"])
def test_beside_a_good_one_at_the_start(kind: str, good: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    stuck = request.getfixturevalue(kind)
    with serving(folder(tmp_path / "models", good, stuck, hurried=kind)) as server:
        server.says(rf"loading version 1 of '{kind}': .+, \d+ s so far")
        wait_until(lambda: server.infer("good")[0] == 200)
        if server.state(kind)[0] == "LOADING":  # on a very busy machine all of it may be over by now
            assert server.ask("/v2/health/live")[0] == 200 and server.ask("/v2/health/ready")[0] == 400
            assert server.ask(f"/v2/models/{kind}/ready")[0] == 400
            assert re.search(r"s so far$", server.state(kind)[1])
        server.says("http://")
        state, reason = server.state(kind)
        assert state == "UNAVAILABLE" and "takes too long to load" in reason and "at most 5 s" in reason
        assert server.ask("/v2/health/ready")[0] == 200 and server.infer("good")[0] == 200
        wait_until(lambda: rests(server.process.pid))
        code, err = server.end()
        assert code == 0 and "takes too long" in err and "terminate called" not in err and len(err.splitlines()) == 1


@needs_proc
def test_loaded_beside_what_serves(good: Path, endless: Path, tmp_path: Path) -> None:
    path = folder(tmp_path / "models", good, hurried="endless")
    with serving(path) as server:
        server.says("http://")
        os.replace(folder(tmp_path / "aside", endless) / "endless.onnx", path / "endless.onnx")
        server.says(r"loading version 1 of 'endless': .+, \d+ s so far")
        assert server.infer("good")[0] == 200 and server.ask("/v2/health/ready")[0] == 200
        wait_until(lambda: server.state("endless")[0] == "UNAVAILABLE")
        assert "takes too long" in server.state("endless")[1]
        wait_until(lambda: rests(server.process.pid))
        code, err = server.end()
        assert code == 0 and len(err.splitlines()) == 1 and "takes too long" in err


@pytest.mark.slow_after(1)
@needs_proc
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_in_the_middle_of_the_start(
    endless: Path, good: Path, tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    with serving(folder(tmp_path / "models", good, endless), "--workers", workers) as server:
        for worker in range(workers):
            server.says(f"{'' if workers == 1 else f'worker {worker}: '}loading version 1 of 'endless'")
        pids = children(server.process.pid)
        assert server.end(number) == (0, "")
        assert "draining\n" in server.lines and server.lines[-1].startswith("stopped after")
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))  # nothing burns on


def children(pid: int) -> list[int]:
    """Those of a process, and theirs."""
    own = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for task in Path(f"/proc/{pid}/task").iterdir():
        own += [int(child) for child in (task / "children").read_text().split() if int(child) not in own]
    return own + [grandchild for child in own for grandchild in children(child)]


@needs_proc
def test_a_signal_while_something_is_loaded(endless: Path, good: Path, tmp_path: Path) -> None:
    path = folder(tmp_path / "models", good)
    with serving(path) as server:
        server.says("http://")
        os.replace(folder(tmp_path / "aside", endless) / "endless.onnx", path / "endless.onnx")
        server.says("loading version 1 of 'endless'")
        assert server.end() == (0, "")


def test_a_file_that_was_named_ends_the_start(endless: Path, good: Path) -> None:
    with serving(good, endless, "--load-timeout-s", 3) as server:
        assert server.process.stderr is not None
        err = server.process.stderr.read()
        assert server.process.wait(120) == 1 and err.startswith("LoadError: version 1 of 'endless' takes too long")
        assert err.count("takes too long") == 1 and "terminate called" not in err


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("workers", [1, 2])
def test_an_unload_call_ends_a_load(endless: Path, good: Path, tmp_path: Path, workers: int) -> None:
    path = folder(tmp_path / "models", good)
    with serving(path, "--manage", "--no-watch", "--workers", workers) as server:
        server.says("http://")
        os.replace(folder(tmp_path / "aside", endless) / "endless.onnx", path / "endless.onnx")
        answers: list[Any] = []
        call = threading.Thread(target=lambda: answers.append(server.ask("/v2/repository/models/endless/load", {})))
        call.start()
        server.says("loading version 1 of 'endless'.+, 4 s so far")
        assert server.ask("/v2/repository/models/endless/unload", {})[0] == 200
        call.join(60)
        assert answers[0][0] == 400 and "unloaded by a call" in answers[0][1]["error"]
        assert server.state("endless") == ("UNAVAILABLE", "unloaded by a call")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_a_change_of_the_file_ends_its_load(endless: Path, good: Path, tmp_path: Path, change: str) -> None:
    path = folder(tmp_path / "models", good, endless)
    with serving(path) as server:
        server.says("loading version 1 of 'endless'")
        if change == "removed":
            (path / "endless.onnx").unlink()
        else:
            os.replace(folder(tmp_path / "aside", good) / "good.onnx", path / "endless.onnx")
        server.says("http://")
        if change == "replaced":
            wait_until(lambda: server.infer("endless")[0] == 200)
        else:
            wait_until(lambda: server.infer("endless")[0] == 404)
        assert server.infer("good")[0] == 200 and server.end() == (0, "")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name")
def test_a_pipe_that_is_called_a_model(good: Path, tmp_path: Path) -> None:
    path = folder(tmp_path / "models", good)
    os.mkfifo(path / "pipe.onnx")
    (path / "other" / "1").mkdir(parents=True)
    os.mkfifo(path / "other" / "1" / "model.onnx")
    with serving(path) as server:
        server.says("http://")
        assert server.infer("good")[0] == 200
        for name in ("pipe", "other"):
            assert server.state(name)[0] == "UNAVAILABLE" and "a pipe or a device" in server.state(name)[1]


@needs_proc
def test_a_run_that_cannot_be_ended(build: Any, good: Path) -> None:
    """A client's request keeps one operator busy for an hour: it is answered with 504, and the server ends with 0."""
    value = helper.make_tensor_value_info
    weights = {"a": np.ones((1, 1, 3000, 1), np.float32), "b": np.ones((1, 1, 1, 3000), np.float32)}
    heavy = helper.make_graph(
        [
            helper.make_node("Mul", ["a", "m"], ["n"]),  # else it is worked out when the model is loaded
            helper.make_node("MatMul", ["n", "b"], ["c"]),
            helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[1500, 1500]),
            helper.make_node("ReduceMax", ["p"], ["t"], keepdims=0),
        ],
        "heavy",
        [],
        [value("t", F, None)],
    )
    light = helper.make_graph([helper.make_node("Identity", ["zero"], ["e"])], "light", [], [value("e", F, None)])
    nodes: list[Any] = [
        ("ReduceMax", ["x"], ["m"], {"keepdims": 0}),
        ("Greater", ["m", "thousand"], ["far"], {}),
        ("If", ["far"], ["z"], {"then_branch": heavy, "else_branch": light}),
        ("Add", ["x", "z"], ["y"], {}),
    ]
    weights |= {"thousand": np.array(1000, np.float32), "zero": np.array(0, np.float32)}
    model = build("sometimes", nodes, *ENDS, weights)
    with serving(good, model, "--deadline-ms", 500, "--limit", "drain_s=2") as server:
        server.says("http://")
        assert server.infer("sometimes")[0] == 200
        assert server.infer("sometimes", 2000)[0] == 504
        assert server.end() == (0, "")
