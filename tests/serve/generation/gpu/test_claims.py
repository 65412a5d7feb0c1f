"""The memory of a GPU that models of texts claim."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial, partialmethod
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_session import CudaSession
from gpu_decoder import budget_of, load, model_of

import ox
from ox.devices.gpu.staged_buffer import StagedBuffer
from ox.errors import LoadError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.generation import decoder_memory
from ox.serve.generation.cache_slots import CacheSlots
from ox.serve.generation.decoder import Decoder
from ox.serve.generation.decoder_folder import DecoderFolder
from ox.serve.generation.decoder_memory import GpuMemory
from ox.serve.generation.device_scores import DeviceScores
from ox.serve.generation.scheduler import MIB
from ox.serve.repository.generation_model import GenerationModel
from ox.serve.runtime.source import read

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


def test_a_model_claims_its_memory_and_gives_it_back(file: Path) -> None:
    budget = budget_of(16)
    model = model_of(file, budget, cache_mib=4)
    taken = 16 * MIB - budget.gpu.free(0)
    assert 8 * MIB < taken < 9 * MIB  # a session, a cache, and what is staged
    with pytest.raises(LoadError, match=r"cuda:0 has no room for other 1") as caught:
        model_of(file, budget, "other", cache_mib=4)
    line = caught.value.one_line()
    assert "expected at most 3 MiB, of 16 for all models" in line and "got 5 MiB (its cache, saved prefixes" in line
    assert "loaded: writer 1 4 MiB, writer 1 4 MiB, other 1 4 MiB" in line and "cache_mib = ..." in line
    assert budget.gpu.free(0) == 16 * MIB - taken
    before = ox.devices.cuda.memory()
    model.release()
    assert budget.gpu.free(0) == 16 * MIB
    after = ox.devices.cuda.memory()
    assert after.used < before.used
    with pytest.raises(LoadError, match="may take any amount of a GPU's memory"):
        model_of(file, budget, cuda={})
    assert budget.gpu.free(0) == 16 * MIB
    model_of(file, budget, cache_mib=4)
    gc.collect()  # a model that nobody ended
    assert budget.gpu.free(0) == 16 * MIB


def test_weights_beyond_the_limit_of_the_session(file: Path) -> None:
    source = replace(read(file), weights=5 * MIB)
    with pytest.raises(LoadError, match="do not fit into gpu_mem_limit") as caught:
        Decoder(source, 1, None, DecoderFolder.read(file), "cuda", CudaOptions(4 * MIB))
    assert "expected less than 4 MiB; got 5.0 MiB" in caught.value.one_line()


def test_the_usual_cache_is_a_part_of_what_models_may_take(file: Path) -> None:
    budget = budget_of(40)
    model = model_of(file, budget)
    assert model.describe().endswith("9 MiB")  # a quarter of 36, which the session leaves
    model.release()


def test_what_is_staged_is_what_was_claimed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of buffers on the GPU, of steps and of the largest read."""
    sizes = list[int]()

    def noted(make: Callable[..., None], self: Any, *arguments: Any) -> None:
        make(self, *arguments)
        sizes.append(self.device.nbytes)

    run, shapes = load(file).run, load(file).shapes
    for each in (StagedBuffer, DeviceScores):
        monkeypatch.setattr(each, "__init__", partialmethod(partial(noted, each.__init__)))
    run.attach(CacheSlots(shapes, 20, 64, run.memory))
    run.begin(0, [np.arange(3)] * 16)
    assert sum(sizes) <= run.staged_bytes(20, 48, 20 * 64) < 2 * sum(sizes)


