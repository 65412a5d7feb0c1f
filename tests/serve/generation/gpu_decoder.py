"""Decoders on a GPU, and what their texts are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from generation_client import VOCABULARY, Answer

from ox.clock import SYSTEM
from ox.generation import SamplingParams
from ox.serve import ModelConfig
from ox.serve.batching.admission import Budget
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.config.request_limits import RequestLimits
from ox.serve.generation.decoder import Decoder
from ox.serve.generation.decoder_folder import DecoderFolder
from ox.serve.generation.scheduler import MIB
from ox.serve.gpu_budget import GpuBudget
from ox.serve.repository.generation_model import GenerationModel
from ox.serve.response_memory import ResponseMemory
from ox.serve.runtime.source import read


def load(file: Path, device: str = "cuda", **options: Any) -> Decoder:
    return Decoder(read(file), 1, None, DecoderFolder.read(file), device, CudaOptions(**options))


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
    {"sampling": SamplingParams(top_k=10, temperature=5.0, seed=7), "allowed_token_ids": tuple(range(20, 60))},
]


def assert_greedy_texts(found: Sequence[Answer], expected: Sequence[Answer], tolerance: float = 0.0) -> None:
    """The same tokens. On a GPU, which rounds in another order, a text may go on with another token that was as likely
    within a tolerance, and is another one from there on.

    Args:
        expected: with the logarithmic probabilities of some tokens, for a tolerance.
    """
    for one, other in zip(found, expected, strict=True):
        assert len(one.tokens) == len(other.tokens)
        differ = (event for token, event in zip(one.tokens, other.events, strict=True) if token != event.token)
        if not tolerance or (event := next(differ, None)) is None:
            assert one.tokens == other.tokens
            continue
        likely, place = dict(event.top_logprobs), other.events.index(event)
        assert likely[one.tokens[place]] == pytest.approx(event.logprob, abs=tolerance)


def assert_same_events(found: Sequence[Answer], expected: Sequence[Answer], tolerance: float, exact: float) -> None:
    """The same tokens and logarithmic probabilities. With a tolerance up to the first token that differs, for one that
    was chosen by chance may be any other."""
    for one, other in zip(found, expected, strict=True):
        assert len(one.events) == len(other.events)
        for got, event in zip(one.events, other.events, strict=True):
            if tolerance and got.token != event.token:
                break
            assert got.token == event.token and (got.logprob is None) == (event.logprob is None)
            close = partial(pytest.approx, abs=tolerance or exact)
            assert got.logprob is None or got.logprob == close(event.logprob)
            assert tolerance or [token for token, _ in got.top_logprobs] == [token for token, _ in event.top_logprobs]
            assert [value for _, value in got.top_logprobs] == close([value for _, value in event.top_logprobs])
