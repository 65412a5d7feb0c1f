"""Which names of a script stand for PyTorch, scope by scope."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ox.porting.names import module_of

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Bindings = dict[str, set[str | None]]  # name -> the paths of modules that it may stand for; None for anything else


class Scopes:
    """The names that are visible at one place, innermost scope last."""

    def __init__(self, module: ast.Module) -> None:
        self.stack: list[tuple[ast.AST, Bindings]] = []
        self.push(module, module.body)

    def push(self, owner: ast.AST, body: Iterable[ast.AST]) -> None:
        """Enter a scope: what it binds is known throughout it, as in Python."""
        bound: Bindings = {}
        self.stack.append((owner, bound))
        bodies = list(body)
        for node in bodies:
            for name, path in _bindings(node):
                bound.setdefault(name, set()).add(path)
        for node in bodies:  # `nn = torch.nn` needs the imports, wherever they stand
            for name, value in _aliases(node):
                if (path := self.path(value)) and None in bound.get(name, ()):
                    bound[name] = bound[name] - {None} | {path}

    def pop(self) -> None:
        self.stack.pop()

    def path(self, node: ast.AST) -> str | None:
        """The path of PyTorch, such as ``torch.nn.ReLU``, that a name or a chain of attributes stands for."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        root = self.root(node.id) if isinstance(node, ast.Name) else None
        return root and ".".join([root, *reversed(parts)])

    def root(self, name: str) -> str | None:
        """The path that a name stands for; None where it is something else, or may be."""
        paths = self.lookup(name)
        path = next(iter(paths)) if paths and len(paths) == 1 else None
        return path if path and module_of(path) else None

    def lookup(self, name: str) -> set[str | None] | None:
        """All that a name may stand for, of whatever package; None if no scope of the script binds it."""
        for depth, (owner, bound) in enumerate(reversed(self.stack)):
            if name in bound and (depth == 0 or not isinstance(owner, ast.ClassDef)):
                return bound[name]
        return None


def parameters(node: Function) -> list[ast.arg]:
    """All parameters of a function."""
    a = node.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]


def _bindings(node: ast.AST) -> Iterator[tuple[str, str | None]]:
    """What a part of a scope binds, without the scopes within it."""
    match node:
        case ast.Import():
            for alias in node.names:
                root = alias.name.partition(".")[0]
                yield alias.asname or root, alias.name if alias.asname else root
        case ast.ImportFrom():
            for alias in node.names:
                yield alias.asname or alias.name, f"{'.' * node.level}{node.module or ''}.{alias.name}"
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name, None
        case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            yield from ((each.target.id, None) for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
        case ast.arg():
            yield node.arg, None
        case ast.Name(ctx=ast.Store()):
            yield node.id, None
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name, None
        case ast.Assign(value=ast.Constant(value=None)):
            return  # `autocast = None`, where an import failed
    if isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name, None
    if not isinstance(node, Function | Comprehension | ast.ClassDef):
        for child in ast.iter_child_nodes(node):
            yield from _bindings(child)


def _aliases(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Assignments such as ``nn = torch.nn``."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value):
            yield name, value
    if not isinstance(node, Function | Comprehension | ast.ClassDef):
        for child in ast.iter_child_nodes(node):
            yield from _aliases(child)
