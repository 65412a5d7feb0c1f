"""Import statements of PyTorch, rewritten."""

from __future__ import annotations

import ast
import re

from ox.porting.names import PACKAGES
from ox.porting.source import Edit, Source

_SPACE = r"(?:[ \t\f]|\\(?:\r\n|\r|\n))*"  # within a statement a line may go on after a backslash
_FROM = re.compile(rf"from{_SPACE}(\w+)")


def rewrite(source: Source) -> list[Edit]:
    """What must change for every import of PyTorch, wherever it stands, to be one of ox under the same name."""
    edits: list[Edit] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            edits += [edit for alias in node.names if (edit := _import(source, node, alias))]
        elif isinstance(node, ast.ImportFrom) and not node.level and (edit := _from(source, node)):
            edits.append(edit)
    return edits


def _import(source: Source, node: ast.Import, alias: ast.alias) -> Edit | None:
    root = alias.name.partition(".")[0]
    if root not in PACKAGES:
        return None
    start = source.offset(alias.lineno, alias.col_offset)
    assert alias.end_lineno is not None and alias.end_col_offset is not None
    if alias.asname:  # `torch.nn as nn`
        return Edit(start, start + len(root), PACKAGES[root], node.lineno)
    # `torch.nn` binds `torch`, and the rooms of ox open when they are named
    stop = source.offset(alias.end_lineno, alias.end_col_offset)
    return Edit(start, stop, f"{PACKAGES[root]} as {root}", node.lineno)


def _from(source: Source, node: ast.ImportFrom) -> Edit | None:
    match = _FROM.match(source.text, source.offset(node.lineno, node.col_offset))
    if match is None or match[1] not in PACKAGES:
        return None
    return Edit(match.start(1), match.end(1), PACKAGES[match[1]], node.lineno)
