"""What a client may ask of the server, whichever way it asks: plain values in and out, with the protocol's names.

The answers have the form of the gRPC messages: gRPC parses them into messages, `ox.serve.rest` writes them as the
protocol's JSON, which differs in places. A call may give its answer later: then it gives something to await.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from ox import __version__
from ox.errors import ServeError
from ox.graph.contract import TensorInfo
from ox.serve.limits import Limits
from ox.serve.repository.configuration import configuration
from ox.serve.repository.keeper import Keeper
from ox.serve.repository.model import Model
from ox.serve.repository.repository import Repository
from ox.serve.telemetry.snapshot import of_stages
from ox.serve.telemetry.telemetry import Telemetry
from ox.serve.v2.document import flag
from ox.serve.v2.logs import LogSettings, typed
from ox.serve.v2.memory import Regions
from ox.serve.v2.statistics import statistics
from ox.serve.v2.traces import TraceSettings

# What tests hold to be true: each has one that uses it, and what is not here is refused.
EXTENSIONS = [
    "binary_tensor_data",
    "classification",
    "logging",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "sequence",
    "schedule_policy",
    "statistics",
    "system_shared_memory",
    "trace",
]

Answer = dict[str, Any]
Later = Answer | Awaitable[Answer]


class Service:
    """The calls of the Open Inference Protocol V2 that are not inference. All raise ServeError, with an HTTP status."""

    def __init__(self, repository: Repository, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self.repository = repository
        self.regions = Regions(limits.regions, limits.buffered)
        self.telemetry = Telemetry(repository)
        self.logs, self.traces = LogSettings(), TraceSettings(self.telemetry)
        self.keeper: Keeper | None = None
        self.draining = False

    # ---- the server

    def figures(self) -> Later:
        """Everything counted so far, as `ox.serve.telemetry.snapshot` has it; of all workers if there are several."""
        return self.telemetry.snapshot()

    def server_metadata(self) -> Answer:
        return {"name": "ox", "version": __version__, "extensions": EXTENSIONS}

    def server_ready(self) -> bool:
        """Whether every model that was there at the start has been loaded or could not be, and nobody said stop."""
        return not self.draining and (self.keeper is None or self.keeper.ready)

    # ---- models

    def model_ready(self, name: str, version: str = "") -> bool:
        """Raises ServeError (404) for an unknown model."""
        self.repository.find(name, version)
        return not self.draining

    def model_metadata(self, name: str, version: str = "") -> Answer:
        """Raises ServeError (404) for an unknown model."""
        model = self.repository.find(name, version)
        versions = [other.version for other in self.repository.models() if other.name == model.name]
        return describe(model, versions)

    def statistics(self, name: str = "", version: str = "") -> Later:
        """Of one model, of all versions of one, or of everything."""
        models = self._models(name, version)
        return {"model_stats": [statistics(each.name, each.version, of_stages(each.stages)) for each in models]}

    def _models(self, name: str, version: str) -> list[Model]:
        """Those that a name ("" for all) and a version ("" for all) mean; raises ServeError (404) for unknown ones."""
        if name:
            self.repository.find(name, version)
        return [
            model
            for model in self.repository.models()
            if name in ("", model.name) and (not version or version == model.version)
        ]

    def model_config(self, name: str, version: str = "") -> Answer:
        """How a model really runs, in the form of a ModelConfig."""
        model = self.repository.find(name, version)
        return configuration(model, self.repository.entry(model.name).setup)

    # ---- the repository

    def index(self, ready: bool = False) -> list[Answer]:
        """Every version of every known model with its state; only those that answer if `ready`."""
        return self.repository.index(ready)

    async def load(self, name: str, parameters: Mapping[str, Any]) -> Answer:
        """Loads or reloads a model; `parameters` may hold `config` and `file:<version>/<name>`."""
        if self.keeper is None:
            raise _no_keeper()
        await self.keeper.load(name, parameters)
        return {}

    async def unload(self, name: str, parameters: Mapping[str, Any]) -> Answer:
        """Stops serving a model; no model depends on another here, so `unload_dependents` changes nothing."""
        if self.keeper is None:
            raise _no_keeper()
        flag(dict(parameters), "unload_dependents")
        await self.keeper.unload(name)
        return {}

    # ---- what is logged and traced; new settings are plain values, as in the protocol's JSON

    def log_settings(self, settings: Mapping[str, Any] | None = None) -> Later:
        """Changes what is logged, if `settings` says how, and tells what is."""
        self.logs.update(settings or {})
        return {"settings": typed(self.logs.settings())}

    def trace_setting(self, model: str = "", settings: Mapping[str, list[str] | None] | None = None) -> Later:
        """The same for what is traced, of one model or of all that have no setting of their own.

        None as a value takes what was so at the start; no settings at all take a model's own away.
        """
        if model:
            self.repository.find(model)  # or 404
        if settings is not None:
            self.traces.update(model, settings)
        return {"settings": {name: {"value": value} for name, value in self.traces.setting(model).settings().items()}}

    # ---- system shared memory

    def shared_memory_status(self, region: str = "") -> Answer:
        return {"regions": self.regions.status(region)}

    def shared_memory_register(self, region: str, key: str, offset: int, byte_size: int) -> Later:
        self.regions.register(region, key, offset, byte_size)
        return {}

    def shared_memory_unregister(self, region: str = "") -> Later:
        self.regions.unregister(region)
        return {}

    # ---- CUDA shared memory: the calls exist, the memory does not

    def cuda_shared_memory_status(self, region: str = "") -> Answer:
        if region:
            raise _no_cuda()
        return {"regions": {}}

    def cuda_shared_memory_register(self, region: str, raw_handle: Any, device_id: int, byte_size: int) -> Answer:
        raise _no_cuda()

    def cuda_shared_memory_unregister(self, region: str = "") -> Answer:
        return {}  # nothing is registered afterwards, as was asked


def describe(model: Model, versions: list[str]) -> Answer:
    """A model's metadata in the protocol's form."""
    return {
        "name": model.name,
        "versions": versions,
        "platform": "onnx_onnxv1",
        "inputs": [_tensor(info) for info in model.inputs],
        "outputs": [_tensor(info) for info in model.outputs],
    }


def _tensor(info: TensorInfo) -> Mapping[str, Any]:
    shape = [size if isinstance(size, int) else -1 for size in info.dims]
    entry: Answer = {"name": info.name, "datatype": info.dtype, "shape": shape}
    parameters = {"meaning": info.meaning, "labels": info.labels}
    known = {name: value for name, value in parameters.items() if value is not None}
    return {**entry, "parameters": known} if known else entry


def _no_keeper() -> ServeError:
    return ServeError("this server's models are fixed", status=501)


def _no_cuda() -> ServeError:
    return ServeError("this server has no CUDA shared memory", status=501, hint="system shared memory")
