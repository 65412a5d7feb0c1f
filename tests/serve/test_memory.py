"""Requests whose values or sizes ask for more memory than there is, sent to a server of its own process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from rows import rows
from waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")

ROOT = Path(__file__).parents[2]
CODE = "import sys; sys.path[:0] = sys.argv[1].split(':'); from ox_cli.main import main; sys.exit(main(sys.argv[2:]))"
CAP_MIB = 256
F, INT, S, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL
TOO_MUCH, TAKEN = "needs more memory than a run may take", "the memory for runs is taken by other requests"


def loop(kind: str) -> Any:
    """A body: `collect` keeps 1 MB of each turn, `grow` doubles what it carries, `spin` does nothing."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Identity", ["c"], ["d"])]
    inputs, outputs = [value("i", INT, []), value("c", B, [])], [value("d", B, [])]
    if kind == "collect":
        nodes += [helper.make_node("ConstantOfShape", ["size"], ["s"])]
        outputs += [value("s", F, None)]
    else:
        nodes += [helper.make_node("Concat", ["v", "v"] if kind == "grow" else ["v"], ["w"], axis=0)]
        inputs, outputs = [*inputs, value("v", F, None)], [*outputs, value("w", F, None)]
    return helper.make_graph(nodes, "body", inputs, outputs)


UNIT = {"zero": np.array(0), "one": np.array(1)}
X1 = {"x": (F, [1])}
MODELS: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any]]] = {
    "shape": ([("ConstantOfShape", ["s"], ["y"], {})], {"s": (INT, [2])}, {}),
    "inside": ([("ConstantOfShape", ["s"], ["t"], {}), ("ReduceSum", ["t"], ["y"], {})], {"s": (INT, [2])}, {}),
    "range": ([("Range", ["zero", "n", "one"], ["y"], {})], {"n": (INT, [])}, UNIT),
    "expand": ([("Expand", ["x", "s"], ["y"], {})], {**X1, "s": (INT, [2])}, {}),
    "tile": ([("Tile", ["x", "s"], ["y"], {})], {**X1, "s": (INT, [1])}, {}),
    "resize": ([("Resize", ["x", "", "k"], ["y"], {"mode": "linear"})], {"x": (F, [1, 1, 2, 2]), "k": (F, [4])}, {}),
    "pad": ([("Pad", ["x", "s"], ["y"], {})], {**X1, "s": (INT, [2])}, {}),
    "onehot": (
        [("OneHot", ["i", "n", "v"], ["y"], {})],
        {"i": (INT, [1]), "n": (INT, [])},
        {"v": np.array([0, 1], np.float32)},
    ),
    "words": ([("Tile", ["x", "s"], ["y"], {})], {"x": (S, [1]), "s": (INT, [1])}, {}),
    "collect": (
        [("Loop", ["n", "", ], ["y"], {"body": loop("collect")})],
        {"n": (INT, [])},
        {"size": np.array([250_000])},
    ),
    "grow": ([("Loop", ["n", "", "x"], ["y"], {"body": loop("grow")})], {**X1, "n": (INT, [])}, {}),
    "spin": ([("Loop", ["n", "", "x"], ["y"], {"body": loop("spin")})], {**X1, "n": (INT, [])}, {}),
    "attention": (
        [
            ("Transpose", ["x"], ["t"], {"perm": [0, 2, 1]}),
            ("MatMul", ["x", "t"], ["m"], {}),
            ("Softmax", ["m"], ["p"], {}),
            ("MatMul", ["p", "x"], ["y"], {}),
        ],
        {"x": (F, ["batch", "tokens", 1])},
        {},
    ),
}  # fmt: skip
ONE, ROW = np.ones(1, np.float32), {"x": np.ones((1, 64), np.float32)}
ATTACKS: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "the issue's": ("shape", {"s": np.array([10**9, 1])}, 413, TOO_MUCH),
    "1e12": ("shape", {"s": np.array([10**12, 1])}, 413, TOO_MUCH),
    "more than 64 bits": ("shape", {"s": np.array([2**62, 4])}, 413, TOO_MUCH),
    "negative": ("shape", {"s": np.array([-1, 4])}, 400, "a tensor of a negative size"),
    "2^62 elements": ("shape", {"s": np.array([2**31, 2**31])}, 413, TOO_MUCH),
    "Range to 2^62": ("range", {"n": np.array(2**62)}, 413, TOO_MUCH),
    "inside of the graph": ("inside", {"s": np.array([10**9, 1])}, 413, TOO_MUCH),
    "Range": ("range", {"n": np.array(10**10)}, 413, TOO_MUCH),
    "Expand": ("expand", {"x": ONE, "s": np.array([10**9, 1])}, 413, TOO_MUCH),
    "Tile": ("tile", {"x": ONE, "s": np.array([10**9])}, 413, TOO_MUCH),
    "Tile beyond ONNX Runtime's own limit": ("tile", {"x": ONE, "s": np.array([10**11])}, 413, TOO_MUCH),
    "Resize": (
        "resize",
        {"x": np.ones((1, 1, 2, 2), np.float32), "k": np.array([1, 1, 1e5, 1e5], np.float32)},
        413,
        TOO_MUCH,
    ),
    "Pad": ("pad", {"x": ONE, "s": np.array([0, 10**9])}, 413, TOO_MUCH),
    "OneHot": ("onehot", {"i": np.array([0]), "n": np.array(10**9)}, 413, TOO_MUCH),
    "strings": ("words", {"x": np.array(["a"], object), "s": np.array([10**8])}, 413, TOO_MUCH),
    "a Loop that collects": ("collect", {"n": np.array(10**9)}, 413, TOO_MUCH),
    "a Loop that grows": ("grow", {"x": ONE, "n": np.array(60)}, 413, TOO_MUCH),
    "a Loop without end": ("spin", {"x": ONE, "n": np.array(1 << 60)}, 504, "took too long"),
    "attention over many tokens": ("attention", {"x": np.ones((1, 60_000, 1), np.float32)}, 413, ""),
}


