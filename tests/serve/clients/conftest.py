"""A server for all clients: a scripted decoder, models that read texts, a model of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto
from scripted_decoder import write_scripted_decoder
from text_folders import folder as folder
from text_folders import pairs as pairs
from text_folders import pieces as pieces
from text_folders import sentences as sentences

from ox.serve import ModelConfig, Server

SCRIPTS = {
    "weather": ["<tool_call>", "\n", '{"name": "get_weather"', ', "arguments": ', '{"city": ', '"Bern"}}', "\n",
                "</tool_call>"],
    "person": ['{"name": "', 'Ada"', ', "age": ', "36", "}"],
}  # fmt: skip


@pytest.fixture(scope="session")
def server(build: Any, sentences: Path, pairs: Path, shared_folder: Callable[..., Path]) -> Iterator[Server]:
    """Serves `scripted`, `sentences`, `pairs` and `scores`, which gives its input [batch, 4] back."""

    def write(folder: Path) -> None:
        write_scripted_decoder(folder / "scripted", SCRIPTS)

    ends = (TensorProto.FLOAT, ["batch", 4])
    scores = build("scores", [("Identity", ["x"], ["y"], {})], {"x": ends}, {"y": ends})
    paths = [shared_folder("scripted_for_clients", write) / "scripted", sentences, pairs, scores]
    with Server(paths, options=ModelConfig("cpu", instances=1, threads=1)) as running:
        yield running
