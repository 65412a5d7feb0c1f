"""The gRPC part of a server: transport and ports."""

from __future__ import annotations

from collections.abc import Mapping

from ox.serve.access import Guard, credential_of
from ox.serve.config.request_limits import RequestLimits
from ox.serve.config.server_config import ServerConfig
from ox.serve.protocol.grpc.methods import MethodTable
from ox.serve.service import Service
from ox.serve.transport.grpc.http2_transport import Http2Transport
from ox.serve.transport.grpc.rpc import StatusCode
from ox.serve.transport.http import ListenerState
from ox.serve.transport.http2.upgrade import Http2
from ox.serve.transport.listen import Listener, listen
from ox.serve.transport.sockets import bind


class GrpcServer:
    """Serves gRPC beside HTTP. With ox's own framing, the HTTP ports accept gRPC, too.

    Args:
        service: the calls.
        limits: limits on requests and responses.
        guard: access control.
        settings: ports, TLS and transport.
    """

    def __init__(self, service: Service, limits: RequestLimits, guard: Guard | None, settings: ServerConfig) -> None:
        self._limits, self._settings = limits, settings
        self._table = MethodTable(service, limits, guard)
        self._guard = guard
        self.port: int | None = settings.grpc_port
        self.replies: list[int] = [0] * len(StatusCode)  # responses by status code
        self._listener: Listener | None = None
        self._telemetry = service.telemetry

    async def start(self, listener_state: ListenerState, host: str, port: int | None) -> None:
        """Listens; called after HTTP, whose port it may share.

        Raises:
            ServeError: the server cannot bind to the address.
            DeviceError: grpcio is not installed.
        """
        listener_state.on_pressure.append(self._table.shed_blocked)
        settings = self._settings
        share = settings.workers > 1
        access_log = self._telemetry.access_log
        note = None if access_log is None or not access_log.access else access_log.rpc
        if settings.grpc == "grpcio":
            from ox.serve.transport.grpc.grpcio_transport import GrpcioTransport, credentials

            self._grpcio = GrpcioTransport(
                self._table.methods,
                self._limits,
                note,
                listener_state.response_memory,
                client=listener_state.client,
                clock=listener_state.clock,
            )
            self.replies = self._telemetry.rpcs = self._grpcio.replies
            tls = None
            if settings.tls_cert is not None and settings.tls_key is not None:
                tls = credentials(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
            wanted = (port or 0) + 1 if self.port is None else self.port
            self.port = await self._grpcio.start(host, wanted, tls, share)
            return
        transport = Http2Transport(
            self._table.methods, self._limits.body, note, None if self._guard is None else self._admit
        )
        self.replies = self._telemetry.rpcs = transport.replies
        http2 = Http2(listener_state, transport.route)
        listener_state.upgrade = http2.upgrade
        if self.port is not None:
            self._listener = await listen(
                http2,
                bind(host, self.port, share=share),
                tls=settings.tls(listener_state.clock),
                proxy_protocol=self._limits if settings.proxy_protocol else None,
            )
            self.port = self._listener.port
        else:
            self.port = port

    def _admit(self, metadata: Mapping[bytes, bytes], peer: str) -> None:
        assert self._guard is not None
        self._guard.admit(credential_of(metadata), peer)

    async def drain(self) -> None:
        """Refuses new calls. Running calls end here with grpcio, and with their connections otherwise."""
        self._table.drain()
        if self._settings.grpc == "grpcio":
            await self._grpcio.drain()
        elif self._listener is not None:
            self._listener.close()
