"""Errors in the form of Text Embeddings Inference: {"error", "error_type"}."""

from __future__ import annotations

import orjson

from ox.errors import OxError, ServeError
from ox.serve.protocol.rest.routing import ErrorForm

TYPES = {429: "Overloaded", 503: "Overloaded"}


def _write(error: OxError) -> bytes:
    status = error.status if isinstance(error, ServeError) else 500
    kind = TYPES.get(status, "Backend" if status >= 500 else "Validation")
    return orjson.dumps({"error": error.one_line(), "error_type": kind})


TEI_ERRORS = ErrorForm("TEIError", {"error": {"type": "string"}, "error_type": {"type": "string"}}, _write)
