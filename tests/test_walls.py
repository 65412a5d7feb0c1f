"""The floors of the design: an import only goes down, and each foreign library has its rooms."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from rows import rows
from walls import (
    FLOORS,
    UPWARD,
    UPWARD_TYPES,
    all_imports,
    all_modules,
    imports,
    imports_of,
    module_of,
    reason,
    room,
    sources,
)

ROOT = Path(__file__).resolve().parents[1]

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
    "ox.graph.bfloat16_file",
    "ox.graph.contract",
    "ox.graph.training_statistics",
    "ox.graph.reader.model_file",
    "ox.generation.detokenizer",
    "ox.generation.genai_config",
    "ox.generation.sampler",
    "ox.generation.sampling_params",
    "ox.generation.stopping",
)


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


@rows("text", FORMS)
def test_imports_of_all_forms_are_seen(text: str) -> None:
    """Those that run, those for annotations alone (True), and those inside functions."""
    assert [(each.module, each.types) for each in imports_of(text, "page.py", "ox.serve")] == FORMS[text]
    inside = "def f():\n" + "".join(f"  {line}\n" for line in text.splitlines())
    assert all(each.lazy for each in imports_of(inside, "page.py", "ox.serve"))


def test_modules_are_imported_by_name_in_few_files() -> None:
    """Elsewhere an import is a statement, which the other tests see."""
    importers = {"import_module", "__import__"}
    found = set()
    for path in sources():
        text = path.read_text()
        if any(name in text for name in importers):
            calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            if any(ast.unparse(called).split(".")[-1] in importers for called in calls):
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


@rows("library", FOREIGN)
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
    too_long = {name: count for name, count in lengths.items() if count > 400}
    assert not too_long, f"think twice past 400 lines: {too_long}"


# Files of ox.serve and ox.distributed that read the machine's time themselves, and why.
OWN_TIME = {
    "ox/distributed/heartbeat.py": "the processor's time of the process and of one thread",
    "ox/distributed/init.py": "when the system started this process",
    "ox/serve/protocol/text/render_budget.py": "the processor's time of one thread",
    "ox/serve/runtime/abandoned_threads.py": "waits for threads inside a runtime, which no clock of ours can wake",
}


def test_time_is_an_argument() -> None:
    """What waits, limits, expires or measures asks its clock (`ox.clock`), so that a test can move the time."""
    packages = ("ox.serve", "ox.distributed")
    readers = {each.file for path, each in all_imports() if each.module == "time" and room(module_of(path)) in packages}
    assert readers == set(OWN_TIME)
