"""Decoders in bfloat16, as `save_decoder` writes them: served in float32 on the CPU, and in bfloat16 on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
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


@pytest.mark.parametrize("beside", [False, True], ids=["in the file", "beside it"])
def test_no_weight_is_cast_in_a_run(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool) -> None:
    """ONNX Runtime computes no result ahead above the limit, which is low for files with many constants."""
    model = onnx.load(file)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=beside, location="weights", size_threshold=0)
    create, optimized = onnxruntime.InferenceSession, list[Path]()

    def written(model: Any, options: Any, **more: Any) -> Any:
        optimized.append(tmp_path / f"optimized{len(optimized)}.onnx")
        options.optimized_model_filepath = str(optimized[-1])
        return create(model, options, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", written)
    decoder = Decoder(replace(read(path), largest_fold=1024), 1, None, DecoderFolder.read(path), "cpu", CudaOptions())
    assert decoder.form == "shared cache" and len(optimized) > 1
    for each in optimized:
        graph = onnx.load(each).graph
        weights = {tensor.name: math.prod(tensor.dims) for tensor in graph.initializer}
        casts = [node.input[0] for node in graph.node if node.op_type == "Cast"]
        assert not [name for name in casts if weights.get(name, 0) > 1024 // 4]
