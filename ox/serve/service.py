"""What a client may ask of the server, whichever way it asks: plain values in and out, with the protocol's names.

HTTP writes the answers as JSON, gRPC as messages whose fields have the same names.
"""

from __future__ import annotations

from typing import Any

from ox import __version__
from ox.graph.contract import TensorInfo
from ox.serve.repository.model import Model
from ox.serve.repository.repository import Repository

EXTENSIONS = ["binary_tensor_data"]


class Service:
    """The calls of the Open Inference Protocol V2 that are not inference."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.draining = False

    def server_metadata(self) -> dict[str, Any]:
        return {"name": "ox", "version": __version__, "extensions": EXTENSIONS}

    def server_ready(self) -> bool:
        return not self.draining

    def model_ready(self, name: str, version: str = "") -> bool:
        """Raises ServeError (404) for an unknown model."""
        self.repository.find(name, version)
        return not self.draining

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """Raises ServeError (404) for an unknown model."""
        return describe(self.repository.find(name, version))


def describe(model: Model) -> dict[str, Any]:
    """A model's metadata in the protocol's form."""
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": "onnx_onnxv1",
        "inputs": [_tensor(info) for info in model.inputs],
        "outputs": [_tensor(info) for info in model.outputs],
    }


def _tensor(info: TensorInfo) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else -1 for size in info.dims]
    entry: dict[str, Any] = {"name": info.name, "datatype": info.dtype, "shape": shape}
    parameters = {"meaning": info.meaning, "labels": info.labels}
    known = {name: value for name, value in parameters.items() if value is not None}
    return {**entry, "parameters": known} if known else entry
