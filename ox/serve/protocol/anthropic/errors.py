"""Errors in Anthropic's form: {"type": "error", "error": {"type", "message"}}."""

from __future__ import annotations

import orjson

from ox.errors import OxError, ServeError
from ox.serve.protocol.rest.routing import ErrorForm

TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip


def error_body(error: OxError) -> bytes:
    """The JSON of an error."""
    status = error.status if isinstance(error, ServeError) else 500
    kind = TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": error.one_line()}})


_FIELDS = {"type": {"type": "string"}, "message": {"type": "string"}}
ANTHROPIC_ERRORS = ErrorForm(
    "AnthropicError",
    {"type": {"const": "error"}, "error": {"type": "object", "properties": _FIELDS, "required": list(_FIELDS)}},
    error_body,
)
