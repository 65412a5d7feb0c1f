"""Decoders in files: texts of the file, what is beside it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from int8_products import skip_if_they_saturate

import ox
from ox import nn
from ox.errors import ArgumentError, ExportError, LoadError
from ox.export import save_decoder
from ox.generation import Generates, KVCache, OnnxDecoder
from ox_models.gpt2 import GPT2Config, GPT2LMHeadModel
from ox_models.llama import LlamaConfig, LlamaForCausalLM

IDS, MASK = np.array([[0, 0, 4], [7, 8, 9]]), np.array([[0, 0, 1], [1, 1, 1]])


def scattered(model: Any) -> Any:
    """With weights in the range of trained ones."""
    values = np.random.default_rng(1)
    with ox.no_grad():
        for parameter in model.parameters():
            parameter += ox.from_numpy(0.3 * values.standard_normal(parameter.shape).astype(np.float32))
    return model.eval()


def gpt2(context: int = 48) -> Any:
    return scattered(GPT2LMHeadModel(GPT2Config(23, context, n_embd=16, n_layer=2, n_head=4)))


def llama(context: int = 48) -> Any:
    return scattered(
        LlamaForCausalLM(LlamaConfig(23, 16, 24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                     max_position_embeddings=context))
    )  # fmt: skip


@pytest.fixture(scope="module", params=[gpt2, llama])
def model(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decoders") / "mine"
    save_decoder(model, path)
    return path


def test_every_kind_of_text_is_the_models(model: Any, folder: Path) -> None:
    file = OnnxDecoder(folder)
    assert file.context_length == 48
    for options in (
        {}, {"do_sample": True, "seed": 1, "top_p": 0.8}, {"num_beams": 3, "num_return_sequences": 2},
        {"repetition_penalty": 1.5}, {"eos_token_id": list(range(5))},
    ):  # fmt: skip
        expected = model.generate(IDS, MASK, max_new_tokens=40, **options).numpy()
        np.testing.assert_array_equal(file.generate(IDS, MASK, max_new_tokens=40, **options).numpy(), expected)


def test_the_layout_is_optimums(folder: Path) -> None:
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    inputs = {info.name: info.shape for info in session.get_inputs()}
    assert list(inputs)[:4] == ["input_ids", "attention_mask", "position_ids", "past_key_values.0.key"]
    assert inputs["attention_mask"] == ["batch", "past + new"]
    assert inputs["past_key_values.1.value"][0::2] == ["batch", "past"]
    outputs = [info.name for info in session.get_outputs()]
    assert outputs == ["logits", *(f"present.{i}.{kind}" for i in range(2) for kind in ("key", "value"))]


def test_weights_have_the_models_names(model: Any, folder: Path) -> None:
    file = onnx.load(folder / "model.onnx")
    assert json.loads({p.key: p.value for p in file.metadata_props}["ox.decoder"]) == {
        "context_length": 48, "vocab_size": 23,
    }  # fmt: skip
    names = {name for name, _ in model.named_parameters()}
    stored = {each.name for each in file.graph.initializer}
    assert len(stored & names) > len(names) / 2  # inference folds some


@pytest.mark.parametrize("scheme", ["float16", "bfloat16", "int8-dynamic", "int4"])
def test_in_lower_precision(model: Any, folder: Path, tmp_path: Path, scheme: str) -> None:
    if scheme == "int8-dynamic":
        skip_if_they_saturate()
    ox.export.quantize(folder / "model.onnx", tmp_path / "small.onnx", scheme, block_size=16)
    file = OnnxDecoder(tmp_path / "small.onnx")
    assert file.context_length == 48
    ids = np.random.default_rng(3).integers(0, 23, (2, 12))
    with ox.no_grad():
        exact = model(ox.tensor(ids)).numpy()
    got = file(ox.tensor(ids)).numpy().astype(np.float32)
    assert np.abs(got - exact).mean() < {"float16": 0.01, "bfloat16": 0.05, "int8-dynamic": 0.3, "int4": 1.0}[scheme]
    assert file.generate(IDS, MASK, max_new_tokens=20).shape == (2, 23)


@pytest.mark.parametrize("kind", [gpt2, llama])
def test_a_model_in_bfloat16(kind: Any, tmp_path: Path) -> None:
    """The file is in bfloat16; on the CPU it is computed in float32 with the same weights, and so is its proof."""
    narrow = kind().bfloat16()
    report = save_decoder(narrow, tmp_path / "narrow")
    stored = onnx.load(tmp_path / "narrow" / "model.onnx")
    cache = [info for info in stored.graph.input if info.name.startswith("past_key_values")]
    assert {info.type.tensor_type.elem_type for info in cache} == {onnx.TensorProto.BFLOAT16}
    assert {str(parameter.dtype) for parameter in narrow.parameters()} == {"bfloat16"}
    assert report.texts == 6 and report.tokens > 150
    wide, ids = narrow.float(), ox.tensor(np.random.default_rng(3).integers(0, 23, (2, 12)))
    with ox.no_grad():
        np.testing.assert_allclose(OnnxDecoder(tmp_path / "narrow")(ids).numpy(), wide(ids).numpy(), atol=1e-3)


def test_other_texts_than_of_a_model_in_bfloat16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = OnnxDecoder.__call__
    monkeypatch.setattr(OnnxDecoder, "__call__", lambda *args, **named: -exact(*args, **named))
    with pytest.raises(ExportError, match="another text than the model"):
        save_decoder(llama().bfloat16(), tmp_path / "narrow")


def test_a_prompt_in_parts(model: Any, folder: Path) -> None:
    """Several new tokens past a cache."""
    file, ids = OnnxDecoder(folder), np.random.default_rng(3).integers(0, 23, (2, 12))
    cache = file.new_cache(12)
    parts = [file(ox.tensor(ids[:, a:b]), cache=cache).numpy() for a, b in ((0, 5), (5, 6), (6, 12))]
    with ox.no_grad():
        np.testing.assert_allclose(np.concatenate(parts, 1), model(ox.tensor(ids)).numpy(), atol=1e-3)


def test_the_report_and_what_is_beside(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"model": {"vocab": {"a": 0}}}')
    net = gpt2().train()
    report = save_decoder(net, tmp_path / "d", tokenizer=tmp_path / "t.json", chat_template="{{ messages }}",
                          generation={"eos_token_id": 3, "temperature": 0.7})  # fmt: skip
    assert net.training
    assert report.files == ("generation_config.json", "model.onnx", "tokenizer.json", "tokenizer_config.json")
    assert json.loads((tmp_path / "d" / "generation_config.json").read_text()) == {
        "eos_token_id": 3,
        "temperature": 0.7,
    }
    assert json.loads((tmp_path / "d" / "tokenizer_config.json").read_text()) == {"chat_template": "{{ messages }}"}
    assert (report.texts, report.tokens, report.ties) == (6, 44 + 2 * 40 + 3 * 32, 0)  # to the end of the context
    assert str(report.model.path) == str(tmp_path / "d" / "model.onnx") and report.model.model == "GPT2LMHeadModel"
    assert "greedy texts: all 6 are" in str(report)


def test_a_folder_is_replaced_only_by_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = gpt2(context=8)  # its proof is short
    save_decoder(net, tmp_path / "d", chat_template="old")
    before = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()}
    with pytest.raises(LoadError, match="cannot be opened"):
        save_decoder(net, tmp_path / "d", tokenizer=tmp_path / "nobody.json")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr("ox.export.decoder_file._write_beside", Mock(side_effect=OSError("no space")))
        save_decoder(net, tmp_path / "d")
    assert {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()} == before
    save_decoder(net, tmp_path / "d")
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["model.onnx"]
    assert [path.name for path in tmp_path.iterdir()] == ["d"]
    (tmp_path / "notes").mkdir()
    with pytest.raises(ArgumentError, match="no decoder's folder"):
        save_decoder(net, tmp_path / "notes")


def test_a_file_that_writes_another_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = OnnxDecoder.__call__

    def wrong(self: OnnxDecoder, input_ids: Any, cache: Any = None, attention_mask: Any = None) -> Any:
        scores = real(self, input_ids, cache, attention_mask)
        return scores.flip(-1) if cache.real.shape[1] > 20 else scores

    monkeypatch.setattr(OnnxDecoder, "__call__", wrong)
    with pytest.raises(ExportError, match="gives another text than the model"):
        save_decoder(gpt2(), tmp_path / "d")
    assert not list(tmp_path.iterdir())


class NoCache(Generates, nn.Module):
    context_length = 8

    def forward(self, input_ids: Any, cache: KVCache | None = None, attention_mask: Any = None) -> Any:
        return nn.functional.one_hot(input_ids, 5).float()


@pytest.mark.parametrize(
    ("net", "what"), [(nn.Linear(2, 2), "inherits ox.generation.Generates"), (NoCache(), "does not use its cache")]
)
def test_what_is_no_decoder(tmp_path: Path, net: Any, what: str) -> None:
    with pytest.raises(ArgumentError, match=what):
        save_decoder(net, tmp_path / "d")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("beside", "what"),
    [
        ({"tokenizer": "other.json"}, "the tokenizer is that of another model"),
        ({"tokenizer": "unigram.json"}, "the tokenizer is that of another model"),
        ({"tokenizer": "broken.json"}, "is no tokenizer.json"),
        ({"tokenizer": "nothing.json"}, "cannot be opened"),
        ({"generation": {"eos_token_id": 23}}, "eos_token_id is no token of the model"),
        ({"generation": {"eos_token_id": [2, "</s>"]}}, "eos_token_id is no token of the model"),
        ({"generation": {"suppress_tokens": {1, 2}}}, "a value that JSON cannot hold"),
    ],
    ids=str,
)
def test_what_does_not_belong_to_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: dict[str, Any], what: str
) -> None:
    """It is refused before the export, and not when the folder is served."""
    monkeypatch.chdir(tmp_path)
    added = {"added_tokens": [{"id": 23, "content": "<x>"}], "model": {"vocab": {"a": 0}}}
    Path("other.json").write_text(json.dumps(added))
    Path("unigram.json").write_text(json.dumps({"model": {"vocab": [["a", -1.0]] * 24}}))
    Path("broken.json").write_text("{}")
    with pytest.raises((ArgumentError, LoadError), match=what):
        save_decoder(llama(), "mine", **beside)
    assert not Path("mine").exists()


def test_a_file_that_onnxruntime_reads_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights would be in memory twice; and ONNX Runtime reads files that are not ONNX."""
    save_decoder(llama(), tmp_path / "plain")
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(tmp_path / "plain" / "model.onnx", options, providers=["CPUExecutionProvider"])
    ids = ox.tensor(np.arange(5)[None])
    wanted = OnnxDecoder(tmp_path / "plain")(ids).numpy()
    np.testing.assert_allclose(OnnxDecoder(tmp_path / "model.ort")(ids).numpy(), wanted, atol=1e-5)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="there is no file"):
        OnnxDecoder(tmp_path)
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    with pytest.raises(LoadError, match="is not an ONNX file"):
        OnnxDecoder(tmp_path / "bad.onnx")
    ox.export.save(nn.Linear(2, 2), tmp_path / "linear.onnx", np.ones((2, 2), np.float32))
    with pytest.raises(LoadError, match="no decoder with a cache") as caught:
        OnnxDecoder(tmp_path / "linear.onnx")
    assert "save_decoder" in str(caught.value.hint)
