"""What the handlers of OpenAI's routes read first: the fields of a request, and the model that it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ox.errors import ServeError
from ox.serve.access.client import Client
from ox.serve.protocol.rest.body import read_limited_json
from ox.serve.protocol.rest.routing import Context
from ox.serve.protocol.rest.target import query_values
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.repository.entry import LOADING
from ox.serve.repository.model import Model
from ox.serve.telemetry.stages import Stages
from ox.serve.transport.http import Exchange

M = TypeVar("M")


def read_fields(context: Context, exchange: Exchange) -> Fields:
    """The fields of a request.

    Raises:
        ServeError: no JSON, or too much of it.
    """
    return Fields(read_limited_json(exchange, context.limits))


def finish(context: Context, exchange: Exchange, fields: Fields, stages: Stages | None = None) -> None:
    """All parameters were read; those that are left are unknown, see `TextService.note`. `stages` counts that; None
    for calls that no model counts.

    Raises:
        ParameterError: there are some, and the server is strict.
    """
    fields.finish()
    context.text.note(exchange, stages, fields.remarks)


def named_model(
    context: Context, exchange: Exchange, fields: Fields, find: Callable[[str], M], action: str = "infer"
) -> M:
    """The model that a request names and its client may use.

    Args:
        find: gives a model by its name, or raises ServeError.
        action: what it does with the model.

    Raises:
        ParameterError: there is no such name in it, no such model (404), or it is still being loaded (503).
        ServeError: the client's key may not use it (403).
    """
    name = fields.text("model")
    if not name:
        raise ParameterError("model", "Missing required parameter: 'model'", code="missing_required_parameter")
    context.text.client(exchange).check(action, name)
    try:
        return find(name)
    except ServeError as error:
        code, status, hint = "model_not_found" if error.status == 404 else None, error.status, error.hint
        if error.got == LOADING:  # V2 says 400, as Triton does; clients of this dialect ask again after 503
            code, status, hint = "model_not_ready", 503, "again in a moment"
        more = {"expected": error.expected, "got": error.got, "hint": hint}
        raise ParameterError("model", error.what, code=code, status=status, **more) from None


def only_model(context: Context, client: Client, action: str, fits: Callable[[Model], bool], purpose: str) -> str:
    """The name of the only model for a purpose, for dialects whose servers have one model.

    Args:
        client: models that it may not use do not count.
        action: what it does with the model.
        fits: whether a model will do.
        purpose: what for, in errors.

    Raises:
        ParameterError: there is none (404), or there are several.
    """
    found = sorted({
        model.name
        for model in context.service.repository.models()
        if fits(model) and client.may(action, model.name)
    })  # fmt: skip
    if not found:
        raise ParameterError("model", f"no model for {purpose} is ready", code="model_not_found", status=404)
    if len(found) > 1:
        names = ", ".join(found[:8]) + ", ..." * (len(found) > 8)
        what = f"there are {len(found)} models for {purpose}"
        raise ParameterError("model", what, expected=f"'model' in the request, one of {names}")
    return found[0]


def described_model(context: Context, exchange: Exchange, fits: Callable[[Model], bool], purpose: str) -> Model:
    """The model that a GET request is about: that of `?model=NAME`, for whatever it is, or the only one for a purpose.

    Raises:
        ParameterError: as of `only_model`.
        ServeError: there is no such model (404), or the client's key may not read it (403).
    """
    client, find = context.text.client(exchange), context.service.repository.find
    query = query_values(exchange.target)
    if "model" not in query:
        return find(only_model(context, client, "read", fits, purpose))
    name = query["model"]
    client.check("read", name)
    return find(name)
