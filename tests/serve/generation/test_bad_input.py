"""What the engine refuses, and how it says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generation_client import CONTEXT, VOCABULARY, Answer, write_tokenizer
from rows import rows

from ox.errors import ArgumentError, LoadError, ServeError
from ox.generation import SamplingParams
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.config.model_config import ModelConfig
from ox.serve.generation.engine import GenerationEngine
from ox.serve.generation.request import Constraint, GenerationRequest
from ox.serve.generation.scheduler import cache_budget

REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"prompt": []}, "the prompt is empty"),
    "no tokens": ({"prompt": [1.5, 2]}, "no list of tokens"),
    "a negative token": ({"prompt": [1, -1]}, "expected 0 to 99; got -1"),
    "an unknown token": ({"prompt": [1, VOCABULARY]}, "expected 0 to 99; got 100"),
    "too long": ({"prompt": [1] * CONTEXT}, "expected at most 255 tokens, so that one can follow; got 256 tokens"),
    "far too long": ({"prompt": np.ones(1_000_000, np.int64)}, "longer than the model's context"),
    "less than no tokens": ({"max_tokens": -1}, "max_tokens is out of range; expected a whole number from 0 on"),
    "less than none at least": ({"min_tokens": -1}, "min_tokens is out of range"),
    "more at least than at most": (
        {"min_tokens": 3, "max_tokens": 2},
        "min_tokens is larger than max_tokens; expected at most max_tokens, 2; got 3",
    ),
    "too many prompt logprobs": ({"prompt_logprobs": 21}, "prompt_logprobs is out of range"),
    "no token at all": ({"allowed_token_ids": ()}, "allowed_token_ids is empty"),
    "an empty bad word": ({"bad_words": ("a", "")}, "invalid bad_words; expected at most 64 texts"),
    "a long bad word": ({"bad_words": ("a" * 257,)}, "of 1 to 256 characters"),
    "half a token": ({"max_tokens": 1.5}, "max_tokens is out of range"),
    "too many logprobs": ({"logprobs": 21}, "expected a whole number from 0 to 20; got 21"),
    "an empty stop": ({"stop": ("",)}, "stop has texts that no text can end at"),
    "too many stops": ({"stop": ("a",) * 65}, "at most 64 texts"),
    "a wrong stop token": ({"stop_token_ids": (-1,)}, "tokens that end a text"),
    "a bias for nothing": (
        {"sampling": SamplingParams(logit_bias={500: 1.0})},
        "logit_bias has a token that the model",
    ),
    "no priority": ({"priority": -1}, "priority is out of range"),
    "no form": ({"constraint": Constraint("regex", 5)}, "invalid regular expression of a text; expected a text; got 5"),
    "no choice": ({"constraint": Constraint("choice", [])}, "invalid choice of a text; expected a list of texts"),
}


@rows("fields, message", REQUESTS.values(), ids=REQUESTS)
def test_requests(client_of: Any, fields: dict[str, Any], message: str) -> None:
    if "constraint" in fields:
        pytest.importorskip("llguidance")
    engine, answer = client_of().engine, Answer()
    with pytest.raises(ServeError) as caught:
        engine.submit(GenerationRequest(**{"prompt": [1], **fields}), answer.on_event, answer.on_error)
    assert message in caught.value.one_line() and caught.value.status == 400
    assert engine.stats()["requests"] == 0


def test_what_needs_a_tokenizer(client_of: Any) -> None:
    client = client_of("gpt2")
    with pytest.raises(ServeError, match="stop strings need a tokenizer"):
        client.send([1], stop=("a",))
    with pytest.raises(ServeError, match="need a tokenizer"):
        client.send([1], constraint=Constraint("json_object"))


def test_a_full_queue(client_of: Any) -> None:
    client = client_of(max_texts=1, queue=2)
    client.engine._condition.acquire()  # nothing begins
    answers = [client.send([1], 2), client.send([2], 2)]
    with pytest.raises(ServeError) as caught:
        client.send([3], 2)
    client.engine._condition.release()
    assert caught.value.status == 503 and "at most 2 (--max-queue)" in caught.value.one_line()
    assert all(answer.wait().error is None for answer in answers)


def test_a_consumer_that_fails_harms_no_other(client_of: Any, caplog: pytest.LogCaptureFixture) -> None:
    client = client_of()

    def broken(event: Any) -> None:
        raise RuntimeError("a defect")

    client.engine.submit(GenerationRequest([1], max_tokens=3), broken, broken)
    assert len(client.ask([5], 10, ignore_eos=True).tokens) == 10
    assert "could not be handed on" in caplog.text


def copy(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def refusal(folder: Path, options: GenerationOptions | None = None) -> str:
    with pytest.raises(LoadError) as caught:
        GenerationEngine.open(folder, options, threads=1)
    return caught.value.one_line()


def test_a_tokenizer_of_another_model(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copy(folders["llama"], tmp_path / "writer")
    write_tokenizer(folder / "tokenizer.json", VOCABULARY + 1)
    assert "tokenizer of another model" in refusal(folder) and "expected tokens up to 99" in refusal(folder)
    (folder / "tokenizer.json").write_text("{")
    assert "tokenizer.json is no tokenizer" in refusal(folder)


@rows(
    "text, message",
    [
        ("{", "cannot be read"),
        ("[]", "is no JSON object"),
        (json.dumps({"eos_token_id": VOCABULARY}), "expected 0 to 99, or a list of them; got 100"),
        (json.dumps({"eos_token_id": ["a"]}), "is no token of the model"),
        (json.dumps({"top_k": "many"}), "expected top_k is a whole number from 0 on; got 'many'"),
        (json.dumps({"repetition_penalty": 0}), "expected repetition_penalty is a number above 0; got 0"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_damaged_settings(folders: dict[str, Path], tmp_path: Path, text: str, message: str) -> None:
    folder = copy(folders["llama"], tmp_path / "writer")
    (folder / "generation_config.json").write_text(text)
    assert message in refusal(folder)


def test_a_cache_that_does_not_fit(client_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LoadError) as caught:
        client_of(texts=0.1)
    assert "expected 0.1 MiB, for one text of 256 tokens of 512 bytes each; got 0.0 MiB" in caught.value.one_line()
    monkeypatch.setattr("ox.serve.generation.decoder_memory.available_memory", lambda: 8 << 20)
    assert cache_budget(GenerationOptions()) == 2 << 20
    with pytest.raises(LoadError, match="does not fit into the memory that there is"):
        cache_budget(GenerationOptions(cache_mib=9))


def test_no_decoder(build: Any, tmp_path: Path) -> None:
    path = build("plain", [("Relu", ["x"], ["y"], {})], {"x": (1, ["n", 4])}, {"y": (1, ["n", 4])})
    assert "is no decoder with a cache" in refusal(path)
    assert "there is no file" in refusal(tmp_path / "nothing")


def test_options() -> None:
    with pytest.raises(ArgumentError, match="there is no option 'cache' of generation"):
        ModelConfig(generation={"cache": 5})
    for table in ({"cache_mib": 0}, {"max_texts": True}, {"prefill_tokens": 1.5}, {"draft_tokens": 16}):
        with pytest.raises(ArgumentError, match="out of range"):
            ModelConfig(generation=table)
    assert ModelConfig(generation={"max_texts": 8, "draft_tokens": 0}).generation["draft_tokens"] == 0
