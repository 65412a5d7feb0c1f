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
    "ox.serialization": 10,
    "ox.signal": 10,
    "ox.xpu": 9,
    "ox.generation": 9,
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
GROUND = {"errors", "cache_folder", "dtypes", "tolerance", "call_site", "file_lock", "temporary_files", "_version"}
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
# Files that import modules by a name in a string, and why.
BY_NAME = {
    "cli/ox_cli/main.py": "a command's module is imported when the command runs",
    "ox/core/lazy.py": "public names are imported when first used",
    "ox/core/legacy_paths.py": "PyTorch's older paths of modules",
    "ox/cuda/__init__.py": "submodules are imported when first used",
    "ox/data/loading/worker.py": "the file of NumPy's library",
    "ox/engines/__init__.py": "an engine is imported when it is asked for",
    "ox/devices/runtime.py": "ONNX Runtime, with an error of our own",
    "ox/einops/registration.py": "an import that registers a backend",
    "ox/nn/modules/__init__.py": "the module has the name of a package of PyTorch",
    "ox/porting/names.py": "looks up names that a script uses",
    "ox/utils/benchmark/timing.py": "the name `ox` in a timed statement",
}
NOWHERE: frozenset[str] = frozenset()
FOREIGN = {
    "onnx": {"ox.export", "ox.serve.runtime", "ox.graph", "ox.devices"},
    "onnxruntime": {"ox.export", "ox.devices"},
    "cupy": {"ox.devices", "ox.distributed.nccl"},
    "cudnn": {"ox.devices"},
    "mpi4py": {"ox.distributed.mpi"},
    "einops": {"ox.einops"},
    "pyarrow": {"ox.data.datasets"},
    "tokenizers": {"ox.data.datasets", "ox.serve.text"},
    "llguidance": {"ox.serve.generation"},
    "jinja2": {"ox.serve.protocol.text"},
    "fsspec": {"ox.remote"},
    "ray": {"ox.ray"},
    "optuna": {"ox.train.sweep"},
    "openvino": {"ox.engines.openvino"},  # one of the runtimes that compiled steps go to
    **dict.fromkeys(("torch", "pickle", "cloudpickle", "joblib", "marshal", "shelve", "dill"), NOWHERE),
}
# What ox.serve imports of packages that it does not import as a whole.
SERVE_IMPORTS = (
    "ox.graph.contract",
    "ox.graph.reader.model_file",
    "ox.generation.detokenizer",
    "ox.generation.genai_config",
    "ox.generation.sampler",
    "ox.generation.sampling_params",
    "ox.generation.stopping",
)
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
        if isinstance(node, ast.expr):  # no import is in there
            return
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
        for child in ast.iter_child_nodes(node):
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


def test_imports_only_go_down() -> None:
    """Also those for annotations."""
    wrong, used = [], set()
    for path, each in all_imports(types=True):
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
        if FLOORS[there] >= FLOORS[here]:
            entry = reason(module_of(path), each)
            if entry is None:
                wrong.append(str(each))
            used.add(entry)
    assert not wrong, "\n".join(wrong)
    gone = {*UPWARD, *UPWARD_TYPES} - used
    assert not gone, f"UPWARD or UPWARD_TYPES names imports that are gone: {gone}"


FORMS = {
    "import ox.train as t": [("ox.train", False)],
    "import ox.train": [("ox.train", False), ("ox", False)],
    "if TYPE_CHECKING: from ox.train import Trainer": [("ox.train", True)],
    "if typing.TYPE_CHECKING: from ox import train": [("ox.train", True)],
    "if not TYPE_CHECKING: import ox.nn as n\nelse: from ..jit import script": [("ox.jit", True), ("ox.nn", False)],
    "if x: pass\nelif TYPE_CHECKING: import ox.nn as n\nelse: import ox.jit as j": [("ox.nn", True), ("ox.jit", False)],
    "if TYPE_CHECKING or x: import ox.nn as n": [("ox.nn", False)],
    "if False: import ox.nn as n": [("ox.nn", False)],
    "class A:\n  if TYPE_CHECKING: import ox.nn as n": [("ox.nn", True)],
    "try: import ox.nn as n\nexcept E: import ox.jit as j": [("ox.nn", False), ("ox.jit", False)],
}


@pytest.mark.parametrize("text", FORMS)
def test_imports_of_all_forms_are_seen(text: str) -> None:
    """Those that run, those for annotations alone (True), and those inside functions."""
    assert [(each.module, each.types) for each in imports_of(text, "page.py", "ox.serve")] == FORMS[text]
    inside = "def f():\n" + "".join(f"  {line}\n" for line in text.splitlines())
    assert all(each.lazy for each in imports_of(inside, "page.py", "ox.serve"))


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
    allowed = {"ox.serve", "ox.ground", "ox.devices", "ox.remote"}
    wrong = []
    for path, each in all_imports():
        there = room(each.module)
        if room(module_of(path)) != "ox.serve" or there is None:
            continue
        if there not in allowed and each.module not in SERVE_IMPORTS:
            wrong.append(str(each))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", [name for name in SERVE_IMPORTS if name.startswith("ox.generation.")])
def test_what_serve_takes_of_generation_needs_no_tensor(module: str) -> None:
    used = {each.module for path, each in all_imports() if module_of(path) == module}
    assert used & all_modules() <= {"ox.errors", *SERVE_IMPORTS}


@pytest.mark.parametrize("library", FOREIGN)
def test_foreign_libraries_stay_in_their_rooms(library: str) -> None:
    wrong, used = [], set()
    for path, each in all_imports():
        if each.module.split(".")[0] != library:
            continue
        module = module_of(path)
        at_home = {home for home in FOREIGN[library] if module == home or module.startswith(home + ".")}
        used |= at_home
        if not at_home or (room(module) == "ox.devices" and not each.lazy):
            wrong.append(str(each))
    assert not wrong, "\n".join(wrong)
    assert used == FOREIGN[library], f"no longer imported in {FOREIGN[library] - used}"


@cache
def graph(lazy: bool, types: bool = False) -> dict[str, set[str]]:
    """Which of our modules a module imports: at its top, with `lazy` inside functions, too, with `types` also for
    annotations."""
    found: dict[str, set[str]] = {}
    for path in sources():
        here = module_of(path)
        each = {each.module for each in imports(path) if (lazy or not each.lazy) and (types or not each.types)}
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
    ("ox.nn.base.module_tree", "ox.compiler.compiled"): "`Module.compile`; ox.compile knows modules",
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
