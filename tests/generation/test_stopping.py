"""Texts that end at tokens and strings, and characters that take several tokens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rows import rows

from ox.errors import ArgumentError
from ox.generation.detokenizer import Detokenizer
from ox.generation.stopping import Stopping


class Bytes:
    """A token is a byte of UTF-8."""

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")


def shown(text: str, strings: Sequence[str]) -> tuple[list[str], bool]:
    watcher = Stopping.read(None, strings, Bytes()).watch()
    parts = []
    for token in text.encode():
        part, stopped = watcher.add(token)
        parts.append(part or "")
        if stopped:
            return parts, True
    return [*parts, watcher.rest()], False


@pytest.mark.parametrize("text", ["plain", "é", "日本語 and 🙂🙂 x", "a\ufffdb", ""])
def test_characters_appear_whole(text: str) -> None:
    spelled = Detokenizer(Bytes())
    parts = [spelled.add(token) for token in text.encode()]
    assert "".join(parts) + spelled.rest() == text
    assert all("\ufffd" not in part for part in parts) or "\ufffd" in text


def test_bytes_that_are_no_character() -> None:
    spelled = Detokenizer(Bytes())
    assert [spelled.add(0xE6), spelled.add(0x97)] == ["", ""]
    assert spelled.rest() == "\ufffd" and spelled.rest() == ""


def test_bytes_that_never_become_a_character_are_not_decoded_again_and_again() -> None:
    """A text of 1,000 of them, and a character behind them; each token is decoded a few times."""
    sizes = []

    class Measured(Bytes):
        def decode(self, ids: Sequence[int]) -> str:
            sizes.append(len(ids))
            return super().decode([byte for byte in ids if byte])  # 0 is special, and has no text

    text = b"a" + 1000 * b"\xe6" + "日🙂b".encode() + 1000 * b"\0" + "é".encode() + 20 * b"\x80"
    spelled = Detokenizer(Measured())
    parts = [spelled.add(token) for token in text]
    assert "".join(parts) + spelled.rest() == text.replace(b"\0", b"").decode(errors="replace")
    assert max(sizes) < 30


@rows(
    ("text", "strings", "expected", "stopped"),
    [
        ("abcdef", ["cd"], "ab", True),
        ("abcdef", ["x"], "abcdef", False),
        ("ababac", ["abac"], "ab", True),
        ("one two", ["two", "ne"], "o", True),
        ("日本語", ["本"], "日", True),
        ("abc", ["abcd"], "abc", False),
        ("aab", ["ab", "aab"], "", True),
    ],
)
def test_strings_that_end_a_text(text: str, strings: list[str], expected: str, stopped: bool) -> None:
    parts, ended = shown(text, strings)
    assert ("".join(parts), ended) == (expected, stopped)
    assert Stopping.read(None, strings, Bytes()).text(list(text.encode())) == expected


def test_only_what_may_be_the_begin_of_one_is_held_back() -> None:
    parts, _ = shown("xab y", ["abc"])
    assert parts == ["x", "", "", "ab ", "y", ""]


def test_tokens_that_end_a_text() -> None:
    watcher = Stopping.read([1, 2], "stop", Bytes()).watch()
    assert watcher.add(ord("s")) == ("", False)
    assert watcher.add(2) == ("s", True)
    watcher = Stopping.read(3, (), None).watch()
    assert watcher.add(4) == (None, False) and watcher.add(3) == (None, True)


@pytest.mark.parametrize(
    ("tokens", "strings", "what"),
    [
        (-1, (), "whole numbers from 0 on"),
        ([1.5], (), "whole numbers from 0 on"),
        (None, "", "a character or more"),
        (None, ["a", 3], "a character or more"),
        (None, "a", "need a tokenizer"),
    ],
)
def test_bad_input(tokens: object, strings: object, what: str) -> None:
    with pytest.raises(ArgumentError, match=what):
        Stopping.read(tokens, strings, None if "tokenizer" in what else Bytes())  # type: ignore[arg-type]
