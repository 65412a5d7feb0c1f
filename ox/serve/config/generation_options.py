"""Options of models that generate texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ox.errors import ArgumentError

MOST = 1 << 20


@dataclass(frozen=True)
class GenerationOptions:
    """How a decoder generates texts; the table ``generation`` of a model's settings.

    Args:
        cache_mib: memory for keys and values of all texts, in MiB; None: a quarter of the memory that is available when
            the model is loaded.
        max_texts: texts that are generated at the same time; others wait.
        prefill_tokens: the most tokens of prompts that are read between two tokens of the texts that run.

    Raises:
        ArgumentError: a value is out of range.
    """

    cache_mib: int | None = None
    max_texts: int = 32
    prefill_tokens: int = 256

    def __post_init__(self) -> None:
        for name in ("cache_mib", "max_texts", "prefill_tokens"):
            value = getattr(self, name)
            if (value is not None or name != "cache_mib") and (type(value) is not int or not 1 <= value <= MOST):
                raise ArgumentError(f"{name} of generation is out of range", expected=f"1 to {MOST:,}", got=repr(value))

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> GenerationOptions:
        """From a table of a settings file.

        Raises:
            ArgumentError: an unknown option, or a value out of range.
        """
        known = [entry.name for entry in fields(cls)]
        for name in table:
            if name not in known:
                raise ArgumentError(f"there is no option '{name}' of generation", expected=", ".join(known))
        return cls(**table)