@pytest.mark.parametrize("options", [{"gpu_mem_limit": "4MiB"}, {}], ids=["a cache", "a session"])
def test_without_room_auto_takes_the_cpu(file: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any]) -> None:
    """For the cache; and for the session, to which nobody has set a limit."""
    budget = budget_of(6)
    with caplog.at_level(logging.WARNING, "ox.serve"):
        model = model_of(file, budget, device="auto", cache_mib=4, cuda=options)
    assert "generates texts on cpu" in model.describe() and budget.gpu.free(0) == 6 * MIB
    assert "the model runs on the CPU, although this machine has a GPU" in caplog.text
    assert ("(its cache, saved prefixes" if options else "no gpu_mem_limit") in caplog.text
    model.release()
    with pytest.raises(LoadError, match="has no room for writer 1" if options else "may take any amount"):
        model_of(file, budget, device="cuda", cache_mib=4, cuda=options)


def test_options_of_cuda_are_refused_for_what_keeps_the_model_off_the_gpu(file: Path) -> None:
    """The CPU would refuse the options."""
    budget, cuda = budget_of(6), {"gpu_mem_limit": "4MiB", "enable_cuda_graph": True}
    with pytest.raises(LoadError, match="cuda:0 has no room for writer 1"):
        model_of(file, budget, device="auto", cache_mib=4, cuda=cuda)
    assert budget.gpu.free(0) == 6 * MIB


def test_auto_does_not_take_the_cpu_for_what_fails_there_too(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ox.serve"), pytest.raises(LoadError, match="no-such-draft"):
        model_of(file, budget_of(16), device="auto", cache_mib=4, draft="no-such-draft.onnx")
    assert "the model runs on the CPU" not in caplog.text and len(CudaSession.made) == 1


def test_a_cache_larger_than_the_gpu_is_on_the_host(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(GpuMemory, "available", lambda _: 3 * MIB)
    options = ModelConfig("auto", generation={"cache_mib": 4}, threads=1)
    with caplog.at_level(logging.WARNING, "ox.serve"):
        model = GenerationModel(read(file), options, RequestLimits(), name="writer", version="1")
    assert "generates texts on cpu" in model.describe() and "cache_mib = 4" in caplog.text
    model.release()


def test_graphs_are_claimed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 1 MiB."""
    left = count(1000, -1)
    monkeypatch.setattr(decoder_memory, "outside_pool", lambda _: next(left) * MIB)
    cuda, budget = {"gpu_mem_limit": "4MiB", "enable_cuda_graph": True}, budget_of(16)
    model = model_of(file, budget, cache_mib=4, cuda=cuda)
    assert 12 * MIB < 16 * MIB - budget.gpu.free(0) < 13 * MIB  # a session, a cache, what is staged, and four graphs
    model.release()
    assert budget.gpu.free(0) == 16 * MIB
    with pytest.raises(LoadError, match="has no room for writer 1") as caught:
        model_of(file, budget_of(12), cache_mib=4, cuda=cuda)
    assert "got 4 MiB (CUDA graphs of its steps)" in caught.value.one_line()


def test_a_draft_model_claims_its_session(file: Path) -> None:
    budget = budget_of(16)
    model = model_of(file, budget, cache_mib=4, draft=".")
    assert 12 * MIB < 16 * MIB - budget.gpu.free(0) < 13 * MIB
    limits = [made.options.get("gpu_mem_limit") for made in CudaSession.made]
    assert len(limits) == 2 and set(limits) == {str(4 * MIB)}
    model.release()
    assert budget.gpu.free(0) == 16 * MIB


def test_a_decoder_that_runs_on_the_cpu_claims_nothing(folders: dict[str, Path], file: Path) -> None:
    budget = budget_of(6)
    model = model_of(folders["llama"] / "model.onnx", budget, device="auto", cuda={}, cache_mib=4)
    assert budget.gpu.free(0) == 6 * MIB
    model.release()
    with pytest.raises(LoadError, match="has no room for large 1") as caught:
        model_of(file, budget, "large", cuda={"gpu_mem_limit": "8MiB"})
    assert "got 8 MiB (gpu_mem_limit of its session)" in caught.value.one_line()
