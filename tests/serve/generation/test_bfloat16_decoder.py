"""Decoders in bfloat16, as `save_decoder` writes them: served in float32 on the CPU, and in bfloat16 on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from generation_client import CONTEXT, VOCABULARY
from tiny_decoder import save_briefly

import ox
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.generation.decoder import Decoder
from ox.serve.generation.decoder_folder import DecoderFolder
from ox.serve.runtime.source import read
from ox_models.llama import LlamaConfig, LlamaForCausalLM


def write(root: Path) -> None:
    ox.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(VOCABULARY, hidden_size=64, intermediate_size=64, max_position_embeddings=CONTEXT, **sizes)
    save_briefly(LlamaForCausalLM(config).bfloat16(), root / "narrow")


@pytest.fixture(scope="module")
def file(shared_folder: Callable[..., Path]) -> Path:
    return shared_folder("narrow", write) / "narrow" / "model.onnx"


def load(file: Path, device: str, **options: Any) -> Decoder:
    return Decoder(read(file), 1, None, DecoderFolder.read(file), device, CudaOptions(**options))


def test_on_the_cpu(file: Path) -> None:
    decoder = load(file, "cpu")
    assert {str(shape.dtype) for shape in decoder.shapes.values()} == {"float32"} and decoder.form == "shared cache"


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
def test_on_a_gpu(file: Path) -> None:
    decoder = load(file, "cuda")
    assert {str(shape.dtype) for shape in decoder.shapes.values()} == {"bfloat16"} and decoder.form == "shared cache"
