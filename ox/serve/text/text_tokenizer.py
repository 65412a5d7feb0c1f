"""Texts to tokens for an encoder, up to its limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ox.errors import LoadError, ServeError, first_line
from ox.graph.contract import Array
from ox.serve.text.tokenizer import Tokenizer

Text = str | tuple[str, str]  # a text, or two of them that are read together
TRUNCATE = "the parameter truncate: true"


class TextTokenizer(Tokenizer):
    """Texts to tokens and back.

    Args:
        path: a tokenizer.json. Its own truncation and padding are not used.
        max_length: the most tokens of a text, with those that the tokenizer adds.

    Attributes:
        pad: the token that fills.

    Raises:
        LoadError: it cannot be read, or has no room for a token of a text.
        DeviceError: the package tokenizers is not installed.
    """

    def __init__(self, path: Path, max_length: int) -> None:
        super().__init__(path)
        self.max_length = max_length
        try:
            self._cut = type(self.raw).from_str(path.read_text(encoding="utf-8"))
            padding = self._cut.padding or {}
            self._cut.no_padding()
            self._cut.enable_truncation(max_length)
        except Exception as error:  # tokenizers raises plain Exception
            raise LoadError(
                f"{path} does not fit a model of {max_length} tokens", got=first_line(error)[:200]
            ) from error
        named = (self.id_of(name) for name in ("[PAD]", "<pad>"))
        self.pad = int(padding.get("pad_id", next((token for token in named if token is not None), 0)))

    def limit(self, max_length: int) -> None:
        """Lowers the limit of tokens."""
        if max_length < self.max_length:
            self.max_length = max_length
            self._cut.enable_truncation(max_length)

    def encode_texts(self, texts: Sequence[Text], truncate: bool = False) -> list[Array]:
        """The tokens of each text, int32 [2, length]: their ids, and to which of two texts they belong.

        Raises:
            ServeError: a text that has no tokens, or with `truncate` false too many.
        """
        tokenizer = self._cut if truncate else self.raw
        # A batch is spread over all cores, which is not worth it for a few texts.
        found = tokenizer.encode_batch(texts) if len(texts) > 8 else [_encoded(tokenizer, text) for text in texts]
        for place, each in enumerate(found):
            self.check(len(each.ids), place, len(texts))
        return [np.array([each.ids, each.type_ids], np.int32) for each in found]

    def check(self, length: int, place: int, count: int) -> None:
        """Raises ServeError for a text of so many tokens, the text at `place` of `count`."""
        where = f"text {place} of {count}" if count > 1 else ""
        if length > self.max_length:
            raise ServeError(
                "a text is longer than the model's limit", where=where, expected=f"at most {self.max_length} tokens",
                got=str(length), hint=f"{TRUNCATE}, which leaves out the rest",
            )  # fmt: skip
        if not length:
            raise ServeError("a text has no tokens", where=where, expected="a text of a character or more")


def _encoded(tokenizer: Any, text: Text) -> Any:
    return tokenizer.encode(*text) if isinstance(text, tuple) else tokenizer.encode(text)
