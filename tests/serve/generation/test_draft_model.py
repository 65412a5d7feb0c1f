"""A smaller model guesses what a text goes on with; the text stays the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import generation_client
import onnx
import pytest
from generation_client import CONTEXT, END, GREEDY, VOCABULARY, Client, assert_nothing_is_left, prompts, write_tokenizer
from tiny_decoder import save_briefly

import ox
from ox.errors import ArgumentError, LoadError
from ox.generation import SamplingParams
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.config.model_config import ModelConfig
from ox.serve.generation.draft_model import MARGIN, PAUSE, TOKENS, DraftModel
from ox.serve.generation.engine import GenerationEngine
from ox.serve.generation.prompt_lookup import PromptLookup
from ox_models.gpt2 import GPT2Config, GPT2LMHeadModel


@pytest.fixture(scope="module")
def drafted(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model beside others that could draft for it: itself, another one, and one with a short context."""
    root = tmp_path_factory.mktemp("drafted")
    for name in ("llama", "gpt2"):
        shutil.copytree(folders[name], root / name)
    shutil.copytree(
        folders["gpt2"], root / "nested" / "onnx"
    )  # the model in a folder beneath, as on Hugging Face's hub
    write_tokenizer(root / "nested" / "tokenizer.json")
    ox.manual_seed(0)
    short = GPT2LMHeadModel(GPT2Config(VOCABULARY, n_positions=60, n_embd=32, n_layer=1, n_head=4))
    save_briefly(short, root / "short")
    return root / "llama"


