"""Whoever has switched batching off is named, in the start line and at /config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from rows import rows

from ox.serve import ModelConfig, Server
from ox.serve.tuning import measure

BATCH = ["batch", 4]
SCALED: list[Any] = [("Mul", ["x", "k"], ["y"], {})]


def served(
    build: Any, folder: Path, nodes: list[Any], weights: Mapping[str, Any], options: ModelConfig, config: str, toml: str
) -> tuple[str, Any]:
    """The start line of a model, and what its configuration says of batching."""
    version = folder / "models" / "m" / "1"
    version.mkdir(parents=True)
    floats = TensorProto.FLOAT
    build("plain", nodes, {"x": (floats, BATCH)}, {"y": (floats, BATCH)}, weights).rename(version / "model.onnx")
    if config:
        (version.parent / "config.pbtxt").write_text(config)
    if toml:
        (folder / "models" / "ox.toml").write_text(f"[models.m]\n{toml}")
    with Server([folder / "models"], options=options) as server:
        answer = server.service.model_config("m")
        return server.models[0].describe(), answer["parameters"].get("ox_batching_off", {}).get("string_value")


SAID = [
    ("max_batch_size: 0", "", None, "max_batch_size is 0 (config.pbtxt)"),
    ("max_batch_size: 1", "", None, "max_batch_size is 1 (config.pbtxt)"),
    ("max_batch_size: 0", "max_rows = 8", 8, "max_batch_size is 0 (config.pbtxt)"),
    ("dynamic_batching { preferred_batch_size: [1] }", "", None, "preferred_batch_size is 1 (config.pbtxt)"),
    ("max_batch_size: 8", "max_rows = 0", None, "max_rows is 0 (ox.toml)"),
    ("", "max_rows = 1", 8, "max_rows is 1 (ox.toml)"),
    ("", "weight = 2", 0, "max_rows is 0 (--max-rows)"),
    ("", "", 1, "max_rows is 1 (--max-rows)"),
]


@rows(("config", "toml", "rows", "why"), SAID)
def test_by_a_setting(build: Any, tmp_path: Path, config: str, toml: str, rows: int | None, why: str) -> None:
    options = ModelConfig(device="cpu", max_rows=rows)
    line, said = served(build, tmp_path, SCALED, {"k": np.full(1, 2, np.float32)}, options, config, toml)
    assert said == why and f" · batching off: {why}" in line


def test_by_the_graph_the_rows_and_the_clock(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = [("ReduceMax", ["x"], ["top"], {"keepdims": 0}), ("Add", ["x", "top"], ["y"], {})]
    cases: list[tuple[list[Any], dict[str, Any], str]] = [
        (top, {}, "ReduceMax 'top' mixes rows (reduces over the batch axis)"),
        (SCALED, {"k": np.zeros(1, np.float32)}, "the outputs do not depend on the inputs tried"),
        (SCALED, {"k": np.full(1, 2, np.float32)}, "batches are not faster (measured)"),
    ]
    for place, (nodes, weights, why) in enumerate(cases):
        monkeypatch.setattr(measure, "best_rows", lambda *_, place=place: 1 if place == 2 else 4)
        line, said = served(build, tmp_path / str(place), nodes, weights, ModelConfig(device="cpu"), "", "")
        assert said == why and f" · batching off: {why}" in line


def test_not_at_all(build: Any, tmp_path: Path) -> None:
    options = ModelConfig(device="cpu", max_rows=0)
    line, said = served(build, tmp_path, SCALED, {"k": np.full(1, 2, np.float32)}, options, "max_batch_size: 4", "")
    assert said is None and "batch size up to 4, proven safe" in line
