"""A model's bytes, and a cache of its own for each test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from onnx import TensorProto, helper

# gcsfs would ask over gRPC what kind a bucket is; it reads this when it is imported
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


@pytest.fixture(scope="session")
def model() -> bytes:
    """A file whose output is `-x`."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negative", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where copies go; nothing lies there yet."""
    monkeypatch.setenv("OX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"
