"""A server that may be managed, and models that show what the protocol can do."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ox.graph.contract import Contract, Sample, TensorInfo
from ox.serve import ModelConfig, Server


@pytest.fixture(scope="session")
def scores(build: Any) -> Path:
    """Gives its input back: scores [batch, 4] of labelled classes, with a golden sample."""
    ends = (TensorProto.FLOAT, ["batch", 4])
    row = np.array([[0.5, -1, 2, 0]], np.float32)
    contract = Contract(
        (TensorInfo("x", "FP32", ("batch", 4), "four numbers"),),
        (TensorInfo("y", "FP32", ("batch", 4), None, ("cat", "dog", "<owl>", "emu")),),
        (Sample({"x": row}, {"y": row}),),
    )
    return build("scores", [("Identity", ["x"], ["y"], {})], {"x": ends}, {"y": ends}, contract=contract)


@pytest.fixture(scope="session")
def managed(mlp: Path, mixed: Path, scores: Path) -> Iterator[Server]:
    """Three models behind a server that everybody may manage."""
    with Server([mlp, mixed, scores], options=ModelConfig(device="cpu", instances=1), manage=True) as running:
        yield running


@pytest.fixture
def manager(managed: Server, connect: Any) -> Iterator[Any]:
    with connect(managed) as connected:
        yield connected


@pytest.fixture
def shared() -> Iterator[Callable[[bytes], str]]:
    """Makes shared memory of some bytes and gives its key."""
    made: list[Path] = []

    def make(content: bytes) -> str:
        path = Path("/dev/shm") / f"ox-test-{uuid.uuid4().hex}"
        path.write_bytes(content)
        made.append(path)
        return f"/{path.name}"

    yield make
    for path in made:
        path.unlink()
