"""Engines that run recorded graphs: `ox.compile` gives each graph to one of them, which sees a graph and arrays.

Imports ox.graph and floors below. It imports nothing of ox.nn and ox.optim."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ox.engines.engine import Engine
from ox.errors import ArgumentError

# module and class by name; a module is imported when its engine is asked for
ENGINES = {
    "native": ("ox.engines.native", "Native"),
    "onnxruntime": ("ox.engines.onnxruntime", "OnnxRuntime"),
    "openvino": ("ox.engines.openvino", "OpenVino"),
    "eager": ("ox.engines.reference", "Reference"),
}


def find(name: str, **options: Any) -> Engine:
    """The engine of a name, made with its options (``precision="bfloat16"`` of OpenVINO).

    Raises:
        ArgumentError: no engine has this name, or it has no such option.
    """
    if name not in ENGINES:
        known = ", ".join(f"'{each}'" for each in ENGINES)
        raise ArgumentError(f"there is no engine '{name}'", expected=known, got=repr(name))
    module, kind = ENGINES[name]
    try:
        made: Engine = getattr(import_module(module), kind)(**options)
    except TypeError as error:
        raise ArgumentError(f"engine '{name}' does not take these options", got=f"{options}: {error}") from error
    return made


__all__ = ["ENGINES", "find"]
