"""genai_config.json: how the package onnxruntime-genai describes a decoder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ox.errors import LoadError

FILE = "genai_config.json"
SEARCH = ("do_sample", "num_beams", "num_return_sequences", "length_penalty", "repetition_penalty")
SAMPLING = ("temperature", "top_k", "top_p", "min_p")  # only where tokens are drawn
PARTS = ("encoder", "vision", "speech", "embedding")  # files beside the decoder, for models of other kinds
KINDS = ("key", "value")
PLAIN = ("input_ids", "attention_mask", "position_ids", "past_sequence_length", "total_sequence_length")


@dataclass(frozen=True)
class GenaiConfig:
    """What a folder says of its decoder.

    Attributes:
        file: the decoder.
        context_length: the most tokens that it can see.
        names: inputs and outputs by their names in files of Optimum; those of keys and values have ``%d`` for the
            layer.
        layers: how many have keys and values; None: as many as the file.
        cache_dims: the number of their heads, and a head's size; None for what is not said.
        defaults: of generation, by the arguments of `Generates.generate`.
        vocab_size: how many tokens there are, None if it is not said.
        max_length: of a prompt and its text, where a request says nothing; None for the context's.
        window: how many tokens back some layers see; None where all see everything.
        search: all of its search options.
    """

    file: Path
    context_length: int
    names: dict[str, str]
    layers: int | None
    cache_dims: tuple[int | None, int | None]
    defaults: dict[str, Any]
    vocab_size: int | None
    max_length: int | None
    window: int | None
    search: dict[str, Any]


def read_genai_config(folder: Path) -> GenaiConfig:
    """The configuration in a folder.

    Raises:
        LoadError: it is damaged, or its model is no decoder of one file with keys and values of each layer.
    """
    path = folder / FILE
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        model = table["model"]
        decoder = model["decoder"]
        _check_parts(path, model, decoder)
        search = table.get("search", {})
        return GenaiConfig(
            folder / _file_name(path, decoder),
            int(model["context_length"]),
            _names(path, decoder),
            _number(decoder, "num_hidden_layers"),
            (_number(decoder, "num_key_value_heads"), _number(decoder, "head_size")),
            _defaults(model, search),
            _number(model, "vocab_size"),
            _number(search, "max_length"),
            _number(decoder.get("sliding_window") or {}, "window_size"),
            dict(search),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, LoadError):
            raise
        got = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise LoadError(f"{path} cannot be read", got=got[:200]) from None


def _check_parts(path: Path, model: dict[str, Any], decoder: dict[str, Any]) -> None:
    parts = [name for name in PARTS if name in model]
    if "pipeline" in decoder:
        parts.append(f"decoder.pipeline of {len(decoder['pipeline'])} files")
    if parts or ("inputs" in decoder and "filename" not in decoder):
        raise LoadError(
            f"{path} is not of a decoder in one file",
            expected="model.decoder.filename, and no other file",
            got=", ".join(parts or (key for key, value in model.items() if isinstance(value, dict))),
            hint="the package onnxruntime-genai",
        )


def _file_name(path: Path, decoder: dict[str, Any]) -> str:
    name = decoder.get("filename", "model.onnx")
    if not isinstance(name, str) or not name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise LoadError(
            f"{path} names a decoder outside of its folder", expected="a file name as model.decoder.filename",
            got=repr(name)[:100],
        )  # fmt: skip
    return name


def _names(path: Path, decoder: dict[str, Any]) -> dict[str, str]:
    inputs, outputs = decoder.get("inputs"), decoder.get("outputs")
    past = {f"past_{kind}_names": f"past_key_values.%d.{kind}" for kind in KINDS}
    present = {f"present_{kind}_names": f"present.%d.{kind}" for kind in KINDS}
    inputs = {name: name for name in PLAIN} | past if inputs is None else inputs
    outputs = {"logits": "logits"} | present if outputs is None else outputs
    if past.keys() - inputs.keys() or present.keys() - outputs.keys():
        raise LoadError(
            f"{path} has no keys and values of each layer", expected="inputs past_key_names and past_value_names",
            got=", ".join(inputs),
        )  # fmt: skip
    layers = {standard: inputs[name] for name, standard in past.items()}
    layers |= {standard: outputs[name] for name, standard in present.items()}
    others = {"logits": outputs["logits"]} | {name: inputs[name] for name in PLAIN if name in inputs}
    for names, marks in ((layers, 1), (others, 0)):
        for name in names.values():
            if not isinstance(name, str) or name.count("%d") != marks or name.count("%") != marks:
                expected = '"past_key_values.%d.key"' if marks else '"input_ids"'
                raise LoadError(f"{path} has a name that is none", expected=expected, got=repr(name)[:100])
    return layers | others


def _number(table: dict[str, Any], name: str) -> int | None:
    """A size that is said; 0 and less, as some configurations have it, says nothing."""
    value = int(table.get(name) or 0)
    return value if value > 0 else None


def _defaults(model: dict[str, Any], search: dict[str, Any]) -> dict[str, Any]:
    wanted = (*SEARCH, *SAMPLING) if search.get("do_sample") else SEARCH
    found = {name: search[name] for name in wanted if search.get(name) is not None}
    return found | {name: model[name] for name in ("eos_token_id", "pad_token_id") if model.get(name) is not None}
