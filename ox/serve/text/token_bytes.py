"""The bytes that single tokens spell, for log-probabilities."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from ox.serve.text.tokenizer import Tokenizer

BYTE = re.compile("<0x([0-9A-F]{2})>")  # a token that is one byte, where a text has characters that are no tokens


class TokenBytes:
    """What tokens spell, each by itself. A tokenizer's own `decode` of one token leaves out a space before it, and has
    no text for a part of a character.

    Args:
        tokenizer: byte-level (as GPT-2's), of pieces with marked spaces (as SentencePiece's), or another one, whose
            `decode` is taken.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._added = {token: added.content for token, added in tokenizer.raw.get_added_tokens_decoder().items()}
        decoder = tokenizer.raw.decoder
        # of the decoder alone: all of a tokenizer takes long to write, and this is made for each request
        steps = _steps(None if decoder is None else json.loads(decoder.__getstate__()))
        decoders = {each["type"]: each for each in steps}
        self._letters = _byte_letters() if "ByteLevel" in decoders else None
        self._fallback = "ByteFallback" in decoders
        self._space = decoders.get("Metaspace", {}).get("replacement")
        replace = decoders.get("Replace", {})
        if self._space is None and replace.get("content") == " ":
            self._space = replace["pattern"].get("String")
        self._found: dict[int, bytes] = {}

    def __getitem__(self, token: int) -> bytes:
        found = self._found.get(token)
        if found is None:
            found = self._found[token] = self._spell(token)
        return found

    def _spell(self, token: int) -> bytes:
        if token in self._added:
            return str(self._added[token]).encode()
        name = self._tokenizer.raw.id_to_token(token)
        if name is not None and self._letters is not None and self._letters.keys() >= set(name):
            return bytes(self._letters[letter] for letter in name)
        if name is not None and self._fallback and (match := BYTE.fullmatch(name)):
            return bytes.fromhex(match[1])
        if name is not None and self._space is not None:
            return str(name.replace(self._space, " ")).encode()
        return self._tokenizer.decode([token], special=True).encode()


def _steps(decoder: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    if decoder is not None and decoder["type"] == "Sequence":
        for each in decoder["decoders"]:
            yield from _steps(each)
    elif decoder is not None:
        yield decoder


@cache
def _byte_letters() -> dict[str, int]:
    """The byte of each letter in which byte-level tokens are written (Radford et al., GPT-2, 2019): printable bytes are
    themselves in Latin-1, the others come in order from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}
