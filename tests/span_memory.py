"""Spans of OpenTelemetry that stay in memory."""

from __future__ import annotations

from typing import Any

import pytest


def span_memory() -> tuple[Any, Any]:
    """A provider of tracers, and the exporter that holds what they finish."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="OpenTelemetry is not installed")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, memory = sdk.TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    return provider, memory
