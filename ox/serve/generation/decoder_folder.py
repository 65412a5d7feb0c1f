"""The folder of a decoder: the model, its tokenizer, and the defaults of generation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ox.errors import ArgumentError, LoadError
from ox.generation.sampling_params import SamplingParams
from ox.serve.text.tokenizer import FILE, Tokenizer

CONFIG = "generation_config.json"
HUGGING_FACE, GENAI = "config.json", "genai_config.json"  # of Hugging Face's models, of onnxruntime-genai's folders
LENGTHS = ("context_length", "max_position_embeddings", "n_positions")  # their names for the longest context
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")  # defaults of requests
DECODER = "ox.decoder"  # the metadata of a file: context length and number of tokens


@dataclass(frozen=True)
class DecoderFolder:
    """What lies beside a decoder's file.

    Attributes:
        model: the file.
        defaults: what generation_config.json sets, {} where there is none.
        tokenizer: None where there is none.
        context_length, head_size: as files of others tell them, None where none does.
    """

    model: Path
    defaults: dict[str, Any]
    tokenizer: Tokenizer | None
    context_length: int | None = None
    head_size: int | None = None

    @classmethod
    def read(cls, model: Path) -> DecoderFolder:
        """Raises:
        LoadError: a file that is damaged.
        DeviceError: there is a tokenizer, and the package tokenizers is not installed.
        """
        folder = model.parent
        path = folder / FILE
        tokenizer = Tokenizer(path) if path.exists() else None
        genai = _table(_json(folder / GENAI), "model")
        head_size = _table(genai, "decoder").get("head_size")
        others = [genai, _json(folder / HUGGING_FACE)]
        lengths = [other.get(name) for other in others for name in LENGTHS]
        length = next((each for each in lengths if type(each) is int and each > 1), None)
        defaults = {name: value for name, value in _json(folder / CONFIG).items() if value is not None}
        _check_sampling(folder / CONFIG, defaults)
        ends = next((other["eos_token_id"] for other in others if other.get("eos_token_id") is not None), None)
        if defaults.get("eos_token_id") is None and ends is not None:
            defaults = {**defaults, "eos_token_id": ends}
        return cls(model, defaults, tokenizer, length, head_size if type(head_size) is int and head_size > 0 else None)

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


def _check_sampling(path: Path, defaults: dict[str, Any]) -> None:
    try:
        SamplingParams(**{name: defaults[name] for name in SAMPLING if name in defaults})
    except ArgumentError as error:
        raise LoadError(
            f"{path} has a default that no text can be made with", expected=error.what, got=error.got
        ) from None


def _table(content: dict[str, Any], name: str) -> dict[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


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
