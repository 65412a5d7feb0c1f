"""Steps of texts that are captured as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_session import CudaSession
from generation_client import VOCABULARY, Client, prompts
from gpu_decoder import SAMPLED, assert_same_events, budget_of, load, model_of
from serving_gpu import ServingGpu

from ox.devices.gpu.staged_buffer import StagedBuffer
from ox.errors import LoadError
from ox.serve.generation.cache_slots import CacheSlots
from ox.serve.generation.decoder import UNLIMITED, Decoder
from ox.serve.generation.decoder_run import SharedCacheRun

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


def test_steps_are_replayed_as_cuda_graphs(client_on: Callable[..., Client], cuda: ServingGpu) -> None:
    """One for each number of texts, captured at load in the thread that replays them. The rest is not captured."""
    found = []
    for device, options in (("cpu", {}), ("cuda", {"enable_cuda_graph": True})):
        client = client_on(device, 4.5, options, max_texts=8, prefill_tokens=16)
        if device == "cuda":
            made, slots = CudaSession.made[-1], client.engine._scheduler.slots
            at_load, version = [int(graph) for graph in made.graphs if graph != "-1"], slots.version
            assert made.options["enable_cuda_graph"] == "1" and slots.rows == slots.rows_there == 4
            assert len(at_load) == 2 * 4 and len(set(at_load)) == 4
        answers = [
            client.send(prompt, 20 + 3 * index, ignore_eos=True, **SAMPLED[index % len(SAMPLED)])
            for index, prompt in enumerate(prompts(9))
        ]
        found.append([answer.wait() for answer in answers])
    assert_same_events(found[1], found[0], cuda.tolerance(np.float16), exact=1e-3)
    later = {int(graph) for graph in made.graphs[made.graphs.index(str(at_load[-1])) + 2 :]}
    assert later == {-1, *at_load} and slots.version == version
    assert len(set().union(*made.threads.values())) == 1


@pytest.mark.parametrize("stale", ["all that it reads", "how far it reads"])
def test_a_capture_that_gives_other_scores_is_refused(
    client_on: Callable[..., Client], stale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph keeps what the host wrote for the run that was captured, or reads no further than that one."""
    capture, send = SharedCacheRun.capture, StagedBuffer.to_device

    def captured(self: SharedCacheRun, rows: int) -> None:
        first: dict[int, np.ndarray] = {}

        def send_stale(buffer: StagedBuffer, stream: Any) -> None:
            at_capture = first.setdefault(id(buffer), buffer.host.copy())
            if stale == "all that it reads":
                buffer.host[...] = at_capture
            elif buffer is self._inputs.last:
                buffer.host[...] = np.minimum(buffer.host, at_capture)
            send(buffer, stream)

        capture(self, rows)
        monkeypatch.setattr(StagedBuffer, "to_device", send_stale)

    monkeypatch.setattr(SharedCacheRun, "capture", captured)
    with pytest.raises(LoadError, match="cannot be captured as a CUDA graph") as caught:
        client_on("cuda", 4, {"enable_cuda_graph": True})
    assert "scores of a captured step differ" in str(caught.value.got)


def test_other_slots_end_what_was_captured(file: Path) -> None:
    decoder = load(file, enable_cuda_graph=True)
    run, slots, graphs = decoder.run, CacheSlots(decoder.shapes, 2, 8, decoder.run.memory), CudaSession.made[-1].graphs
    run.attach(slots)
    decoder.capture(slots)
    step = np.zeros((1, 1), np.int64), np.zeros(1, np.int64)
    run.step(*step)
    assert graphs[-1] != "-1"
    slots.resize(8, ())
    run.step(*step)
    assert graphs[-1] == "-1"


def test_graphs_are_limited(file: Path) -> None:
    """There is one for each text that the cache has room for."""
    budget, cuda = budget_of(64), {"gpu_mem_limit": "4MiB", "enable_cuda_graph": True}
    with pytest.raises(LoadError, match="cannot be captured as CUDA graphs") as caught:
        model_of(file, budget, cuda=cuda, max_graphs=3)
    assert (caught.value.got, caught.value.expected) == ("4, one for each number of texts", "at most 3 (max_graphs)")
    model = model_of(file, budget, cuda=cuda, max_texts=1000, cache_mib=1)
    assert model.generation.max_texts == 16
    assert f"up to {model.generation.max_texts} texts at once" in model.describe()
    model.release()


def test_graphs_need_texts_of_limited_length(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot for the longest text would be the whole cache."""
    monkeypatch.setattr(Decoder, "_sizes", lambda *_: (VOCABULARY, UNLIMITED))
    with pytest.raises(LoadError, match="does not run on cuda:0") as caught:
        load(file, enable_cuda_graph=True)
    assert "no file says how long a text may be" in str(caught.value.got)
    assert load(file).context_length == UNLIMITED


def test_a_graph_with_a_mask_is_not_captured(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedCacheRun, "capturable", False)
    with pytest.raises(LoadError, match="does not run on cuda:0") as caught:
        load(file, enable_cuda_graph=True)
    assert "a mask, which grows with the texts" in str(caught.value.got)


def test_a_capture_that_fails_is_refused(client_on: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: SharedCacheRun, rows: int) -> None:
        CudaSession.failures = 1

    monkeypatch.setattr(SharedCacheRun, "capture", failing)
    with pytest.raises(LoadError, match="cannot be captured") as caught:
        client_on("cuda", 4, {"enable_cuda_graph": True})
    assert "an illegal memory access" in str(caught.value.got)
