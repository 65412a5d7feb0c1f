"""The body of an error response, in the form of the route that was asked."""

from __future__ import annotations

from ox.errors import OxError, ServeError
from ox.serve.protocol.rest.routes import ROUTES
from ox.serve.protocol.rest.routing import V2_ERRORS
from ox.serve.protocol.rest.target import path_segments
from ox.serve.protocol.rest.text_routes import PREFIXES


def error_body(target: bytes, error: OxError) -> bytes:
    """The body of an error response in the form of its route."""
    try:
        parts = path_segments(target)
    except ServeError:  # no URL
        return V2_ERRORS.write(error)
    found = ROUTES.find(parts)
    if found is not None:
        return next(iter(found[0].values())).errors.write(error)
    form = next((form for prefix, form in PREFIXES if tuple(parts[: len(prefix)]) == prefix), V2_ERRORS)
    return form.write(error)
