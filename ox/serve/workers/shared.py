"""The service of a worker: what concerns all workers goes to all of them, through the supervisor."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Mapping
from typing import Any

from ox.serve.limits import Limits
from ox.serve.repository.repository import Repository
from ox.serve.service import Answer, Later, Service
from ox.serve.v2.statistics import statistics
from ox.serve.workers.link import Link

# What is asked of one worker and must happen in all.
CHANGES = ("load", "unload", "shared_memory_register", "shared_memory_unregister", "trace_setting", "log_settings")
CALLS = (*CHANGES, "figures")


class SharedService(Service):
    """A `Service` among several. Its calls speak for all of them, `here` for this one alone."""

    def __init__(self, repository: Repository, limits: Limits, link: Link) -> None:
        super().__init__(repository, limits)
        self._link = link

    async def here(self, call: str, arguments: dict[str, Any]) -> Any:
        """What the supervisor asks of this worker."""
        assert call in CALLS, call
        answer = getattr(super(), call)(**arguments)
        return await answer if inspect.isawaitable(answer) else answer

    async def _everywhere(self, call: str, **arguments: Any) -> list[Any]:
        """All workers' answers, this one's among them; there is at least one."""
        what = {"call": call, "with": arguments, "changes": call in CHANGES}
        return list(await self._link.ask("everywhere", what))

    async def _change(self, call: str, **arguments: Any) -> Answer:
        """A call that every worker answers alike."""
        answer: Answer = (await self._everywhere(call, **arguments))[0]
        return answer

    def figures(self) -> Later:
        return self._figures()

    async def _figures(self) -> Answer:
        figures: Answer = await self._link.ask("figures")
        return figures

    def statistics(self, name: str = "", version: str = "") -> Later:
        models = self._models(name, version)

        async def gathered() -> Answer:
            counted = (await self._figures())["models"]
            return {
                "model_stats": [
                    statistics(model.name, model.version, counted[model.name][model.version])
                    for model in models
                    if model.version in counted.get(model.name, {})
                ]
            }

        return gathered()

    async def load(self, name: str, parameters: Mapping[str, Any]) -> Answer:
        # gRPC brings files as bytes, which JSON does not know; base64 is what HTTP brings.
        plain = {
            key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for key, value in parameters.items()
        }
        return await self._change("load", name=name, parameters=plain)

    async def unload(self, name: str, parameters: Mapping[str, Any]) -> Answer:
        return await self._change("unload", name=name, parameters=dict(parameters))

    def log_settings(self, settings: Mapping[str, Any] | None = None) -> Later:
        if not settings:
            return super().log_settings()
        return self._change("log_settings", settings=dict(settings))

    def trace_setting(self, model: str = "", settings: Mapping[str, list[str] | None] | None = None) -> Later:
        if settings is None:
            return super().trace_setting(model)
        return self._change("trace_setting", model=model, settings=dict(settings))

    def shared_memory_register(self, region: str, key: str, offset: int, byte_size: int) -> Later:
        return self._change("shared_memory_register", region=region, key=key, offset=offset, byte_size=byte_size)

    def shared_memory_unregister(self, region: str = "") -> Later:
        return self._change("shared_memory_unregister", region=region)
