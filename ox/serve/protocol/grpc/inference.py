"""ModelInfer: from the bytes of a message to its response. ModelStreamInfer is in infer_stream.py."""

from __future__ import annotations

import logging

from ox.errors import OxError, ServeError
from ox.serve.access import Guard, credential_of
from ox.serve.access.client import Client
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.grpc.proto import message
from ox.serve.protocol.grpc.request_template import RequestTemplate
from ox.serve.protocol.grpc.response import ResponseWriter
from ox.serve.protocol.grpc.text_tensors import UnreadText
from ox.serve.protocol.grpc.wire import MessageLayout, MessageParts, layout_of, parse, split_message
from ox.serve.protocol.v2.pending import Pending
from ox.serve.protocol.v2.request import Request
from ox.serve.response_memory import Body
from ox.serve.service import Service
from ox.serve.transport.grpc.rpc import Rpc, error_status

log = logging.getLogger("ox.serve")

MAX_TEMPLATES, MAX_HEAD_BYTES = 256, 2048  # cached templates, and bytes of the head of one
MAX_SEQUENCE_TEMPLATES = 1024  # cached templates of requests with a sequence id


class Inference:
    """Runs inference requests on the models of a service.

    Args:
        service: the models.
        limits: limits on requests and responses.
        guard: access control; None for none.
    """

    def __init__(self, service: Service, limits: RequestLimits, guard: Guard | None) -> None:
        self._repository, self._regions, self._max_head = service.repository, service.regions, limits.json
        self._guard, self.now = guard, service.clock.now
        self._check = None if guard is None or guard.open else guard.check
        self._templates: dict[bytes, RequestTemplate] = {}
        self._sequence_templates: dict[bytes, RequestTemplate] = {}  # separate: sequences are unlimited
        self._layouts: dict[int, MessageLayout] = {}  # by the length of the message
        self._request = message("inference.ModelInferRequest")
        self.write = ResponseWriter(limits.reply).write
        self._repository.changed.append(self._clear_caches)

    def infer(self, body: bytes, rpc: Rpc) -> None:
        """ModelInfer."""
        try:
            layout = self._layouts.get(len(body))
            if layout is not None and body.startswith(layout.start):
                parts = layout.parts
            else:
                parts = split_message(body)
            request = self.read(body, parts, rpc, rpc.received_at)
            if isinstance(request, UnreadText):
                what = f"model '{request.model.name}' answers with several messages"
                with request.model.stages.counting_failures(rpc.received_at, rpc.metadata):
                    raise ServeError(what, status=501, hint="ModelStreamInfer")
            pending = UnaryPending(
                request, request.writer_state.model, self.write, rpc, rpc.received_at, rpc.metadata, rpc.deadline
            )
            rpc.on_cancel = pending.abandon
            pending.submit()
        except OxError as error:
            rpc.fail(*error_status(error))
        except Exception:
            rpc.fail(*internal_error())

    def read(self, body: bytes, parts: MessageParts, rpc: Rpc, received_at: float) -> Request | UnreadText:
        """Parses and checks a request; one for a model that makes texts is of another kind.

        Raises:
            ServeError: the request is invalid or not permitted.
        """
        template = self._templates.get(parts.head) or self._sequence_templates.get(parts.head)
        if template is None:
            return self._read_uncached(body, parts, rpc, received_at)
        if self._check is not None:
            self._check(credential_of(rpc.metadata), "infer", template.model.name, rpc.peer)
        try:
            return template.read(body, parts)
        except ServeError as error:
            template.model.stages.failed(error, received_at, rpc.metadata)
            raise

    def client(self, rpc: Rpc) -> Client:
        """Who calls; `read` has checked it."""
        return Client(rpc.peer) if self._guard is None else self._guard.client(credential_of(rpc.metadata), rpc.peer)

    def _read_uncached(self, body: bytes, parts: MessageParts, rpc: Rpc, received_at: float) -> Request | UnreadText:
        """Parses a request without a cached template, and caches one."""
        head = parts.head
        if len(head) > self._max_head:
            raise ServeError(
                "the request is too large",
                status=413,
                expected=f"at most {self._max_head} bytes beside raw_input_contents (--limit json)",
                got=str(len(head)),
                hint="fewer samples, or sending the tensors as raw_input_contents",
            )
        message = parse(self._request, head, self._max_head)
        if self._check is not None:
            self._check(credential_of(rpc.metadata), "infer", message.model_name, rpc.peer)
        model = self._repository.find(message.model_name, message.model_version)
        if model.text is not None:
            return UnreadText(message, body, parts, model.text, self._repository.strict)
        try:
            template = RequestTemplate(model, message, self._regions)
            request = template.read(body, parts)
        except ServeError as error:
            model.stages.failed(error, received_at, rpc.metadata)
            raise
        if not template.reusable or len(head) > MAX_HEAD_BYTES:
            return request
        if "sequence_id" in template.parameters:
            if len(self._sequence_templates) >= MAX_SEQUENCE_TEMPLATES:
                self._sequence_templates.clear()
            self._sequence_templates[head] = template
        else:
            if len(self._templates) >= MAX_TEMPLATES:
                self._clear_caches()
            self._templates[head] = template
            layout = layout_of(body, parts)
            if layout is not None:
                self._layouts[len(body)] = layout
        return request

    def _clear_caches(self) -> None:
        self._templates.clear()
        self._sequence_templates.clear()
        self._layouts.clear()


class UnaryPending(Pending[Rpc, Body]):
    """The request of a unary call."""

    __slots__ = ()

    def encode(self) -> Body:
        return self.write(self.request, self.outputs)

    def send(self, answer: Body) -> None:
        self.client.send(answer)
        self.client.finish()

    def send_error(self, error: OxError) -> None:
        self.client.fail(*error_status(error))

    def send_internal_error(self) -> None:
        self.client.fail(*internal_error())


def internal_error() -> tuple[int, str]:
    """Logs the current exception, a bug in the server; returns the status for the client."""
    log.exception("a gRPC call failed")
    error = ServeError("the server failed on this request", status=500, hint="its log")
    return error_status(error)
