"""Runtimes that run a file as it is on disk, by name: what `ox prove --runtime` and `ox convert` compare."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ox.autograd.grad_mode import no_grad
from ox.devices.node_session import runtime
from ox.engines.openvino import open_file
from ox.errors import ArgumentError, ExportError, LoadError
from ox.export.drawn_inputs import Feed
from ox.export.runtimes import refuse_aborting
from ox.graph.contract import Array
from ox.graph.reader.source import read_model
from ox.onnx_module.loaded import load

Run = Callable[[Feed], dict[str, Array]]


def open_model(path: Path, name: str = "onnxruntime") -> tuple[str, Run]:
    """What the runtime is called with its version, and a function that runs the file in it.

    Raises:
        ArgumentError: there is no runtime of this name.
        ExportError: it refuses the file.
        DeviceError: it is not installed.
        LoadError: ``ox`` cannot read the file.
    """
    if name not in RUNTIMES:
        raise ArgumentError(f"there is no runtime '{name}'", expected=", ".join(RUNTIMES), got=repr(name))
    return RUNTIMES[name](path)


def _onnxruntime(path: Path) -> tuple[str, Run]:
    module = runtime().module
    options = module.SessionOptions()
    options.log_severity_level = 4
    try:
        session = module.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise ExportError(f"ONNX Runtime refuses {path}", got=str(error).strip().splitlines()[0]) from error
    names = [o.name for o in session.get_outputs()]

    def run(feed: Feed) -> dict[str, Array]:
        if any(0 in array.shape for array in feed.values()):
            with suppress(LoadError):  # what ox cannot read may still run
                refuse_aborting(load(path).graph, feed)
        return dict(zip(names, session.run(names, feed), strict=True))

    return f"ONNX Runtime {module.__version__}", run


def _openvino(path: Path) -> tuple[str, Run]:
    return open_file(path)


def _reference(path: Path) -> tuple[str, Run]:
    session = ReferenceEvaluator(read_model(path))
    names = list(session.output_names)
    return f"onnx.reference {onnx.__version__}", lambda feed: dict(zip(names, session.run(names, feed), strict=True))


def _ox(path: Path) -> tuple[str, Run]:
    net = load(path)
    names = [v.name for v in net.graph.outputs]

    def run(feed: Feed) -> dict[str, Array]:
        with no_grad():
            results = net(**feed)
        several = results if isinstance(results, tuple) else (results,)
        return {name: np.asarray(x.numpy()) for name, x in zip(names, several, strict=True)}

    return "ox", run


RUNTIMES = {"onnxruntime": _onnxruntime, "openvino": _openvino, "reference": _reference, "ox": _ox}
