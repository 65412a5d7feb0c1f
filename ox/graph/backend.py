"""ox as an ONNX backend: `onnx.backend.base` over reading and replaying.

import ox.graph.backend as backend
outputs = backend.prepare(onnx.load("model.onnx")).run([array])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx.backend import base

from ox.autograd.grad_mode import no_grad
from ox.core.operator import as_input
from ox.errors import OxError
from ox.graph.ir import Graph
from ox.graph.reader.read import from_model
from ox.graph.replay import replay
from ox.tensors.tensor import Tensor


class Prepared(base.BackendRep):
    """A model that was read and can run."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, inputs: Sequence[Any], **kwargs: Any) -> tuple[Any, ...]:
        """The outputs as NumPy arrays (lists of them for sequences), for arrays in the order of the graph's inputs."""
        with no_grad():
            return tuple(_out(y) for y in replay(self.graph, [_in(x) for x in inputs]))


class Backend(base.Backend):
    """Runs on the CPU whatever ox has the operators for."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether ox has every operator and element type of the model."""
        try:
            from_model(model)
        except OxError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Read a model. Raises LoadError for what ox does not have."""
        return Prepared(from_model(model))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.upper() == "CPU"


def _in(x: Any) -> Any:
    if x is None:
        return None
    return [_in(item) for item in x] if isinstance(x, (list, tuple)) else as_input(x)


def _out(y: Any) -> Any:
    if isinstance(y, Tensor):
        return y.array
    return [_out(item) for item in y] if isinstance(y, (list, tuple)) else y


prepare = Backend.prepare
run_model = Backend.run_model
is_compatible = Backend.is_compatible
supports_device = Backend.supports_device
