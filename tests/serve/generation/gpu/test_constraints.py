"""Texts that are held to a form on a GPU: what a form forbids is applied there, and the best scores alone come back."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generation_client import CONTEXT, END, VOCABULARY, Client, write_tokenizer
from ml_dtypes import bfloat16
from serving_gpu import ServingGpu
from tiny_decoder import save_briefly

import ox
from ox.generation import SamplingParams
from ox.serve.generation.device_scores import DeviceScores
from ox.serve.generation.request import Constraint
from ox.serve.generation.scores import GREEDY, NOTHING, Need
from ox.serve.generation.text import Text
from ox_models.llama import LlamaConfig, LlamaForCausalLM

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]
pytest.importorskip("llguidance")

GREEDILY = SamplingParams(temperature=0)
FORMS = [Constraint("regex", r"[1-9][0-9]{9}-[a-f]{20}z"), Constraint("choice", ["a.b", "a.c", "xyz"])]


def write(root: Path) -> None:
    ox.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(VOCABULARY, hidden_size=64, intermediate_size=64, max_position_embeddings=CONTEXT, **sizes)
    tokenizer = write_tokenizer(root / "tokenizer.json")
    save_briefly(
        LlamaForCausalLM(config).half(), root / "with_end", tokenizer=tokenizer, generation={"eos_token_id": END}
    )


@pytest.fixture(scope="module")
def file(shared_folder: Callable[..., Path]) -> Path:
    """A decoder in float16 with a tokenizer and an end token."""
    return shared_folder("with_end", write) / "with_end" / "model.onnx"


def texts(client: Client, gpu: ServingGpu) -> list[list[int]]:
    send = client.ask if gpu.is_real else client.send  # a GPU rounds by how many texts share a step
    answers = [
        send([5, 6], 60, constraint=form, sampling=sampling)
        for form in FORMS
        for sampling in (GREEDILY, SamplingParams(top_k=5, temperature=5.0, seed=1))
    ]
    answers.append(send([7], 60, sampling=GREEDILY, ignore_eos=True))
    answers.append(send([8], 60, constraint=FORMS[0], sampling=GREEDILY, logprobs=2))
    return [answer.wait().tokens for answer in answers]


def test_texts_are_those_from_all_scores(
    client_on: Callable[..., Client], cuda: ServingGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_on("cuda", draft_tokens=0)
    found = texts(client, cuda)
    monkeypatch.setattr(Text, "need", lambda *_: None)
    assert found == texts(client, cuda)


@pytest.mark.parametrize("draft_tokens", [0, 4])
def test_a_greedy_text_copies_no_row_of_scores(
    client_on: Callable[..., Client], cuda: ServingGpu, monkeypatch: pytest.MonkeyPatch, draft_tokens: int
) -> None:
    client, form = client_on("cuda", draft_tokens=draft_tokens), Constraint("regex", "(ab|cd){40}")
    whole = list[bool]()
    copy = DeviceScores.copy

    def noting(self: Any, count: int, needs: Any, stream: Any) -> Any:
        whole.append(needs is None or None in needs)
        return copy(self, count, needs, stream)

    monkeypatch.setattr(DeviceScores, "copy", noting)
    answer = client.ask([5, 6], 100, constraint=form, sampling=GREEDILY)
    assert re.fullmatch("(ab|cd){40}", answer.text) and len(whole) > 1 and not any(whole)
    assert (client.engine.stats()["accepted_tokens"] > 0) == bool(draft_tokens)
    monkeypatch.setattr(Text, "need", lambda *_: None)
    assert client.ask([5, 6], 100, constraint=form, sampling=GREEDILY).tokens == answer.tokens


def test_what_one_token_copies(client_on: Callable[..., Client], cuda: ServingGpu) -> None:
    client, form = client_on("cuda", draft_tokens=0), Constraint("regex", "[a-z]{20}")
    client.ask([5, 6], 30, constraint=form, sampling=GREEDILY)  # compiles the kernels
    client.engine._scheduler.prefixes.clear()
    with cuda.doing({"to host": 20, "bytes to host": 20 * 2 * 8}, others=True):
        assert len(client.ask([5, 6], 30, constraint=form, sampling=GREEDILY).tokens) == 20


@pytest.mark.parametrize("dtype", [np.float16, np.float32, bfloat16])
def test_rows_with_and_without_forbidden_tokens(dtype: Any) -> None:
    import cupy

    stream, width = cupy.cuda.Stream.null, 1001
    scores = DeviceScores((6, width), np.dtype(dtype))
    random = np.random.default_rng(0)
    numbers = random.standard_normal((6, width)).astype(dtype)
    scores.device[...] = cupy.asarray(numbers.view(scores.device.dtype))
    may = random.random((6, width)) < 0.01
    bits = np.zeros((6, -(-width // 32) * 32), bool)
    bits[:, :width] = may
    words = np.packbits(bits, axis=1, bitorder="little").view(np.uint32)
    needs = [GREEDY, Need(3, allowed=words[1]), None, NOTHING, Need(1, allowed=words[4]), Need(2, True)]
    copied = scores.copy(6, needs, stream)
    stream.synchronize()
    rows = copied()
    exact = numbers.astype(np.float32)
    np.testing.assert_array_equal(rows[2], exact[2])
    for row, count in ((0, 1), (1, 3), (4, 1), (5, 2)):
        expected = np.where(may[row], exact[row], -np.inf) if row in (1, 4) else exact[row]
        order = np.argsort(-expected, kind="stable")[:count]
        np.testing.assert_array_equal(rows[row].tokens, order)
        np.testing.assert_array_equal(rows[row].scores, expected[order])
