"""Decoders in files, and engines that run them on a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from decoder_models import models
from generation_client import CONTEXT, Client
from gpu_decoder import load
from ml_dtypes import bfloat16
from tiny_decoder import save_briefly

from ox.serve.config.generation_options import GenerationOptions
from ox.serve.generation.decoder_folder import DecoderFolder
from ox.serve.generation.engine import GenerationEngine


def write_halves(root: Path) -> None:
    save_briefly(models()[0].half(), root / "halves")


def write_folders(root: Path) -> None:
    for name, model in zip(("llama", "gpt2"), models(), strict=True):
        save_briefly(model, root / name)


@pytest.fixture(scope="session")
def folders(shared_folder: Callable[..., Path]) -> dict[str, Path]:
    """Decoders in float32 without a tokenizer, whose library a machine with a GPU may lack."""
    root = shared_folder("without_tokenizer", write_folders)
    return {name: root / name for name in ("llama", "gpt2")}


@pytest.fixture(scope="module")
def file(shared_folder: Callable[..., Path]) -> Path:
    """A decoder in float16."""
    return shared_folder("halves", write_halves) / "halves" / "model.onnx"


def narrow(path: Path) -> None:
    """Makes a file in float32 one in bfloat16."""
    model, float32, half = onnx.load(path), onnx.TensorProto.FLOAT, onnx.TensorProto.BFLOAT16
    tensors = [*model.graph.initializer, *(each.t for node in model.graph.node for each in node.attribute)]
    for tensor in tensors:
        if tensor.data_type == float32:
            values = onnx.numpy_helper.to_array(tensor).astype(bfloat16)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if info.type.tensor_type.elem_type == float32:
            info.type.tensor_type.elem_type = half
    for node in model.graph.node:
        for each in node.attribute:
            if each.name == "to" and each.i == float32:
                each.i = half
    onnx.save(model, path)


@pytest.fixture(params=["llama", "gpt2"])
def bfloat16_file(folders: dict[str, Path], tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    shutil.copytree(folders[request.param], tmp_path / "narrow")
    narrow(tmp_path / "narrow" / "model.onnx")
    return tmp_path / "narrow" / "model.onnx"


@pytest.fixture
def client_on(file: Path) -> Iterator[Callable[..., Client]]:
    """A client of an engine on a device, whose cache holds so many texts of context length."""
    engines = []

    def make(device: str, texts: float = 32, cuda: dict[str, Any] | None = None, **options: Any) -> Client:
        decoder = load(file, device, **(cuda or {}))
        budget = int(texts * CONTEXT * sum(shape.nbytes for shape in decoder.shapes.values()))
        settings = GenerationOptions(**options)
        engines.append(GenerationEngine(decoder, DecoderFolder.read(file), settings, budget))
        return Client(engines[-1])

    yield make
    for engine in engines:
        engine.close(finish=False)
