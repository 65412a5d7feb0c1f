"""Import statements of PyTorch, rewritten."""

from __future__ import annotations

import ast
import re

from ox.porting.names import MODULES
from ox.porting.source import Edit, Source

_SPACE = r"(?:[ \t\f]|\\(?:\r\n|\r|\n))*"  # within a statement a line may go on after a backslash
_DOT = rf"{_SPACE}\.{_SPACE}"
_PREFIXES = {re.compile(module.replace(".", _DOT) + r"\b"): module for module in MODULES}
_FROM = re.compile(rf"from{_SPACE}")


def rewrite(source: Source) -> list[Edit]:
    """What must change for every import of PyTorch, wherever it stands, to be one of ox under the same name."""
    edits: list[Edit | None] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            edits += [_import(source, node, alias) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            match = _FROM.match(source.text, source.offset(node.lineno, node.col_offset))
            assert match is not None
            edits.append(_prefix(source, match.end(), node))
    return [edit for edit in edits if edit]


def _import(source: Source, node: ast.Import, alias: ast.alias) -> Edit | None:
    start = source.offset(alias.lineno, alias.col_offset)
    root = alias.name.partition(".")[0]
    if alias.asname:  # `torch.nn as nn`
        return _prefix(source, start, node)
    if root not in MODULES:
        return None
    # `torch.nn` binds `torch`, and the rooms of ox open when they are named
    assert alias.end_lineno is not None and alias.end_col_offset is not None
    stop = source.offset(alias.end_lineno, alias.end_col_offset)
    return Edit(start, stop, f"{MODULES[root]} as {root}", node.lineno)


def _prefix(source: Source, start: int, node: ast.stmt) -> Edit | None:
    """A module's name that starts there, with the part that is PyTorch's changed."""
    for prefix, module in _PREFIXES.items():
        if match := prefix.match(source.text, start):
            return Edit(start, match.end(), MODULES[module], node.lineno)
    return None
