"""Options of models that generate texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ox.errors import ArgumentError

MOST = 1 << 20
MOST_DRAFT = 15  # with the token before, 16 in a run
TOOL_PARSERS = ("hermes", "llama3", "qwen3_coder", "mistral", "phi", "none")


@dataclass(frozen=True)
class GenerationOptions:
    """How a decoder generates texts; the table ``generation`` of a model's settings.

    Args:
        cache_mib: memory for keys and values of all texts, in MiB; None: a quarter of the memory that is available when
            the model is loaded.
        max_texts: texts that are generated at the same time; others wait.
        prefill_tokens: the most tokens of prompts that are read between two tokens of the texts that run.
        draft_tokens: the most tokens that are guessed and checked in one run, where a text is the only one; 0 for none.
        draft: the folder of a smaller decoder with the same tokens, which guesses where the text itself tells nothing;
            from the folder of the model.
        tool_parser: how the model writes calls of tools, one of `TOOL_PARSERS`; None to see it in its chat template.

    Raises:
        ArgumentError: a value is out of range.
    """

    cache_mib: int | None = None
    max_texts: int = 32
    prefill_tokens: int = 256
    draft_tokens: int = MOST_DRAFT
    draft: str | None = None
    tool_parser: str | None = None

    def __post_init__(self) -> None:
        for name, least, most in (
            ("cache_mib", 1, MOST),
            ("max_texts", 1, MOST),
            ("prefill_tokens", 1, MOST),
            ("draft_tokens", 0, MOST_DRAFT),
        ):
            value = getattr(self, name)
            if (value is not None or name != "cache_mib") and (type(value) is not int or not least <= value <= most):
                expected = f"{least} to {most:,}"
                raise ArgumentError(f"{name} of generation is out of range", expected=expected, got=repr(value))

        if self.draft is not None and (not isinstance(self.draft, str) or not self.draft):
            raise ArgumentError("draft of generation is no folder", expected='"../small"', got=repr(self.draft))
        if self.tool_parser is not None and self.tool_parser not in TOOL_PARSERS:
            expected = ", ".join(TOOL_PARSERS)
            raise ArgumentError(
                "no such tool_parser of generation", expected=expected, got=repr(self.tool_parser)[:100]
            )

    @classmethod
    def from_table(cls, table: Mapping[str, Any] | bool) -> GenerationOptions:
        """From a table of a settings file, or from whether texts are generated at all.

        Raises:
            ArgumentError: an unknown option, or a value out of range.
        """
        table = {} if isinstance(table, bool) else table
        known = [entry.name for entry in fields(cls)]
        for name in table:
            if name not in known:
                raise ArgumentError(f"there is no option '{name}' of generation", expected=", ".join(known))
        return cls(**table)
