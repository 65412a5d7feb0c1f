"""Which file of a folder is the model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from rows import rows

from ox.errors import LoadError
from ox.serve import Server
from ox.serve.repository.layout import Layout
from ox.serve.text.model_file import has_text, model_file, text_folder

GENAI = {"model": {"context_length": 8, "decoder": {"filename": "writer.onnx"}}}

TAKEN: dict[str, tuple[list[str], str | None]] = {
    "Optimum's": (["model.onnx", "tokenizer.json"], "model.onnx"),
    "one without a tokenizer": (["model.onnx", "generation_config.json"], "model.onnx"),
    "a subfolder": (["onnx/model.onnx", "tokenizer.json"], "onnx/model.onnx"),
    "several precisions": (
        ["tokenizer.json", *(f"onnx/model{each}.onnx" for each in ("", "_fp16", "_q4", "_quantized"))],
        "onnx/model.onnx",
    ),
    "branches in one file": (
        ["decoder_model.onnx", "decoder_with_past_model.onnx", "decoder_model_merged.onnx", "generation_config.json"],
        "decoder_model_merged.onnx",
    ),
    "branches in a subfolder": (["onnx/decoder_model_merged.onnx", "tokenizer.json"], "onnx/decoder_model_merged.onnx"),
    "onnxruntime-genai's": (["writer.onnx", "model.onnx", "tokenizer.json", "genai_config.json"], "writer.onnx"),
    "no texts": (["model.onnx"], None),
    "no model": (["tokenizer.json"], None),
}  # fmt: skip
REFUSED: dict[str, tuple[list[str], str]] = {
    "no precision of all": (
        ["onnx/model_fp16.onnx", "onnx/model_q4.onnx", "tokenizer.json"],
        "expected model.onnx or onnx/model.onnx or decoder_model_merged.onnx; got onnx/model_fp16.onnx, "
        "onnx/model_q4.onnx; try one of them instead of the folder",
    ),
    "a decoder in two files": (
        ["decoder_model.onnx", "decoder_with_past_model.onnx", "tokenizer.json"],
        "has a decoder in two files",
    ),
    "an encoder and a decoder": (
        ["onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx", "tokenizer.json"],
        "expected a decoder alone: texts of encoders and decoders, of images and of sounds are not generated; "
        "got decoder_model_merged.onnx, encoder_model.onnx",
    ),
    "images": (
        ["onnx/vision_encoder_q4.onnx", "onnx/embed_tokens.onnx", "onnx/decoder_model_merged.onnx", "tokenizer.json"],
        "got decoder_model_merged.onnx, embed_tokens.onnx, vision_encoder_q4.onnx",
    ),
}  # fmt: skip


def make(folder: Path, names: list[str]) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(GENAI) if name == "genai_config.json" else "{}")
    return folder


@rows("name", TAKEN)
def test_the_file(tmp_path: Path, name: str) -> None:
    names, wanted = TAKEN[name]
    make(tmp_path, names)
    assert model_file(tmp_path) == (None if wanted is None else tmp_path / wanted)
    assert has_text(tmp_path) == (wanted is not None)
    if wanted is not None:
        assert text_folder(tmp_path / wanted) == tmp_path
        assert [model.path for model in Layout([tmp_path]).scan().models.values()] == [tmp_path]


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(tmp_path: Path, name: str) -> None:
    names, message = REFUSED[name]
    with pytest.raises(LoadError) as caught:
        model_file(make(tmp_path, names))
    assert message in caught.value.one_line()
    assert has_text(tmp_path)  # so that the server says it, too
    with pytest.raises(LoadError, match=caught.value.what), Server([tmp_path], port=0, watch=False):
        pass


def test_a_file_instead_of_the_folder(sentences: Path, tmp_path: Path) -> None:
    """Settings of a folder of Hugging Face lie above the files of the model."""
    folder = Path(shutil.copytree(sentences, tmp_path / "copied"))
    other = (folder / "onnx" / "model.onnx").rename(folder / "onnx" / "model_q4.onnx")
    assert text_folder(other) == folder and text_folder(folder / "model_q4.onnx") == folder
    shutil.copy(folder / "tokenizer.json", folder / "onnx")
    assert text_folder(other) == folder / "onnx"
