"""The handlers of /v1/responses, and the schemas of what they take and answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import orjson

from ox.serve.protocol.openai.requests import named_model, read_fields
from ox.serve.protocol.responses.answer import response_answer
from ox.serve.protocol.responses.request import ResponseCall, read_response
from ox.serve.protocol.rest.routing import Context, Handler, HandlerResult, PathParameters, Reply
from ox.serve.protocol.rest.routing import Fields as Schemas
from ox.serve.protocol.rest.target import query_values
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.parameters import schemas_in
from ox.serve.protocol.text.response_store import FOUND, ResponseStore, StoredResponse
from ox.serve.protocol.v2.document import quote
from ox.serve.transport.http import Exchange

MAX_LISTED = 100  # items of one page
Query = dict[str, str]


def create(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
    """Answers a request for a response.

    Raises:
        ServeError: a wrong request.
    """

    def start(call: ResponseCall) -> None:
        client = context.text.client(exchange)
        response_answer(call, exchange, client).start(context.text, call.requests(client.name), 1)

    return _begin(context, exchange, start)


def count_tokens(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
    """How many tokens the prompt of a request has: that of the conversation, the instructions and the tools.

    Raises:
        ServeError: a wrong request.
    """

    def reply(call: ResponseCall) -> None:
        exchange.on_error = None
        document = {"object": "response.input_tokens", "input_tokens": len(call.chat.prompt)}
        exchange.reply(200, orjson.dumps(document))

    return _begin(context, exchange, reply, counting=True)


def _begin(
    context: Context, exchange: Exchange, start: Callable[[ResponseCall], None], counting: bool = False
) -> HandlerResult:
    """Reads a request, and has `start` answer it."""
    fields = read_fields(context, exchange)
    model = named_model(context, exchange, fields, context.text.find)
    read = partial(read_response, fields, model, context.text.responses, _owner(context, exchange), counting)
    return context.text.begin(exchange, model, read, start, takes_long=_continues(fields))


def _continues(fields: Fields) -> bool:
    """Whether a request needs stored responses, which may be far larger than it is."""
    items = fields.peek("input")
    kinds = [item.get("type") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return "previous_response_id" in fields or "item_reference" in kinds


def _in_thread(answer: Callable[[ResponseStore, str, str, Query], Reply]) -> Handler:
    """A handler that calls `answer` with the store, the client, the response's id and the query: in a thread, because
    responses may be large."""

    def handle(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
        query = query_values(exchange.target)
        run = partial(answer, context.text.responses, _owner(context, exchange), names["response"], query)
        return context.text.in_thread(exchange, run)

    return handle


@_in_thread
def retrieve(store: ResponseStore, owner: str, identifier: str, query: Query) -> Reply:
    """A stored response.

    Raises:
        ParameterError: the client has no such response (404).
    """
    if query.get("stream") == "true":
        raise ParameterError("stream", "stored responses are not streamed", hint="a request without it")
    return Reply(_find(store, owner, identifier).document)


@_in_thread
def delete(store: ResponseStore, owner: str, identifier: str, query: Query) -> Reply:
    """Removes a stored response. Later ones that continue it stay.

    Raises:
        ParameterError: the client has no such response (404).
    """
    if not store.delete(identifier, owner):
        raise _not_found(identifier)
    return Reply(orjson.dumps({"id": identifier, "object": "response", "deleted": True}))


@_in_thread
def cancel(store: ResponseStore, owner: str, identifier: str, query: Query) -> Reply:
    """Only responses in the background could be cancelled, and there are none.

    Raises:
        ParameterError: the client has no such response (404), or it is complete (400).
    """
    _find(store, owner, identifier)
    raise ParameterError(
        "response_id", "only responses in the background can be cancelled, and this one is complete",
        hint="closing the connection of a request in progress, which ends its response",
    )  # fmt: skip


@_in_thread
def input_items(store: ResponseStore, owner: str, identifier: str, query: Query) -> Reply:
    """The input items of a stored response, the newest first unless `order=asc`.

    Raises:
        ParameterError: the client has no such response (404), or `limit`, `order` or `after` is wrong.
    """
    items = orjson.loads(_find(store, owner, identifier).input)
    order, limit = query.get("order", "desc"), query.get("limit", "20")
    if order not in ("asc", "desc"):
        raise ParameterError("order", "'order' is wrong", expected="asc or desc", got=quote(order))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 0 < int(limit) <= MAX_LISTED):
        raise ParameterError("limit", "'limit' is wrong", expected=f"1 to {MAX_LISTED}", got=quote(limit))
    if order == "desc":
        items.reverse()
    if "after" in query:
        places = [index for index, item in enumerate(items) if item["id"] == query["after"]]
        if not places:
            raise ParameterError("after", "there is no item with this id", got=quote(query["after"]))
        items = items[places[0] + 1 :]
    page = items[: int(limit)]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    document = {"object": "list", "data": page, "first_id": first, "last_id": last, "has_more": len(items) > len(page)}
    return Reply(orjson.dumps(document))


def _find(store: ResponseStore, owner: str, identifier: str) -> StoredResponse:
    found = store.get(identifier, owner)
    if found is None:
        raise _not_found(identifier)
    return found


def _not_found(identifier: str) -> ParameterError:
    what = f"Response with id {quote(identifier)} not found"
    return ParameterError("response_id", what, status=404, code="not_found", expected=FOUND)


def _owner(context: Context, exchange: Exchange) -> str:
    """The hash of the client's key: a name may be given to another key later, of somebody else. Without keys everybody
    is one owner, and the random ids alone protect."""
    client = context.text.client(exchange)
    return "" if client.key is None else client.key.digest.hex()


# ---- JSON schemas of fields

REQUEST: Schemas = schemas_in("responses")
RESPONSE: Schemas = {
    "id": {"type": "string"},
    "object": {"const": "response"},
    "created_at": {"type": "integer"},
    "status": {"enum": ["completed", "incomplete"]},
    "model": {"type": "string"},
    "output": {"type": "array", "items": {"type": "object"}},
    "usage": {"type": "object"},
}
TOKENS: Schemas = {"object": {"const": "response.input_tokens"}, "input_tokens": {"type": "integer"}}
DELETED: Schemas = {
    "id": {"type": "string"},
    "object": {"const": "response"},
    "deleted": {"const": True},
}
ITEMS: Schemas = {
    "object": {"const": "list"},
    "data": {"type": "array", "items": {"type": "object"}},
    "first_id": {"type": ["string", "null"]},
    "last_id": {"type": ["string", "null"]},
    "has_more": {"type": "boolean"},
}
