"""What a worker is told to serve, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ox.serve.limits import Limits
from ox.serve.options import Options
from ox.serve.settings import Settings


@dataclass(frozen=True)
class Orders:
    """The arguments of a `Server`."""

    paths: Sequence[str]
    options: Options
    limits: Limits
    settings: Settings

    def at(self, port: int | None, grpc_port: int | None) -> Orders:
        """The same on ports that are known."""
        return replace(self, settings=replace(self.settings, port=port, grpc_port=grpc_port))

    def to_json(self) -> dict[str, Any]:
        return {
            "paths": list(self.paths),
            "options": asdict(self.options),
            "limits": asdict(self.limits),
            "settings": asdict(self.settings),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Orders:
        options, limits, settings = Options(**document["options"]), Limits(**document["limits"]), document["settings"]
        return cls(document["paths"], options, limits, Settings(**settings))
