"""What a script takes from PyTorch that ox has not: where, and the way out."""

from __future__ import annotations

import ast
import builtins
import contextlib
import pathlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from ox.porting.guards import IMPORT_FAILS, caught
from ox.porting.names import NEED_PYTORCH, existing_prefix, left_out, module_of, way_out
from ox.porting.scopes import Comprehension, Function, Scopes, parameters
from ox.porting.source import Source

# what is there, and says something else than in PyTorch
DIFFERS = {"torch.__version__": "ox's own version; that of the PyTorch whose names it has is ox.version.torch"}
# dtypes are NumPy's, and print as such
OF_DTYPES = {
    "is_floating_point": "dtypes are NumPy's: x.is_floating_point(), or ox.is_floating(dtype)",
    "to_real": "dtypes are NumPy's, and none is complex",
}
DTYPES = {
    "bfloat16", "bool", "double", "float", "float16", "float32", "float64", "half", "int", "int16", "int32", "int64",
    "int8", "long", "short", "uint8",
}  # fmt: skip
DTYPE_TEXT = "dtypes print without torch.: x.dtype == ox.float32, or str(x.dtype).split('.')[-1]"


@dataclass(frozen=True, order=True)
class Missing:
    """One use of something that ox has not.

    Attributes:
        line, column: where it is, from 1.
        name: its name in PyTorch.
        hint: the way out.
        guarded: the script asks first, or catches the error, so it runs without it.
    """

    line: int
    column: int
    name: str
    hint: str
    guarded: bool = False

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.name}{' (guarded)' if self.guarded else ''}: {self.hint}"


def find_missing(source: Source, local: Collection[str] = ()) -> list[Missing]:
    """What of PyTorch a script names and ox has not, in the order of the lines; `local` are its own packages."""
    visitor = _Visitor(source, local)
    for node in source.tree.body:
        visitor.visit(node)
    return sorted(set(visitor.missing))


@cache
def tensor_methods() -> dict[str, str]:
    """Methods that only PyTorch's tensors have, and why ox has them not."""
    from ox.sparse import SparseTensor
    from ox.tensors.tensor import Tensor

    others = (SparseTensor, str, bytes, list, dict, set, tuple, slice, int, float, np.ndarray, pathlib.Path)
    known = {name for kind in (Tensor, *others) for name in dir(kind)}
    methods = {name.rpartition("."): why for name, why in left_out().items()}
    return {name: why for (owner, _, name), why in methods.items() if owner == "torch.Tensor" and name not in known}


