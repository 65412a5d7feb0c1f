"""The body of an error response, in the form of the route that was asked."""

from __future__ import annotations

from ox.errors import OxError, ServeError
from ox.serve.protocol.openai.errors import OPENAI_ERRORS
from ox.serve.protocol.rest.routes import ROUTES
from ox.serve.protocol.rest.routing import V2_ERRORS
from ox.serve.protocol.rest.target import path_segments

OPENAI = "v1"  # the first part of paths whose clients expect OpenAI's form, also where there is no such route


def error_body(target: bytes, error: OxError) -> bytes:
    """The body of an error response in the form of its route."""
    try:
        parts = path_segments(target)
    except ServeError:  # no URL
        return V2_ERRORS.write(error)
    found = ROUTES.find(parts)
    if found is not None:
        return next(iter(found[0].values())).errors.write(error)
    return (OPENAI_ERRORS if parts[0] == OPENAI else V2_ERRORS).write(error)
