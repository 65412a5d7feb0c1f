"""Import statements of PyTorch, rewritten."""

from __future__ import annotations

import ast
import re

from ox.porting.guards import guarded_imports
from ox.porting.names import MODULES, existing_prefix, module_of
from ox.porting.source import Edit, Source

_SPACE = r"(?:[ \t\f]|\\(?:\r\n|\r|\n))*"  # within a statement a line may go on after a backslash
_DOT = rf"{_SPACE}\.{_SPACE}"
_PREFIXES = {re.compile(module.replace(".", _DOT) + r"\b"): module for module in MODULES}
_FROM = re.compile(rf"from{_SPACE}")


def rewrite(source: Source) -> list[Edit]:
    """What must change for every import of PyTorch, wherever it stands, to be one of ox under the same name. What ox
    does not have is left as it is, unless the script does without it where the import fails."""
    edits: list[Edit | None] = []
    guarded = guarded_imports(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            edits += [_import(source, node, each) for each in node.names if node in guarded or _imports(each)]
        elif isinstance(node, ast.ImportFrom) and not node.level and (node in guarded or _imports_from(node)):
            match = _FROM.match(source.text, source.offset(node.lineno, node.col_offset))
            assert match is not None
            edits.append(_prefix(source, match.end(), node))
    return [edit for edit in edits if edit]


def _imports(alias: ast.alias) -> bool:
    """Whether ox has what a name is given to; without one, the package alone is named."""
    return not alias.asname or _is_there(alias.name)


def _imports_from(node: ast.ImportFrom) -> bool:
    """Whether ox has any of the names."""
    module = node.module or ""
    names = [f"{module}.{alias.name}" for alias in node.names if alias.name != "*"]
    return _is_there(module) and (not names or any(map(_is_there, names)))


def _is_there(path: str) -> bool:
    return module_of(path) is None or existing_prefix(path) == path


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
