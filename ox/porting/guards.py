"""Imports whose failure a script catches."""

from __future__ import annotations

import ast

IMPORT_FAILS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def caught(handler: ast.ExceptHandler) -> list[str]:
    """The names of the exceptions that a handler is for."""
    if handler.type is None:
        return ["BaseException"]
    return [ast.unparse(each) for each in getattr(handler.type, "elts", [handler.type])]


def guarded_imports(tree: ast.AST) -> set[ast.AST]:
    """The statements that import something where an ImportError is caught."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(IMPORT_FAILS & set(caught(each)) for each in node.handlers):
            inside = (each for statement in node.body for each in ast.walk(statement))
            found |= {each for each in inside if isinstance(each, (ast.Import, ast.ImportFrom))}
    return found
