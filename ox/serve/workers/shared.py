"""The service of a worker: calls that concern all workers are broadcast through the supervisor."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Mapping
from typing import Any

from ox.clock import Clock
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.v2.statistics import statistics
from ox.serve.repository.repository import Repository
from ox.serve.service import MaybeAwaitable, Result, Service
from ox.serve.workers.control_channel import ControlChannel
from ox.serve.workers.shared_number import SharedNumber

# Calls that one worker receives and all workers must run.
CHANGES = (
    "load", "unload", "shared_memory_register", "shared_memory_unregister", "cuda_shared_memory_register",
    "cuda_shared_memory_unregister", "trace_setting", "log_settings",
)  # fmt: skip
CALLS = (*CHANGES, "figures")


class SharedService(Service):
    """A `Service` of one of several workers. Its calls run in all workers, `call_locally` in this one only.

    Args:
        channel: to the supervisor.
        published: which state of all workers counts, see `Supervisor`.
    """

    def __init__(
        self,
        repository: Repository,
        limits: RequestLimits,
        clock: Clock,
        channel: ControlChannel,
        published: SharedNumber,
    ) -> None:
        super().__init__(repository, limits, clock)
        self._channel, self._published = channel, published
        self._reported: dict[str, Any] = {}
        self._states: dict[int, tuple[bool, frozenset[tuple[str, str]]]] = {}  # what is ready everywhere, by number

    # ---- readiness

    async def start_reports(self) -> None:
        """From now on the supervisor hears what is ready here, whenever that changes. Called before the server listens:
        a worker that takes the place of another one is as ready as the rest from its first request on."""
        self._reported = self._state()
        self.repository.changed.append(self._report)
        self.add_ready_everywhere(await self._channel.ask("state", self._reported))
        self.repository.refresh()  # for those who watch the readiness

    def _state(self) -> dict[str, Any]:
        return {"ready": super().server_ready(), "routes": [list(route) for route in self.repository.routes]}

    def _report(self) -> None:
        state = self._state()
        if state != self._reported:
            self._reported = state
            self._channel.tell("state", state)

    def add_ready_everywhere(self, state: dict[str, Any]) -> None:
        """The supervisor says what is ready in every worker, see `Readiness.common`. It counts once the number of this
        state is published, for all workers at the same time."""
        routes = frozenset((name, version) for name, version in state["routes"])
        current = self._published.value
        self._states = {number: each for number, each in self._states.items() if number >= current}
        self._states[state["number"]] = state["ready"], routes

    @property
    def _everywhere(self) -> tuple[bool, frozenset[tuple[str, str]]]:
        return self._states.get(self._published.value, (False, frozenset()))

    def server_ready(self) -> bool:
        return self._everywhere[0] and super().server_ready()

    def model_ready(self, name: str, version: str = "") -> bool:
        return super().model_ready(name, version) and (name, version) in self._everywhere[1]

    # ---- calls

    async def call_locally(self, call: str, arguments: dict[str, Any]) -> Any:
        """Runs a call of the supervisor in this worker."""
        assert call in CALLS, call
        answer = getattr(super(), call)(**arguments)
        return await answer if inspect.isawaitable(answer) else answer

    async def _broadcast(self, call: str, **arguments: Any) -> list[Any]:
        """The responses of all workers, this one included; at least one."""
        message = {"call": call, "with": arguments, "changes": call in CHANGES}
        return list(await self._channel.ask("broadcast", message))

    async def _broadcast_change(self, call: str, **arguments: Any) -> Result:
        """Broadcasts a call to which all workers respond alike; returns one response."""
        answer: Result = (await self._broadcast(call, **arguments))[0]
        return answer

    def figures(self) -> MaybeAwaitable:
        return self._figures()

    async def _figures(self) -> Result:
        figures: Result = await self._channel.ask("figures")
        return figures

    def statistics(self, name: str = "", version: str = "") -> MaybeAwaitable:
        models = self._models(name, version)

        async def collect() -> Result:
            counted = (await self._figures())["models"]
            return {
                "model_stats": [
                    statistics(model.name, model.version, counted[model.name][model.version])
                    for model in models
                    if model.version in counted.get(model.name, {})
                ]
            }

        return collect()

    async def load(self, name: str, parameters: Mapping[str, Any]) -> Result:
        # gRPC brings files as bytes, which JSON does not know; HTTP sends base64.
        plain = {
            key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for key, value in parameters.items()
        }
        return await self._broadcast_change("load", name=name, parameters=plain)

    async def unload(self, name: str, parameters: Mapping[str, Any]) -> Result:
        return await self._broadcast_change("unload", name=name, parameters=dict(parameters))

    def log_settings(self, settings: Mapping[str, Any] | None = None) -> MaybeAwaitable:
        if not settings:
            return super().log_settings()
        return self._broadcast_change("log_settings", settings=dict(settings))

    def trace_setting(self, model: str = "", settings: Mapping[str, list[str] | None] | None = None) -> MaybeAwaitable:
        if settings is None:
            return super().trace_setting(model)
        return self._broadcast_change("trace_setting", model=model, settings=dict(settings))

    def shared_memory_register(self, region: str, key: str, offset: int, byte_size: int) -> MaybeAwaitable:
        return self._broadcast_change(
            "shared_memory_register", region=region, key=key, offset=offset, byte_size=byte_size
        )

    def shared_memory_unregister(self, region: str = "") -> MaybeAwaitable:
        return self._broadcast_change("shared_memory_unregister", region=region)

    async def cuda_shared_memory_register(self, region: str, raw_handle: Any, device_id: int, byte_size: int) -> Result:
        place = {"raw_handle": raw_handle, "device_id": device_id, "byte_size": byte_size}
        return await self._broadcast_change("cuda_shared_memory_register", region=region, **place)

    def cuda_shared_memory_unregister(self, region: str = "") -> MaybeAwaitable:
        return self._broadcast_change("cuda_shared_memory_unregister", region=region)
