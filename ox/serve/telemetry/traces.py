"""OpenTelemetry: a span for each inference and one for each of its stages, made when the request is over.

Nothing has to be carried along while a request is worked on, because the stages' times are known anyway; that is why
tracing costs one attribute test where it is off. Only inference is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ox.clock import Clock
from ox.errors import ArgumentError, ServeError
from ox.installation import install_command

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from ox.serve.batching.job import Job

CARRIED = (b"traceparent", b"tracestate")
Headers = Mapping[bytes, bytes]


def provider() -> TracerProvider:
    """Sends spans by OTLP over HTTP, configured by the OTEL_* variables of the environment.

    Raises:
        ArgumentError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ArgumentError("traces need OpenTelemetry", got=str(error), hint=install_command("otel")) from None
    resource = Resource.create()  # from the environment, with a default name
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "ox"}))
    made = TracerProvider(resource=resource, shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return made


# OpenTelemetry's conventions for generative AI
USAGE = {"prompt_tokens": "gen_ai.usage.input_tokens", "completion_tokens": "gen_ai.usage.output_tokens"}


class Tracer:
    """Writes the spans of one version of a model."""

    def __init__(self, provider: TracerProvider, model: str, version: str, clock: Clock) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation import set_span_in_context, tracecontext

        self._tracer, self._clock = provider.get_tracer("ox.serve"), clock
        self._name = f"infer {model}"
        self._common = {"ox.model": model, "ox.version": version}
        self._extract = tracecontext.TraceContextTextMapPropagator().extract
        self._within, self._server = set_span_in_context, SpanKind.SERVER
        self._status, self._error = Status, StatusCode.ERROR

    def answered(self, headers: Headers, job: Job, times: tuple[float, float, float], together: int) -> None:
        """A request that succeeded: `times` are when it was received, begun to be written, and written; it ran in a
        batch of `together` rows."""
        received, begun, written = times
        at = self._nanoseconds()
        attributes: dict[str, Any] = {**self._common, "ox.rows": job.request.rows, "ox.batch.rows": together}
        if job.request.id is not None:
            attributes["ox.request.id"] = job.request.id
        span = self._open(headers, at(received), attributes)
        inside = self._within(span)
        ran = job.started + job.run_s
        stages = [("parse", received, job.arrived), ("queue", job.arrived, job.started), ("run", job.started, ran)]
        for name, start, end in (*stages, ("serialise", begun, written)):
            child = self._tracer.start_span(name, inside, start_time=at(start))
            if name == "run":
                child.set_attributes(attributes)
                child.add_event("batch", {"ox.batch.rows": together}, at(start))
            child.end(at(end))
        span.end(at(written))

    def text(self, headers: Headers, times: tuple[float, float, float, float], counts: Mapping[str, int]) -> None:
        """Texts that were made: `times` are when the request was received, when the engine got it, and of the first and
        the last token; `counts` are of tokens, by name."""
        received, submitted, first, last = times
        at = self._nanoseconds()
        attributes = {**self._common, **{USAGE[name]: value for name, value in counts.items()}}
        span = self._open(headers, at(received), attributes, f"generate {self._common['ox.model']}")
        inside = self._within(span)
        for name, start, end in (
            ("parse", received, submitted), ("first token", submitted, first), ("tokens", first, last)
        ):  # fmt: skip
            self._tracer.start_span(name, inside, start_time=at(start)).end(at(end))
        span.end(at(last))

    def failed(self, headers: Headers, error: Exception | None, received: float, now: float) -> None:
        """A request that was refused or failed; None for a client that left."""
        at = self._nanoseconds()
        span = self._open(headers, at(received), self._common)
        if error is None:
            span.set_status(self._status(self._error, "the client left"))
        else:
            span.set_attribute("http.response.status_code", getattr(error, "status", 500))
            text = error.one_line() if isinstance(error, ServeError) else "the server failed"
            span.set_status(self._status(self._error, text))
        span.end(at(now))

    def _open(self, headers: Headers, start: int, attributes: dict[str, Any], name: str | None = None) -> Any:
        carrier = {name.decode(): headers[name].decode("latin-1") for name in CARRIED if name in headers}
        parent = self._extract(carrier) if carrier else None
        span = self._tracer.start_span(name or self._name, parent, self._server, attributes, start_time=start)
        return span

    def _nanoseconds(self) -> Callable[[float], int]:
        """From the clock's seconds to nanoseconds of the calendar, as they stand to each other at this moment."""
        now, calendar = self._clock.now(), round(1e9 * self._clock.calendar())
        return lambda seconds: calendar - round(1e9 * (now - seconds))
