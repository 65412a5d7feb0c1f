"""The keys and values of texts lie on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generation_client import Client, prompts
from gpu_decoder import load
from serving_gpu import ServingGpu

import ox
from ox.errors import LoadError
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.generation.cache_slots import CacheSlots
from ox.serve.generation.decoder import Rewriting
from ox.serve.generation.decoder_memory import HOST, GpuMemory
from ox.serve.generation.prefix_cache import BLOCK, PrefixCache
from ox.serve.generation.scheduler import MIB, cache_budget

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


def test_the_cache_keeps_its_budget(client_on: Callable[..., Client]) -> None:
    client = client_on("cuda", 4, draft_tokens=0)
    scheduler = client.engine._scheduler
    resize, taken = scheduler.slots.resize, list[int]()

    def watched(*given: Any) -> None:
        resize(*given)
        blocks = scheduler.prefixes.blocks * scheduler.prefixes.block_bytes
        taken.append(sum(array.nbytes for array in scheduler.slots.arrays) + blocks)

    scheduler.slots.resize = watched
    answers = [client.send(prompt, 60, ignore_eos=True) for prompt in prompts(12)]
    assert all(len(answer.wait().tokens) == 60 for answer in answers)
    assert len(taken) > 1 and max(taken) <= scheduler._budget


def test_the_cache_lies_on_the_gpu(file: Path, cuda: ServingGpu) -> None:
    import cupy

    decoder = load(file)
    assert decoder.form == "shared cache" and isinstance(decoder.run.memory, GpuMemory)
    assert decoder.rewriting == Rewriting()
    slots = CacheSlots(decoder.shapes, 2, 8, decoder.run.memory)
    slots.write(0, 2, [np.full((shape.heads, 3, shape.size), 7, shape.dtype) for shape in decoder.shapes.values()])
    slots.resize(16, [5, 0])
    slots.swap(0, 1, 5)
    slots.move(1, 0, 4)
    cuda.wait()
    for array in slots.arrays:
        assert isinstance(array, cupy.ndarray)
        assert array[0, 0, :6, 0].get().tolist() == [0, 0, 7, 7, 0, 0]


def test_saved_prefixes_take_few_launches(file: Path, cuda: ServingGpu) -> None:
    shapes = load(file).shapes
    on_host, on_gpu = (CacheSlots(shapes, 3, 260, memory) for memory in (HOST, load(file).run.memory))
    random = np.random.default_rng(0)
    values = [random.standard_normal((shape.heads, 259, shape.size)).astype(shape.dtype) for shape in shapes.values()]
    tokens = [*range(256), 1, 2, 3]
    for slots in (on_host, on_gpu):
        slots.write(1, 0, values)
        prefixes = PrefixCache(slots, 40 * BLOCK * slots.token_bytes)
        prefixes.save(tokens[:40], 1)
        launches = len(slots.arrays) if slots is on_gpu else 0
        with cuda.doing({"launches": 4 * (slots is on_gpu), "on device": 0}, others=True):
            prefixes.save(tokens, 1)
            assert prefixes.restore(tokens, 2) == 256
            slots.move(1, 0, 250)
            slots.swap(0, 2, 255)
            slots.swap(0, 2, 0)
        with cuda.doing({"launches": launches, "on device": 0}, others=True):
            slots.resize(512, [255, 0, 250])
    cuda.wait()
    for one, other in zip(on_host.arrays, on_gpu.arrays, strict=True):
        np.testing.assert_array_equal(one, other.get())


def test_saved_prefixes_never_take_more_than_they_may(file: Path) -> None:
    slots = CacheSlots(load(file).shapes, 1, 64, load(file).run.memory)
    prefixes, read, most = PrefixCache(slots, 4 * BLOCK * slots.token_bytes), slots.read_blocks, list[int]()
    slots.read_blocks = lambda row, starts, size: most.append(prefixes.blocks + len(starts)) or read(row, starts, size)
    for first in range(3):
        prefixes.save([first] * 64, 0)
    assert most == [4, 4, 4] and prefixes.blocks == 4


def test_a_cache_that_does_not_fit_into_the_gpu(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = load(file).run.memory
    assert 0 < memory.available() <= ox.devices.cuda.memory().total
    monkeypatch.setattr(GpuMemory, "available", lambda self: 5 * MIB)
    with pytest.raises(LoadError, match="cache does not fit") as caught:
        cache_budget(GenerationOptions(cache_mib=6), memory)
    assert "5 MiB" in str(caught.value)
