"""grpc.health.v1.Health for load balancers and probes. A service is the server ("" or a service name) or a model."""

from __future__ import annotations

from ox.errors import OxError, ServeError
from ox.serve.access import Guard, credential_of
from ox.serve.protocol.grpc.proto import SERVICES, message
from ox.serve.protocol.grpc.wire import parse
from ox.serve.service import Service
from ox.serve.transport.grpc.rpc import Rpc, error_status

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


class Health:
    """Reports readiness. The server's state is public; a model's state needs read permission for the model."""

    def __init__(self, service: Service, guard: Guard | None) -> None:
        self._service, self._guard = service, guard
        self._request = message("grpc.health.v1.HealthCheckRequest")
        self._answer = message("grpc.health.v1.HealthCheckResponse")
        self._watchers: dict[Rpc, tuple[str, int]] = {}  # the service of each watcher and its last state sent
        service.repository.changed.append(self.refresh)

    def check(self, body: bytes, rpc: Rpc) -> None:
        """The state of a service."""
        try:
            name = self._name(body, rpc)
            state = self._state(name)
            if state == SERVICE_UNKNOWN:
                raise ServeError(f"there is no service or model '{name[:100]}'", status=404)
        except OxError as error:
            rpc.fail(*error_status(error))
            return
        self._send_state(rpc, state)
        rpc.finish()

    def watch(self, body: bytes, rpc: Rpc) -> None:
        """The state of a service, and again whenever it changes."""
        try:
            if rpc in self._watchers:
                raise ServeError("Watch takes one message", status=501)
            name = self._name(body, rpc)
        except OxError as error:
            self._watchers.pop(rpc, None)
            rpc.fail(*error_status(error))
            return
        state = self._state(name)
        self._watchers[rpc] = name, state

        def forget() -> None:
            self._watchers.pop(rpc, None)

        rpc.on_cancel = forget
        self._send_state(rpc, state)

    def refresh(self) -> None:
        """Sends changed states to the watchers. Ends all watches when the server drains."""
        for rpc, (name, before) in list(self._watchers.items()):
            state = self._state(name)
            if state != before:
                self._watchers[rpc] = name, state
                self._send_state(rpc, state)
            if self._service.draining:
                del self._watchers[rpc]
                rpc.finish()

    def _name(self, body: bytes, rpc: Rpc) -> str:
        name = str(parse(self._request, body).service)
        if self._guard is not None and name and name not in SERVICES:
            self._guard.check(credential_of(rpc.metadata), "read", name, rpc.peer)
        return name

    def _state(self, name: str) -> int:
        if name and name not in SERVICES:
            try:
                return SERVING if self._service.model_ready(name) else NOT_SERVING
            except ServeError as error:
                return SERVICE_UNKNOWN if error.status == 404 else NOT_SERVING
        return SERVING if self._service.server_ready() else NOT_SERVING

    def _send_state(self, rpc: Rpc, state: int) -> None:
        rpc.send(self._answer(status=state).SerializeToString())
