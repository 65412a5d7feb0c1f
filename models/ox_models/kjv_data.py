"""A third of the King James Bible (1611), which ships with ox: chapters of verses, and their fixed split.

Source: Debian's package bible-kjv-text; `data/ATTRIBUTION.txt` says which books. English text in the
public domain, long enough for training, of six kinds.
"""

from __future__ import annotations

import bz2
from importlib.resources import as_file, files
from typing import Any, NamedTuple

from ox.data.datasets import load_tokenizer

# all characters of these books; there is no X
ALPHABET = "\n !'(),-.:;?ABCDEFGHIJKLMNOPQRSTUVWYZabcdefghijklmnopqrstuvwxyz"
DATA = files("ox_models") / "data"
# each a tokenizer.json, as Hugging Face's models have one
WORD_PIECES, BYTE_PAIRS = DATA / "kjv_wordpiece.json", DATA / "kjv_bpe.json"
MARKS = ["<|end|>", "<|user|>", "<|assistant|>"]  # tokens of a conversation, the first three of the byte pairs
KINDS = ["law", "history", "wisdom", "prophets", "gospels", "letters"]


class Chapter(NamedTuple):
    kind: str  # one of KINDS
    name: str  # such as "Genesis 1"
    verses: tuple[str, ...]


def chapters() -> list[Chapter]:
    """All 568 chapters in the order of the books."""
    text = bz2.decompress((DATA / "kjv.txt.bz2").read_bytes()).decode("ascii")
    found = []
    for part in text.removeprefix("# ").removesuffix("\n").split("\n# "):
        title, *verses = part.split("\n")
        kind, name = title.split(", ")
        found.append(Chapter(kind, name, tuple(verses)))
    return found


def split(all_chapters: list[Chapter]) -> tuple[list[Chapter], list[Chapter], list[Chapter]]:
    """Of each kind's chapters one tenth for validation, one tenth for testing, the others for training.

    Whole chapters are split, not verses: neighbouring verses are too similar to be in different parts.
    """
    parts: tuple[list[Chapter], list[Chapter], list[Chapter]] = ([], [], [])
    for kind in KINDS:
        for i, chapter in enumerate(chapter for chapter in all_chapters if chapter.kind == kind):
            parts[{4: 1, 9: 2}.get(i % 10, 0)].append(chapter)
    return parts


def word_pieces() -> Any:
    """The vocabulary of the training chapters, 3,000 pieces of words, as a `tokenizers.Tokenizer`.

    Raises:
        ArgumentError: the library is not installed; the message says which extra brings it.
    """
    with as_file(WORD_PIECES) as path:
        return load_tokenizer(path)


def byte_pairs() -> Any:
    """The other vocabulary of the training chapters, 4,096 strings of bytes, as a `tokenizers.Tokenizer`.

    Raises:
        ArgumentError: the library is not installed; the message says which extra brings it.
    """
    with as_file(BYTE_PAIRS) as path:
        return load_tokenizer(path)
