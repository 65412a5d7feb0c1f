"""Decoders in bfloat16 and float32, and devices that none runs on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cuda_session import CudaSession
from generation_client import Client, prompts
from gpu_decoder import assert_same_events, load
from ml_dtypes import bfloat16
from serving_gpu import ServingGpu

import ox
from ox.errors import DeviceError
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.generation.decoder import Rewriting
from ox.serve.generation.decoder_folder import DecoderFolder
from ox.serve.generation.decoder_memory import HOST
from ox.serve.generation.engine import GenerationEngine

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


@pytest.mark.parametrize("captures", [False, True])
def test_a_decoder_in_bfloat16(bfloat16_file: Path, cuda: ServingGpu, captures: bool) -> None:
    """What is bfloat16 in the file is so on the GPU; texts from the best scores are those from all."""
    decoder = load(bfloat16_file, enable_cuda_graph=captures)
    assert {str(shape.dtype) for shape in decoder.shapes.values()} == {"bfloat16"} and decoder.form == "shared cache"
    assert decoder.rewriting == Rewriting()
    assert CudaSession.made[-1].names_in("tensor(bfloat16)") == {*decoder.shapes, "logits"} | {
        name.replace("past_key_values", "present") for name in decoder.shapes
    }
    token_bytes = sum(shape.nbytes for shape in decoder.shapes.values())
    folder, found = DecoderFolder.read(bfloat16_file), []
    engine = GenerationEngine(decoder, folder, GenerationOptions(), 4 * decoder.context_length * token_bytes)
    try:
        assert {str(array.dtype) for array in engine._scheduler.slots.arrays} == {"uint16"}
        for whole in (False, True):
            if whole:
                engine._run.step = without_needs(engine._run.step)
            answers = [Client(engine).send(prompt, 12, ignore_eos=True, logprobs=2) for prompt in prompts(6)]
            found.append([answer.wait() for answer in answers])
    finally:
        engine.close(finish=False)
    assert_same_events(*found, cuda.tolerance(bfloat16), exact=1e-6)
    assert all(len(answer.tokens) == 12 for answer in found[0])


def without_needs(step: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tokens, lengths, needs: step(tokens, lengths)


def test_a_decoder_in_bfloat16_on_the_cpu_is_computed_in_float32(bfloat16_file: Path) -> None:
    decoder = load(bfloat16_file, "cpu")
    assert decoder.run.memory is HOST and {str(shape.dtype) for shape in decoder.shapes.values()} == {"float32"}


def test_a_gpu_that_does_not_multiply_bfloat16(bfloat16_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ox.devices.cuda, "capability", lambda: (7, 5))
    with pytest.raises(DeviceError, match="which is in bfloat16, needs a newer GPU"):
        load(bfloat16_file)


def test_a_cache_in_float32_is_for_the_cpu(folders: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    file = folders["llama"] / "model.onnx"
    with pytest.raises(DeviceError, match="has a cache of float32") as caught:
        load(file)
    assert "model.half()" in str(caught.value)
    with pytest.raises(DeviceError, match="has options of cuda, and runs on the CPU"):
        load(file, "auto", use_tf32=False)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "ox.serve"):
        assert load(file, "auto").run.memory is HOST
    assert "runs on the CPU, although this machine has a GPU" in caplog.text and "float32" in caplog.text


@pytest.mark.parametrize(
    ("device", "options", "error"),
    [
        ("cuda:0,cuda:1", {}, "text is generated on one GPU"),
        ("tensorrt", {}, "by no TensorRT"),
    ],
)
def test_what_no_decoder_has_on_a_gpu(file: Path, device: str, options: dict[str, Any], error: str) -> None:
    with pytest.raises(DeviceError, match=error):
        load(file, device, **options)
