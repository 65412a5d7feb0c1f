"""The public names of ox, and of classes their methods, are those of tests/public_names.txt: none goes unnoticed.

After a change that is meant: python tests/test_public_names.py
"""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from test_public_paths import MODULES

import ox

LIST = Path(__file__).with_name("public_names.txt")
# Modules and packages below `ox` that users do not import; test_public_paths.MODULES has what they import of them.
INTERNAL = {"call_site", "compat", "core", "graph", "kernels", "onnx_module", "tensors", "temporary_files", "tolerance"}


def public_modules() -> Iterator[str]:
    """Modules below `ox`, the packages in them, and PyTorch's paths."""
    yield "ox"
    yield from MODULES
    for root in pkgutil.iter_modules(ox.__path__, "ox."):
        if root.name.startswith("ox._") or root.name.removeprefix("ox.") in INTERNAL:
            continue
        yield root.name
        for found in pkgutil.walk_packages(getattr(import_module(root.name), "__path__", []), f"{root.name}."):
            if found.ispkg and "._" not in found.name:
                yield found.name


def written(module: ModuleType) -> set[str]:
    """The names of a module without `__all__`: those that it defines, and those that it imports and does not use."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "ox":
            names = {alias.asname or alias.name: alias.name for alias in node.names}
            found |= {name for name, before in names.items() if name not in used}
    return found


def names_of(name: str) -> set[str]:
    """The public names of a module; an import of a submodule adds an attribute, which is none of them."""
    module = import_module(name)
    more = set(dir(module)) - set(vars(module))  # what its `__getattr__` gives
    if not hasattr(module, "__all__"):
        more |= written(module)
    more = {each for each in more if not isinstance(getattr(module, each), ModuleType)}
    return {each for each in more.union(getattr(module, "__all__", ())) if not each.startswith("_")}


def members(owner: type, public: set[type]) -> set[str]:
    """Public methods and attributes of a class, without those that another public class gives it."""
    inherited = {base for above in owner.__mro__[1:] if above in public for base in above.__mro__}
    own = [base for base in owner.__mro__ if _is_ours(base) and base not in inherited]
    found = {name for base in own for name in [*vars(base), *vars(base).get("__dataclass_fields__", ())]}
    return {name for name in found if not name.startswith("_")}


def _is_ours(thing: Any) -> bool:
    return isinstance(thing, type) and thing.__module__.split(".")[0] == "ox"


def public_names() -> list[str]:
    names = [(module, name) for module in public_modules() for name in names_of(module)]
    things = {f"{module}.{name}": getattr(import_module(module), name) for module, name in names}
    classes: dict[type, str] = {}  # each under the shortest path with its own name
    paths = [path for path in things if _is_ours(things[path])]
    for path in sorted(paths, key=lambda path: (path.split(".")[-1] != things[path].__name__, path.count("."), path)):
        classes.setdefault(things[path], path)
    methods = {f"{path}.{name}" for owner, path in classes.items() for name in members(owner, set(classes))}
    return sorted({*things, *methods})


def test_the_public_names_are_those_of_the_list() -> None:
    now, listed = set(public_names()), set(LIST.read_text().splitlines())
    assert now == listed, f"gone: {sorted(listed - now)}, new: {sorted(now - listed)}; see the head of this file"


def test_the_list_looks_at_packages_of_all_kinds() -> None:
    some = {"ox.nn.Linear", "ox.train.Trainer", "ox.train.metrics.AUROC", "ox.export.Row", "ox.fft.rfft", "ox.tensor"}
    some |= {"ox.compile", "ox.cuda.mem_get_info", "ox.nn.init.normal_", "ox.utils.hooks.RemovableHandle"}
    some |= {"ox.nn.Module.zero_grad", "ox.Tensor.sum", "ox.serve.ModelConfig.device", "ox.optim.Optimizer.step"}
    assert some <= set(public_names())


if __name__ == "__main__":
    LIST.write_text("\n".join(public_names()) + "\n")
