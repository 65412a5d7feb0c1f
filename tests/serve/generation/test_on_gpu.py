"""Texts from a decoder on a GPU: the cache and what a run reads lie there, and the scores are those of the file."""

from __future__ import annotations

import gc
import logging
import shutil
from collections.abc import Callable, Iterator
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cuda_session import CudaSession
from generation_client import CONTEXT, VOCABULARY, Answer, Client, prompts
from ml_dtypes import bfloat16
from tiny_decoder import save_briefly

import ox
from ox.clock import SYSTEM
from ox.devices.cuda_best import best_of_rows
from ox.devices.cuda_kernels import kernel
from ox.devices.staged_buffer import StagedBuffer
from ox.errors import DeviceError, LoadError
from ox.generation import SamplingParams
from ox.serve import ModelConfig, Server
from ox.serve.batching.admission import Budget
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.config.request_limits import RequestLimits
from ox.serve.generation import device_scores
from ox.serve.generation.cache_slots import CacheSlots
from ox.serve.generation.decoder import UNLIMITED, Decoder, Rewriting
from ox.serve.generation.decoder_folder import DecoderFolder
from ox.serve.generation.decoder_memory import HOST, GpuMemory
from ox.serve.generation.decoder_run import SharedCacheRun
from ox.serve.generation.device_scores import DeviceScores
from ox.serve.generation.engine import GenerationEngine
from ox.serve.generation.prefix_cache import BLOCK, PrefixCache
from ox.serve.generation.scheduler import MIB, cache_budget
from ox.serve.generation.scores import GREEDY, NOTHING, Need, Needs
from ox.serve.gpu_budget import GpuBudget
from ox.serve.repository.generation_model import GenerationModel
from ox.serve.response_memory import ResponseMemory
from ox.serve.runtime.source import read
from ox_models.llama import LlamaConfig, LlamaForCausalLM

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


def write_halves(root: Path) -> None:
    ox.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(VOCABULARY, hidden_size=64, intermediate_size=64, max_position_embeddings=CONTEXT, **sizes)
    save_briefly(LlamaForCausalLM(config).half(), root / "halves")


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


def load(file: Path, device: str = "cuda", **options: Any) -> Decoder:
    return Decoder(read(file), 1, None, DecoderFolder.read(file), device, CudaOptions(**options))


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


@pytest.mark.parametrize("texts", [32, 3])
def test_texts_are_those_of_the_cpu(client_on: Callable[..., Client], texts: int) -> None:
    """With three slots of context length, texts lose their slots, and their keys and values wait in blocks."""
    found = []
    for device in ("cpu", "cuda"):
        client = client_on(device, texts, draft_tokens=0)
        answers = [client.send(prompt, 40, ignore_eos=True) for prompt in prompts(9)]
        found.append([answer.wait().tokens for answer in answers])
    assert found[0] == found[1] and all(len(tokens) == 40 for tokens in found[0])


SAMPLED: list[dict[str, Any]] = [
    {"sampling": SamplingParams(temperature=0), "logprobs": 3},
    {"sampling": SamplingParams(temperature=0)},
    {"sampling": SamplingParams(top_k=1, seed=1)},
    {"sampling": SamplingParams(top_k=40, temperature=5.0, seed=2), "logprobs": 20},
    {"sampling": SamplingParams(top_k=20, temperature=5.0, top_p=0.9, min_p=0.01, seed=3), "logprobs": 0},
    {"sampling": SamplingParams(top_k=VOCABULARY, temperature=5.0, seed=4)},
    {"sampling": SamplingParams(top_p=0.9, temperature=5.0, seed=5), "logprobs": 2},
    {"sampling": SamplingParams(temperature=0, presence_penalty=1.0)},
    {"sampling": SamplingParams(top_k=10, logit_bias={7: 3.0}, seed=6), "logprobs": 1},
]


