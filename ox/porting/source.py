"""The text of a script: decoded, parsed, and changed in places without touching the rest."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from ox.errors import LoadError

# what only Python 2 takes, by the words of Python 3's parser
_PYTHON_2 = (
    "Missing parentheses in call",
    "multiple exception types must be parenthesized",
    "leading zeros in decimal",
)


@dataclass(frozen=True)
class Edit:
    """The characters from `start` up to `stop` become `text`; `statement` is the line where their statement starts."""

    start: int
    stop: int
    text: str
    statement: int


class Source:
    """A script's bytes as text and as a syntax tree.

    Args:
        data: the file's bytes.
        name: the file's name, for errors.

    Raises:
        LoadError: no Python 3, or bytes that its encoding does not know.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self.name = name
        self.encoding, self.text = _decoded(data, name)
        self.lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", self.text)  # as Python's parser counts lines
        self.starts = [0, *accumulate(map(len, self.lines))]
        self.tree = self._parsed()

    def _parsed(self) -> ast.Module:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of escapes in strings: the script's own matter
                return ast.parse(self.text)
        except SyntaxError as error:
            old = error.msg.startswith(_PYTHON_2)
            raise LoadError(
                f"{self.name} is {'Python 2' if old else 'no Python 3'}",
                where=f"{self.name}:{error.lineno or 1}:{error.offset or 1}",
                got=error.msg,
                hint="bring it to Python 3 first" if old else f"python -m py_compile {self.name}",
            ) from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise LoadError(f"{self.name} is no Python 3", got=str(error) or type(error).__name__) from None

    def offset(self, line: int, column: int) -> int:
        """Where a place of the syntax tree (a line from 1, a column in UTF-8 bytes) is in the text."""
        before = self.lines[line - 1].encode(errors="surrogatepass")[:column]
        return self.starts[line - 1] + len(before.decode(errors="surrogatepass"))

    def position(self, node: ast.expr | ast.stmt | ast.alias) -> tuple[int, int]:
        """Line and column of a node, from 1, as editors count them."""
        return node.lineno, self.offset(node.lineno, node.col_offset) - self.starts[node.lineno - 1] + 1

    def edited(self, edits: Iterable[Edit]) -> bytes:
        """The script's bytes after the edits, none of which overlap."""
        parts, done = [], 0
        for edit in sorted(edits, key=lambda edit: edit.start):
            parts += [self.text[done : edit.start], edit.text]
            done = edit.stop
        return "".join([*parts, self.text[done:]]).encode(self.encoding)


def _decoded(data: bytes, name: str) -> tuple[str, str]:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
        if text.encode(encoding) == data:
            return encoding, text
        raise ValueError(f"{encoding} writes the same text in other bytes")
    except (SyntaxError, ValueError) as error:
        raise LoadError(f"{name} is no text in its encoding", got=str(error), hint="save it as UTF-8") from None
