"""The floors of the design: an import only goes down, and each foreign library has its rooms."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Rooms by floor. What stands alone in ox/ (tensor.py and its helpers) is on the tensor's floor, but for the ground.
FLOORS = {
    "ox_cli": 8,
    "ox.train": 7,
    "ox.export": 7,
    "ox.serve": 7,
    "ox.bench": 7,
    "ox.porting": 7,
    "ox.onnx": 8,
    "ox_models": 6,
    "ox.einops": 6,
    "ox.utils": 6,
    "ox.jit": 6,
    "ox.vision": 6,
    "ox.func": 5,
    "ox.nn": 5,
    "ox.optim": 5,
    "ox.data": 5,
    "ox.distributed": 4,
    "ox.graph": 4,
    "ox.backends": 4,
    "ox.profiler": 4,
    "ox.tensor": 3,
    "ox.amp": 3,
    "ox.autograd": 3,
    "ox.cpu": 3,
    "ox.cuda": 3,
    "ox.distributions": 3,
    "ox.functions": 3,
    "ox.linalg": 3,
    "ox.signal": 3,
    "ox.sparse": 3,
    "ox.torch_checkpoint": 3,
    "ox.ops": 2,
    "ox.devices": 1,
    "ox.mt19937": 1,
    "ox.ground": 0,
}
GROUND = {"errors", "dtypes", "tolerance", "where", "temporary"}
APART = {
    "ox.train",
    "ox.export",
    "ox.serve",
    "ox.bench",
    "ox.porting",
}  # rooms of one floor that do not know each other
NOWHERE: frozenset[str] = frozenset()
FOREIGN = {
    "onnx": {"ox.export", "ox.serve", "ox.graph", "ox.devices"},
    "onnxruntime": {"ox.export", "ox.serve", "ox.graph", "ox.devices"},
    "cupy": {"ox.devices", "ox.distributed.nccl"},
    "cupyx": {"ox.devices", "ox.distributed.nccl"},
    "mpi4py": {"ox.distributed.mpi"},
    "einops": {"ox.einops"},
    "pyarrow": {"ox.data.datasets"},
    "tokenizers": {"ox.data.datasets"},
    **dict.fromkeys(("torch", "pickle", "cloudpickle", "joblib", "marshal", "shelve", "dill"), NOWHERE),
}
# A file longer than 400 lines needs its reason here.
LONG: dict[str, str] = {}


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    module: str
    lazy: bool  # inside a function

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def sources() -> list[Path]:
    folders = (ROOT / "ox", ROOT / "cli" / "ox_cli", ROOT / "models" / "ox_models")
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def module_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    if relative.parts[0] in ("cli", "models"):
        relative = relative.relative_to(relative.parts[0])
    return ".".join(relative.with_suffix("").parts).removesuffix(".__init__")


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
    return f"ox.{name}" if (ROOT / "ox" / name).is_dir() else "ox.tensor"


def imports(path: Path) -> list[Import]:
    """Every import that can run: those under `if TYPE_CHECKING:` cannot."""
    found: list[Import] = []
    file = str(path.relative_to(ROOT))
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]

    def visit(node: ast.AST, lazy: bool) -> None:
        if isinstance(node, ast.expr):  # no import is in there
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child, lazy)
            return
        if isinstance(node, ast.Import):
            found.extend(Import(file, node.lineno, alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
                base = f"{above}.{base}".rstrip(".")
            # `from ox import ops` names the module ox.ops; `from ox import Tensor` names the façade
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                place = ROOT / inner.replace(".", "/")
                is_module = base == "ox" and (place.is_dir() or place.with_suffix(".py").exists())
                if inner != "ox.__version__":  # a name that everybody may know
                    found.append(Import(file, node.lineno, inner if is_module else base, lazy))
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            visit(child, lazy)

    visit(ast.parse(path.read_text()), False)
    return found


@cache
def all_imports() -> list[tuple[Path, Import]]:
    return [(path, each) for path in sources() for each in imports(path)]


def test_imports_only_go_down() -> None:
    wrong = []
    for path, each in all_imports():
        here, there = room(module_of(path)), room(each.module)
        if there is None or here == there or here == "ox":
            continue
        if there == "ox":
            # Below, the façade would be the way around every wall. Up here it is the user's own way in.
            if here not in ("ox_cli", "ox_models"):
                wrong.append(f"{each} (the façade: import the module that you mean)")
            continue
        assert here in FLOORS, f"{here} has no floor: give it one in this test and in the design"
        assert there in FLOORS, f"{there} has no floor: give it one in this test and in the design"
        if FLOORS[there] > FLOORS[here] or (there in APART and here in APART):
            wrong.append(str(each))
    assert not wrong, "\n".join(wrong)


def test_serve_starts_small() -> None:
    """serve needs no tensor, no module, no optimizer: only what reads a file and runs it."""
    allowed = {"ox.serve", "ox.ground", "ox.devices"}
    wrong = []
    for path, each in all_imports():
        there = room(each.module)
        if room(module_of(path)) != "ox.serve" or there is None:
            continue
        if there not in allowed and each.module not in ("ox.graph.contract", "ox.graph.file"):
            wrong.append(str(each))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("library", FOREIGN)
def test_foreign_libraries_stay_in_their_rooms(library: str) -> None:
    wrong = []
    for path, each in all_imports():
        if each.module.split(".")[0] != library:
            continue
        module = module_of(path)
        at_home = any(module == home or module.startswith(home + ".") for home in FOREIGN[library])
        if not at_home or (room(module) == "ox.devices" and not each.lazy):
            wrong.append(str(each))
    assert not wrong, "\n".join(wrong)


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_ox_alone_loads_no_runtime() -> None:
    assert not {"onnx", "onnxruntime", "cupy", "torch", "matplotlib"} & loaded_after("import ox")


def test_the_server_loads_no_training() -> None:
    if not (ROOT / "ox" / "serve" / "__init__.py").exists():
        pytest.skip("no ox.serve here")
    loaded = loaded_after("import ox.serve")
    assert not {"ox.train", "ox.nn", "ox.optim", "ox.data", "ox.export", "matplotlib"} & loaded


def test_no_file_grows_long() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    too_long = {name: count for name, count in lengths.items() if count > 400 and name not in LONG}
    assert not too_long, f"think twice past 400 lines: {too_long}"
    assert not {name for name in LONG if lengths.get(name, 0) <= 400}, "LONG names files that are not long"
