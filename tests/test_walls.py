"""The floors of the design: an import only goes down, and each foreign library has its rooms."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Rooms by floor: an import goes to a lower floor, or stays in its room.
FLOORS = {
    "ox_cli": 16,
    "ox.onnx": 15,
    "ox.export": 14,
    "ox.train": 14,
    "ox.serve": 14,
    "ox.bench": 14,
    "ox.porting": 14,
    "ox_models": 14,
    "ox.optim": 13,
    "ox.onnx_module": 13,
    "ox.vision": 13,
    "ox.einops": 13,
    "ox.jit": 13,
    "ox.accelerator": 13,
    "ox.types": 13,
    "ox._utils": 13,
    "ox._dynamo": 13,
    "ox.mps": 13,
    "ox.fx": 13,
    "ox.version": 13,
    "ox.nn": 12,
    "ox.utils": 12,
    "ox.data": 11,
    "ox.hub": 11,
    "ox.profiler": 11,
    "ox.distributions": 10,
    "ox.func": 10,
    "ox.serialization": 10,
    "ox.signal": 10,
    "ox.compiler": 9,
    "ox.xpu": 9,
    "ox.graph": 9,
    "ox.linalg": 9,
    "ox.sparse": 9,
    "ox.distributed": 9,
    "ox.fft": 9,
    "ox.cuda": 9,
    "ox.overrides": 9,
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
    "ox.ground": 0,
}
GROUND = {"errors", "dtypes", "tolerance", "call_site", "temporary_files", "_version"}
# Imports that go up, each inside a function, by module, and why.
UPWARD = {
    ("ox.tensors.methods.sparse", "ox.sparse.creation"): "`Tensor.to_sparse` gives a tensor of a package above",
    ("ox.tensors.methods.linalg", "ox.linalg"): "methods such as `Tensor.det`",
    ("ox.tensors.methods.linalg", "ox.linalg.legacy"): "methods such as `Tensor.qr`",
    ("ox.tensors.methods.linalg", "ox.linalg.solvers"): "methods such as `Tensor.cholesky`",
    ("ox.tensors.methods.linalg", "ox.signal.stft"): "`Tensor.stft`",
}
# Files that import modules by a name in a string, and why.
BY_NAME = {
    "cli/ox_cli/main.py": "a command's module is imported when the command runs",
    "ox/core/lazy.py": "public names are imported when first used",
    "ox/core/legacy_paths.py": "PyTorch's older paths of modules",
    "ox/cuda/__init__.py": "submodules are imported when first used",
    "ox/data/loading/worker.py": "the file of NumPy's library",
    "ox/devices/runtime.py": "ONNX Runtime, with an error of our own",
    "ox/einops/registration.py": "an import that registers a backend",
    "ox/nn/modules/__init__.py": "the module has the name of a package of PyTorch",
    "ox/porting/names.py": "looks up names that a script uses",
    "ox/utils/benchmark/timing.py": "the name `ox` in a timed statement",
}
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
LONG: dict[str, str] = {
    "ox/serve/transport/http/connection.py": "one state machine: what was read decides what may be written",
}


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


def imports(path: Path, types: bool = False) -> list[Import]:
    """Every import that can run; those under `if TYPE_CHECKING:` cannot, and come with `types` alone."""
    found: list[Import] = []
    file = str(path.relative_to(ROOT))
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]

    def visit(node: ast.AST, lazy: bool) -> None:
        if isinstance(node, ast.expr):  # no import is in there
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in [*node.orelse, *(node.body if types else [])]:
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
                found.append(Import(file, node.lineno, inner if inner in all_modules() else base, lazy))
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
        if there is None or here == there:
            continue
        if here == "ox":
            if there in ("ox_cli", "ox_models"):
                wrong.append(f"{each} (the façade stands below it)")
            continue
        if there == "ox":
            # Below, the façade would be the way around every wall. Up here it is the user's own way in.
            if here not in ("ox_cli", "ox_models"):
                wrong.append(f"{each} (the façade: import the module that you mean)")
            continue
        assert here in FLOORS, f"{here} has no floor: give it one in this test and in the design"
        assert there in FLOORS, f"{there} has no floor: give it one in this test and in the design"
        if FLOORS[there] >= FLOORS[here] and not (each.lazy and (module_of(path), each.module) in UPWARD):
            wrong.append(str(each))
    assert not wrong, "\n".join(wrong)
    pairs = {(module_of(path), each.module) for path, each in all_imports()}
    assert set(UPWARD) <= pairs, "UPWARD names imports that are gone"


@pytest.mark.parametrize("low", ["ox.ground", "ox.devices", "ox.core", "ox.ops", "ox.amp"])
def test_annotations_of_the_lower_floors_need_nothing_above(low: str) -> None:
    """Not even under `if TYPE_CHECKING:`."""
    wrong = []
    for path in sources():
        if room(module_of(path)) == low:
            for each in imports(path, types=True):
                there = room(each.module)
                if there == "ox" or (there not in (None, low) and FLOORS[str(there)] >= FLOORS[low]):
                    wrong.append(str(each))
    assert not wrong, "\n".join(wrong)


def test_modules_are_imported_by_name_in_few_files() -> None:
    """Elsewhere an import is a statement, which the other tests see."""
    found = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
                found.add(str(path.relative_to(ROOT)))
    assert found == set(BY_NAME)


def test_serve_starts_small() -> None:
    """serve needs no tensor, no module, no optimizer: only what reads a file and runs it."""
    allowed = {"ox.serve", "ox.ground", "ox.devices"}
    wrong = []
    for path, each in all_imports():
        there = room(each.module)
        if room(module_of(path)) != "ox.serve" or there is None:
            continue
        if there not in allowed and each.module not in ("ox.graph.contract", "ox.graph.reader.model_file"):
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


@cache
def graph(lazy: bool, types: bool = False) -> dict[str, set[str]]:
    """Which of our modules a module imports: at its top, with `lazy` inside functions, too, with `types` also for
    annotations."""
    found: dict[str, set[str]] = {}
    for path in sources():
        here = module_of(path)
        each = {each.module for each in imports(path, types) if lazy or not each.lazy}
        found[here] = (each & all_modules()) - {here}
    return found


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """The groups of modules that import each other, directly or through others (Tarjan, 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[set[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in arrows[name]:
            if other not in order:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == order[name]:
            group = set(stack[stack.index(name) :])
            del stack[stack.index(name) :]
            groups.append(group)

    for name in arrows:
        if name not in order:
            visit(name)
    return [group for group in groups if len(group) > 1]


def test_the_finder_of_circles_finds_them() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "d"}}) == [{"b", "c"}]


