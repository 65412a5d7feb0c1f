"""gRPC's part of a server: which transport carries the calls, and on which ports."""

from __future__ import annotations

from collections.abc import Mapping

from ox.serve.access import Guard, credential_of
from ox.serve.grpc.methods import Table
from ox.serve.grpc.own import Grpc
from ox.serve.grpc.rpc import Code
from ox.serve.http import Front
from ox.serve.http2.front import Http2
from ox.serve.limits import Limits
from ox.serve.listen import Listener, listen
from ox.serve.service import Service
from ox.serve.settings import Settings
from ox.serve.sockets import bind


class Door:
    """Opens gRPC beside HTTP. With our own framing the HTTP ports speak it, too.

    Args:
        service: whose calls.
        limits: how much clients may send and get.
        guard: who may do what.
        settings: ports, TLS and the transport.
    """

    def __init__(self, service: Service, limits: Limits, guard: Guard | None, settings: Settings) -> None:
        self._limits, self._settings = limits, settings
        self._table = Table(service, limits, guard)
        self._guard = guard
        self.port: int | None = settings.grpc_port
        self.replies: list[int] = [0] * len(Code)  # answers by their code
        self._listener: Listener | None = None
        self._telemetry = service.telemetry

    async def start(self, front: Front, host: str, port: int | None) -> None:
        """Listens, once the HTTP port is known.

        Raises:
            ServeError: the address cannot be had.
            DeviceError: grpcio is not installed.
        """
        front.pressed.append(self._table.shed)
        settings = self._settings
        share = settings.workers > 1
        trail = self._telemetry.trail
        note = None if trail is None or not trail.access else trail.rpc
        if settings.grpc == "grpcio":
            from ox.serve.grpc.grpcio import Grpcio, credentials

            self._grpcio = Grpcio(self._table.methods, self._limits, note, front.answers)
            self.replies = self._telemetry.rpcs = self._grpcio.replies
            tls = None
            if settings.tls_cert is not None and settings.tls_key is not None:
                tls = credentials(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
            wanted = (port or 0) + 1 if self.port is None else self.port
            self.port = await self._grpcio.start(host, wanted, tls, share)
            return
        own = Grpc(self._table.methods, self._limits.body, note, None if self._guard is None else self._admit)
        self.replies = self._telemetry.rpcs = own.replies
        http2 = Http2(front, own.plan)
        front.upgrade = http2.upgrade
        if self.port is not None:
            self._listener = await listen(http2, bind(host, self.port, share=share), tls=settings.tls())
            self.port = self._listener.port
        else:
            self.port = port

    def _admit(self, metadata: Mapping[bytes, bytes], peer: str) -> None:
        assert self._guard is not None
        self._guard.admit(credential_of(metadata), peer)

    async def drain(self) -> None:
        """Takes no new calls. Those that run are finished: here by grpcio, else with the connections of the front."""
        self._table.drain()
        if self._settings.grpc == "grpcio":
            await self._grpcio.drain()
        elif self._listener is not None:
            self._listener.close()
