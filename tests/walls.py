"""The floors of the design, and every import of this repository's packages, read once for all tests that ask."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Rooms by floor: an import goes to a lower floor, or stays in its room.
FLOORS = {
    "ox_cli": 16,
    "ox.onnx": 15,
    "ox.ray": 15,
    "ox.export": 14,
    "ox.train": 14,
    "ox.serve": 14,
    "ox.bench": 14,
    "ox.porting": 14,
    "ox_models": 14,
    "ox._dynamo": 14,
    "ox.compiler": 13,
    "ox.optim": 13,
    "ox.onnx_module": 13,
    "ox.vision": 13,
    "ox.einops": 13,
    "ox.jit": 13,
    "ox.ao": 13,
    "ox.accelerator": 13,
    "ox.types": 13,
    "ox._utils": 13,
    "ox.mps": 13,
    "ox.fx": 13,
    "ox.version": 13,
    "ox.nn": 12,
    "ox.utils": 12,
    "ox.data": 11,
    "ox.hub": 11,
    "ox.profiler": 11,
    "ox.distributions": 10,
    "ox.engines": 10,
    "ox.func": 10,
    "ox.generation": 10,
    "ox.serialization": 10,
    "ox.signal": 10,
    "ox.xpu": 9,
    "ox.graph": 9,
    "ox.linalg": 9,
    "ox.sparse": 9,
    "ox.distributed": 9,
    "ox.fft": 9,
    "ox.cuda": 9,
    "ox.overrides": 9,
    "ox.futures": 1,
    "ox.testing": 9,
    "ox.special": 9,
    "ox.cpu": 9,
    "ox.backends": 9,
    "ox.multiprocessing": 9,
    "ox.tensors": 8,
    "ox.random": 7,
    "ox.autograd": 6,
    "ox.functions": 5,
    "ox.ops": 4,
    "ox.amp": 4,
    "ox.core": 3,
    "ox.devices": 2,
    "ox.kernels": 1,
    "ox.remote": 1,
    "ox.ground": 0,
}
GROUND = {
    "errors", "cache_folder", "clock", "dtypes", "tolerance", "call_site", "file_lock", "installation",
    "temporary_files", "protobuf", "_version",
}  # fmt: skip
# Imports that go up, each inside a function, by module, and why.
UPWARD = {
    ("ox.utils.tensorboard", "ox.export"): "`SummaryWriter.add_graph` shows the graph of an exported model",
    ("ox.serialization.parameters", "ox.nn.parameter"): "`ox.load` returns the parameters that were saved",
    ("ox.nn.base.module_tree", "ox.compiler.compiled"): "`Module.compile` compiles a module in place",
    ("ox.tensors.methods.sparse", "ox.sparse.creation"): "`Tensor.to_sparse` gives a tensor of a package above",
    ("ox.tensors.methods.linalg", "ox.linalg"): "methods such as `Tensor.det`",
    ("ox.tensors.methods.linalg", "ox.linalg.legacy"): "methods such as `Tensor.qr`",
    ("ox.tensors.methods.linalg", "ox.linalg.solvers"): "methods such as `Tensor.cholesky`",
    ("ox.tensors.methods.linalg", "ox.signal.stft"): "`Tensor.stft`",
}
# Imports for annotations that go up, by module or room and module, and why.
UPWARD_TYPES = {
    ("ox.func.modules", "ox.nn.base.module"): "`functional_call` takes a module, and ox.nn imports ox.func",
    ("ox.functions", "ox.tensors.tensor"): "functions return the tensors of users, whose methods call the functions",
    ("ox.random", "ox.tensors.tensor"): "`rand` and others return the tensors of users, whose methods use them",
    ("ox.tensors.methods.sparse", "ox.sparse.tensor"): "`Tensor.to_sparse` returns a class of a package above",
}


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    module: str
    lazy: bool  # inside a function
    types: bool  # for annotations alone: it never runs

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def sources() -> list[Path]:
    folders = (ROOT / "ox", ROOT / "cli" / "ox_cli", ROOT / "models" / "ox_models")
    return sorted(path for folder in folders for ending in ("py", "pyi") for path in folder.rglob(f"*.{ending}"))


def module_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    if relative.parts[0] in ("cli", "models"):
        relative = relative.relative_to(relative.parts[0])
    return ".".join(relative.with_suffix("").parts).removesuffix(".__init__")


@cache
def all_modules() -> frozenset[str]:
    return frozenset(module_of(path) for path in sources())


@cache
def room(module: str) -> str | None:
    """The room that a module belongs to; None for what is not ours. `ox` itself, the façade, is a room of its own."""
    top, _, rest = module.partition(".")
    if top in ("ox_cli", "ox_models"):
        return top
    if top != "ox":
        return None
    name = rest.split(".")[0]
    if not name:
        return "ox"
    if name in GROUND:
        return "ox.ground"
    return f"ox.{name}"


def is_type_checking(test: ast.expr) -> bool:
    """`TYPE_CHECKING` or `typing.TYPE_CHECKING`. Under any other condition, an import counts as one that can run."""
    return ast.unparse(test).split(".")[-1] == "TYPE_CHECKING" and isinstance(test, ast.Name | ast.Attribute)


def imports_of(text: str, file: str, package: str) -> list[Import]:
    """Every import of a module of this package, also those for annotations alone."""
    found: list[Import] = []

    def visit(node: ast.AST, lazy: bool, types: bool) -> None:
        if isinstance(node, ast.If):
            test, body, orelse = node.test, node.body, node.orelse
            if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test, body, orelse = test.operand, orelse, body
            for child in body:
                visit(child, lazy, types or is_type_checking(test))
            for child in orelse:
                visit(child, lazy, types)
            return
        if isinstance(node, ast.Import):
            found.extend(Import(file, node.lineno, alias.name, lazy, types) for alias in node.names)
            # `import ox.nn` gives the name `ox`: the façade
            tops = [alias.name.split(".")[0] for alias in node.names if "." in alias.name and not alias.asname]
            found.extend(Import(file, node.lineno, top, lazy, types) for top in tops if top == "ox")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
                base = f"{above}.{base}".rstrip(".")
            # `from ox import ops` names the module ox.ops; `from ox import Tensor` names the façade
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.append(Import(file, node.lineno, inner if inner in all_modules() else base, lazy, types))
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        # A statement stands in one of these; expressions hold no import, and are most of a tree.
        for field in ("body", "handlers", "cases", "orelse", "finalbody"):
            for child in getattr(node, field, ()):
                visit(child, lazy, types)

    visit(ast.parse(text), False, False)
    return found


@cache
def imports(path: Path) -> list[Import]:
    package = module_of(path) if path.stem == "__init__" else module_of(path).rpartition(".")[0]
    return imports_of(path.read_text(), str(path.relative_to(ROOT)), package)


@cache
def all_imports(types: bool = False) -> list[tuple[Path, Import]]:
    """The imports that can run; with `types` also those for annotations."""
    return [(path, each) for path in sources() for each in imports(path) if types or not each.types]


def reason(here: str, each: Import) -> tuple[str, str] | None:
    """The entry of a list that lets an import of module `here` go up."""
    if each.types:
        keys, entries = [(here, each.module), (str(room(here)), each.module)], UPWARD_TYPES
    else:
        keys, entries = [(here, each.module)] if each.lazy else [], UPWARD
    return next((key for key in keys if key in entries), None)