def test_texts_from_the_best_scores_are_those_from_all(client_on: Callable[..., Client]) -> None:
    """With drafts, too: the last text goes on alone."""
    found = []
    for device in ("cpu", "cuda"):
        client = client_on(device)
        answers = [
            client.send(prompt, 20 + 3 * index, ignore_eos=True, **SAMPLED[index % len(SAMPLED)])
            for index, prompt in enumerate(prompts(2 * len(SAMPLED)))
        ]
        found.append([answer.wait().events for answer in answers])
    for one, other in zip(*found, strict=True):
        assert [event.token for event in one] == [event.token for event in other]
        for mine, expected in zip(other, one, strict=True):
            assert (mine.logprob is None) == (expected.logprob is None)
            assert mine.logprob is None or mine.logprob == pytest.approx(expected.logprob, abs=1e-12)
            assert [token for token, _ in mine.top_logprobs] == [token for token, _ in expected.top_logprobs]
            values = [value for _, value in expected.top_logprobs]
            assert [value for _, value in mine.top_logprobs] == pytest.approx(values, abs=1e-12)


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


def test_steps_are_replayed_as_cuda_graphs(client_on: Callable[..., Client]) -> None:
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
        found.append([answer.wait().tokens for answer in answers])
    assert found[0] == found[1]
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


@pytest.mark.parametrize("captures", [False, True])
def test_long_prompts_are_read_in_parts_between_tokens_of_others(
    client_on: Callable[..., Client], captures: bool
) -> None:
    expected = [client_on("cpu").ask(prompt, count).tokens for prompt, count in (([5, 6, 7], 20), ([*range(60)], 5))]
    client = client_on("cuda", 4, {"enable_cuda_graph": captures}, prefill_tokens=16, draft_tokens=0)
    run, calls, long = client.engine._run, list[str](), list[Answer]()
    read, step = run.read, run.step

    def noted(tokens: Any, *more: Any) -> Any:
        calls.append(f"{len(tokens)} tokens")
        if len(calls) == 3:
            long.append(client.send([*range(60)], 5))
        return step(tokens, *more)

    run.step = noted
    run.read = lambda row, part, *more: calls.append(f"reads {len(part)}") or read(row, part, *more)
    assert [client.ask([5, 6, 7], 20).tokens, long[0].wait().tokens] == expected
    start = calls.index("reads 16")
    assert calls[start : start + 8] == [*["reads 16", "1 tokens"] * 3, "reads 12", "2 tokens"]


def test_the_cache_lies_on_the_gpu(file: Path) -> None:
    import cupy

    decoder = load(file)
    assert decoder.form == "shared cache" and isinstance(decoder.run.memory, GpuMemory)
    assert decoder.rewriting == Rewriting()
    slots = CacheSlots(decoder.shapes, 2, 8, decoder.run.memory)
    slots.write(0, 2, [np.full((shape.heads, 3, shape.size), 7, shape.dtype) for shape in decoder.shapes.values()])
    slots.resize(16, [5, 0])
    slots.swap(0, 1, 5)
    slots.move(1, 0, 4)
    for array in slots.arrays:
        assert isinstance(array, cupy.ndarray)
        assert array[0, 0, :6, 0].get().tolist() == [0, 0, 7, 7, 0, 0]


def test_saved_prefixes_take_few_launches(file: Path, cuda: Any) -> None:
    shapes = load(file).shapes
    on_host, on_gpu = (CacheSlots(shapes, 3, 260, memory) for memory in (HOST, load(file).run.memory))
    random = np.random.default_rng(0)
    values = [random.standard_normal((shape.heads, 259, shape.size)).astype(shape.dtype) for shape in shapes.values()]
    tokens = [*range(256), 1, 2, 3]
    for slots in (on_host, on_gpu):
        slots.write(1, 0, values)
        prefixes = PrefixCache(slots, 40 * BLOCK * slots.token_bytes)
        prefixes.save(tokens[:40], 1)
        with cuda.counting() as done:
            prefixes.save(tokens, 1)
            assert prefixes.restore(tokens, 2) == 256
            slots.move(1, 0, 250)
            slots.swap(0, 2, 255)
            slots.swap(0, 2, 0)
        with cuda.counting() as grown:
            slots.resize(512, [255, 0, 250])
        assert (grown["launches"], grown["on device"]) == ((len(slots.arrays), 0) if slots is on_gpu else (0, 0))
        assert (done["launches"], done["on device"]) == ((4, 0) if slots is on_gpu else (0, 0))
    for one, other in zip(on_host.arrays, on_gpu.arrays, strict=True):
        np.testing.assert_array_equal(one, other.get())


