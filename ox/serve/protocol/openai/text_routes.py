"""The routes of models that read texts."""

from __future__ import annotations

from ox.serve.access.permission import Permission
from ox.serve.protocol.openai.embeddings import embeddings
from ox.serve.protocol.openai.rerank import rerank
from ox.serve.protocol.openai.tokenize import detokenize, tokenize
from ox.serve.protocol.rest.routing import Fields, Handler, Route

INFER = Permission("infer", "")  # the model is named in the body

MODEL: Fields = {"model": {"type": "string"}}
USAGE: Fields = {"usage": {"type": "object"}}
TOKENS: Fields = {"tokens": {"type": "array", "items": {"type": "integer"}}}
EMBEDDINGS: Fields = {
    **MODEL,
    "input": {"description": "a string, a list of strings, a list of tokens or a list of lists of tokens"},
    "encoding_format": {"enum": ["float", "base64"]},
    "dimensions": {"type": "integer", "minimum": 1},
    "truncate": {"type": "boolean"},
}
RERANK: Fields = {
    **MODEL,
    "query": {"type": "string"},
    "documents": {"type": "array", "items": {"type": "string"}},
    "top_n": {"type": "integer", "minimum": 1},
    "return_documents": {"type": "boolean"},
    "truncate": {"type": "boolean"},
}
TOKENIZE: Fields = {**MODEL, "prompt": {"type": "string"}, "add_special_tokens": {"type": "boolean"}}


def _post(path: str, about: str, handler: Handler, request: Fields, reply: Fields) -> Route:
    return Route("POST", path, INFER, handler, about, request, reply)


TABLE = [
    _post("/v1/embeddings", "Vectors of texts", embeddings, EMBEDDINGS, {"data": {"type": "array"}, **USAGE}),
    _post("/v1/rerank", "Documents by relevance", rerank, RERANK, {"results": {"type": "array"}, **USAGE}),
    _post("/tokenize", "The tokens of a text", tokenize, TOKENIZE, {**TOKENS, "count": {"type": "integer"}}),
    _post("/detokenize", "The text of tokens", detokenize, {**MODEL, **TOKENS}, {"prompt": {"type": "string"}}),
]
