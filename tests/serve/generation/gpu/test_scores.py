"""Scores on a GPU: those of the file, and which of them come to the host."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generation_client import VOCABULARY, Client
from gpu_decoder import load
from ml_dtypes import bfloat16
from serving_gpu import ServingGpu

from ox.devices.gpu.kernels import kernel
from ox.devices.gpu.top_k import best_of_rows
from ox.errors import LoadError
from ox.serve.generation import device_scores
from ox.serve.generation.cache_slots import CacheSlots
from ox.serve.generation.decoder_memory import HOST, GpuMemory
from ox.serve.generation.device_scores import DeviceScores
from ox.serve.generation.scores import GREEDY, NOTHING, Need, Needs

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


WHOLE = VOCABULARY * 2  # bytes of a row of scores


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        (None, {"to host": 1, "bytes to host": 4 * WHOLE}),
        ([GREEDY] * 4, {"launches": 1, "to host": 1, "bytes to host": 4 * 2 * 8}),
        ([GREEDY, NOTHING, Need(5, True), NOTHING], {"launches": 1, "to host": 1, "bytes to host": 3 * 6 * 8}),
        ([None, None, GREEDY, None], {"launches": 1, "to host": 3, "bytes to host": 3 * WHOLE + 2 * 8}),
        ([NOTHING] * 4, {}),
    ],
)
def test_a_token_takes_small_copies_and_one_wait(
    file: Path, cuda: ServingGpu, needs: Needs | None, expected: dict[str, int]
) -> None:
    run = load(file).run
    run.attach(CacheSlots(load(file).shapes, 4, 32, run.memory))
    run.begin(0, [np.array([5, 6, 7, place]) for place in range(4)])
    tokens, lengths = np.full((4, 1), 9), np.full(4, 4)
    whole = [np.array(row) for row in run.step(tokens, lengths)]  # binds the arrays
    run.step(tokens, lengths, needs)  # compiles the kernel
    sent = 2 * 16 * 8 + 4 * 4  # ids and places, and lengths; what is needed of the scores comes back
    with cuda.doing({"to device": 3, "bytes to device": sent, "waits": 1, **expected}):
        found = run.step(tokens, lengths, needs)
    for row, all_, need in zip(found, whole, needs or [None] * 4, strict=True):
        if need is None:
            np.testing.assert_array_equal(row, all_)
            continue
        order = np.argsort(-all_, kind="stable")[: need.best]
        np.testing.assert_array_equal(row.tokens, order)
        np.testing.assert_array_equal(row.scores, all_[order])
        if need.log_sum:
            exact = all_.astype(np.float64)
            assert row.log_sum == pytest.approx(np.log(np.exp(exact - exact.max()).sum()), abs=1e-12)


def test_parts_of_a_prompt_copy_no_scores(client_on: Callable[..., Client], cuda: ServingGpu) -> None:
    client = client_on("cuda", prefill_tokens=16, draft_tokens=0)
    client.ask(list(range(70)), 1)
    client.engine._scheduler.prefixes.clear()
    with cuda.doing({"to host": 3, "bytes to host": 3 * 2 * 8}, others=True):
        assert len(client.ask(list(range(70)), 3, ignore_eos=True).tokens) == 3


def test_scores_that_differ_are_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = GpuMemory.run
    monkeypatch.setattr(GpuMemory, "run", lambda *given: right(*given) + np.float16(1))
    with pytest.raises(LoadError, match="does not run on cuda:0") as caught:
        load(file)
    assert "scores of prompts together differ by 1.0e+00" in str(caught.value.got)
    with caplog.at_level(logging.WARNING, "ox.serve"):
        assert load(file, "auto").run.memory is HOST
    assert "differ by" in caplog.text


def test_best_scores_that_differ_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gives the worst."""

    def wrong(rows: Any, *arguments: Any) -> None:
        best_of_rows(-rows, *arguments)

    monkeypatch.setattr(device_scores, "best_of_rows", wrong)
    with pytest.raises(LoadError, match="does not run on cuda:0") as caught:
        load(file)
    assert "scores of the best tokens differ" in str(caught.value.got)


@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_scores_take_pinned_memory_for_whole_rows(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And none for others, of which only the best come to the host."""
    import cupy

    allocate, sizes = cupy.cuda.alloc_pinned_memory, list[int]()
    monkeypatch.setattr(cupy.cuda, "alloc_pinned_memory", lambda size: sizes.append(size) or allocate(size))
    scores, stream = DeviceScores((300, 1000), np.dtype(dtype)), cupy.cuda.Stream.null
    numbers = np.random.default_rng(0).standard_normal((300, 1000)).astype(dtype)
    scores.device[...] = cupy.asarray(numbers.view(scores.device.dtype))
    sizes.clear()
    for whole in ([7, 8, 200], [], [0], [*range(300)]):
        copied = scores.copy(300, [None if row in whole else GREEDY for row in range(300)], stream)
        stream.synchronize()
        rows = copied()
        for row in range(300):
            exact = numbers[row].astype(np.float32)
            if row in whole:
                np.testing.assert_array_equal(rows[row], exact)
            else:
                assert rows[row].scores[0] == exact.max()
    row_bytes = 1000 * (4 if dtype == bfloat16 else 2)
    assert sizes == [4 * row_bytes, 300 * row_bytes]


@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_scores_end_with_their_run(dtype: Any) -> None:
    """Their memory does not wait for the garbage collector, which does not count it."""
    import cupy

    pool = cupy.get_default_memory_pool()
    gc.collect()
    gc.disable()
    try:
        used = pool.used_bytes()
        copied = DeviceScores((4, 1000), np.dtype(dtype)).copy(4, [None, GREEDY, NOTHING, None], cupy.cuda.Stream.null)
        cupy.cuda.Stream.null.synchronize()
        del copied
        assert pool.used_bytes() == used
    finally:
        gc.enable()


def test_kernels_are_compiled_at_load(client_on: Callable[..., Client]) -> None:
    """None by the token of a client that is the first to need it."""
    kernel.cache_clear()
    client = client_on("cuda", 4)
    compiled = kernel.cache_info().misses
    for first in range(2):
        client.ask([*range(first, 40)], 20, ignore_eos=True)
    assert kernel.cache_info().misses == compiled > 0