def test_saved_prefixes_never_take_more_than_they_may(file: Path) -> None:
    slots = CacheSlots(load(file).shapes, 1, 64, load(file).run.memory)
    prefixes, read, most = PrefixCache(slots, 4 * BLOCK * slots.token_bytes), slots.read_blocks, list[int]()
    slots.read_blocks = lambda row, starts, size: most.append(prefixes.blocks + len(starts)) or read(row, starts, size)
    for first in range(3):
        prefixes.save([first] * 64, 0)
    assert most == [4, 4, 4] and prefixes.blocks == 4


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
    file: Path, cuda: Any, needs: Needs | None, expected: dict[str, int]
) -> None:
    run = load(file).run
    run.attach(CacheSlots(load(file).shapes, 4, 32, run.memory))
    run.begin(0, [np.array([5, 6, 7, place]) for place in range(4)])
    tokens, lengths = np.full((4, 1), 9), np.full(4, 4)
    whole = [np.array(row) for row in run.step(tokens, lengths)]  # binds the arrays
    run.step(tokens, lengths, needs)  # compiles the kernel
    with cuda.counting() as done:
        found = run.step(tokens, lengths, needs)
    sent = 2 * 16 * 8 + 4 * 4  # ids and places, and lengths; what is needed of the scores comes back
    expected = {"to device": 3, "bytes to device": sent, "waits": 1, **expected}
    assert done == {name: expected.get(name, 0) for name in done}
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


def test_parts_of_a_prompt_copy_no_scores(client_on: Callable[..., Client], cuda: Any) -> None:
    client = client_on("cuda", prefill_tokens=16, draft_tokens=0)
    client.ask(list(range(70)), 1)
    client.engine._scheduler.prefixes.clear()
    with cuda.counting() as done:
        assert len(client.ask(list(range(70)), 3, ignore_eos=True).tokens) == 3
    assert (done["to host"], done["bytes to host"]) == (3, 3 * 2 * 8)


