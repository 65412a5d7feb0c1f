"""Text Embeddings Inference's `rerank`: texts in the order of how well they answer a query."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.graph.contract import Array
from ox.serve.protocol.openai.requests import finish, read_fields
from ox.serve.protocol.openai.rerank import KINDS, read_query, rerank_documents
from ox.serve.protocol.openai.text_pairs import TextPairs, submit_pairs
from ox.serve.protocol.openai.text_pending import text_model
from ox.serve.protocol.rest.routing import Context, PathParameters
from ox.serve.transport.http import Exchange

MOST = 1 << 20  # texts; how many a request may have is a limit of the server


def rerank(context: Context, exchange: Exchange, names: PathParameters) -> None:
    """Answers a request; one with `documents` instead of `texts` has the form of Cohere's and Jina's, which vLLM
    answers here.

    Raises:
        ServeError: a wrong request, several models that could answer it, or too much waits.
    """
    fields = read_fields(context, exchange)
    if "documents" in fields:
        rerank_documents(context, exchange, fields)
        return
    model, text = text_model(context, exchange, fields, KINDS, "reranking")
    query = read_query(fields)
    fields.required("texts")
    texts = fields.texts("texts", MOST)
    if not texts:
        raise fields.wrong("texts", "a list of strings", [])
    raw, shown = fields.flag("raw_scores"), fields.flag("return_text")
    truncate = fields.flag("truncate")
    fields.only("truncation_direction", ("right", "Right"), "a text is cut at its end")
    finish(context, exchange, fields, model.stages)

    def answer(scores: Array, tokens: int) -> list[dict[str, Any]]:
        order = np.argsort(-scores, kind="stable").tolist()
        ranks = [{"index": index, "score": float(scores[index])} for index in order]
        return [rank | {"text": texts[rank["index"]]} for rank in ranks] if shown else ranks

    submit_pairs(context, exchange, model, text, TextPairs([query], texts, truncate, raw), answer)
