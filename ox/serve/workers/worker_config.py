"""The configuration of a worker process, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ox.serve.config.model_config import ModelConfig
from ox.serve.config.request_limits import RequestLimits
from ox.serve.config.server_config import ServerConfig


@dataclass(frozen=True)
class WorkerConfig:
    """The arguments of a `Server`."""

    paths: Sequence[str]
    options: ModelConfig
    limits: RequestLimits
    settings: ServerConfig

    def at(self, port: int | None, grpc_port: int | None) -> WorkerConfig:
        """A copy with these ports."""
        return replace(self, settings=replace(self.settings, port=port, grpc_port=grpc_port))

    def to_json(self) -> dict[str, Any]:
        return {
            "paths": list(self.paths),
            "options": asdict(self.options),
            "limits": asdict(self.limits),
            "settings": asdict(self.settings),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> WorkerConfig:
        options, limits, settings = (
            ModelConfig(**document["options"]),
            RequestLimits(**document["limits"]),
            document["settings"],
        )
        return cls(document["paths"], options, limits, ServerConfig(**settings))
