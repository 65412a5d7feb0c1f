"""The service of a worker: what concerns all workers goes to all of them, through the supervisor."""

from __future__ import annotations

import inspect
from typing import Any

from ox.serve.repository.repository import Repository
from ox.serve.service import Service
from ox.serve.telemetry.merge import merge
from ox.serve.workers.link import Link

# What is asked of one worker and must happen in all.
CHANGES = ("load", "unload", "shared_memory_register", "shared_memory_unregister", "trace_setting", "log_settings")
CALLS = (*CHANGES, "statistics", "figures")


class SharedService(Service):
    """A `Service` among several."""

    def __init__(self, repository: Repository, link: Link) -> None:
        super().__init__(repository)
        self._link = link

    async def here(self, call: str, arguments: dict[str, Any]) -> Any:
        """What the supervisor asks of this worker alone."""
        assert call in CALLS, call
        answer = getattr(super(), call)(**arguments)
        return await answer if inspect.isawaitable(answer) else answer

    async def figures(self) -> dict[str, Any]:
        return merge(await self._everywhere("figures"))

    async def _everywhere(self, call: str, **arguments: Any) -> list[Any]:
        """All workers' answers, this one's among them."""
        what = {"call": call, "with": arguments, "changes": call in CHANGES}
        return list(await self._link.ask("everywhere", what))
