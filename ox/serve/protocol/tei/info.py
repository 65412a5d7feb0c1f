"""Text Embeddings Inference's `info`: facts about the model that reads texts."""

from __future__ import annotations

from typing import Any

import orjson

from ox._version import __version__
from ox.serve.protocol.openai.embeddings import KINDS as EMBEDDING_KINDS
from ox.serve.protocol.openai.requests import described_model
from ox.serve.protocol.openai.rerank import KINDS as RERANK_KINDS
from ox.serve.protocol.openai.text_pending import is_kind
from ox.serve.protocol.rest.routing import Context, Fields, PathParameters, Reply
from ox.serve.protocol.text.fields import ParameterError
from ox.serve.transport.http import Exchange

REPLY: Fields = {
    "model_id": {"type": "string"},
    "model_type": {"type": "object"},
    "max_input_length": {"type": "integer"},
    "max_client_batch_size": {"type": "integer"},
    "auto_truncate": {"type": "boolean"},
    "version": {"type": "string"},
}


def info(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """Answers a request.

    Raises:
        ServeError: there is no such model, or there are several.
    """
    kinds = (*EMBEDDING_KINDS, *RERANK_KINDS)
    model = described_model(context, exchange, lambda each: is_kind(each, kinds), "embeddings or reranking")
    text = model.text_tensors
    if text is None or text.kind not in kinds:
        raise ParameterError("model", f"'{model.name}' is not for embeddings or reranking")
    kind: dict[str, Any] = {"embedding": {"pooling": text.pooling}}
    if text.kind == "cross-encoder":
        label = (model.outputs[0].labels or ("LABEL_0",))[0]
        kind = {"reranker": {"id2label": {"0": label}, "label2id": {label: 0}}}
    return Reply(
        orjson.dumps({
            "model_id": model.name, "model_type": kind, "max_input_length": text.tokenizer.max_length,
            "max_client_batch_size": context.limits.rows, "auto_truncate": False, "version": __version__,
        })
    )  # fmt: skip
