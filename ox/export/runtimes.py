"""What a file is proven on: ONNX Runtime with the options of a user's session, or the reference where that lacks a
kernel."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from ox.autograd.grad_mode import no_grad
from ox.core.operator import make_tensor
from ox.devices.onnxruntime.node_session import runtime as shared
from ox.dtypes import bfloat16, float32, onnx_type
from ox.errors import ExportError, first_line
from ox.graph.ir import Array, Graph, Node, Value
from ox.graph.replay import call, replay
from ox.graph.writer.workarounds import mixed_bfloat16
from ox.graph.writer.write import to_model


class Gelu(OpRun):
    """The reference expands Gelu into a body whose constants are float32, which float64 graphs would notice."""

    def _run(self, x: Array, approximate: str | None = None) -> tuple[Array]:
        if approximate == "tanh":
            gate = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        else:
            gate = np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2))
        return ((x * (1 + gate) / 2).astype(x.dtype),)


class Runtime:
    """Runs one model on arrays by name."""

    name: str
    note: str | None = None  # what a person should know about this proof
    weights: Mapping[str, Any] = MappingProxyType({})  # the session reads their memory as long as it is there

    def __init__(self, session: Any, name: str, note: str | None = None) -> None:
        self._session, self.name, self.note = session, name, note

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        names = self._outputs()
        return dict(zip(names, self._session.run(names, dict(feed)), strict=True))

    def _outputs(self) -> list[str]:
        if isinstance(self._session, ReferenceEvaluator):
            return list(self._session.output_names)
        return [o.name for o in self._session.get_outputs()]


class Widened(Runtime):
    """A bfloat16 model whose operators run in float32 between Casts; inputs and outputs are bfloat16 as the file's."""

    def __init__(self, inner: Runtime, graph: Graph, note: str) -> None:
        super().__init__(inner._session, inner.name, note)
        self._graph = graph

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        given = {name: x.astype(np.float32) if x.dtype == bfloat16 else x for name, x in feed.items()}
        results = super().run(given)
        return {
            v.name: results[v.name].astype(bfloat16) if v.dtype == bfloat16 else results[v.name]
            for v in self._graph.outputs
        }


ABORTING = {"LSTM", "GRU"}  # ONNX Runtime's kernels end the process where their input has no rows


def refuse_aborting(graph: Graph, arrays: Mapping[str, Array]) -> None:
    """Raises ExportError where a run with these inputs would end the process instead of raising an exception."""
    if not any(node.op_type in ABORTING for node in graph.all_nodes()):
        return

    def run(node: Node, inputs: Sequence[Any]) -> tuple[Any, ...]:
        if node.op_type in ABORTING and not inputs[0].shape[0 if node.attributes.get("layout") else 1]:
            sizes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
            raise ExportError(
                f"ONNX Runtime would end the process: {node.op_type} without rows",
                where=node.place or node.name or None,
                expected="1 row at least",
                got=sizes,
                hint="inputs with rows; ox.Dim without min=0, if the size of the batch is declared",
            )
        return call(node, inputs)

    with no_grad():
        replay(graph, [make_tensor(arrays[v.name]) for v in graph.inputs], run=run)


def open_runtime(model: Path | bytes, graph: Graph, opset: int, weights: Mapping[str, Array] | None = None) -> Runtime:
    """A runtime for a written model.

    Args:
        weights: initializers that the runtime reads in place instead of loading them, with no copies in an order of its
            own, which are as large. They must stay what they are.

    Raises:
        ExportError: no runtime accepts the file, with the reasons.
        DeviceError: ONNX Runtime is not installed.
    """
    ends = {v.dtype for v in [*graph.inputs, *graph.outputs]}
    if bfloat16 in ends or (not mixed_bfloat16(graph) and any(v.dtype == bfloat16 for v in graph.values())):
        widened = to_model(widen(graph), opset=opset)
        note = "bfloat16 operators run in float32 between Casts"
        missing = _session(model).note
        if missing is not None:
            note = f"{missing}; in the proof {note}"
        return Widened(_session(widened.SerializeToString()), graph, note)
    return _session(model, weights or {})


