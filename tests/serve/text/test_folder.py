"""Folders as others write them: what is read, and what is refused when a model is loaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ox.errors import LoadError
from ox.serve import ModelConfig, Server
from ox.serve.repository.layout import Layout
from ox.serve.text.folder import read_folder
from ox.serve.text.model_file import model_file

FLOAT = TensorProto.FLOAT
OPTIONS = ModelConfig(device="cpu", instances=1, max_rows=4)


@pytest.fixture
def copied(sentences: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sentences, tmp_path / "copied"))


def write(path: Path, content: Any) -> None:
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def read(folder: Path) -> Any:
    file = model_file(folder)
    assert file is not None
    return read_folder(folder, file)


def test_sentence_transformers(sentences: Path) -> None:
    found = read(sentences)
    assert (found.file, found.poolings, found.normalize) == (sentences / "onnx" / "model.onnx", ("mean",), True)


def test_several_poolings_stand_side_by_side(copied: Path) -> None:
    write(copied / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True})
    assert read(copied).poolings == ("cls", "mean")
    with Server([copied], options=OPTIONS) as server:
        assert server.models[0].outputs[0].dims == ("batch", 12)


LIMITS: dict[str, tuple[dict[str, Any], int]] = {
    "sentence-transformers": ({"sentence_bert_config.json": {"max_seq_length": 10}}, 10),
    "the tokenizer": ({"tokenizer_config.json": {"model_max_length": 12}}, 12),
    "no limit of the tokenizer": ({"tokenizer_config.json": {"model_max_length": 10**30}}, 24),
    "positions from two on": ({"config.json": {"max_position_embeddings": 514, "model_type": "roberta"}}, 512),
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_most_tokens(copied: Path, name: str) -> None:
    files, limit = LIMITS[name]
    for file, content in files.items():
        write(copied / file, content)
    assert read(copied).max_length == limit


DAMAGED: dict[str, tuple[str, Any, str]] = {
    "no JSON": ("modules.json", "{", "cannot be read"),
    "another form": ("modules.json", {"a": 1}, "does not hold what it should"),
    "a module with weights": ("modules.json", [{"type": "sentence_transformers.models.Dense"}], "a module that ox"),
    "another pooling": ("1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True}, "another pooling"),
    "no pooling": ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}, "another pooling"),
    "labels without numbers": ("config.json", {"id2label": {"a": "b"}}, "labels without numbers"),
    "no tokenizer": ("tokenizer.json", {"a": 1}, "is no tokenizer"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(copied: Path, name: str) -> None:
    file, content, message = DAMAGED[name]
    write(copied / file, content)
    with pytest.raises(LoadError, match=message):
        Server([copied], options=OPTIONS)


@pytest.mark.parametrize("tokens", [2999, 5000])
def test_a_tokenizer_of_another_model(folder: Callable[..., Path], tokens: int) -> None:
    path = folder("other", table=np.ones((tokens, 6), np.float32))
    with pytest.raises(LoadError, match="the tokenizer is that of another model") as caught:
        Server([path], options=OPTIONS)
    assert f"{tokens} tokens" in str(caught.value) and "3000" in str(caught.value)


def test_a_table_that_was_rounded_up(folder: Callable[..., Path]) -> None:
    Server([folder("rounded", table=np.ones((3072, 6), np.float32))], options=OPTIONS)


def test_no_output_of_a_text(folder: Callable[..., Path]) -> None:
    nodes = [("ReduceSum", ["v"], ["sum"], {"keepdims": 0})]
    path = folder("sum", nodes, {"sum": (FLOAT, [])})
    with pytest.raises(LoadError, match="neither scores nor a vector"):
        Server([path], options=OPTIONS)


def test_a_model_without_tokens_stays_what_it_is(mlp: Path, sentences: Path, tmp_path: Path) -> None:
    shutil.copy(mlp, tmp_path / "model.onnx")
    shutil.copy(sentences / "tokenizer.json", tmp_path)
    with Server([tmp_path], options=OPTIONS) as server:
        (model,) = server.models
        assert (model.name, model.text_tensors, model.inputs[0].name) == (tmp_path.name, None, "x")


def test_among_other_models(sentences: Path, mlp: Path, tmp_path: Path) -> None:
    shutil.copytree(sentences, tmp_path / "texts")
    (tmp_path / "plain" / "1").mkdir(parents=True)
    shutil.copy(mlp, tmp_path / "plain" / "1" / "model.onnx")
    shutil.copytree(sentences, tmp_path / "versions" / "2")
    found = Layout([tmp_path]).scan().models
    assert {name: set(model.versions) for name, model in found.items()} == {
        "texts": {1}, "plain": {1}, "versions": {2}
    }  # fmt: skip
    with Server([tmp_path], options=OPTIONS) as server:
        assert {model.name: model.text_tensors is not None for model in server.models} == {
            "texts": True, "plain": False, "versions": True
        }  # fmt: skip


def test_for_texts_of_one_length(folder: Callable[..., Path], build: Any) -> None:
    """A file whose number of tokens is fixed: every text is filled up to it."""
    path = folder("fixed")
    ends = {name: (TensorProto.INT64, ["batch", 16]) for name in ("input_ids", "attention_mask")}
    table = np.random.default_rng(1).standard_normal((3000, 6)).astype(np.float32)
    build(
        "model", [("Gather", ["table", "input_ids"], ["last_hidden_state"], {})], ends,
        {"last_hidden_state": (FLOAT, ["batch", 16, 6])}, {"table": table}, folder=path,
    )  # fmt: skip
    with Server([path], options=OPTIONS) as server:
        text = server.models[0].text_tensors
        assert text is not None and text.tokenizer.max_length == 16
        row = text.tokenizer.encode_texts(["light"])[0]
        got = text.result(server.models[0].engine.run(text.batch([row])), [row])
        assert np.allclose(got[0], table[row[0]].mean(0), atol=1e-6)
