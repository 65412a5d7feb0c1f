"""Texts by a small GPT-2, beside its forward without a cache."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import ArgumentError
from ox.generation import Generates, Generation, KVCache, SamplingParams
from ox.generation.sampler import log_probabilities
from ox_models.gpt2 import GPT2Config, GPT2LMHeadModel
from ox_models.llama import LlamaConfig, LlamaForCausalLM

Array = np.ndarray[Any, Any]
VOCABULARY = 11
IDS = np.random.default_rng(0).integers(0, VOCABULARY, (3, 5))


@pytest.fixture(scope="module")
def model() -> GPT2LMHeadModel:
    net = GPT2LMHeadModel(GPT2Config(VOCABULARY, 32, n_embd=16, n_layer=2, n_head=4)).eval()
    values = np.random.default_rng(1)
    with ox.no_grad():
        for parameter in net.parameters():
            parameter += ox.from_numpy(0.4 * values.standard_normal(parameter.shape).astype(np.float32))
    return net


def logits(model: GPT2LMHeadModel, ids: Array) -> Array:
    """Of the token after the last one, without a cache."""
    with ox.no_grad():
        return model(ox.tensor(ids)).numpy()[:, -1]  # type: ignore[no-any-return]


class Letters:
    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(ord("a") + token) for token in ids)


def test_greedy_texts_are_those_without_a_cache(model: GPT2LMHeadModel) -> None:
    ids = IDS
    for _ in range(27):
        ids = np.concatenate([ids, logits(model, ids).argmax(-1)[:, None]], 1)
    np.testing.assert_array_equal(model.generate(IDS, max_new_tokens=27).numpy(), ids)
    np.testing.assert_array_equal(model.generate(ox.tensor(IDS), max_new_tokens=3).numpy(), ids[:, :8])


def test_prompts_of_different_lengths(model: GPT2LMHeadModel) -> None:
    padded, mask = np.zeros((3, 6), np.int64), np.zeros((3, 6), np.int64)
    lengths = (1, 4, 6)
    for row, length in enumerate(lengths):
        padded[row, -length:], mask[row, -length:] = np.arange(length) + row, 1
    for options in ({}, {"do_sample": True, "seed": 5, "top_k": 4}, {"num_beams": 3}):
        together = model.generate(padded, mask, max_new_tokens=9, **options).numpy()[:, 6:]
        for row, length in enumerate(lengths):
            alone = model.generate(padded[row : row + 1, -length:], max_new_tokens=9, **options).numpy()
            np.testing.assert_array_equal(together[row], alone[0, length:])


def test_several_new_tokens_at_once(model: GPT2LMHeadModel) -> None:
    """A prompt in parts gives the scores of the whole."""
    cache = KVCache(12)
    ids = np.random.default_rng(2).integers(0, VOCABULARY, (2, 12))
    with ox.no_grad():
        parts = [model(ox.tensor(ids[:, a:b]), cache=cache).numpy() for a, b in ((0, 5), (5, 6), (6, 10), (10, 12))]
        whole = model(ox.tensor(ids)).numpy()
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, atol=1e-4)
    with pytest.raises(ArgumentError, match="the cache has no room"):
        model(ox.tensor(ids[:, :1]), cache=cache)


def test_texts_end(model: GPT2LMHeadModel) -> None:
    free = model.generate(IDS, max_new_tokens=12).numpy()[:, 5:]
    end = int(free[0, 3])
    result: Generation = model.generate(IDS, max_new_tokens=12, eos_token_id=end, pad_token_id=9,
                                        return_dict_in_generate=True)  # fmt: skip
    for row, text in enumerate(free):
        places = np.flatnonzero(text == end)
        length = int(places[0]) + 1 if len(places) else 12
        assert result.tokens[row] == text[:length].tolist()
        assert result.finish_reasons[row] == ("stop" if len(places) else "length")
        assert (result.sequences.numpy()[row, 5 + length :] == 9).all()
    assert result.texts is None and result.logprobs is None


def test_stop_strings(model: GPT2LMHeadModel) -> None:
    free = model.generate(IDS[:1], max_new_tokens=12).numpy()[0, 5:].tolist()
    whole = Letters().decode(free)
    stop = whole[4:6]
    options = {"tokenizer": Letters(), "return_dict_in_generate": True, "max_new_tokens": 12}
    result = model.generate(IDS[:1], stop_strings=stop, **options)
    assert result.texts == [whole[: whole.index(stop)]] and result.finish_reasons == ["stop"]
    assert model.generate(IDS[:1], **options).texts == [whole]


def test_log_probabilities(model: GPT2LMHeadModel) -> None:
    result = model.generate(IDS, max_new_tokens=4, logprobs=3, return_dict_in_generate=True)
    ids = IDS
    for step in range(4):
        chances = log_probabilities(logits(model, ids))
        for row, each in enumerate(chances):
            found = result.logprobs[row][step]
            assert found.chosen == pytest.approx(each.max(), abs=1e-4)
            assert list(found.top) == np.argsort(-each)[:3].tolist()
        ids = np.concatenate([ids, chances.argmax(-1)[:, None]], 1)


def test_a_stream_is_the_whole(model: GPT2LMHeadModel) -> None:
    params = SamplingParams(seed=3, top_p=0.9)
    whole = model.generate(IDS, max_new_tokens=8, do_sample=True, seed=3, top_p=0.9, tokenizer=Letters(),
                           return_dict_in_generate=True)  # fmt: skip
    steps = list(model.stream(IDS, max_new_tokens=8, params=params, tokenizer=Letters()))
    assert [step.row for step in steps] == [0, 1, 2] * 8
    for row in range(3):
        mine = [step for step in steps if step.row == row]
        assert [step.token for step in mine] == whole.tokens[row]
        assert "".join(step.text or "" for step in mine) == whole.texts[row]
        assert [step.finish_reason for step in mine] == [None] * 7 + ["length"]


def test_several_texts_of_a_prompt(model: GPT2LMHeadModel) -> None:
    options = {"max_new_tokens": 10, "do_sample": True, "seed": 0}
    texts = model.generate(IDS, num_return_sequences=4, **options).numpy()
    assert texts.shape == (12, 15)
    assert len({text.tobytes() for text in texts[:4]}) == 4
    np.testing.assert_array_equal(texts[::4], model.generate(IDS, **options).numpy())


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("end", [None, 4])
def test_beams_that_keep_everything_find_the_best(
    model: GPT2LMHeadModel, end: int | None, length_penalty: float
) -> None:
    """All texts of three tokens, scored one by one."""
    chances = {}  # of the next token, by what came before
    for length in range(3):
        before = list(itertools.product(range(VOCABULARY), repeat=length))
        ids = np.concatenate(
            [IDS[:1].repeat(len(before), 0), np.array(before, np.int64).reshape(len(before), length)], 1
        )
        chances |= dict(zip(before, log_probabilities(logits(model, ids)), strict=True))
    best: list[tuple[float, list[int]]] = []
    for text in itertools.product(range(VOCABULARY), repeat=3):
        tokens = list(text)
        if end in tokens:
            if tokens.index(end) < 2 and any(tokens[tokens.index(end) + 1 :]):
                continue  # counted once, with zeros behind it
            tokens = tokens[: tokens.index(end) + 1]
        total = sum(chances[tuple(tokens[:i])][token] for i, token in enumerate(tokens))
        best.append((total / len(tokens) ** length_penalty, tokens))
    best.sort(key=lambda pair: -pair[0])
    result = model.generate(
        IDS[:1], max_new_tokens=3, num_beams=VOCABULARY**2, num_return_sequences=5, eos_token_id=end,
        length_penalty=length_penalty, return_dict_in_generate=True,
    )  # fmt: skip
    np.testing.assert_allclose(result.scores, [score for score, _ in best[:5]], atol=1e-4)
    assert result.tokens == [tokens for _, tokens in best[:5]]


# What `generate` of transformers 5.24 gives for the weights below.
BEAMS: list[tuple[dict[str, Any], list[str], list[float]]] = [
    (
        {"num_beams": 3, "num_return_sequences": 2},
        ["186", "175", "77777777", "77777778", "5", "75"],
        [-1.3303, -1.3803, -0.9930, -1.0426, -1.4715, -1.8366],
    ),
    (
        {"num_beams": 2, "num_return_sequences": 2, "length_penalty": 2.0},
        ["17775", "17786", "77777777", "77777778", "75", "25"],
        [-0.2927, -0.3029, -0.1241, -0.1303, -0.9183, -0.9310],
    ),
    ({"num_beams": 4, "length_penalty": -1.0}, ["5", "6", "5"], [-2.1655, -1.6846, -1.4715]),
    (
        {"num_beams": 3, "length_penalty": 0.5, "repetition_penalty": 1.5},
        ["4", "6", "5"],
        [-2.2339, -1.6846, -2.2073],
    ),
]


@pytest.mark.parametrize(("options", "texts", "scores"), BEAMS, ids=str)
def test_beams_end_as_those_of_transformers(options: dict[str, Any], texts: list[str], scores: list[float]) -> None:
    """Three tokens end a text, so that more continuations than beams end at once."""
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}
    llama, values = LlamaForCausalLM(LlamaConfig(11, 16, 24, **sizes)).eval(), np.random.default_rng(3)
    with ox.no_grad():
        for parameter in llama.parameters():
            parameter.copy_(ox.from_numpy(0.5 * values.standard_normal(parameter.shape).astype(np.float32)))
    found = llama.generate(IDS, max_new_tokens=8, eos_token_id=[4, 5, 6], return_dict_in_generate=True, **options)
    assert ["".join(map(str, tokens)) for tokens in found.tokens] == texts
    np.testing.assert_allclose(found.scores, scores, atol=1e-3)


def test_there_are_no_more_beams_than_texts(model: GPT2LMHeadModel) -> None:
    with pytest.raises(ArgumentError, match="fewer texts") as caught:
        model.generate(IDS, max_new_tokens=1, num_beams=15, num_return_sequences=12)
    assert caught.value.got == "11"


def test_penalties_reach_beams(model: GPT2LMHeadModel) -> None:
    plain = model.generate(IDS, max_new_tokens=8, num_beams=3).numpy()[:, 5:]
    without = model.generate(IDS, max_new_tokens=8, num_beams=3, frequency_penalty=100.0).numpy()[:, 5:]
    assert any(len(set(text)) < 8 for text in plain.tolist())
    assert all(len(set(text)) == 8 for text in without.tolist())


def test_the_context_ends(model: GPT2LMHeadModel) -> None:
    ids = np.zeros((1, 30), np.int64)
    result = model.generate(ids, max_new_tokens=50, return_dict_in_generate=True)
    assert [len(text) for text in result.tokens] == [3] and result.finish_reasons == ["length"]
    with pytest.raises(ArgumentError, match="longer than the model's context") as caught:
        model.generate(np.zeros((1, 33), np.int64))
    assert (caught.value.expected, caught.value.got) == ("at most 32 tokens", "33")


@rows(
    ("options", "what"),
    [
        ({"input_ids": [1, 2]}, "whole numbers"),
        ({"input_ids": [[0.5]]}, "whole numbers"),
        ({"input_ids": np.zeros((0, 3), int)}, "whole numbers"),
        ({"attention_mask": [[1]]}, "the shape of the prompts"),
        ({"attention_mask": [[0, 0], [0, 1]]}, "one token or more"),
        ({"attention_mask": [[1, 0], [1, 1]]}, "padding stands before a text"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"temperature": 0.5}, "temperature change how tokens are drawn"),
        ({"top_p": 0.5, "seed": 1}, "top_p, seed change how tokens are drawn"),
        ({"num_beams": 2, "do_sample": True}, "beam search goes without"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_beams"),
        ({"num_beams": 0}, "num_beams"),
        ({"num_return_sequences": 2}, "all texts of a prompt would be equal"),
        ({"stop_strings": "x"}, "need a tokenizer"),
        ({"input_ids": [[1, 99], [0, 1]]}, "99"),
    ],
    ids=str,
)
def test_bad_input(model: GPT2LMHeadModel, options: dict[str, Any], what: str) -> None:
    with pytest.raises(ox.errors.OxError, match=what):
        model.generate(**{"input_ids": [[1, 2], [3, 4]], **options})


def test_a_decoder_without_its_context_length() -> None:
    class Own(Generates):
        pass

    with pytest.raises(ArgumentError, match="Own does not say how many tokens it can see"):
        Own().generate([[1]])


def test_training_is_what_it_was(model: GPT2LMHeadModel) -> None:
    """`generate` leaves no gradients behind, and the forward without a cache has them."""
    model.generate(IDS, max_new_tokens=2)
    assert all(parameter.grad is None for parameter in model.parameters())
    model(ox.tensor(IDS)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.zero_grad()