def resident_mib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) // 1024  # type: ignore[index]


class Watch:
    """The most memory that a process has, looked at every few milliseconds."""

    def __init__(self, pid: int) -> None:
        self.pid, self.most, self._stop = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.005):
            self.most = max(self.most, resident_mib(self.pid))


@pytest.fixture(scope="module")
def attacked(build: Any, mlp: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Any]]:
    """The process of a server of all these models, and its address."""
    folder = tmp_path_factory.mktemp("attacked")
    paths = [mlp]
    for name, (nodes, inputs, weights) in MODELS.items():
        kind = S if name == "words" else INT if name == "range" else F
        paths.append(build(name, nodes, inputs, {"y": (kind, None)}, weights, folder=folder))
    arguments = ["--port", "0", "--limit", f"memory={CAP_MIB}MiB", "--deadline-ms", "60000", "--device", "cpu"]
    arguments += ["--max-rows", "8", "--threads", "1"]  # neither is measured
    command = [sys.executable, "-c", CODE, f"{ROOT}:{ROOT / 'cli'}", "serve", *map(str, paths), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    said = []
    try:
        while not (found := re.search(r"http://(.+?):(\d+)", said[-1] if said else "")):
            said.append(process.stdout.readline())
            assert said[-1], said
        yield process.pid, SimpleNamespace(host=found[1], port=int(found[2]))
    finally:
        process.kill()
        process.communicate()


def ask(client: Any, model: str, feed: dict[str, np.ndarray[Any, Any]], timeout_s: int = 60) -> tuple[int, str]:
    kinds = {"i": "INT64", "f": "FP32", "O": "BYTES"}
    entries, blobs = [], []
    for name, array in feed.items():
        entry: dict[str, Any] = {"name": name, "shape": list(array.shape), "datatype": kinds[array.dtype.kind]}
        if array.dtype.kind == "O":
            entry["data"] = array.tolist()
        else:
            blobs.append(array.tobytes())
            entry["parameters"] = {"binary_data_size": array.nbytes}
        entries.append(entry)
    text = json.dumps({"inputs": entries, "parameters": {"timeout": timeout_s * 1_000_000}}).encode()
    headers = {"inference-header-content-length": str(len(text))}
    status, _, body = client.ask("POST", f"/v2/models/{model}/infer", text + b"".join(blobs), headers)
    return status, body.decode()


@rows("name", ATTACKS)
def test_a_small_request_that_asks_for_much(attacked: tuple[int, Any], connect: Any, name: str) -> None:
    """Answered, within bounded memory, while others are answered too, or asked to come again while it is all taken."""
    pid, address = attacked
    model, feed, status, words = ATTACKS[name]
    before = resident_mib(pid)
    others: list[tuple[int, str]] = []
    begun, over = threading.Event(), threading.Event()

    def other() -> None:
        with connect(address) as client:
            while not over.is_set():
                others.append(ask(client, "mlp", ROW))
                begun.set()

    neighbour = threading.Thread(target=other)
    neighbour.start()
    try:
        assert begun.wait(60)  # some attacks are over before a new thread has connected
        with Watch(pid) as watch, connect(address) as client:
            client.socket.settimeout(90)
            timeout_s = 1 if model == "spin" else 60
            got, text = ask(client, model, feed, timeout_s)
            if got == 503:  # what others hold is more than it would need alone, so it comes again, as it was asked to
                assert TAKEN in text
                got, text = ask(client, model, feed, timeout_s)
            after = ask(client, "mlp", ROW)[0]
    finally:
        over.set()
        neighbour.join()
    assert got == status and words in text, text
    if status == 413 and words:
        assert "--limit memory" in text
    assert watch.most <= before + 2 * CAP_MIB + 64, (watch.most, before)
    answered = [code for code, said in others if not (code == 503 and TAKEN in said)]
    assert after == 200 and answered and set(answered) == {200}, others[-3:]


def test_memory_returns_after_a_peak(attacked: tuple[int, Any], connect: Any) -> None:
    """Most of the memory that runs may have, then little: what the peak took is given back."""
    pid, address = attacked
    with connect(address) as client:
        client.socket.settimeout(90)
        for _ in range(3):
            ask(client, "mlp", ROW)
        before = settled(pid)
        with Watch(pid) as watch:
            status, text = ask(client, "inside", {"s": np.array([50_000_000, 1])})
        assert status == 200, text
        assert watch.most > before + 150

        def returned() -> bool:
            assert ask(client, "mlp", ROW)[0] == 200
            return resident_mib(pid) <= 1.2 * before

        wait_until(returned)


def settled(pid: int) -> int:
    """The resident memory once it has not fallen for two seconds."""
    low, since = resident_mib(pid), time.monotonic()
    while time.monotonic() < since + 2:
        time.sleep(0.05)
        if (now := resident_mib(pid)) < low:
            low, since = now, time.monotonic()
    return low
