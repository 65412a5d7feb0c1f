"""Finds what ox takes from CuPy and CuPy does not have: names, methods of arrays and of ufuncs, keywords.

It only reads code. CuPy is what a parameter `xp` may be, what `cupy()` returns, and what a method keeps as
`self._cupy`. Kernels for the CPU alone (`Operator.large = kernel`) may take more.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from cupy_names import FILE

# ufuncs whose methods CuPy has; of `at`, those with an atomic operation
REDUCED = {"add", "multiply"}
METHODS = {
    "reduce": REDUCED,
    "accumulate": REDUCED,
    "reduceat": REDUCED,
    "at": {"add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"},
}
UFUNC_KEYWORDS = {"out", "dtype", "casting"}


@dataclass(frozen=True)
class Miss:
    """A place in ox, and what it takes that CuPy does not have."""

    line: int
    name: str
    problem: str


@cache
def tables() -> dict[str, dict[str, str]]:
    """The names of each module and class of CuPy."""
    return json.loads(FILE.read_text())


def keywords_of(description: str) -> set[str] | None:
    """The parameters of a function of the table; None where all keywords, or unknown ones, are taken."""
    _, bracket, rest = description.partition("(")
    names = [name.strip() for name in rest.rstrip(")").split(",")]
    return None if not bracket or any(name.startswith("**") for name in names) else set(names)


def path_in_cupy(node: ast.expr) -> list[str] | None:
    """`["linalg", "svd"]` of `xp.linalg.svd`, `cupy().linalg.svd` or `self._cupy.linalg.svd`; None of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and node.attr != "_cupy":
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Call):
        made_by = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        root = made_by == "cupy"
    else:
        root = isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and node.id == "xp")
    return parts[::-1] if root and parts else None


def problem_of(path: list[str], keywords: list[str] | None) -> str | None:
    """Why CuPy refuses a name, or a call of it with these keywords."""
    owner = "cupy"
    for i, name in enumerate(path):
        table = tables().get(owner)
        if table is None:
            return None  # of a module that the table does not have
        if name.startswith("__"):
            return None
        if name not in table:
            return f"{owner} has no {name}"
        kind = table[name]
        if kind == "ufunc":
            return problem_of_ufunc(name, path[i + 1 :], keywords)
        if kind != "module":
            taken = keywords_of(kind) if i == len(path) - 1 else None
            wrong = [] if taken is None else [k for k in keywords or [] if k not in taken]
            return f"no keyword {wrong[0]}=, but {', '.join(sorted(taken or ()))}" if wrong else None
        owner = f"{owner}.{name}"
    return None


def problem_of_ufunc(name: str, rest: list[str], keywords: list[str] | None) -> str | None:
    if not rest:
        wrong = [k for k in keywords or [] if k not in UFUNC_KEYWORDS]
        return f"a ufunc has no keyword {wrong[0]}=" if wrong else None
    method = rest[0]
    if method not in tables()["ufunc"]:
        return f"a ufunc has no {method}"
    return f"{name} has no {method}" if name not in METHODS.get(method, {name}) else None


def misses(text: str) -> Iterator[Miss]:
    """What a source takes from CuPy, or from arrays in its kernels, that is not there."""
    tree = ast.parse(text)
    nodes = list(nodes_for_gpus(tree))
    called = {id(n.func): [k.arg for k in n.keywords if k.arg] for n in nodes if isinstance(n, ast.Call)}
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        path = path_in_cupy(node) if isinstance(node, ast.Attribute) and id(node) not in inner else None
        if path and (problem := problem_of(path, called.get(id(node)))):
            yield Miss(node.lineno, ".".join(path), problem)
        if isinstance(node, ast.FunctionDef) and any(a.arg == "xp" for a in node.args.args):
            yield from array_misses(node, called)


def nodes_for_gpus(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes outside of kernels for the CPU alone."""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)]
    large = {
        node.value.id
        for node in assigned
        if isinstance(node.value, ast.Name)
        and isinstance(node.targets[0], ast.Attribute)
        and node.targets[0].attr == "large"
    }
    for statement in tree.body:
        if not isinstance(statement, ast.FunctionDef) or statement.name not in large:
            yield from ast.walk(statement)


def array_misses(kernel: ast.FunctionDef, called: dict[int, list[str]]) -> Iterator[Miss]:
    """Attributes and keywords in a kernel that NumPy's arrays have and CuPy's do not."""
    table = tables()["ndarray"]
    of_numpy = {name for name in dir(np.ndarray) if not name.startswith("_")}
    for node in ast.walk(kernel):
        if not isinstance(node, ast.Attribute) or node.attr not in of_numpy or path_in_cupy(node):
            continue
        if isinstance(node.value, ast.Name) and node.value.id in ("np", "math"):
            continue
        if node.attr not in table:
            yield Miss(node.lineno, f".{node.attr}", "CuPy's arrays do not have it")
        elif (taken := keywords_of(table[node.attr])) is not None:
            wrong = [k for k in called.get(id(node), []) if k not in taken]
            if wrong:
                yield Miss(node.lineno, f".{node.attr}", f"no keyword {wrong[0]}=, but {', '.join(sorted(taken))}")


def audit(folder: Path) -> dict[str, Miss]:
    """The misses of all files below a folder, by file and line."""
    return {
        f"{file.relative_to(folder.parent)}:{miss.line}": miss
        for file in sorted(folder.rglob("*.py"))
        for miss in misses(file.read_text())
    }
