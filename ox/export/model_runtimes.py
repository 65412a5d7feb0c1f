"""Runtimes that run a file as it is on disk, by name: what `ox prove --runtime` and `ox convert` compare."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ox.autograd.grad_mode import no_grad
from ox.devices.onnxruntime.node_session import runtime
from ox.engines.openvino import open_file
from ox.errors import ArgumentError, ExportError, LoadError, first_line
from ox.export.drawn_inputs import Feed
from ox.export.runtimes import refuse_aborting
from ox.graph.contract import Array
from ox.graph.reader.model_file import parse
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
        raise ExportError(f"ONNX Runtime refuses {path}", got=first_line(error)) from error
    names = [o.name for o in session.get_outputs()]
    mapped = any(o.type.startswith("seq") for o in session.get_outputs())
    nodes = parse(path).graph.node if mapped else ()
    labels = {node.output[0]: _labels(node) for node in nodes if node.op_type == "ZipMap"}

    def run(feed: Feed) -> dict[str, Array]:
        if any(0 in array.shape for array in feed.values()):
            with suppress(LoadError):  # what ox cannot read may still run
                refuse_aborting(load(path).graph, feed)
        found = dict(zip(names, session.run(names, feed), strict=True))
        return {name: _columns(y, labels.get(name)) if isinstance(y, list) else y for name, y in found.items()}

    return f"ONNX Runtime {module.__version__}", run


def _labels(node: onnx.NodeProto) -> list[Any]:
    given = [onnx.helper.get_attribute_value(a) for a in node.attribute if a.name.startswith("classlabels_")]
    return [label.decode() if isinstance(label, bytes) else label for labels in given for label in labels]


def _columns(samples: list[Any], labels: list[Any] | None) -> Array:
    """What ZipMap gives, a map from labels to scores for each sample, as ox reads it: a column for each label."""
    if not labels or any(not isinstance(scores, dict) or scores.keys() != set(labels) for scores in samples):
        raise ExportError("an output is a sequence", expected="a tensor, or the maps of ZipMap at the end of the graph")
    return np.array([[scores[label] for label in labels] for scores in samples], np.float32).reshape(-1, len(labels))


def _openvino(path: Path) -> tuple[str, Run]:
    return open_file(path)


def _reference(path: Path) -> tuple[str, Run]:
    try:
        session = ReferenceEvaluator(read_model(path))
    except NotImplementedError as error:
        raise ExportError(f"onnx.reference refuses {path}", got=first_line(error)) from error
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
