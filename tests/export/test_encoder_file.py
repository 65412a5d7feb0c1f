"""`save_encoder`: the folder, its proofs, and what a server makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn
from ox.errors import ArgumentError, LoadError
from ox.serve import ModelConfig, Server
from ox_models.kjv_data import word_pieces

SIZE, LENGTH = 8, 20
TEXTS = ["In the beginning God created the heaven and the earth.", "Selah.", "And God said, Let there be light."]


class Encoder(nn.Module):
    """Vectors of tokens that see one another: each is its own and a share of the mean of all."""

    def __init__(self, masked: bool = True) -> None:
        super().__init__()
        self.table, self.masked = nn.Embedding(3000, SIZE), masked

    def forward(self, input_ids: ox.Tensor, attention_mask: ox.Tensor) -> ox.Tensor:
        x, there = self.table(input_ids), attention_mask.float().unsqueeze(-1)
        mean = (x * there).sum(1, True) / there.sum(1, True) if self.masked else x.mean(1, True)
        y: ox.Tensor = x + mean.tanh()
        return y


class Classifier(nn.Module):
    def __init__(self, masked: bool = True) -> None:
        super().__init__()
        self.encoder, self.scores = Encoder(masked), nn.Linear(SIZE, 3)

    def forward(self, input_ids: ox.Tensor, attention_mask: ox.Tensor) -> ox.Tensor:
        y: ox.Tensor = self.scores(self.encoder(input_ids, attention_mask)[:, 0])
        return y


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    pytest.importorskip("tokenizers", reason="the extra text is not installed")
    path = tmp_path / "pieces.json"
    word_pieces().save(str(path))
    return path


def example() -> tuple[Any, Any]:
    ids = np.random.default_rng(0).integers(5, 3000, (16, LENGTH))
    return ids, np.ones_like(ids)


def ids_of(text: str) -> np.ndarray[Any, Any]:
    return np.array([word_pieces().encode(text).ids])


def served(folder: Path, texts: list[str]) -> np.ndarray[Any, Any]:
    """What the server computes, in one batch."""
    with Server([folder], options=ModelConfig(device="cpu", instances=1, max_rows=4)) as server:
        (model,) = server.models
        assert model.text_tensors is not None and model.proof.why is None
        rows = model.text_tensors.tokenizer.encode_texts(texts)
        return model.text_tensors.result(model.engine.run(model.text_tensors.batch(rows)), rows)


def test_a_sentence_encoder(tmp_path: Path, tokenizer: Path) -> None:
    ox.manual_seed(0)
    model, folder = Encoder(), tmp_path / "sentences"
    report = ox.export.save_encoder(
        model, folder, example(), tokenizer=tokenizer, pooling="mean", normalize=True, max_length=16
    )
    assert report.files == (
        "1_Pooling/config.json", "config.json", "modules.json", "onnx/model.onnx", "sentence_bert_config.json",
        "tokenizer.json",
    )  # fmt: skip
    assert report.padding is None and "in a padded batch: equal" in str(report)
    assert report.model.path == folder / "onnx" / "model.onnx" and report.model.path.exists()
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"] and not pooling["pooling_mode_cls_token"]
    assert json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"] == 16
    wanted = []
    for text in TEXTS:
        ids = ids_of(text)
        with ox.no_grad():
            mean = model(ox.from_numpy(ids), ox.ones(ids.shape)).numpy()[0].mean(0)
        wanted.append(mean / np.linalg.norm(mean))
    assert np.allclose(served(folder, TEXTS), wanted, atol=1e-5)


def test_a_classifier_and_its_classes(tmp_path: Path, tokenizer: Path) -> None:
    ox.manual_seed(0)
    model, folder = Classifier(), tmp_path / "classes"
    names = ["law", "gospels", "letters"]
    report = ox.export.save_encoder(model, folder, example(), tokenizer=tokenizer, labels=names)
    assert report.files == ("config.json", "model.onnx", "tokenizer.json")
    assert json.loads((folder / "config.json").read_text())["id2label"] == dict(zip("012", names, strict=True))
    with ox.no_grad():
        wanted = [model(ox.from_numpy(ids_of(t)), ox.ones(ids_of(t).shape)).numpy()[0] for t in TEXTS]
    assert np.allclose(served(folder, TEXTS), wanted, atol=1e-5)
    again = ox.export.save_encoder(Classifier(), folder, example(), tokenizer=tokenizer, labels=names)
    assert again.files == report.files  # in place of the first
    assert not np.allclose(served(folder, TEXTS), wanted, atol=1e-5)


def test_a_model_that_sees_padding_is_told(tmp_path: Path, tokenizer: Path) -> None:
    report = ox.export.save_encoder(Classifier(masked=False), tmp_path / "c", example(), tokenizer=tokenizer)
    assert report.padding is not None and "padded to 13, differs by" in report.padding
    assert "no padding" in str(report)
    with Server([tmp_path / "c"], options=ModelConfig(device="cpu", instances=1, max_rows=4)) as server:
        assert "padding off" in server.models[0].describe()


def test_wrong_arguments(tmp_path: Path, tokenizer: Path) -> None:
    model, folder = Encoder(), tmp_path / "wrong"

    def save(*arguments: Any, **named: Any) -> None:
        ox.export.save_encoder(model, *arguments, **{"tokenizer": tokenizer, **named})

    with pytest.raises(ArgumentError, match="ids and mask"):
        save(folder, example()[:1])
    with pytest.raises(ArgumentError, match="8 tokens or more"):
        save(folder, tuple(each[:, :4] for each in example()))
    with pytest.raises(ArgumentError, match="no pooling 'sum'"):
        save(folder, example(), pooling="sum")
    with pytest.raises(ArgumentError, match="normalize belongs to pooling"):
        save(folder, example(), normalize=True)
    with pytest.raises(ArgumentError, match="no encoder's folder"):
        save(tmp_path, example())
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(LoadError, match=r"is no tokenizer\.json"):
        save(folder, example(), tokenizer=tmp_path / "bad.json")
    with pytest.raises(ArgumentError, match="a vector of each token"):
        ox.export.save_encoder(Classifier(), folder, example(), tokenizer=tokenizer, pooling="mean")
    assert not folder.exists()
