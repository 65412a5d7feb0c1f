"""gRPC's status codes, and the one place that says which of them stands for which error."""

from __future__ import annotations

from ox.errors import OxError, ServeError

OK = 0
CANCELLED = 1
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14
UNAUTHENTICATED = 16

CODES = {
    400: INVALID_ARGUMENT,
    401: UNAUTHENTICATED,
    403: PERMISSION_DENIED,
    404: NOT_FOUND,
    405: UNIMPLEMENTED,
    408: DEADLINE_EXCEEDED,
    409: FAILED_PRECONDITION,  # nothing here fails only because it exists already
    413: RESOURCE_EXHAUSTED,
    415: UNIMPLEMENTED,
    422: INVALID_ARGUMENT,
    429: RESOURCE_EXHAUSTED,
    431: RESOURCE_EXHAUSTED,
    499: CANCELLED,
    501: UNIMPLEMENTED,
    503: UNAVAILABLE,
    504: DEADLINE_EXCEEDED,
}


def code_of(error: OxError) -> int:
    """gRPC's code for the HTTP status that an error carries."""
    return CODES.get(error.status, INTERNAL) if isinstance(error, ServeError) else INTERNAL
