"""A folder with a model and its tokenizer: which files it has, and what they say about texts.

The layouts of Hugging Face's Optimum (model.onnx, tokenizer.json, config.json) and of sentence-transformers
(modules.json, 1_Pooling/config.json, sentence_bert_config.json, onnx/model.onnx).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ox.errors import LoadError
from ox.serve.text.model_file import TOKENIZER

LONGEST = 1 << 20  # tokenizer_config.json says more where it knows no limit
# Kinds of models that count positions from 2 on: the table has two rows more than a text may have tokens.
FROM_TWO = {"roberta", "xlm-roberta", "camembert", "mpnet", "longformer"}
POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}  # in the order in which sentence-transformers puts several together


@dataclass(frozen=True)
class TextFolder:
    """What the files of a folder say.

    Attributes:
        file, tokenizer: the model, and its tokenizer.json.
        poolings: how a text's vector follows from those of its tokens; empty if nothing is said about it.
        normalize: whether that vector's length is made 1.
        max_length: the most tokens of a text; None if nothing is said about it.
        labels: names of classes; empty without them.
    """

    file: Path
    tokenizer: Path
    poolings: tuple[str, ...] = ()
    normalize: bool = False
    max_length: int | None = None
    labels: tuple[str, ...] = ()


def read_folder(folder: Path, file: Path) -> TextFolder:
    """What the files say beside a model's `file` in `folder`.

    Raises:
        LoadError: a file is damaged, or asks for what is not implemented.
    """
    poolings, normalize = _modules(folder)
    labels = _table(folder / "config.json").get("id2label") or {}
    try:
        names = tuple(str(labels[key]) for key in sorted(labels, key=int))
    except (ValueError, TypeError):
        raise LoadError(f"{folder / 'config.json'} has labels without numbers", got=str(labels)[:200]) from None
    return TextFolder(file, folder / TOKENIZER, poolings, normalize, _max_length(folder), names)


def _modules(folder: Path) -> tuple[tuple[str, ...], bool]:
    """Pooling and normalization, as sentence-transformers writes them."""
    path = folder / "modules.json"
    modules = _read(path, list)
    poolings: tuple[str, ...] = ()
    normalize = False
    for module in modules or ():
        kind = str(module.get("type", "") if isinstance(module, dict) else module).rpartition(".")[2]
        if kind == "Pooling":
            poolings = _poolings(folder / str(module.get("path", "1_Pooling")) / "config.json")
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise LoadError(
                f"{path} asks for a module that ox does not have", expected="Transformer, Pooling and Normalize",
                got=kind or str(module)[:80], hint="an export with the modules inside: an output sentence_embedding",
            )  # fmt: skip
    return poolings, normalize


def _poolings(path: Path) -> tuple[str, ...]:
    table = _table(path)
    asked = [name for name, value in table.items() if name.startswith("pooling_mode_") and value is True]
    unknown = [name for name in asked if name not in POOLINGS]
    found = tuple(kind for name, kind in POOLINGS.items() if name in asked)
    if isinstance(table.get("pooling_mode"), str):  # newer files
        found, unknown = (table["pooling_mode"],), [table["pooling_mode"]]
        unknown = [name for name in unknown if name not in POOLINGS.values()]
    if unknown or not found:
        got = ", ".join(unknown) or "no pooling"
        raise LoadError(f"{path} asks for another pooling", expected=", ".join(POOLINGS.values()), got=got)
    return found


def _max_length(folder: Path) -> int | None:
    config = _table(folder / "config.json")
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and config.get("model_type") in FROM_TWO:
        positions -= 2
    truncation = _table(folder / TOKENIZER).get("truncation") or {}
    said = [
        _table(folder / "sentence_bert_config.json").get("max_seq_length"),
        truncation.get("max_length"),
        _table(folder / "tokenizer_config.json").get("model_max_length"),
        positions,
    ]
    return min((each for each in said if isinstance(each, int) and 0 < each < LONGEST), default=None)


def _table(path: Path) -> dict[str, Any]:
    return _read(path, dict) or {}


def _read(path: Path, kind: type) -> Any:
    """The JSON in a file; None if there is no file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{path} cannot be read", got=str(error)[:200]) from None
    if not isinstance(content, kind):
        what = "a list" if kind is list else "an object"
        raise LoadError(f"{path} does not hold what it should", expected=what, got=type(content).__name__)
    return content