@pytest.fixture
def engines(drafted: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Clients by what drafts for the model; the text itself does not, so that the other model is asked."""
    monkeypatch.setattr(PromptLookup, "draft", lambda *_: [])
    for module in ("engine", "draft_model"):
        monkeypatch.setattr(f"ox.serve.generation.{module}.Decoder", generation_client.loaded)
    made: list[GenerationEngine] = []

    def make(draft: str | None, **named: Any) -> Client:
        options = GenerationOptions(cache_mib=16, draft=draft, **named)
        made.append(GenerationEngine.open(drafted, options, threads=1))
        return Client(made[-1])

    yield make
    for engine in made:
        engine.close(finish=False)


@pytest.mark.parametrize("draft", ["../llama", "../nested", "../short"])
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=0.3, seed=6)], ids=["greedy", "drawn"])
def test_texts_are_the_same(engines: Any, draft: str, sampling: SamplingParams) -> None:
    guessing, plain = engines(draft), engines(None)
    for index, prompt in enumerate([*prompts(3), prompts(1, seed=1)[0] * 20]):
        named: Any = {"sampling": sampling, "index": index, "ignore_eos": True, "logprobs": 1}
        found, wanted = (client.ask(prompt[: CONTEXT - 60], 60, **named) for client in (guessing, plain))
        assert found.tokens == wanted.tokens and len(found.tokens) == 60
        assert found.events[-1].usage == wanted.events[-1].usage
    stats = guessing.engine.stats()
    assert (stats["drafted_tokens"] > 0) == sampling.greedy  # drawn tokens are not guessed
    if draft == "../llama" and sampling is GREEDY:  # it guesses what it does itself
        assert stats["accepted_tokens"] == stats["drafted_tokens"] > 3 * 60 * TOKENS // (TOKENS + 1)
    assert_nothing_is_left(guessing)


def test_texts_in_turns_and_together(engines: Any, alone: Any) -> None:
    """What was computed for one text is not taken for another."""
    client = engines("../llama", prefill_tokens=16)
    for count in (5, 30):
        answers = [client.send(prompt, count + 9 * place) for place, prompt in enumerate(prompts(4))]
        for place, (prompt, answer) in enumerate(zip(prompts(4), answers, strict=True)):
            assert answer.wait().tokens == alone("llama", prompt, count + 9 * place)
    assert client.engine.stats()["accepted_tokens"] > 0
    assert_nothing_is_left(client)


def test_the_text_itself_comes_first(drafted: Path) -> None:
    engine = GenerationEngine.open(drafted, GenerationOptions(cache_mib=16, draft="../gpt2"), threads=1)
    asked: list[int] = []
    model = engine._drafter._model
    assert model is not None
    guess = model.draft
    model.draft = lambda tokens, room: asked.append(room) or guess(tokens, room)  # type: ignore[method-assign, func-returns-value]
    Client(engine).ask([5, 6], 200, ignore_eos=True)
    engine.close()
    assert 0 < len(asked) < 100
    assert engine.stats()["accepted_tokens"] > 100


def test_drafts_that_do_not_pay_are_given_up_for_a_while(engines: Any) -> None:
    model: DraftModel = engines("../gpt2").engine._drafter._model
    wanted = MARGIN + 1

    text = [1, 2, 3]
    for _ in range(wanted):
        assert len(model.draft(text, 9)) == TOKENS and len(model.draft(text, 2)) == 2
        model.count(0)
    assert [len(model.draft(text, 9)) for _ in range(PAUSE + 1)] == [0] * PAUSE + [TOKENS]
    model.count(0)
    other = [1, 2, 3]
    for accepted in (2, 1, 0) * 5:
        assert model.draft(other, 9)
        model.count(accepted)


def test_another_vocabulary(folders: dict[str, Path], drafted: Path, tmp_path: Path) -> None:
    def refusal(draft: Path | str) -> str:
        with pytest.raises(LoadError) as caught:
            GenerationEngine.open(drafted, GenerationOptions(cache_mib=16, draft=str(draft)), threads=1)
        return caught.value.one_line()

    ox.manual_seed(0)
    larger = GPT2LMHeadModel(GPT2Config(VOCABULARY + 1, n_positions=CONTEXT, n_embd=32, n_layer=1, n_head=4))
    save_briefly(larger, tmp_path / "larger")
    assert "has other tokens than the model" in refusal(tmp_path / "larger")
    assert f"expected {VOCABULARY} tokens, and the same tokenizer.json; got {VOCABULARY + 1}" in refusal(
        tmp_path / "larger"
    )
    other = shutil.copytree(folders["llama"], tmp_path / "other")
    write_tokenizer(other / "tokenizer.json", END)
    assert "got 100 tokens, another tokenizer" in refusal(other)
    assert "there is no file" in refusal("nowhere")


def test_settings() -> None:
    for value in ("", 5):
        with pytest.raises(ArgumentError, match="draft of generation is no folder"):
            ModelConfig(generation={"draft": value})


def test_a_model_that_does_not_tell_its_context(drafted: Path, tmp_path: Path) -> None:
    """It gets what the memory has room for, beside the cache of the draft model."""
    shutil.copytree(drafted, tmp_path / "llama")
    model = onnx.load(tmp_path / "llama" / "model.onnx")
    about = next(entry for entry in model.metadata_props if entry.key == "ox.decoder")
    about.value = json.dumps({"vocab_size": VOCABULARY})
    onnx.save(model, tmp_path / "llama" / "model.onnx")
    lengths = {}
    for draft in (None, str(drafted), str(drafted.parent / "short")):
        options = GenerationOptions(cache_mib=1, draft=draft)
        engine = GenerationEngine.open(tmp_path / "llama", options, threads=1)
        lengths[draft] = engine.context_length
        assert len(Client(engine).ask([5, 6, 7], 40, ignore_eos=True).tokens) == 40
        engine.close()
    assert lengths[None] > lengths[str(drafted)] >= lengths[None] // 2


def test_on_the_server(drafted: Path) -> None:
    options = ModelConfig(threads=1, generation={"draft": "../llama", "cache_mib": 16})
    with ox.serve.Server([drafted], port=0, options=options) as server:
        client = Client(server.service.repository.find("llama").generation)
        assert len(client.ask([5, 6, 7], 40, ignore_eos=True).tokens) == 40
        assert client.engine.stats()["accepted_tokens"] > 20


def test_what_of_a_wrong_draft_is_computed_again(engines: Any) -> None:
    """Its second token is right again, after another first one."""
    model: DraftModel = engines("../llama").engine._drafter._model
    text = [5, 6, 7]
    first, second, _ = model.draft(text, 3)
    text += [(first + 1) % 90, second, 8]
    assert model.draft(text, 3) == engines("../llama").engine._drafter._model.draft([*text], 3)
    assert model._known([*text, 9]) == len(text)


def test_a_long_prompt_is_read_in_parts(engines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has a turn after each: others join meanwhile."""
    text = (prompts(1, seed=1)[0] * 30)[:200]
    whole = engines("../llama").engine._drafter._model
    wanted = whole.draft([*text], 3)
    monkeypatch.setattr("ox.serve.generation.draft_model.PART", 64)
    model: DraftModel = engines("../llama").engine._drafter._model
    read, sizes = model._run.read, list[int]()
    monkeypatch.setattr(model._run, "read", lambda row, part, *more: sizes.append(len(part)) or read(row, part, *more))
    drafts = []
    for place in range(4):
        drafts.append(model.draft(text, 3))
        assert len(sizes) <= place + 1
    assert len(wanted) == 3 and drafts == [[], [], wanted, wanted]
    text.append((wanted[0] + 1) % 90)
    assert model._known(text) == 200
