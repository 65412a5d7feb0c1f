"""Small faults that can be put into Python sources: where they are, and what a file looks like with one of them."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

COMPARE = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
WAITS = {"wait", "acquire", "join", "notify", "notify_all", "flush", "fsync", "drain", "set", "release", "cancel"}
OTHER = {"bool": "not ({})", "int": "({}) + 1", "float": "({}) + 1", "str": "({}) + ' '", "bytes": "({}) + b' '"}
SMALL = 1500  # lines: a larger package has at least three faults


@dataclass(frozen=True)
class Fault:
    """One change of one file. The file, the scope, the kind and the two texts say in any commit which one it is."""

    file: str
    line: int
    kind: str
    text: str
    """The source that is replaced."""
    new: str
    """What replaces it."""
    scope: str
    """The function and class around it, as in ``Cache.get``."""
    start: int
    """Offset in the file, in bytes."""

    @property
    def package(self) -> str:
        return "/".join(Path(self.file).parts[:2]) if self.file.count("/") > 1 else "ox"

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.start + len(self.text.encode()) :]


class Faults(ast.NodeVisitor):
    """Collects the faults that a file can have: none in docstrings, annotations, messages of errors and `__all__`."""

    def __init__(self, file: str, source: str) -> None:
        self.file, self.bytes = file, source.encode()
        self.starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.scopes: list[ast.AST] = []
        self.list: list[Fault] = []
        self.visit(ast.parse(source))

    def span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt) and node.end_lineno and node.end_col_offset is not None
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.bytes[start:end].decode()

    def add(self, kind: str, node: ast.AST, new: str) -> None:
        start, end = self.span(node)
        names = [scope.name for scope in self.scopes if hasattr(scope, "name")]
        text = self.bytes[start:end].decode()
        line = getattr(node, "lineno", 0)
        self.list.append(Fault(self.file, line, kind, text, new, ".".join(names), start))

    def between(self, kind: str, left: ast.AST, right: ast.AST, node: ast.AST, new: str) -> None:
        """Replaces the operator between two operands, where no parenthesis stands around one of them."""
        start, end = self.span(left)[1], self.span(right)[0]
        operator = self.bytes[start:end].decode()
        if "(" not in operator and ")" not in operator and "#" not in operator:
            outer = self.span(node)[0]
            whole = self.text(node)
            before = self.bytes[outer:start].decode()
            self.add(kind, node, f"{before} {new} {whole[len(before) + len(operator) :]}")

    # What is left out

    def visit_Raise(self, node: ast.Raise) -> None: ...
    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...
    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None: ...
    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if any("overload" in self.text(decorator) for decorator in node.decorator_list):
            return
        self.scopes.append(node)
        for child in (node.args, *node.body):
            self.visit(child)
        self.scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scopes.append(node)
        for child in node.body:
            self.visit(child)
        self.scopes.pop()

    # The kinds

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            self.between("comparison", node.left, node.comparators[0], node, COMPARE[type(node.ops[0])])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub):
            self.between("arithmetic", node.left, node.right, node, "-" if isinstance(node.op, ast.Add) else "+")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        if len(node.values) == 2:
            self.between("boolean", *node.values, node, "or" if isinstance(node.op, ast.And) else "and")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int and self.scopes:
            self.add("constant", node, str(node.value + 1))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.add("not", node, f"({self.text(node.operand)})")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in self.text(node.test):
            return
        lines = self.bytes[self.span(node)[0] :]
        if len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse and lines.startswith(b"if"):
            self.add("guard", node, "pass")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if len(node.args) >= 2 and not any(isinstance(arg, ast.Starred) for arg in node.args[:2]):
            first, second = node.args[:2]
            if self.text(first) != self.text(second):
                between = self.bytes[self.span(first)[1] : self.span(second)[0]].decode()
                whole, start = self.text(node), self.span(node)[0]
                before = self.bytes[start : self.span(first)[0]].decode()
                after = self.bytes[self.span(second)[1] : self.span(node)[1]].decode()
                if "(" not in between and ")" not in between and whole.endswith(after):
                    self.add("arguments", node, before + self.text(second) + between + self.text(first) + after)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value
        call = value.value if isinstance(value, ast.Await) else value
        name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
        if isinstance(value, ast.Await) or name in WAITS:
            self.add("wait", node, "pass")
        if not isinstance(value, ast.Constant):
            self.generic_visit(node)

    def visit_With(self, node: ast.With) -> None:
        item = node.items[0].context_expr
        if len(node.items) == 1 and node.items[0].optional_vars is None and "lock" in self.text(item).lower():
            self.add("wait", item, "__import__('contextlib').nullcontext()")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        function = next(
            (s for s in reversed(self.scopes) if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef)), None
        )
        kind = ast.unparse(function.returns) if function is not None and function.returns is not None else ""
        if node.value is not None:
            if kind in OTHER:
                self.add("return", node.value, OTHER[kind].format(self.text(node.value)))
            elif kind.startswith(("list[", "tuple[")) and self.text(node.value) not in ("[]", "()"):
                self.add("return", node.value, f"({self.text(node.value)})[:-1]")
            elif kind.startswith("dict[") and self.text(node.value) != "{}":
                self.add("return", node.value, "{}")
            self.visit(node.value)


def packages(root: Path) -> dict[str, list[str]]:
    """The files of each package of ox; modules directly in it are the package ``ox``."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted((root / "ox").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        files["/".join(name.split("/")[:2]) if name.count("/") > 1 else "ox"].append(name)
    return files


def quotas(sizes: dict[str, int], count: int) -> dict[str, int]:
    """How many faults each package has: in proportion to its lines, three or more in a larger one."""
    total = sum(sizes.values())
    exact = {name: count * size / total for name, size in sizes.items()}
    numbers = {name: max(round(exact[name]), 3 if sizes[name] >= SMALL else 1) for name in sizes}
    while sum(numbers.values()) != count:
        step = 1 if sum(numbers.values()) < count else -1
        able = [name for name in numbers if step > 0 or numbers[name] > (3 if sizes[name] >= SMALL else 0)]
        numbers[min(able or numbers, key=lambda name: step * (numbers[name] - exact[name]))] += step
    return numbers


def sample(root: Path, seed: int, count: int) -> list[Fault]:
    """Faults drawn by seed: by package in proportion to its size; within a package each kind is as likely."""
    chance, files = random.Random(seed), packages(root)
    sources = {file: (root / file).read_text() for names in files.values() for file in names}
    sizes = {name: sum(sources[file].count("\n") for file in files[name]) for name in files}
    chosen = []
    for name, number in quotas(sizes, count).items():
        kinds: dict[str, list[Fault]] = defaultdict(list)
        for file in files[name]:
            for fault in Faults(file, sources[file]).list:
                kinds[fault.kind].append(fault)
        for _ in range(number):
            if kinds:
                kind = chance.choice(sorted(kinds))
                chosen.append(kinds[kind].pop(chance.randrange(len(kinds[kind]))))
                kinds = {kind: left for kind, left in kinds.items() if left}
    chance.shuffle(chosen)  # a part of a run is one of all packages
    return chosen


def find(fault: Fault, root: Path) -> Fault | None:
    """The fault in another commit: in the same file, if possible in the same function; of several, the nearest."""
    path = root / fault.file
    if not path.exists():
        return None
    change = fault.kind, fault.text, fault.new
    candidates = [
        other for other in Faults(fault.file, path.read_text()).list if (other.kind, other.text, other.new) == change
    ]
    return min(candidates, key=lambda other: (other.scope != fault.scope, abs(other.start - fault.start)), default=None)
