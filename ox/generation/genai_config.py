"""genai_config.json: how the package onnxruntime-genai describes a decoder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ox.errors import LoadError

FILE = "genai_config.json"
SEARCH = ("do_sample", "num_beams", "num_return_sequences", "length_penalty", "repetition_penalty")
SAMPLING = ("temperature", "top_k", "top_p")  # only where tokens are drawn


@dataclass(frozen=True)
class GenaiConfig:
    """What a folder says of its decoder.

    Attributes:
        file: the decoder.
        context_length: the most tokens that it can see.
        names: inputs and outputs by their names in files of Optimum; those of keys and values have ``%d`` for the
            layer.
        layers: how many have keys and values.
        cache_dims: the number of their heads, and a head's size.
        defaults: of generation, by the arguments of `Generates.generate`.
    """

    file: Path
    context_length: int
    names: dict[str, str]
    layers: int
    cache_dims: tuple[int, int]
    defaults: dict[str, Any]


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
        inputs, outputs = decoder["inputs"], decoder["outputs"]
        if "filename" not in decoder or {"encoder", "vision", "speech"} & model.keys():
            raise LoadError(
                f"{path} is not of a decoder in one file", expected="model.decoder.filename",
                got=", ".join(key for key, value in model.items() if isinstance(value, dict)),
                hint="the package onnxruntime-genai",
            )  # fmt: skip
        if "past_key_names" not in inputs or "present_key_names" not in outputs:
            raise LoadError(
                f"{path} has no keys and values of each layer", expected="inputs past_key_names and past_value_names",
                got=", ".join(inputs),
            )  # fmt: skip
        names = {
            "logits": outputs["logits"],
            "past_key_values.%d.key": inputs["past_key_names"],
            "past_key_values.%d.value": inputs["past_value_names"],
            "present.%d.key": outputs["present_key_names"],
            "present.%d.value": outputs["present_value_names"],
        }
        plain = ("input_ids", "attention_mask", "position_ids", "past_sequence_length", "total_sequence_length")
        names |= {name: inputs[name] for name in plain if name in inputs}
        defaults = _defaults(model, table.get("search", {}))
        return GenaiConfig(
            folder / decoder["filename"], int(model["context_length"]), names, int(decoder["num_hidden_layers"]),
            (int(decoder["num_key_value_heads"]), int(decoder["head_size"])), defaults,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, LoadError):
            raise
        got = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise LoadError(f"{path} cannot be read", got=got) from None


def _defaults(model: dict[str, Any], search: dict[str, Any]) -> dict[str, Any]:
    wanted = (*SEARCH, *SAMPLING) if search.get("do_sample") else SEARCH
    found = {name: search[name] for name in wanted if name in search}
    return found | {name: model[name] for name in ("eos_token_id", "pad_token_id") if model.get(name) is not None}
