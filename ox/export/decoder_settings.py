"""What is written beside a decoder: whether it fits the model, before the long work of an export."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ox.errors import ArgumentError, LoadError, cannot_open


def check_settings(
    vocabulary: int, tokenizer: str | os.PathLike[str] | None, generation: Mapping[str, Any] | None
) -> None:
    """Compares a tokenizer and the defaults of generation with a decoder.

    Args:
        vocabulary: how many tokens the model has.
        tokenizer: a tokenizer.json.
        generation: for generation_config.json.

    Raises:
        ArgumentError: one of them names tokens that the model does not have, or JSON cannot hold it.
        LoadError: the tokenizer cannot be read.
    """
    if tokenizer is not None and (largest := _largest_token(Path(tokenizer))) >= vocabulary:
        raise ArgumentError(
            "the tokenizer is that of another model", expected=f"tokens up to {vocabulary - 1}, as the model has",
            got=f"tokens up to {largest} in {tokenizer}", hint="the tokenizer.json that the model was trained with",
        )  # fmt: skip
    try:
        json.dumps(dict(generation or {}))
    except (TypeError, ValueError) as error:
        raise ArgumentError("generation has a value that JSON cannot hold", got=str(error)) from None
    ends = (generation or {}).get("eos_token_id")
    for end in ends if isinstance(ends, list | tuple) else () if ends is None else (ends,):
        if type(end) is not int or not 0 <= end < vocabulary:
            raise ArgumentError(
                "eos_token_id is no token of the model", expected=f"0 to {vocabulary - 1}, or a list of them",
                got=repr(end),
            )  # fmt: skip


def _largest_token(path: Path) -> int:
    """The largest id of a tokenizer.json, which is read without the package tokenizers."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        pieces = table["model"]["vocab"]
        ids = list(pieces.values()) if isinstance(pieces, dict) else list(range(len(pieces)))
        return max([*ids, *(added["id"] for added in table.get("added_tokens") or ())], default=-1)
    except OSError as error:
        raise cannot_open(path, error) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LoadError(
            f"{path} is no tokenizer.json", expected="a file of the package tokenizers", got=str(error)[:200]
        ) from None