@pytest.mark.parametrize("captures", [False, True])
def test_a_decoder_in_bfloat16(bfloat16_file: Path, captures: bool) -> None:
    """What is bfloat16 in the file is so on the GPU; texts from the best scores are those from all."""
    decoder = load(bfloat16_file, enable_cuda_graph=captures)
    assert {str(shape.dtype) for shape in decoder.shapes.values()} == {"bfloat16"} and decoder.form == "shared cache"
    assert decoder.rewriting == Rewriting()
    assert set(CudaSession.made[-1]._types) == {*decoder.shapes, "logits"} | {
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
            found.append([answer.wait().events for answer in answers])
    finally:
        engine.close(finish=False)
    for one, other in zip(*found, strict=True):
        assert [event.token for event in one] == [event.token for event in other] and len(one) == 12
        for mine, expected in zip(one, other, strict=True):
            assert mine.logprob == pytest.approx(expected.logprob, abs=1e-6)


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


@pytest.mark.parametrize(
    ("device", "options", "error"),
    [
        ("cuda:0,cuda:1", {}, "texts are generated on one GPU"),
        ("tensorrt", {}, "by no TensorRT"),
    ],
)
def test_what_no_decoder_has_on_a_gpu(file: Path, device: str, options: dict[str, Any], error: str) -> None:
    with pytest.raises(DeviceError, match=error):
        load(file, device, **options)


def test_a_cache_that_does_not_fit_into_the_gpu(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = load(file).run.memory
    assert 0 < memory.available() <= ox.devices.cuda.memory().total
    monkeypatch.setattr(GpuMemory, "available", lambda self: 5 * MIB)
    with pytest.raises(LoadError, match="cache does not fit") as caught:
        cache_budget(GenerationOptions(cache_mib=6), memory)
    assert "5 MiB" in str(caught.value)


def test_a_server(file: Path) -> None:
    options = ModelConfig("cuda", generation={"cache_mib": 1}, threads=1)
    with Server([file.parent], port=0, options=options) as server:
        (model,) = server.models
        assert "generates texts on cuda:0" in model.describe()


def model_of(
    file: Path, budget: Budget, name: str = "writer", device: str = "cuda", **settings: Any
) -> GenerationModel:
    """With settings of `generation` and `cuda`."""
    cuda = settings.pop("cuda", {"gpu_mem_limit": "4MiB"})
    graphs = settings.pop("max_graphs", 256)
    options = ModelConfig(device, generation={"max_texts": 4, **settings}, cuda=cuda, threads=1, max_graphs=graphs)
    limits = RequestLimits(gpu_memory=budget.gpu.limit)
    return GenerationModel(read(file), options, limits, name=name, version="1", budget=budget)


def budget_of(mib: int) -> Budget:
    return Budget(0, 0, ResponseMemory(0, SYSTEM), GpuBudget(mib * MIB))


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
    assert after.used < before.used and after.held < before.held
    with pytest.raises(LoadError, match="may take any amount of a GPU's memory"):
        model_of(file, budget, cuda={})
    assert budget.gpu.free(0) == 16 * MIB
    model_of(file, budget, cache_mib=4)
    gc.collect()  # a model that nobody ended
    assert budget.gpu.free(0) == 16 * MIB


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
        rows = scores.copy(300, [None if row in whole else GREEDY for row in range(300)], stream)()
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
        DeviceScores((4, 1000), np.dtype(dtype)).copy(4, [None, GREEDY, NOTHING, None], cupy.cuda.Stream.null)()
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


def test_best_scores_that_differ_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gives the worst."""

    def wrong(rows: Any, *arguments: Any) -> None:
        best_of_rows(-rows, *arguments)

    monkeypatch.setattr(device_scores, "best_of_rows", wrong)
    with pytest.raises(LoadError, match="does not run on cuda:0") as caught:
        load(file)
    assert "scores of the best tokens differ" in str(caught.value.got)


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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("CUDA failure 719: unspecified launch failure", "cuda:0 has failed, and takes no more work"),
        ("CUDA failure 2: out of memory", "the GPU has no memory left"),
        (
            "CUDA failure 400: invalid resource handle",
            "the stream of cuda:0 that this model runs on has",
        ),
    ],
)
@pytest.mark.parametrize("captures", [False, True])
def test_a_gpu_that_fails_ends_texts_with_503(
    client_on: Callable[..., Client], words: str, says: str, captures: bool
) -> None:
    client = client_on("cuda", 4, {"enable_cuda_graph": captures})
    CudaSession.broken = f"{words} ; GPU=0 ; hostname=secret ; file=/x.cc ; line=7"
    error = client.ask([1, 2, 3], 3).error
    assert error is not None and error.status == 503 and error.what.startswith(says) and "secret" not in str(error)
    CudaSession.broken = ""
    assert client.ask([1, 2, 3], 3).error is None


def test_a_copy_on_a_gpu_that_fails_ends_texts_with_503(
    client_on: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")

    client = client_on("cuda", 4, {})
    monkeypatch.setattr(GpuMemory, "read_blocks", fail)
    error = client.ask(list(range(1, 65)), 3).error
    assert error is not None and error.status == 503 and error.what.startswith("cuda:0 has failed")


def test_a_gpu_that_fails_in_all_it_does_leaves_no_text_unanswered(
    client_on: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure")

    client = client_on("cuda", 8)
    step, failing = client.engine._run.step, []

    def lose(*arguments: Any) -> Any:
        if len(client.engine._scheduler.texts) == 4 and not failing:
            failing.append(True)
            for name in ("move", "read_blocks", "zeros"):
                monkeypatch.setattr(GpuMemory, name, fail)
        return fail() if failing else step(*arguments)

    monkeypatch.setattr(client.engine._run, "step", lose)
    answers = [client.send(prompt, 20, ignore_eos=True) for prompt in prompts(4)]
    errors = [answer.wait().error for answer in answers]
    assert [error is not None and error.what.startswith("cuda:0 has failed") for error in errors] == [True] * 4
    later = client.ask([1, 2, 3], 3).error
    assert later is not None and later.what.startswith("cuda:0 has failed")
