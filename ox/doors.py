"""Module paths that PyTorch users type: a door opens when it is first named, if there is a room behind it."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

# What PyTorch has under a path and ox has elsewhere, or not at all: what an AttributeError then says.
ELSEWHERE = {
    "ox.amp": "mixed precision is not there yet",
    "ox.autocast": "mixed precision is not there yet",
    "ox.backends": "ox.devices has the executors, and nothing needs to be switched on",
    "ox.compile": "training is eager; ox.export.save writes a model as a graph",
    "ox.distributed": "training on several processes is not there yet",
    "ox.jit": "a model becomes a graph by ox.export.save, and a module again by ox.export.load",
    "ox.mps": "ox runs on cpu and cuda",
    "ox.multiprocessing": "the standard library's multiprocessing",
    "ox.onnx": "ox.export.save(model, 'model.onnx', example) and ox.export.load",
    "ox.quantization": "ox.ops has QuantizeLinear and its like where a file brings them",
    "ox.xpu": "ox runs on cpu and cuda",
    "ox.utils.cpp_extension": "an operator is written in Python; see ox.ops.operator",
    "ox.utils.mobile_optimizer": "the exported file runs in other runtimes as it is",
}


def doors(
    package: str, public: Collection[str] | None = None, also: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose modules open when they are first named.

    Args:
        package: its name.
        public: the modules that have a door; None for all.
        also: names that stand in another module, which is opened for them.
    """
    module = sys.modules[package]
    rooms = {info.name for info in pkgutil.iter_modules(module.__path__)}
    if public is not None:
        rooms &= set(public)

    elsewhere = also or {}

    def __getattr__(name: str) -> Any:
        if name in rooms:
            return importlib.import_module(f"{package}.{name}")
        if name in elsewhere:
            return getattr(importlib.import_module(elsewhere[name]), name)
        hint = ELSEWHERE.get(f"{package}.{name}")
        raise AttributeError(f"module '{package}' has no attribute '{name}'" + (f": {hint}" if hint else ""))

    def __dir__() -> list[str]:
        return sorted({*vars(module), *rooms, *elsewhere})

    return __getattr__, __dir__
