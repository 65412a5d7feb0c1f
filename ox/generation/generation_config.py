"""generation_config.json: how Hugging Face's files say how texts are chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ox.errors import LoadError

PLAIN = (
    "do_sample", "num_beams", "num_return_sequences", "length_penalty", "repetition_penalty", "max_new_tokens",
    "eos_token_id", "pad_token_id",
)  # fmt: skip
SAMPLING = ("temperature", "top_k", "top_p", "min_p")  # only where tokens are drawn


def read_generation_config(path: Path) -> dict[str, Any]:
    """The arguments of `Generates.generate` that a file sets; others are left out.

    Raises:
        LoadError: it is damaged.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        wanted = (*PLAIN, *SAMPLING) if table.get("do_sample") else PLAIN
        return {name: table[name] for name in wanted if table.get(name) is not None}
    except (OSError, ValueError, AttributeError) as error:
        raise LoadError(f"{path} cannot be read", got=str(error)) from None
