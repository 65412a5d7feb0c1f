"""Calls that one worker receives and all must run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ox.clock import SYSTEM, Clock
from ox.serve import ModelConfig, Server
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.v2 import cuda_region
from ox.serve.repository.repository import Repository
from ox.serve.workers.shared import SharedService
from ox.serve.workers.shared_number import SharedNumber


class Channel:
    """The supervisor, with one worker: calls come back to the service, as JSON brings them."""

    def __init__(self) -> None:
        self.service: Any = None
        self.asked: list[dict[str, Any]] = []

    async def ask(self, call: str, message: dict[str, Any]) -> list[Any]:
        assert call == "broadcast"
        self.asked.append(message)
        return [await self.service.call_locally(message["call"], message["with"])]


class Region:
    """An open region, without a device."""

    def __init__(self, name: str, raw_handle: str, device_id: int, byte_size: int) -> None:
        self.name, self.byte_size = name, byte_size

    def status(self) -> dict[str, Any]:
        return {"name": self.name}


def test_cuda_shared_memory_is_registered_in_all_workers(monkeypatch: Any) -> None:
    from ox.serve import service as module
    from ox.serve.protocol.v2 import shared_memory

    for place in (module, shared_memory, cuda_region):
        monkeypatch.setattr(place, "CudaRegion", Region)
    channel = Channel()
    arguments: Any = (Repository(), RequestLimits(), SYSTEM, channel, SharedNumber())
    channel.service = service = SharedService(*arguments)

    async def calls() -> None:
        assert await service.cuda_shared_memory_register("r", "AAAA", 0, 8) == {}
        assert service.cuda_shared_memory_status() == {"regions": {"r": {"name": "r"}}}
        assert await service.cuda_shared_memory_unregister("r") == {}  # type: ignore[misc]
        assert service.cuda_shared_memory_status() == {"regions": {}}

    asyncio.run(calls())
    assert channel.asked == [
        {
            "call": "cuda_shared_memory_register",
            "with": {"region": "r", "raw_handle": "AAAA", "device_id": 0, "byte_size": 8},
            "changes": True,
        },
        {"call": "cuda_shared_memory_unregister", "with": {"region": "r"}, "changes": True},
    ]


def test_a_worker_is_ready_when_all_are(mlp: Path) -> None:
    """It reports what is ready here, and answers with what is ready everywhere."""
    told: list[tuple[str, dict[str, Any]]] = []

    async def ask(call: str, state: dict[str, Any]) -> dict[str, Any]:
        told.append((call, state))
        return {"number": 0, "ready": False, "routes": []}

    published = SharedNumber()
    channel: Any = SimpleNamespace(ask=ask, tell=lambda call, state: told.append((call, state)))
    shared: list[SharedService] = []

    def create(repository: Repository, limits: RequestLimits, clock: Clock) -> SharedService:
        shared.append(SharedService(repository, limits, clock, channel, published))
        return shared[0]

    with Server([mlp], options=ModelConfig("cpu", instances=1), service=create):
        (service,) = shared
        asyncio.run(service.start_reports())
        routes = [list(route) for route in service.repository.routes]
        assert told == [("state", {"ready": True, "routes": routes})] and ["mlp", "1"] in routes
        assert not service.server_ready() and not service.model_ready("mlp")
        service.add_ready_everywhere({"number": 1, "ready": False, "routes": [["mlp", "1"]]})
        service.add_ready_everywhere({"number": 2, "ready": True, "routes": routes})
        assert not service.server_ready() and not service.model_ready("mlp", "1")  # not published
        published.value = 1
        assert not service.server_ready() and not service.model_ready("mlp") and service.model_ready("mlp", "1")
        published.value = 2
        assert service.server_ready() and service.model_ready("mlp") and len(told) == 1
        service.repository.entries.clear()
        service.repository.refresh()
        assert told[1:] == [("state", {"ready": True, "routes": []})]
