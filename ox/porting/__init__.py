"""PyTorch scripts for ox: changes their imports, and lists names without a counterpart (`ox port`).

A script is read, never run. Except for its imports, it stays the same byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ox.porting.imports import rewrite
from ox.porting.source import Source
from ox.porting.unsupported import Missing, find_missing

__all__ = ["Missing", "Ported", "Source", "find_missing", "port", "rewrite"]


@dataclass(frozen=True)
class Ported:
    """What became of a script.

    Attributes:
        data: its bytes, with the imports rewritten.
        imports: how many import statements changed.
        missing: what has no counterpart, in the order of the lines.
    """

    data: bytes
    imports: int
    missing: list[Missing]


def port(data: bytes, name: str = "<script>", local: Collection[str] = ()) -> Ported:
    """A PyTorch script, given as its bytes, with its imports rewritten.

    Args:
        data: the file's bytes, in the encoding that its first lines name, or UTF-8.
        name: the file's name, for errors.
        local: names of the script's own packages, which are no library's even where a library has one of them.

    Raises:
        LoadError: no Python 3, or bytes that its encoding does not know.
    """
    source = Source(data, name)
    edits = rewrite(source)
    return Ported(source.edited(edits), len({edit.statement for edit in edits}), find_missing(source, local))
