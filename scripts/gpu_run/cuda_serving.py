"""A server on ONNX Runtime's CUDA provider beside the CPU provider: `python -m gpu_run.cuda_serving FILE`.

On the stand-in for a GPU the CPU provider computes in CUDA's place, so that this program itself is tried.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

from gpu_run import device, parts

ROWS, LOADS, LOST = 8, 50, 256 << 20  # of a batch at most; of a model; bytes that so many loads may take in all
SIZES = {"mlp": (64,), "conv": (3, 16, 16)}  # of a row


def write_models(folder: Path) -> None:
    """Two models of x to y, in a folder that is served."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    weights = {"a": (64, 64), "b": (64, 10), "k": (8, 3, 3, 3), "w": (8, 10)}
    nodes = {
        "mlp": [("MatMul", "x a", "h"), ("Relu", "h", "r"), ("MatMul", "r b", "y")],
        "conv": [("Conv", "x k", "c"), ("Relu", "c", "r"), ("GlobalAveragePool", "r", "p"), ("Flatten", "p", "f"),
                 ("MatMul", "f w", "y")],
    }  # fmt: skip
    for name, listed in nodes.items():
        used = {word for _, inputs, _ in listed for word in inputs.split()}
        x, y = (
            helper.make_tensor_value_info(end, TensorProto.FLOAT, ["batch", *size])
            for end, size in (("x", SIZES[name]), ("y", (10,)))
        )
        made = [helper.make_node(op, inputs.split(), [output]) for op, inputs, output in listed]
        constants = [
            numpy_helper.from_array(random.standard_normal(size).astype(np.float32), key)
            for key, size in weights.items()
            if key in used
        ]
        graph = helper.make_graph(made, name, [x], [y], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.save(model, folder / f"{name}.onnx")


class Client:
    """Asks a server, and compares its answers with the CPU provider's."""

    def __init__(self, server: Any, folder: Path) -> None:
        from ox.serve.runtime.session import Engine
        from ox.serve.runtime.source import read

        self.server = server
        self.plain = {name: Engine(read(folder / f"{name}.onnx"), "cpu", 1, 1) for name in SIZES}

    def post(self, path: str, body: Any = None) -> Any:
        connection = HTTPConnection(self.server.host, self.server.port, timeout=120)
        try:
            connection.request("POST", path, json.dumps(body or {}))
            reply = connection.getresponse()
            text = reply.read()
        finally:
            connection.close()
        assert reply.status == 200, f"{path}: {reply.status} {text[:300]!r}"
        return json.loads(text or b"{}")

    def check(self, name: str, rows: int, seed: int) -> float:
        """One request with a batch. Returns the largest difference."""
        x = np.random.default_rng(seed).standard_normal((rows, *SIZES[name])).astype(np.float32)
        tensor = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist()}
        (output,) = self.post(f"/v2/models/{name}/infer", {"inputs": [tensor]})["outputs"]
        found = np.array(output["data"], np.float32).reshape(output["shape"])
        (expected,) = self.plain[name].run({"x": x})
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
        return float(abs(found - expected).max())


@contextmanager
def served(instances: int = 1, **cuda: Any) -> Iterator[Client]:
    """A client of a server of both models, in float32."""
    from ox.serve import ModelConfig, Server

    with tempfile.TemporaryDirectory() as temporary:
        write_models(Path(temporary))
        options = ModelConfig("cuda", max_rows=ROWS, instances=instances, cuda={"use_tf32": False, **cuda})
        with Server([temporary], options=options, watch=False, manage=True) as server:
            assert {model.engine.device for model in server.models} == {"cuda"}
            yield Client(server, Path(temporary))


def results() -> dict[str, Any]:
    """Batches of several sizes; one is larger than the model's largest."""
    with served() as client:
        differences = [client.check(name, rows, rows) for name in SIZES for rows in (1, 3, ROWS, ROWS + 3)]
    return {"largest difference": max(differences)}


def three_instances() -> dict[str, Any]:
    """Many requests at once."""
    with served(instances=3) as client, ThreadPoolExecutor(6) as threads:
        requests = [(name, 1 + i % 5, i) for i in range(20 if device.short() else 200) for name in SIZES]
        differences = [*threads.map(lambda each: client.check(*each), requests)]
    return {"requests": len(differences), "largest difference": max(differences)}


def cuda_graphs() -> dict[str, Any]:
    """Two sizes of batches in turn, whose graphs get new data in each replay."""
    with served(enable_cuda_graph=True) as client:
        differences = [client.check(name, rows, i) for i in range(10) for name in SIZES for rows in (1, 4)]
    return {"replays": len(differences), "largest difference": max(differences)}


def loads() -> dict[str, Any]:
    """A model is unloaded and loaded while another one answers."""
    import cupy

    free: list[int] = []
    with served(enable_cuda_graph=True) as client:
        for i in range(5 if device.short() else LOADS):
            client.post("/v2/repository/models/mlp/unload")
            client.check("conv", 2, i)
            client.post("/v2/repository/models/mlp/load")
            client.check("mlp", 3, i)
            free.append(cupy.cuda.runtime.memGetInfo()[0])
    lost = free[min(4, len(free) - 1)] - free[-1]  # the first ones fill pools
    assert lost < LOST, f"{len(free)} loads have taken {lost >> 20} MiB of the GPU"
    return {"loads": len(free), "MiB taken": lost >> 20}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "results": results, "three instances": three_instances, "CUDA graphs": cuda_graphs, "loads": loads,
}  # fmt: skip


def main() -> int:
    if parts.ONLY in sys.argv:
        device.prepare()
        if device.stand_in():
            import cuda_session

            cuda_session.install()
        return parts.answer(PARTS)
    result = parts.run("gpu_run.cuda_serving", [*PARTS], Path(sys.argv[1]).with_suffix(".log"))
    device.write({"failed": result["failed"], "served": result["found"]} if result else {})
    return 0 if result and not result["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
