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
_COMMA = re.compile(rf"{_SPACE},")
_FROM = re.compile(rf"from{_SPACE}")


def rewrite(source: Source) -> list[Edit]:
    """What must change for every import of PyTorch, wherever it stands, to be one of ox under the same name. What ox
    does not have is left as it is, in a statement of its own, unless the script does without it where the import fails.
    """
    edits: list[Edit | None] = []
    guarded = guarded_imports(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            edits += [_import(source, node, each) for each in node.names if node in guarded or _imports(each)]
        elif isinstance(node, ast.ImportFrom) and not node.level and (node in guarded or _imports_from(node)):
            match = _FROM.match(source.text, source.offset(node.lineno, node.col_offset))
            assert match is not None
            edits.append(_prefix(source, match.end(), node))
            if node not in guarded:
                edits += _split(source, node)
    return [edit for edit in edits if edit]


def _imports(alias: ast.alias) -> bool:
    """Whether ox has what a name is given to; without one, the package alone is named."""
    return not alias.asname or _is_there(alias.name)


def _imports_from(node: ast.ImportFrom) -> bool:
    """Whether ox has any of the names."""
    module = node.module or ""
    names = [f"{module}.{alias.name}" for alias in node.names if alias.name != "*"]
    return _is_there(module) and (not names or any(map(_is_there, names)))


def _split(source: Source, node: ast.ImportFrom) -> list[Edit]:
    """The names that ox does not have leave the statement for one of their own behind it."""

    def start(each: ast.alias) -> int:
        return source.offset(each.lineno, each.col_offset)

    def end(each: ast.alias | ast.stmt) -> int:
        assert each.end_lineno is not None and each.end_col_offset is not None
        return source.offset(each.end_lineno, each.end_col_offset)

    kept = [alias for alias in node.names if alias.name == "*" or _is_there(f"{node.module}.{alias.name}")]
    missing = [alias for alias in node.names if alias not in kept]
    if not kept or not missing:
        return []
    last = node.names.index(kept[-1])
    edits = [
        Edit(start(alias), start(after), "", node.lineno)
        for alias, after in zip(node.names[:last], node.names[1:], strict=False)
        if alias in missing
    ]
    if last + 1 < len(node.names):
        first, stop = start(node.names[last + 1]), end(node.names[-1])
        if "#" in source.text[end(kept[-1]) : first]:  # in brackets, where a comma may end the names
            after = _COMMA.match(source.text, stop)
            edits.append(Edit(first, stop if after is None else after.end(), "", node.lineno))
        else:
            edits.append(Edit(end(kept[-1]), stop, "", node.lineno))
    names = ", ".join(map(ast.unparse, missing))
    return [*edits, Edit(end(node), end(node), f"; from {node.module} import {names}", node.lineno)]


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
