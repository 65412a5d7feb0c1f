"""Errors in OpenAI's form: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from typing import Any

import orjson

from ox.errors import OxError, ServeError
from ox.serve.protocol.rest.routing import ErrorForm
from ox.serve.protocol.text.fields import ParameterError

TYPES = {403: "permission_error", 429: "rate_limit_error"}
CODES = {401: "invalid_api_key", 413: "request_too_large", 429: "rate_limit_exceeded", 503: "server_overloaded"}


def error_document(error: OxError) -> dict[str, Any]:
    """The JSON of an error."""
    status = error.status if isinstance(error, ServeError) else 500
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    param, code = None, CODES.get(status)
    if isinstance(error, ParameterError):
        param, code = error.param, error.code or code
    return {"error": {"message": error.one_line(), "type": kind, "param": param, "code": code}}


def error_event(error: OxError) -> bytes:
    """The event of an error in the middle of a stream. No `[DONE]` follows: it means that the answer is whole."""
    return b"data: " + orjson.dumps(error_document(error)) + b"\n\n"


SCHEMA = {
    "message": {"type": "string"},
    "type": {"type": "string"},
    "param": {"type": ["string", "null"]},
    "code": {"type": ["string", "null"]},
}
OPENAI_ERRORS = ErrorForm(
    "OpenAIError",
    {"error": {"type": "object", "properties": SCHEMA, "required": list(SCHEMA)}},
    lambda error: orjson.dumps(error_document(error)),
)
