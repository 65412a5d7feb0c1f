"""Models that say who they are, folders of them, and a server that watches closely."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from waiting import wait_until

from ox.serve import ModelConfig, RequestLimits, Server


def constant(path: Path, value: float, *, dims: int = 4, operator: str = "Add") -> Path:
    """Writes a model whose outputs are `x + value`, twice, from two weights; renamed into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = [numpy_helper.from_array(np.full(dims, value, np.float32), name) for name in ("w", "v")]
    nodes = [helper.make_node(operator, ["x", "w"], ["y"]), helper.make_node(operator, ["x", "v"], ["z"])]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", dims]) for name in "xyz"]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    half = path.with_name(".half")
    onnx.save(model, half)
    os.replace(half, path)
    return path


class Caller:
    """Asks a server."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def ask(self, target: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(f"{self.server.url}{target}", data, timeout=300) as reply:
                text = reply.read()
                return reply.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
                return error.code, json.loads(text)["error"] if text else None

    def infer(self, model: str, rows: int = 1) -> tuple[int, Any]:
        """The status, and the version with the constant of the model that answered, or the error."""
        entry = {"name": "x", "shape": [rows, 4], "datatype": "FP32", "data": [0] * 4 * rows}
        status, answer = self.ask(f"/v2/models/{model}/infer", {"inputs": [entry]})
        if status != 200:
            return status, answer
        values = {value for output in answer["outputs"] for value in output["data"]}
        assert len(values) == 1, answer
        return status, (int(answer["model_version"]), values.pop())

    def index(self, name: str = "") -> dict[str, tuple[str, str]]:
        """State and reason by version."""
        rows = self.server.service.index()
        return {row["version"]: (row["state"], row["reason"]) for row in rows if name in ("", row["name"])}


@pytest.fixture(scope="session")
def make() -> Callable[..., Path]:
    return constant


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], Any]], Any]:
    return wait_until


@pytest.fixture(scope="session")
def caller() -> type[Caller]:
    return Caller


@pytest.fixture(scope="session")
def serve() -> Callable[..., Server]:
    """A server that looks at the disk all the time."""

    def build(*paths: Path, limits: RequestLimits | None = None, **settings: Any) -> Server:
        options = settings.pop("options", ModelConfig(device="cpu", instances=1))
        return Server(paths, options=options, limits=limits or RequestLimits(poll_s=0.02), **settings)

    return build
