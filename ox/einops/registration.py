"""How einops learns of ox without either importing the other.

einops asks the subclasses of its `AbstractBackend` whose a tensor is. Ours is defined as soon as both are there: at
once where einops was imported before ox, else right after Python has run the module that holds `AbstractBackend`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_HOME = "einops._backends"  # where einops defines AbstractBackend


class _ThenOurs(Loader):
    """Runs a module as its own loader does, and then defines our backend."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        import_module("ox.einops.backend")


class _Waiting(MetaPathFinder):
    """Finds one module, where Python itself would find it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != _HOME:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenOurs(spec.loader)
        return spec


def register() -> None:
    """Called once, at the end of `import ox`."""
    if _HOME in sys.modules:
        import_module("ox.einops.backend")
    else:
        sys.meta_path.insert(0, _Waiting())
