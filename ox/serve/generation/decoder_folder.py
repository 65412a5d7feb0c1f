"""The folder of a decoder: the model, its tokenizer, and the defaults of generation."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ox.errors import ArgumentError, LoadError
from ox.generation.genai_config import FILE as GENAI
from ox.generation.genai_config import SAMPLING, GenaiConfig, read_genai_config
from ox.generation.sampling_params import SamplingParams
from ox.serve.text.model_file import FILES, model_file, text_folder
from ox.serve.text.tokenizer import FILE, Tokenizer

CONFIG = "generation_config.json"
HUGGING_FACE = "config.json"  # of Hugging Face's models
LENGTHS = ("max_position_embeddings", "n_positions")  # its names for the longest context
HEADS = ("num_key_value_heads", "num_attention_heads", "n_head")
SAMPLED = (*SAMPLING, "repetition_penalty")  # defaults of requests
DECODER = "ox.decoder"  # the metadata of a file: context length and number of tokens
# search options of onnxruntime-genai that the engine has not, and what they are where they do nothing
UNKNOWN = {"num_beams": 1, "num_return_sequences": 1, "no_repeat_ngram_size": 0, "min_length": 0}

log = logging.getLogger("ox.serve")


def decoder_file(path: Path) -> Path:
    """The model of a decoder's folder; a path that is no folder as it is.

    Raises:
        LoadError: several files could be it, or are it together.
    """
    return (model_file(path) or path / FILES[0]) if path.is_dir() else path


@dataclass(frozen=True)
class DecoderFolder:
    """What lies beside a decoder's file.

    Attributes:
        model: the file.
        defaults: generation_config.json, and what genai_config.json says instead.
        tokenizer: None where there is none.
        context_length, vocab_size, cache_dims: as files of others tell them, None where none does; the last are the
            number of heads of keys and values, and a head's size.
        max_length: of a prompt and its text, for requests that set none; None for the context's.
        names: of inputs and outputs by their standard names, where they may have others.
        window: how many tokens back some layers see, None for all.
    """

    model: Path
    defaults: dict[str, Any]
    tokenizer: Tokenizer | None
    context_length: int | None = None
    vocab_size: int | None = None
    cache_dims: tuple[int | None, int | None] = (None, None)
    max_length: int | None = None
    names: dict[str, str] = field(default_factory=dict)
    window: int | None = None

    @classmethod
    def read(cls, model: Path) -> DecoderFolder:
        """Raises:
        LoadError: a file that is damaged.
        DeviceError: there is a tokenizer, and the package tokenizers is not installed.
        """
        folder = text_folder(model)
        path = folder / FILE
        tokenizer = Tokenizer(path) if path.exists() else None
        defaults, config = _without_null(_json(folder / CONFIG)), _without_null(_json(folder / HUGGING_FACE))
        if (folder / GENAI).exists():
            genai = read_genai_config(folder)
            defaults = _with_search(genai, defaults)
            _check_sampling(folder, defaults)
            return cls(
                model, defaults, tokenizer, genai.context_length, genai.vocab_size,
                genai.cache_dims, genai.max_length, genai.names, genai.window,
            )  # fmt: skip
        if "eos_token_id" in config:
            defaults = {"eos_token_id": config["eos_token_id"], **defaults}
        _check_sampling(folder, defaults)
        return cls(
            model, defaults, tokenizer, _first(config, LENGTHS), _first(config, ("vocab_size",)), _cache_dims(config)
        )

    def end_tokens(self, vocab_size: int) -> tuple[int, ...]:
        """The tokens that end a text.

        Raises:
            LoadError: they are no tokens of the model.
        """
        given = self.defaults.get("eos_token_id")
        tokens = () if given is None else (given,) if isinstance(given, int) else given
        valid = isinstance(tokens, tuple | list) and all(
            type(each) is int and 0 <= each < vocab_size for each in tokens
        )
        if not valid:
            raise LoadError(
                f"eos_token_id of the settings in {self.model.parent} is no token of the model",
                expected=f"0 to {vocab_size - 1}, or a list of them",
                got=repr(given)[:100],
            )
        return tuple(tokens)

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises LoadError if the tokenizer has tokens that the model has not. A model may have more: some are padded
        to a round number."""
        if self.tokenizer is not None and self.tokenizer.largest_id >= vocab_size:
            raise LoadError(
                f"{self.model.parent / FILE} is the tokenizer of another model",
                expected=f"tokens up to {vocab_size - 1}, which the model has",
                got=f"{self.tokenizer.vocab_size} tokens up to {self.tokenizer.largest_id}",
                hint="the tokenizer.json that the model was trained with",
            )


def _with_search(genai: GenaiConfig, defaults: dict[str, Any]) -> dict[str, Any]:
    """generation_config.json, and what it does not say from genai_config.json. Where that does not draw tokens, texts
    are greedy."""
    found = genai.defaults if genai.defaults.get("do_sample") else {"temperature": 0.0, **genai.defaults}
    ignored = {name: genai.search[name] for name, none in UNKNOWN.items() if genai.search.get(name, none) != none}
    if ignored:
        said = ", ".join(f"{name} = {value}" for name, value in ignored.items())
        log.warning("%s: the server does not have %s of %s", genai.file.parent, said, GENAI)
    if defaults.keys() & set(SAMPLING):  # these belong together
        found = {name: value for name, value in found.items() if name not in SAMPLING}
    return {**found, **defaults}


def _check_sampling(folder: Path, defaults: dict[str, Any]) -> None:
    """Raises LoadError if no text can be made with a setting that requests take over."""
    try:
        SamplingParams(**{name: defaults[name] for name in SAMPLED if name in defaults})
    except ArgumentError as error:
        raise LoadError(
            f"the settings in {folder} have a default that no text can be made with",
            expected=error.what,
            got=error.got,
        ) from None


def _without_null(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}


def _cache_dims(config: dict[str, Any]) -> tuple[int | None, int | None]:
    """Heads of keys and values, and their size, of Hugging Face's configuration."""
    heads, width = _first(config, HEADS[1:]), _first(config, ("hidden_size", "n_embd"))
    size = _first(config, ("head_dim",))
    if size is None and heads is not None and width is not None and width % heads == 0:
        size = width // heads
    return _first(config, HEADS), size


def _first(config: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return next((config[name] for name in names if type(config.get(name)) is int and config[name] > 0), None)


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{path} cannot be read", got=str(error)[:200]) from error
    if not isinstance(content, dict):
        raise LoadError(f"{path} is no JSON object", got=type(content).__name__)
    return content
