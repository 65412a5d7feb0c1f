"""Text files: lines, blocks of tokens and characters, tokenizers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from rows import rows

import ox
from ox.data import DataLoader
from ox.data.datasets import CharText, TextLines, TokenBlocks, load_tokenizer, text, write_tokens
from ox.errors import ArgumentError, BoundsError, DTypeError, LoadError
from ox.installation import install_command


@rows("chunk", [1, 3, 1 << 24])
@rows("content", ["", "one", "one\n", "\n", "\none\r\n\nzwölf\n", "a\nb"])
def test_lines(tmp_path: Path, content: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "CHUNK", chunk)
    path = tmp_path / "t.txt"
    path.write_bytes(content.encode())
    lines = TextLines(path)
    assert [lines[i] for i in range(len(lines))] == content.splitlines()
    assert len(lines) == 0 or lines[-1] == content.splitlines()[-1]
    with pytest.raises(BoundsError, match="no line"):
        lines[len(lines)]


def test_lines_through_a_transform_and_a_loader(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("a\nbb\nccc\n")
    assert [batch.tolist() for batch in DataLoader(TextLines(path, transform=len), batch_size=2)] == [[1, 2], [3]]


def test_lines_of_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes("gut\nzwölf\n".encode("latin-1"))
    assert TextLines(path, encoding="latin-1")[1] == "zwölf"
    lines = TextLines(path)
    assert lines[0] == "gut"
    with pytest.raises(LoadError, match=r"line 2 of .* is no utf-8"):
        lines[1]
    for encoding in ("utf-16", "utf-32-le", "klingon"):
        with pytest.raises(ArgumentError, match="encoding"):
            TextLines(path, encoding=encoding)
    with pytest.raises(LoadError, match="cannot be opened"):
        TextLines(tmp_path / "none")


def test_blocks_of_tokens() -> None:
    blocks = TokenBlocks(np.arange(10, 21, dtype=np.uint16), block=3)
    assert len(blocks) == 3
    x, y = blocks[-1]
    assert x.dtype == y.dtype == ox.int64 and x.tolist() == [16, 17, 18] and y.tolist() == [17, 18, 19]
    x, y = blocks.batch(np.array([2, 0]))
    assert x.tolist() == [[16, 17, 18], [10, 11, 12]] and (y.numpy() == x.numpy() + 1).all()
    everywhere = TokenBlocks(ox.arange(11), block=3, stride=1)
    assert len(everywhere) == 8 and everywhere[7][1].tolist() == [8, 9, 10]
    assert len(TokenBlocks(range(4), 3)) == 1
    with pytest.raises(ArgumentError, match="too short"):
        TokenBlocks(range(3), 3)
    with pytest.raises(ArgumentError, match="at least 1"):
        TokenBlocks(range(9), 3, stride=0)
    with pytest.raises(DTypeError, match="integers in one row"):
        TokenBlocks(np.zeros(9), 3)
    with pytest.raises(BoundsError, match="no block 3"):
        blocks[3]


def test_tokens_in_a_file_larger_than_memory(tmp_path: Path) -> None:
    """A sparse file of 64 GiB: what is mapped is only read where a block lies."""
    path = tmp_path / "t.npy"
    count = 1 << 34
    with open(path, "wb") as f:
        text._write_header(f, count)
        f.truncate(128 + 4 * count)
        f.seek(128 + 4 * (count - 2))
        f.write(np.array([7, 8], "<u4").tobytes())
    blocks = TokenBlocks(path, 3, stride=1)
    assert len(blocks) == count - 3 and blocks[-1][1].tolist() == [0, 7, 8]


def test_characters(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("hello wörld, hello")
    chars = CharText(path, 5)
    assert chars.alphabet == sorted(set("hello wörld, hello")) and len(chars) == 3
    x, y = chars[1]
    assert chars.decode(x) == " wörl" and chars.decode(y) == "wörld"
    assert chars.decode(chars.encode("old")) == "old" and chars.encode("").shape == (0,)
    with pytest.raises(ArgumentError, match="no 'z'"):
        chars.encode("zoo")
    head, tail = CharText(path, 2, end=0.5), CharText(path, 2, start=0.5)
    assert head.alphabet == tail.alphabet == chars.alphabet  # one model for both
    assert head.decode(head[0][0]) == "he" and tail.decode(tail[0][0]) == "ld" and len(head) == len(tail) == 4
    other = tmp_path / "o.txt"
    other.write_text("low")
    assert CharText(other, 2, alphabet=chars.alphabet)[0][0].tolist() == chars.encode("lo").tolist()
    with pytest.raises(ArgumentError, match="the alphabet lacks") as error:
        CharText(path, 2, alphabet="helo")
    assert "'" in str(error.value)
    for part in ((0.5, 0.5), (-0.1, 1.0), (0.0, 1.5)):
        with pytest.raises(ArgumentError, match="fractions"):
            CharText(path, 2, start=part[0], end=part[1])
    (tmp_path / "bad").write_bytes(b"abc\xff\xfe")
    with pytest.raises(LoadError, match="no UTF-8"):
        CharText(tmp_path / "bad", 2)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ArgumentError, match="too short"):
        CharText(tmp_path / "empty", 2)


def test_ascii_text_stays_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "CHUNK", 4)
    path = tmp_path / "t.txt"
    path.write_text("to be or not to be")
    chars = CharText(path, 4, stride=1)
    assert chars.tokens.dtype == np.uint8 and not chars.tokens.flags.owndata
    x, y = chars.batch(np.arange(len(chars)))
    assert chars.decode(x.numpy()[:, 0]) == "to be or not t" and chars.decode(y.numpy()[-1]) == "o be"


def test_tokens_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.npy"
    assert write_tokens(["ab", "", "c"], lambda line: [ord(c) for c in line] + [1 << 20], path) == 6
    assert np.load(path).tolist() == [97, 98, 1 << 20, 1 << 20, 99, 1 << 20] and np.load(path).dtype == np.uint32
    assert TokenBlocks(path, 5)[0][1].tolist() == [98, 1 << 20, 1 << 20, 99, 1 << 20]
    for bad in ([-1], [0.5], [1 << 32], [[1]]):
        with pytest.raises(ArgumentError, match="tokens of line 2"):
            write_tokens("xy", lambda line, bad=bad: [1] if line == "x" else bad, path)  # type: ignore[misc]
    assert len(np.load(path)) == 6 and [p.name for p in tmp_path.iterdir()] == ["tokens.npy"]  # the old one is whole
    content = path.read_bytes()
    evil = content[:128].replace(b"<u4", b"|O ")
    unclosed = content[:128].replace(b"'shape': (6,)", b"'shape': (((6")
    for damaged in (b"", b"text", content[:60], content[:-4], evil + content[128:], unclosed):
        path.write_bytes(damaged)
        with pytest.raises(LoadError, match=r"no \.npy file"):
            TokenBlocks(path, 2)
    with pytest.raises(LoadError, match="cannot be opened"):
        TokenBlocks(tmp_path / "none.npy", 2)


def test_a_tokenizer(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the extra text is not installed")
    own = tokenizers.Tokenizer(tokenizers.models.WordLevel({"to": 0, "be": 1, "?": 2}, unk_token="?"))
    own.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    own.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.encode("to be or").ids == [0, 1, 2]
    (tmp_path / "bad.json").write_text('{"model": 3}')
    with pytest.raises(LoadError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path / "bad.json")
    with pytest.raises(LoadError, match="cannot be opened"):
        load_tokenizer(tmp_path / "none.json")


def test_a_tokenizer_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ArgumentError, match="not installed") as error:
        load_tokenizer(tmp_path / "tokenizer.json")
    assert install_command("text") in str(error.value)
