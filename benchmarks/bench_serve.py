"""The server beside FastAPI + uvicorn + ONNX Runtime without batching: a 64-64-10 MLP, one row a request, JSON.

    python benchmarks/bench_serve.py [--rounds 5] [--seconds 2] [--out benchmarks/results/bench_serve.md]

Each server runs in a process of its own, one process and one ONNX Runtime thread each, with its own best settings:
uvicorn on uvloop and httptools without access log, an async endpoint, orjson for the answer. They take turns; the
figures are medians over the rounds. The load comes from a third process in a closed loop over loopback, and shares the
machine's cores with the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
CONCURRENCY = (1, 8, 32)
OX, PEER = "ox serve", "FastAPI"


def write_model(path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    weights = [random.standard_normal(shape).astype(np.float32) / 8 for shape in ((64, 64), (64, 10))]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w1"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", size]) for n, size in (("x", 64), ("y", 10)))
    graph = helper.make_graph(
        nodes, "mlp", [x], [y], [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def serve_with_fastapi(model: str, port: int) -> None:
    """What one writes by hand: a checked request, a session, an answer in the same JSON as the protocol's."""
    import onnxruntime
    import orjson
    import uvicorn
    from fastapi import FastAPI, Response
    from pydantic import BaseModel

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    class Tensor(BaseModel):
        name: str
        shape: list[int]
        datatype: str
        data: list[float]

    class Request(BaseModel):
        inputs: list[Tensor]

    app = FastAPI()

    # The annotation is a class of this function, so it is handed over as an object rather than as its name.
    async def infer(request):  # type: ignore[no-untyped-def]
        feed = {t.name: np.array(t.array, np.float32).reshape(t.shape) for t in request.inputs}
        (y,) = session.run(["y"], feed)
        output = {"name": "y", "datatype": "FP32", "shape": y.shape, "data": y.ravel()}
        reply = {"model_name": "mlp", "model_version": "1", "outputs": [output]}
        return Response(orjson.dumps(reply, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")

    infer.__annotations__ = {"request": Request}
    app.post("/v2/models/mlp/infer")(infer)

    @app.get("/v2/health/ready")
    async def ready() -> Response:
        return Response()

    uvicorn.run(app, port=port, loop="uvloop", http="httptools", access_log=False, log_level="warning")


class Asker(asyncio.Protocol):
    """One client: sends a request, waits for the answer, sends the next."""

    def __init__(self, request: bytes, times: list[float]) -> None:
        self.request, self.times = request, times
        self.buffer, self.length = b"", 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.ask()

    def ask(self) -> None:
        self.begun = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.length:  # every answer to the same question has the same length
            head, end, _ = self.buffer.partition(b"\r\n\r\n")
            found = re.search(rb"content-length: (\d+)", head)
            if not end or found is None:
                return
            self.length = len(head) + 4 + int(found[1])
        if len(self.buffer) < self.length:
            return
        if len(self.buffer) != self.length or not self.buffer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"unexpected answer: {self.buffer[:200]!r}")
        self.times.append(time.perf_counter() - self.begun)
        self.buffer = b""
        self.ask()


def load(port: int, concurrency: int, seconds: float) -> None:
    """Prints {"rate": requests/s, "p50": ms, "p99": ms}."""
    import uvloop

    row = np.random.default_rng(1).standard_normal(64).astype(np.float32).round(4)
    entry = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [round(float(v), 4) for v in row]}
    body = json.dumps({"inputs": [entry]}).encode()
    head = "POST /v2/models/mlp/infer HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}"

    async def main() -> None:
        times: list[float] = []
        loop = asyncio.get_running_loop()
        pairs = [
            await loop.create_connection(lambda: Asker(head.encode() + b"\r\n\r\n" + body, times), "127.0.0.1", port)
            for _ in range(concurrency)
        ]
        await asyncio.sleep(seconds / 4)  # warm
        times.clear()
        begun = time.perf_counter()
        await asyncio.sleep(seconds)
        rate = len(times) / (time.perf_counter() - begun)
        times.sort()
        for transport, _ in pairs:
            transport.abort()
        p50, p99 = (1000 * times[int(len(times) * part)] for part in (0.5, 0.99))
        print(json.dumps({"rate": rate, "p50": p50, "p99": p99}))

    uvloop.new_event_loop().run_until_complete(main())


def measure(side: str, model: Path, seconds: float) -> dict[int, dict[str, float]]:
    """Starts one server, asks it at every concurrency, stops it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / p) for p in ("", "cli", "models"))}
    if side == OX:
        line = [sys.executable, "-m", "ox_cli", "serve", str(model), "--port", str(port), "--device", "cpu"]
    else:
        line = [sys.executable, __file__, "--peer", str(model), str(port)]
    server = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL)
    try:
        give_up = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                if time.monotonic() > give_up or server.poll() is not None:
                    raise SystemExit(f"{side} does not start") from None
                time.sleep(0.05)
        results = {}
        for concurrency in CONCURRENCY:
            asker = [sys.executable, __file__, "--load", str(port), str(concurrency), str(seconds)]
            results[concurrency] = json.loads(subprocess.run(asker, check=True, capture_output=True, text=True).stdout)
        return results
    finally:
        server.terminate()
        server.wait(15)


def report(rounds: dict[str, list[dict[int, dict[str, float]]]]) -> str:
    import fastapi
    import onnxruntime
    import uvicorn

    def median(side: str, concurrency: int, figure: str) -> float:
        return statistics.median(result[concurrency][figure] for result in rounds[side])

    lines = [
        "# ox serve beside FastAPI + uvicorn + ONNX Runtime",
        "",
        f"64-64-10 MLP, one row a request, JSON both ways; medians of {len(rounds[OX])} alternating rounds.",
        f"Python {platform.python_version()}, onnxruntime {onnxruntime.__version__}, fastapi {fastapi.__version__}, "
        f"uvicorn {uvicorn.__version__}, {os.cpu_count()} cores shared by server and load. "
        "`python benchmarks/bench_serve.py` measures again.",
        "With one client both sides mostly wait to be scheduled on the shared cores: there, compare the p50.",
        "",
        "| clients | ox, requests/s | p50 / p99, ms | FastAPI, requests/s | p50 / p99, ms | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for concurrency in CONCURRENCY:
        cells = [str(concurrency)]
        for side in (OX, PEER):
            rate, p50, p99 = (median(side, concurrency, figure) for figure in ("rate", "p50", "p99"))
            cells += [f"{rate:,.0f}", f"{p50:.2f} / {p99:.2f}"]
        ratio = median(OX, concurrency, "rate") / median(PEER, concurrency, "rate")
        lines.append(f"| {' | '.join(cells)} | {ratio:.1f}× |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--load", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return serve_with_fastapi(options.peer[0], int(options.peer[1]))
    if options.load:
        return load(int(options.load[0]), int(options.load[1]), float(options.load[2]))
    rounds: dict[str, list[dict[int, dict[str, float]]]] = {OX: [], PEER: []}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "mlp.onnx"
        write_model(model)
        for number in range(options.rounds):
            for side in (OX, PEER):
                rounds[side].append(measure(side, model, options.seconds))
                rates = ", ".join(f"{c}: {r['rate']:,.0f}/s" for c, r in rounds[side][-1].items())
                print(f"round {number + 1}  {side:<9} {rates}", flush=True)
    text = report(rounds)
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)


if __name__ == "__main__":
    main()
