"""vLLM's /score: how well pairs of texts fit."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from ox.graph.contract import Array
from ox.serve.protocol.openai.requests import finish, read_fields
from ox.serve.protocol.openai.rerank import KINDS
from ox.serve.protocol.openai.text_pairs import TextPairs, submit_pairs
from ox.serve.protocol.openai.text_pending import text_model
from ox.serve.protocol.rest.routing import Context, PathParameters
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.transport.http import Exchange

FIRST = ("text_1", "queries", "data_1")  # names of older and newer versions of vLLM
SECOND = ("text_2", "documents", "items", "data_2")
MOST = 1 << 20  # texts; how many a request may have is a limit of the server


def score(context: Context, exchange: Exchange, names: PathParameters) -> None:
    """Answers a request: the score of one text with each of several, or of the texts of two lists in their order.

    Raises:
        ServeError: a wrong request, or too much waits.
    """
    fields = read_fields(context, exchange)
    model, text = text_model(context, exchange, fields, KINDS, "scores")
    firsts, seconds = _texts(fields, FIRST), _texts(fields, SECOND)
    if len(firsts) not in (1, len(seconds)):
        raise ParameterError(
            "text_1", "'text_1' and 'text_2' have different lengths", got=str(len(firsts)),
            expected=" or ".join(dict.fromkeys(["1", str(len(seconds))])) + " in 'text_1'",
        )  # fmt: skip
    truncate = fields.flag("truncate")
    raw = not fields.flag("use_activation", True)
    fields.text("user")
    finish(context, exchange, fields, model.stages)
    head = {"id": f"score-{secrets.token_hex(12)}", "object": "list", "created": int(model.clock.calendar())}

    def answer(scores: Array, tokens: int) -> dict[str, Any]:
        data = [{"index": index, "object": "score", "score": float(each)} for index, each in enumerate(scores)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {**head, "model": model.name, "data": data, "usage": usage}

    submit_pairs(context, exchange, model, text, TextPairs(firsts, seconds, truncate, raw), answer)


def _texts(fields: Fields, names: Sequence[str]) -> tuple[str, ...]:
    """A list of texts, or one of them, under one of several names."""
    name = next((name for name in names if name in fields), names[0])
    fields.required(name)
    texts = fields.texts(name, MOST)
    if not texts:
        raise fields.wrong(name, "a string or a list of strings, none of them empty", [])
    return texts
