"""The bytes of single tokens, put together again: they are the text, of tokenizers of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="the extra text is not installed")
from tokenizers import decoders, models, pre_tokenizers  # noqa: E402

from ox.serve.text.token_bytes import TokenBytes  # noqa: E402
from ox.serve.text.tokenizer import Tokenizer  # noqa: E402

TEXT = "the caf\u00e9 \u65e5"
CHARACTERS = ["\u2581the", "\u2581", *"caf\u00e9"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def bytewise() -> Any:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = tokenizers.Tokenizer(models.BPE({letter: place for place, letter in enumerate(alphabet)}, []))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return raw


def pieces(decoder: Any) -> Any:
    """As of SentencePiece: marked spaces, and bytes for characters that are no tokens."""
    vocabulary = {piece: place for place, piece in enumerate([*CHARACTERS, *BYTES])}
    merges = [("\u2581", "t"), ("\u2581t", "h"), ("\u2581th", "e")]
    vocabulary |= {name: len(vocabulary) + place for place, name in enumerate(("t", "h", "\u2581t", "\u2581th", "e"))}
    raw = tokenizers.Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.Metaspace(), decoder
    return raw


LLAMA = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
GEMMA = [decoders.ByteFallback(), decoders.Metaspace()]
KINDS = {
    "bytes": (bytewise, TEXT),
    "llama": (lambda: pieces(decoders.Sequence(LLAMA)), " " + TEXT),  # the space before a text is a token's, too
    "metaspace": (lambda: pieces(decoders.Sequence(GEMMA)), " " + TEXT),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_tokens_are_those_of_the_text(tmp_path: Path, kind: str) -> None:
    make, text = KINDS[kind]
    raw = make()
    raw.add_special_tokens(["<s>"])
    raw.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path / "tokenizer.json")
    spelled = TokenBytes(tokenizer)
    ids = tokenizer.encode(TEXT)
    assert b"".join(spelled[token] for token in ids) == text.encode()
    assert len(ids) > len(TEXT) - 3  # characters of several tokens are among them
    assert spelled[tokenizer.id_of("<s>") or 0] == b"<s>"


def test_a_large_vocabulary_is_not_written_for_each_request(tmp_path: Path) -> None:
    bytewise().save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path / "tokenizer.json")
    raw = tokenizer.raw
    tokenizer.raw = Mock(wraps=raw, decoder=raw.decoder, to_str=Mock(side_effect=AssertionError("all of it")))
    assert TokenBytes(tokenizer)[raw.token_to_id("a")] == b"a"


def test_other_tokenizers_say_themselves(tmp_path: Path) -> None:
    raw = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "and": 1, "##god": 2}, unk_token="[UNK]"))
    raw.decoder = decoders.WordPiece()
    raw.save(str(tmp_path / "tokenizer.json"))
    spelled = TokenBytes(Tokenizer(tmp_path / "tokenizer.json"))
    assert [spelled[token] for token in (1, 2)] == [b"and", b"##god"]
