"""All calls of the protocol except inference, for HTTP and gRPC: plain values in and out, with the protocol's names.

Results have the structure of the gRPC messages: gRPC parses them into messages, `ox.serve.protocol.rest` converts them
to the protocol's JSON, which differs in places. A call may return an awaitable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

from ox._version import __version__
from ox.clock import Clock
from ox.devices.machine import nvidia_driver
from ox.errors import ServeError
from ox.graph.contract import TensorInfo
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.v2.cuda_region import CudaRegion
from ox.serve.protocol.v2.document import flag
from ox.serve.protocol.v2.logs import LogSettings, typed_parameters
from ox.serve.protocol.v2.shared_memory import Regions
from ox.serve.protocol.v2.statistics import statistics
from ox.serve.protocol.v2.traces import TraceSettings
from ox.serve.repository.configuration import configuration
from ox.serve.repository.model import Model
from ox.serve.repository.model_manager import ModelManager
from ox.serve.repository.repository import Repository
from ox.serve.repository.thread import in_thread
from ox.serve.telemetry.snapshot import of_stages
from ox.serve.telemetry.telemetry import Telemetry

# A test uses each of them, and checks that other extensions are refused.
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


@cache
def extensions() -> list[str]:
    """The protocol's extensions that this server has: one of them needs CuPy and a GPU."""
    driver = nvidia_driver() if find_spec("cupy") is not None else None
    return [*EXTENSIONS, *(["cuda_shared_memory"] if driver is not None and driver.devices else [])]


Result = dict[str, Any]
MaybeAwaitable = Result | Awaitable[Result]


