"""The tokenizer beside a decoder: tokenizer.json, read by the package tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ox.errors import DeviceError, LoadError, first_line
from ox.installation import install_command

FILE = "tokenizer.json"


class Tokenizer:
    """Texts to tokens and back.

    Args:
        path: a tokenizer.json.

    Raises:
        LoadError: it cannot be read.
        DeviceError: the package tokenizers is not installed.
    """

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer as Raw
        except ImportError as error:
            raise DeviceError(
                f"{path} needs the package tokenizers", got=str(error), hint=install_command("text")
            ) from error
        try:
            raw = Raw.from_str(path.read_text(encoding="utf-8"))
            raw.no_truncation()
            raw.no_padding()
        except Exception as error:  # tokenizers raises plain Exception
            got = first_line(error)[:200]
            raise LoadError(f"{path} is no tokenizer", expected="a file of the package tokenizers", got=got) from error
        self.raw: Any = raw
        self.vocab_size: int = raw.get_vocab_size()

    @property
    def largest_id(self) -> int:
        """The largest id of a token, -1 without tokens."""
        return max(self.raw.get_vocab().values(), default=-1)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The ids of a text's tokens, with those that the tokenizer puts around each text if `special`."""
        return list(self.raw.encode(text, add_special_tokens=special).ids)

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """The text of tokens, without the special ones unless `special`."""
        return str(self.raw.decode(list(ids), skip_special_tokens=not special))

    def id_of(self, token: str) -> int | None:
        """The id of a token by its name, None if there is none."""
        found = self.raw.token_to_id(token)
        return None if found is None else int(found)


class WithSpecialTokens:
    """A tokenizer whose texts show special tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens."""
        return self._tokenizer.decode(ids, special=True)


class WithShownTokens:
    """A tokenizer whose texts show some of the special tokens.

    Args:
        shown: their ids.
    """

    def __init__(self, tokenizer: Tokenizer, shown: frozenset[int]) -> None:
        self._tokenizer, self._shown = tokenizer, shown

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens."""
        parts, start = list[str](), 0
        for index, token in enumerate(ids):
            if token in self._shown:
                parts += [self._tokenizer.decode(ids[start:index]), self._tokenizer.decode([token], special=True)]
                start = index + 1
        return "".join([*parts, self._tokenizer.decode(ids[start:])])