class _Visitor(ast.NodeVisitor):
    def __init__(self, source: Source, local: Collection[str]) -> None:
        self.source, self.local = source, local
        self.scopes = Scopes(source.tree)
        self.missing: list[Missing] = []
        self.imports_guarded = self.attributes_guarded = False
        self.asked: list[str] = []  # what `hasattr` has answered for
        self.called: ast.expr | None = None  # the function of the innermost call
        froms = [node for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom)]
        stars = [f"{'.' * node.level}{node.module or ''}" for node in froms if any(a.name == "*" for a in node.names)]
        self.stars = [path for path in stars if module_of(path)]  # modules of PyTorch whose names all come in
        self.only_stars = len(self.stars) == len(stars)

    def note(self, node: ast.expr | ast.stmt | ast.alias, name: str, guarded: bool, hint: str | None = None) -> None:
        line, column = self.source.position(node)
        self.missing.append(Missing(line, column, name, hint or way_out(name), guarded))

    # imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imported(alias, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not node.level and node.module and self.imported(node, node.module):
            for alias in node.names:
                if alias.name != "*":
                    self.imported(alias, f"{node.module}.{alias.name}")

    def imported(self, node: ast.stmt | ast.alias, path: str) -> bool:
        """Whether what is imported is there, as far as that matters here."""
        root = path.partition(".")[0]
        if root in NEED_PYTORCH and root not in self.local:
            self.note(node, root, self.imports_guarded)
            return False
        ours = module_of(path) is not None
        if ours and existing_prefix(path) != path:
            self.note(node, path, self.imports_guarded)
            return False
        return ours

    # uses

    def visit_Name(self, node: ast.Name) -> None:
        """A name that nothing in the script binds comes from `from torch.nn import *`, or from another star."""
        name = node.id
        if not self.stars or name.startswith("__") or hasattr(builtins, name) or self.scopes.lookup(name) is not None:
            return
        paths = [f"{module}.{name}" for module in self.stars]
        known = [path for path in paths if path in left_out()]
        if (self.only_stars or known) and not any(existing_prefix(path) == path for path in paths):
            chosen = known[-1:] or paths
            self.note(node, " or ".join(chosen), self.attributes_guarded, way_out(chosen[0]))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self.scopes.path(node)
        if path is None:
            if node.attr in OF_DTYPES and isinstance(node.ctx, ast.Load) and node is not self.called:
                self.note(node, f"torch.dtype.{node.attr}", self.attributes_guarded, OF_DTYPES[node.attr])
            self.visit(node.value)
        elif path in DIFFERS:
            self.note(node, path, self.attributes_guarded, DIFFERS[path])
        elif isinstance(node.ctx, ast.Load):
            self.used(node, path)
        else:  # what a module has not, it may still be given
            self.visit(node.value)

    def used(self, node: ast.Attribute, path: str) -> None:
        owner = existing_prefix(path)
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        imported = isinstance(inner, ast.Name) and self.scopes.root(inner.id)
        # the last has been said at its import
        if owner == path or not imported or existing_prefix(imported) != imported:
            return
        name = ".".join(path.split(".")[: owner.count(".") + 2])
        if name not in self.asked:
            self.note(node, name, self.attributes_guarded)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and self.scopes.path(function) is None:
            why = tensor_methods().get(function.attr)
            if why and self.of_a_tensor(function.value):
                self.note(function, f"torch.Tensor.{function.attr}", self.attributes_guarded, why)
        self.called = function
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and node.value.removeprefix("torch.") in DTYPES and "." in node.value:
            self.note(node, f'"{node.value}"', self.attributes_guarded, DTYPE_TEXT)

    def of_a_tensor(self, value: ast.AST) -> bool:
        """Whether a value may be a tensor: no object of the script's own class, no module."""
        while isinstance(value, ast.Attribute):
            value = value.value
        if not isinstance(value, ast.Name):
            return not (isinstance(value, ast.Call) and ast.unparse(value.func) == "super")
        return value.id not in ("self", "cls") and None in (self.scopes.lookup(value.id) or ())

    # scopes

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.visit_all([*node.decorator_list, *_outside(node)])
        self.within(node, [*parameters(node), *node.body], node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_all(_outside(node))
        self.within(node, [*parameters(node), node.body], [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all([*node.decorator_list, *node.bases, *node.keywords])
        self.within(node, node.body, node.body)

    def visit_comprehension_scope(self, node: Comprehension) -> None:
        self.within(node, [each.target for each in node.generators], list(ast.iter_child_nodes(node)))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_comprehension_scope

    def within(self, owner: ast.AST, binding: Iterable[ast.AST], body: Iterable[ast.AST]) -> None:
        self.scopes.push(owner, binding)
        self.visit_all(body)
        self.scopes.pop()

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    # guards

    def visit_Try(self, node: ast.Try) -> None:
        names = {name for handler in node.handlers for name in caught(handler)}
        with self.guarded(bool(names & IMPORT_FAILS), "AttributeError" in names):
            self.visit_all(node.body)
        self.visit_all([*node.handlers, *node.orelse, *node.finalbody])

    def visit_If(self, node: ast.If | ast.IfExp | ast.BoolOp) -> None:
        test = node if isinstance(node, ast.BoolOp) else node.test
        asked = list(self.answered(test))
        self.asked += asked
        only_types = not isinstance(node, ast.BoolOp) and "TYPE_CHECKING" in ast.unparse(node.test)
        with self.guarded(only_types, only_types):
            self.generic_visit(node)
        del self.asked[len(self.asked) - len(asked) :]

    visit_IfExp = visit_BoolOp = visit_If

    def answered(self, test: ast.AST) -> Iterator[str]:
        """The names that a condition asks for by `hasattr`."""
        for node in ast.walk(test):
            match node:
                case ast.Call(func=ast.Name(id="hasattr"), args=[owner, ast.Constant(value=str(name))]):
                    if path := self.scopes.path(owner):
                        yield f"{path}.{name}"

    @contextlib.contextmanager
    def guarded(self, imports: bool, attributes: bool) -> Iterator[None]:
        before = self.imports_guarded, self.attributes_guarded
        self.imports_guarded, self.attributes_guarded = before[0] or imports, before[1] or attributes
        yield
        self.imports_guarded, self.attributes_guarded = before


def _outside(node: Function) -> list[ast.AST]:
    """What of a function is evaluated where it is defined: defaults and annotations."""
    notes = [each.annotation for each in parameters(node)]
    returns = None if isinstance(node, ast.Lambda) else node.returns
    return [*filter(None, [*node.args.defaults, *node.args.kw_defaults, *notes, returns])]