class Service:
    """The calls of the Open Inference Protocol V2 except inference. All raise ServeError with an HTTP status.

    Args:
        repository: the models.
        limits: on shared memory.
        clock: of the server.
    """

    def __init__(self, repository: Repository, limits: RequestLimits, clock: Clock) -> None:
        self.repository, self.clock = repository, clock
        self.regions = Regions(limits.regions, limits.buffered)
        self.telemetry = Telemetry(repository, clock)
        self.logs, self.traces = LogSettings(), TraceSettings(self.telemetry)
        self.model_manager: ModelManager | None = None
        self.draining = False

    # ---- the server

    def figures(self) -> MaybeAwaitable:
        """All counters, in the form of `ox.serve.telemetry.snapshot`; the sum over all worker processes."""
        return self.telemetry.snapshot()

    def server_metadata(self) -> Result:
        return {"name": "ox", "version": __version__, "extensions": extensions()}

    def server_ready(self) -> bool:
        """Whether all models found at the start are loaded or have failed, and the server is not draining."""
        return not self.draining and (self.model_manager is None or self.model_manager.ready)

    # ---- models

    def model_ready(self, name: str, version: str = "") -> bool:
        """Raises ServeError (404) for an unknown model."""
        self.repository.find(name, version)
        return not self.draining

    def model_metadata(self, name: str, version: str = "") -> Result:
        """Raises ServeError (404) for an unknown model."""
        model = self.repository.find(name, version)
        versions = [other.version for other in self.repository.models() if other.name == model.name]
        return describe(model, versions)

    def statistics(self, name: str = "", version: str = "") -> MaybeAwaitable:
        """Statistics of one version of a model, of all its versions, or of all models."""
        models = self._models(name, version)
        return {"model_stats": [statistics(each.name, each.version, of_stages(each.stages)) for each in models]}

    def _models(self, name: str, version: str) -> list[Model]:
        """The models of a name and a version, "" for all. Raises ServeError (404) for unknown ones."""
        if name:
            self.repository.find(name, version)
        return [
            model
            for model in self.repository.models()
            if name in ("", model.name) and (not version or version == model.version)
        ]

    def model_config(self, name: str, version: str = "") -> Result:
        """The settings in effect for a model, in the form of Triton's ModelConfig."""
        model = self.repository.find(name, version)
        return configuration(model, self.repository.entry(model.name).setup)

    # ---- the repository

    def index(self, ready: bool = False) -> list[Result]:
        """All versions of all known models with their states; only the ready ones if `ready`."""
        return self.repository.index(ready)

    async def load(self, name: str, parameters: Mapping[str, Any]) -> Result:
        """Loads or reloads a model; `parameters` may hold `config` and `file:<version>/<name>`."""
        if self.model_manager is None:
            raise _no_model_manager()
        await self.model_manager.load(name, parameters)
        return {}

    async def unload(self, name: str, parameters: Mapping[str, Any]) -> Result:
        """Stops serving a model. Models do not depend on each other, so `unload_dependents` has no effect."""
        if self.model_manager is None:
            raise _no_model_manager()
        flag(dict(parameters), "unload_dependents")
        await self.model_manager.unload(name)
        return {}

    # ---- log and trace settings; new values are plain values, as in the protocol's JSON

    def log_settings(self, settings: Mapping[str, Any] | None = None) -> MaybeAwaitable:
        """Changes log settings, if given, and returns all of them."""
        self.logs.update(settings or {})
        return {"settings": typed_parameters(self.logs.settings())}

    def trace_setting(self, model: str = "", settings: Mapping[str, list[str] | None] | None = None) -> MaybeAwaitable:
        """The same for trace settings, of one model or of all models without own settings.

        None as a value restores the initial one; empty settings remove those of a model.
        """
        if model:
            self.repository.find(model)  # or 404
        if settings is not None:
            self.traces.update(model, settings)
        return {"settings": {name: {"value": value} for name, value in self.traces.setting(model).settings().items()}}

    # ---- system shared memory

    def shared_memory_status(self, region: str = "") -> Result:
        return {"regions": self.regions.status(region)}

    def shared_memory_register(self, region: str, key: str, offset: int, byte_size: int) -> MaybeAwaitable:
        self.regions.register(region, key, offset, byte_size)
        return {}

    def shared_memory_unregister(self, region: str = "") -> MaybeAwaitable:
        self.regions.unregister(region)
        return {}

    # ---- CUDA shared memory

    def cuda_shared_memory_status(self, region: str = "") -> Result:
        return {"regions": self.regions.status(region, CudaRegion)}

    async def cuda_shared_memory_register(self, region: str, raw_handle: Any, device_id: int, byte_size: int) -> Result:
        """Opens and registers a region; `raw_handle` is base64. Raises ServeError, see `CudaRegion`."""
        # CUDA may have to be loaded first, which takes seconds.
        open_region = partial(CudaRegion, region, raw_handle, device_id, byte_size)
        self.regions.add(await in_thread(open_region, "ox-open-region"))
        return {}

    def cuda_shared_memory_unregister(self, region: str = "") -> MaybeAwaitable:
        self.regions.unregister(region, CudaRegion)
        return {}


def describe(model: Model, versions: list[str]) -> Result:
    """A model's metadata in the protocol's form."""
    defaulted = [codec.info for codec in model.signature.defaulted.values()]
    return {
        "name": model.name,
        "versions": versions,
        "platform": "onnx_onnxv1",
        "inputs": [*(_tensor(info) for info in model.inputs), *(_tensor(info, True) for info in defaulted)],
        "outputs": [_tensor(info) for info in model.outputs],
    }


def _tensor(info: TensorInfo, optional: bool = False) -> Mapping[str, Any]:
    shape = [size if isinstance(size, int) else -1 for size in info.dims]
    entry: Result = {"name": info.name, "datatype": info.dtype, "shape": shape}
    parameters = {"meaning": info.meaning, "labels": info.labels, "optional": optional or None}
    known = {name: value for name, value in parameters.items() if value is not None}
    return {**entry, "parameters": known} if known else entry


def _no_model_manager() -> ServeError:
    return ServeError("model management is not available", status=501)
