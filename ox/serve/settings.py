"""What a server is told once, at its start."""

from __future__ import annotations

from dataclasses import dataclass

from ox.errors import ArgumentError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the server meets the world; how it runs models is in `Options`, what clients may do in `Limits`.

    Args:
        host, port: where to listen; port 0 takes a free one.
        grpc: who frames gRPC: "own" on the same port and on `grpc_port`, "grpcio" on `grpc_port`, or "off".
        grpc_port: a port for gRPC alone; None for none, or with grpcio the next one after `port`.
        workers: processes that share the ports.
    """

    host: str = "127.0.0.1"
    port: int = 0
    grpc: str = "own"
    grpc_port: int | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        for name in ("port", "grpc_port"):
            port = getattr(self, name)
            if port is not None and not 0 <= port <= 65535:
                raise ArgumentError(f"the {name} is out of range", expected="0 to 65535", got=str(port))
        if self.grpc not in ("own", "grpcio", "off"):
            raise ArgumentError("nobody of this name frames gRPC", expected="own, grpcio or off", got=self.grpc)
        if not 1 <= self.workers <= 1024:
            raise ArgumentError("the number of workers is out of range", expected="1 to 1,024", got=str(self.workers))