def _session(model: Path | bytes, weights: Mapping[str, Array] = MappingProxyType({})) -> Runtime:
    ort = shared().module
    version = ".".join(ort.__version__.split(".")[:2])
    options = ort.SessionOptions()  # the defaults, as a user's session has them: a fusion of the runtime may be wrong
    options.log_severity_level = 4
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

    kept = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in weights.items()}
    for name, value in kept.items():
        options.add_initializer(name, value)
    if weights:
        options.add_session_config_entry("session.disable_prepacking", "1")
    given = model if isinstance(model, bytes) else str(model)
    try:
        session = ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except NoKernel as error:
        missing = first_line(error).split(" : ")[-1]
        note = f"ONNX Runtime {version} has no kernel for this file: {missing}"
        loaded = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
        return Runtime(ReferenceEvaluator(loaded, new_ops=[Gelu]), f"onnx.reference {onnx.__version__}", note)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise ExportError(f"ONNX Runtime {version} refuses the file", got=first_line(error)) from error
    runtime = Runtime(session, f"ONNX Runtime {version} ({_provider(session)})")
    runtime.weights = kept
    return runtime


def _provider(session: Any) -> str:
    name: str = session.get_providers()[0].removesuffix("ExecutionProvider").lower()
    return name or platform.machine()


def _like(value: Value, name: str, dtype: Any) -> Value:
    return Value(name, dtype, value.dims, value.shape)


def widen(graph: Graph) -> Graph:
    """The same graph with every operator that meets bfloat16 in float32 between Casts, and float32 at both ends."""
    wide = Graph(name=graph.name, constants=dict(graph.constants), owned=set(graph.owned))
    now: dict[Value, Value] = {}

    def cast(source: Value, to: Any, name: str) -> Value:
        made = _like(source, name, to)
        wide.nodes.append(Node("Cast", "", [source], [made], {"to": onnx_type(to)}))
        return made

    for value in [*graph.inputs, *graph.captures]:
        entry = _like(value, value.name, float32) if value.dtype == bfloat16 else value
        (wide.inputs if len(wide.inputs) < len(graph.inputs) else wide.captures).append(entry)
        if value.dtype == bfloat16:
            now[value] = cast(entry, bfloat16, f"{value.name}/bfloat16")
    for k, node in enumerate(graph.nodes):
        inputs = [None if v is None else now.get(v, v) for v in node.inputs]
        types = {v.dtype for v in [*inputs, *node.outputs] if v is not None}
        if node.op_type == "Cast" or (bfloat16 not in types and not node.captured):
            made = [
                Value(f"{v.name}/bfloat16", bfloat16, v.dims, v.shape) if v.dtype == bfloat16 else v
                for v in node.outputs
            ]
            wide.nodes.append(Node(node.op_type, node.domain, inputs, made, node.attributes))
            now.update((v, w) for v, w in zip(node.outputs, made, strict=True) if v is not w)
            continue
        inputs = [
            v if v is None or v.dtype != bfloat16 else cast(v, float32, f"{v.name}/{k}.{i}")
            for i, v in enumerate(inputs)
        ]
        outputs = [
            Value(f"{v.name}/wide", float32, v.dims, v.shape) if v.dtype == bfloat16 else v for v in node.outputs
        ]
        attributes: dict[str, Any] = {k: widen(a) if isinstance(a, Graph) else a for k, a in node.attributes.items()}
        if getattr(attributes.get("value"), "dtype", None) == bfloat16:
            attributes["value"] = attributes["value"].astype(np.float32)
        wide.nodes.append(Node(node.op_type, node.domain, inputs, outputs, attributes))
        for v, w in zip(node.outputs, outputs, strict=True):
            if v is not w:
                now[v] = cast(w, bfloat16, f"{v.name}/bfloat16")
    for value in graph.outputs:
        if value.dtype == bfloat16:
            result = cast(now.get(value, value), float32, value.name)
            wide.outputs.append(result)
        else:
            wide.outputs.append(value)
    return wide
