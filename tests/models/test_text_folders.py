"""The recipes that read text, as folders: trained, exported and asked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ox
from ox.generation import OnnxDecoder
from ox.serve import ModelConfig, Server
from ox_cli.main import main
from ox_models import kjv_llama, verses
from ox_models.kjv_data import MARKS, byte_pairs, chapters

TINY = '''
"""The recipe kjv_llama with a smaller model."""

from ox_models.kjv_llama import *
from ox_models.kjv_llama import LlamaConfig, LlamaForCausalLM


def model():
    return LlamaForCausalLM(
        LlamaConfig(4096, 32, 48, 2, 2, 1, max_position_embeddings=CONTEXT, tie_word_embeddings=True)
    )
'''


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers", reason="the extra text is not installed")
    monkeypatch.chdir(tmp_path)


def test_every_text_comes_back() -> None:
    pieces = byte_pairs()
    for text in ("And God said", "Ünïcödé, 漢字, 🜁\n\ttabs", chapters()[0].verses[0]):
        assert pieces.decode(pieces.encode(text).ids) == text
    assert [pieces.token_to_id(mark) for mark in MARKS] == [0, 1, 2]
    assert pieces.encode("<|user|>Selah.<|end|>").tokens[0] == "<|user|>"
    assert len(pieces.encode(chapters()[0].verses[0]).ids) < 20  # it was counted on such text


def test_the_recipe_has_ten_million_parameters_and_turns() -> None:
    parts = kjv_llama.data()
    assert [len(part) for part in parts] == [823, 95, 102]
    x, y = parts[0][0]
    assert x.shape == (512,) and x[1:].equal(y[:-1])
    text = kjv_llama.tokenizer().decode(x.tolist(), skip_special_tokens=False)
    assert text.startswith("<|user|>In the beginning God created the heaven and the earth.<|end|><|assistant|>In")


@pytest.mark.slow
def test_a_decoder_of_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tiny.py").write_text(TINY)
    assert main(["train", "tiny.py", "--limit", "8", "--max-steps", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "next: ox export tiny"
    assert main(["export", "scribe"]) == 0
    said = capsys.readouterr().out
    assert "greedy texts: all 6 are" in said and "next: ox serve scribe" in said
    assert {path.name for path in Path("scribe").iterdir()} == {
        "model.onnx", "tokenizer.json", "tokenizer_config.json", "generation_config.json"
    }  # fmt: skip
    assert main(["inspect", "scribe"]) == 0 and "past_key_values.0.key" in capsys.readouterr().out
    assert json.loads(Path("scribe/tokenizer_config.json").read_text())["chat_template"] == kjv_llama.chat_template
    decoder = OnnxDecoder("scribe")
    assert decoder.context_length == 512
    assert decoder.defaults == {"eos_token_id": 0, "do_sample": True, "temperature": 0.8, "top_p": 0.95}
    _, model = ox.train.restore()
    ids = np.array([byte_pairs().encode("<|user|>And God said<|end|><|assistant|>").ids])
    wanted, got = (each.generate(ids, max_new_tokens=20).numpy() for each in (model, decoder))
    assert np.array_equal(wanted, got)

    # in lower precision, without the recipe's samples, which have no cache
    small = ["quantize", "scribe/model.onnx", "--scheme", "int4", "--out", "scribe/small.onnx"]
    assert main(small) == 0 and "int4 · 15 of 15 layers" in capsys.readouterr().out
    found = OnnxDecoder("scribe/small.onnx").generate(ids, max_new_tokens=20).numpy()
    assert found.shape == wanted.shape
    assert main([*small, "--min-accuracy", "0.5"]) != 0
    assert "scribe/model.onnx generates texts" in capsys.readouterr().err


@pytest.mark.slow
def test_a_classifier_of_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "verses", "--limit", "64", "--epochs", "1"]) == 0
    assert main(["export", "kinds"]) == 0
    assert "texts alone and in a padded batch: equal" in capsys.readouterr().out
    text = "And God said, Let there be light: and there was light."
    _, model = ox.train.restore()
    with ox.no_grad():
        wanted = model(*map(ox.from_numpy, verses.numbers([text]))).numpy()
    with Server(["kinds"], options=ModelConfig(device="cpu", instances=1, max_rows=2)) as server:
        (served,) = server.models
        assert served.text_tensors is not None and served.padded.refusal is None
        assert served.outputs[0].labels == tuple(verses.labels)
        rows = served.text_tensors.tokenizer.encode_texts([text])
        got = served.text_tensors.result(served.engine.run(served.text_tensors.batch(rows)), rows)
    assert np.allclose(got, wanted, atol=1e-4)


def test_a_folder_needs_a_tokenizer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "digits", "--limit", "64", "--epochs", "1"]) == 0
    Path("folder").mkdir()
    assert main(["export", "folder"]) != 0
    assert "folder is a folder" in capsys.readouterr().err
