"""A server of models on a GPU, and a client that compares its answers with the CPU provider's."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

from gpu_run.served_models import numbers, write_small

ROWS = 8  # of a batch at most
TOLERANCE = 1e-3  # of float32, of the largest number of an output
TYPES = {"float32": "FP32", "int64": "INT64"}


class Client:
    """Asks a server over HTTP.

    Args:
        folder: of its files.
    """

    def __init__(self, server: Any, folder: Path) -> None:
        from ox.serve.runtime.session import Engine
        from ox.serve.runtime.source import read

        self.server = server
        self.plain = {file.stem: Engine(read(file), "cpu", 1, 1) for file in sorted(folder.glob("*.onnx"))}

    def ask(self, path: str, body: Any = None) -> tuple[int, str]:
        """The status and the body of an answer."""
        connection = HTTPConnection(self.server.host, self.server.port, timeout=120)
        try:
            connection.request("POST", path, json.dumps(body or {}))
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def post(self, path: str, body: Any = None) -> Any:
        status, text = self.ask(path, body)
        assert status == 200, f"{path}: {status} {text[:300]}"
        return json.loads(text or "{}")

    def check(self, name: str, rows: int, seed: int, tolerance: float = TOLERANCE) -> float:
        """One request with a batch of a model with one input, `x`. Returns the largest difference."""
        (info,) = self.plain[name].inputs
        return self.compare(name, {"x": numbers(rows, *map(int, info.dims[1:]), seed=seed)}, tolerance)

    def compare(self, name: str, feed: Mapping[str, np.ndarray[Any, Any]], tolerance: float = TOLERANCE) -> float:
        """One request. Returns the largest difference."""
        tensors = [
            {"name": key, "shape": list(x.shape), "datatype": TYPES[str(x.dtype)], "data": x.ravel().tolist()}
            for key, x in feed.items()
        ]
        outputs = self.post(f"/v2/models/{name}/infer", {"inputs": tensors})["outputs"]
        largest = 0.0
        for output, expected in zip(outputs, self.plain[name].run(dict(feed)), strict=True):
            got = np.array(output["data"], np.float32).reshape(output["shape"])
            np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * float(abs(expected).max()))
            largest = max(largest, float(abs(got - expected).max()))
        return largest


@contextmanager
def served(
    write: Callable[[Path], object] = write_small, device: str = "cuda", limits: Any = None, **options: Any
) -> Iterator[Client]:
    """A client of a server.

    Args:
        write: writes the models into a folder.
        options: as of `ModelConfig`.
    """
    from ox.serve import ModelConfig, Server

    with tempfile.TemporaryDirectory() as temporary:
        write(Path(temporary))
        chosen = ModelConfig(device, **options)
        with Server([temporary], options=chosen, limits=limits, watch=False, manage=True) as server:
            places = {model.engine.device for model in server.models}
            assert places == {"cuda"}, f"models run on {places}"
            yield Client(server, Path(temporary))
