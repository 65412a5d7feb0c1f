"""`ox.export.save_encoder`: a model that reads texts, with its tokenizer and what makes one vector of a text."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ox.errors import ArgumentError, LoadError
from ox.export.model_folder import replace_folder, write_json
from ox.export.padding_difference import padding_difference
from ox.export.save_model import Report, save
from ox.nn.base.module import Module
from ox.temporary_files import folder as temporary_folder

Array = np.ndarray[Any, Any]

POOLINGS = {  # by their names, what sentence-transformers calls them
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
    "max": "pooling_mode_max_tokens",
}
INPUTS = ("input_ids", "attention_mask", "token_type_ids")  # in the order of the model's arguments


@dataclass(frozen=True)
class EncoderReport:
    """What `save_encoder` wrote and proved.

    Attributes:
        model: of the file.
        files: in the folder.
        padding: why texts of several lengths cannot share a batch; None if they can.
    """

    model: Report
    files: tuple[str, ...]
    padding: str | None

    def __str__(self) -> str:
        said = "texts alone and in a padded batch: equal" if self.padding is None else f"no padding: {self.padding}"
        return f"{self.model}\n  {said}"


def save_encoder(
    model: Any,
    folder: str | os.PathLike[str],
    example: Sequence[Any],
    *,
    tokenizer: str | os.PathLike[str],
    max_length: int | None = None,
    pooling: str | None = None,
    normalize: bool = False,
    labels: Sequence[str] | None = None,
    **options: Any,
) -> EncoderReport:
    """Write a text encoder or classifier with its tokenizer: what `ox serve FOLDER` answers strings with.

    The file is proven as `save` does it, at several numbers of tokens, and then texts of several lengths: alone and in
    a padded batch they must give the same within `ox.tolerance`. If they do not, the folder is written all the same,
    as a server then runs texts of one length together; the report says so.

    Args:
        model: takes ids and mask (and kinds of tokens), int64 [batch, length], and returns scores [batch, classes], a
            vector of each text [batch, size], or with `pooling` one of each token [batch, length, size].
        folder: to write; one that is there is replaced when the new one is complete.
        example: the arguments, with real texts; they are at least 8 tokens long.
        tokenizer: a tokenizer.json, which is copied.
        max_length: the most tokens of a text; default: those of the example.
        pooling: how a text's vector follows from those of its tokens: ``"mean"``, ``"cls"``, ``"last"`` or ``"max"``.
            The folder then has the layout of sentence-transformers.
        normalize: whether the vector's length is made 1.
        labels: the names of the classes.
        options: further ones of `save`.

    Raises:
        ExportError: what `save` raises.
        ArgumentError: arguments that do not fit together. LoadError: the tokenizer is no tokenizer.json.
    """
    arrays = [np.asarray(each) for each in example]
    if not 2 <= len(arrays) <= len(INPUTS) or any(array.shape != arrays[0].shape for array in arrays):
        raise ArgumentError(
            "the example of an encoder is ids and mask, int64 [batch, length]",
            got=", ".join(str(list(array.shape)) for array in arrays),
        )
    if arrays[0].ndim != 2 or arrays[0].shape[1] < 8:
        raise ArgumentError("the texts of the example have 8 tokens or more", got=str(list(arrays[0].shape)))
    if pooling is not None and pooling not in POOLINGS:
        raise ArgumentError(f"there is no pooling {pooling!r}", expected=", ".join(POOLINGS))
    if normalize and pooling is None:
        raise ArgumentError("normalize belongs to pooling", got="pooling=None")
    folder = Path(folder)
    if folder.exists() and not (folder / "tokenizer.json").exists():
        raise ArgumentError(f"{folder} is there, and is no encoder's folder", expected="the name of a new folder")
    longest = max_length or arrays[0].shape[1]
    pad = _pad_token(Path(tokenizer))
    inside_name = Path("onnx" if pooling else "") / "model.onnx"
    with temporary_folder(f".{folder.name}.", folder.parent) as inside:
        new = inside / folder.name
        (new / inside_name).parent.mkdir(parents=True)
        names = INPUTS[: len(arrays)]
        report = save(
            model, new / inside_name, tuple(array[:, : longest // 2 + 1] for array in arrays),
            input_names=list(names), dims={name: ["batch", "length"] for name in names}, labels=labels, **options,
        )  # fmt: skip
        outputs = [info.dims for info in report.contract.outputs]
        if pooling is not None and len(outputs[0]) != 3:
            raise ArgumentError(
                "pooling needs a vector of each token", expected="an output [batch, length, size]", got=report.dims
            )
        difference = padding_difference(new / inside_name, dict(zip(names, arrays, strict=True)), pad)
        shutil.copyfile(tokenizer, new / "tokenizer.json")
        _write_settings(new, longest, pooling, normalize, outputs[0][-1], labels)
        files = tuple(sorted(str(path.relative_to(new)) for path in new.rglob("*") if path.is_file()))
        replace_folder(folder, new)
    kind = type(model).__name__ if isinstance(model, Module) else report.model
    report = replace(report, path=folder / inside_name, model=kind)
    if report.data is not None:
        report = replace(report, data=report.path.with_name(report.data.name))
    return EncoderReport(report, files, difference)


def _pad_token(path: Path) -> int:
    """The token that fills: the file's own, else 0, which a mask hides."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        padding = table["padding"]
        return int(padding["pad_id"]) if padding else 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(
            f"{path} is no tokenizer.json", expected="a file of the package tokenizers", got=str(error)
        ) from None


def _write_settings(
    folder: Path, longest: int, pooling: str | None, normalize: bool, size: Any, labels: Sequence[str] | None
) -> None:
    """The files of Hugging Face's classifiers, or of sentence-transformers."""
    config: dict[str, Any] = {"max_position_embeddings": longest}
    if labels is not None:
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
    write_json(folder / "config.json", config)
    if pooling is None:
        return
    kinds = ["Transformer", "Pooling"] + ["Normalize"] * normalize
    places = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": places[i], "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})
    (folder / "1_Pooling").mkdir()
    modes = {name: kind == pooling for kind, name in POOLINGS.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": size, **modes})