def test_no_circle_of_imports() -> None:
    assert circles(graph(lazy=False)) == []


# Imports inside functions that close a circle, and why each is there.
CLOSING = {
    ("ox.autograd.backward_pass", "ox.autograd.batched"): "is_grads_batched runs the same walk for each",
    ("ox.distributed.init", "ox.distributed.nccl"): "loads CuPy, where a group on GPUs begins",
    ("ox.func.batching", "ox.func.vectorize"): "vmap inside vmap",
    ("ox.graph.ir", "ox.graph.replay"): "a graph is called: it is replayed",
    ("ox.graph.passes.dead_outputs", "ox.graph.passes.cleanup"): "the passes run inside subgraphs, too",
    ("ox.graph.record.recording", "ox.graph.record.nested"): "a recording inside a recording",
    (
        "ox.linalg.solvers",
        "ox.linalg.factorizations",
    ): "lstsq needs factors; factors need its tolerances",
    ("ox.nn.legacy_init", "ox.nn.init"): "older names of the same functions",
    ("ox.nn.parameter", "ox.nn.base.uninitialized"): "PyTorch has UninitializedParameter in the same file",
    ("ox.ops.shape.pad", "ox.ops.index.gather"): "the gradient of Pad adds where the gradient of Gather pads",
    ("ox.sparse.tensor", "ox.sparse.products"): "a method of sparse tensors",
    ("ox.sparse.tensor", "ox.sparse.reduce"): "a method of sparse tensors",
    ("ox.tensors.methods.sparse", "ox.sparse.creation"): "Tensor.to_sparse gives a class of a floor above",
    ("ox.tensors.methods.linalg", "ox.linalg"): "methods of matrices",
    ("ox.tensors.methods.linalg", "ox.linalg.legacy"): "methods of matrices",
    ("ox.tensors.methods.linalg", "ox.linalg.solvers"): "methods of matrices",
    ("ox.tensors.methods.linalg", "ox.signal.stft"): "`Tensor.stft`",
    ("ox.train.trainer", "ox.train.run.session"): "a trainer restores itself from a run",
}


def test_imports_inside_functions_close_no_circle_but_these() -> None:
    arrows = {name: set(others) for name, others in graph(lazy=True).items()}
    for here, there in CLOSING:
        arrows[here].remove(there)  # a KeyError: the import is gone, and its line here may go
    assert circles(arrows) == []


def test_architecture_says_how_large_the_largest_circles_are() -> None:
    def largest(types: bool) -> int:
        return max(map(len, circles(graph(lazy=True, types=types))), default=0)

    said = re.search(r"(\d+) modules?, and with imports for annotations (\d+)", (ROOT / "ARCHITECTURE.md").read_text())
    assert said is not None
    assert [int(count) for count in said.groups()] == [largest(types=False), largest(types=True)]


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
