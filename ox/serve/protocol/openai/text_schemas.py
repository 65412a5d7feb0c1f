"""JSON schemas of requests with texts and of their answers."""

from __future__ import annotations

from ox.serve.protocol.rest.routing import Fields

MODEL: Fields = {"model": {"type": "string", "description": "needed where several models could answer"}}
USAGE: Fields = {"usage": {"type": "object"}}
TOKENS: Fields = {"tokens": {"type": "array", "items": {"type": "integer"}}}
_TEXT: Fields = {"type": "string", "minLength": 1}
_IDS: Fields = {"type": "array", "items": {"type": "integer"}, "minItems": 1}
TEXTS_OR_TOKENS: Fields = {
    "anyOf": [_TEXT, _IDS, *({"type": "array", "items": each, "minItems": 1} for each in (_TEXT, _IDS))]
}
EMBEDDINGS: Fields = {
    **MODEL,
    "input": TEXTS_OR_TOKENS,
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
TEXTS: Fields = {"type": ["string", "array"], "items": {"type": "string"}}
SCORE: Fields = {
    **MODEL,
    "text_1": {**TEXTS, "description": "one text, or one for each of text_2"},
    "text_2": TEXTS,
    "use_activation": {"type": "boolean", "description": "false: a cross-encoder's own scores, not their sigmoid"},
    "truncate": {"type": "boolean"},
}
SCORES: Fields = {"data": {"type": "array"}, **USAGE}
TEI_EMBED: Fields = {
    **MODEL,
    "inputs": TEXTS_OR_TOKENS,
    "normalize": {"type": "boolean"},
    "dimensions": {"type": "integer", "minimum": 1},
    "truncate": {"type": "boolean"},
}
TEI_RERANK: Fields = {
    **MODEL,
    "query": {"type": "string"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "raw_scores": {"type": "boolean"},
    "return_text": {"type": "boolean"},
    "truncate": {"type": "boolean"},
}
TOKENIZE: Fields = {
    **MODEL,
    "prompt": {"type": "string"},
    "messages": {"type": "array", "description": "in place of a prompt: a conversation, as in a chat"},
    "tools": {"type": "array", "items": {"type": "object"}},
    "add_special_tokens": {"type": "boolean", "description": "by default true, with messages false"},
    "add_generation_prompt": {"type": "boolean"},
    "continue_final_message": {"type": "boolean"},
    "chat_template_kwargs": {"type": "object"},
    "return_token_strs": {"type": "boolean"},
}
VECTORS: Fields = {"data": {"type": "array"}, **USAGE}
RANKED: Fields = {"results": {"type": "array"}, **USAGE}
TOKENIZED: Fields = {**TOKENS, "count": {"type": "integer"}}
DETOKENIZE: Fields = {**MODEL, **TOKENS}
TOKENIZER: Fields = {name: {"type": ["string", "null"]} for name in ("bos_token", "eos_token", "chat_template")}
PROMPT: Fields = {"prompt": {"type": "string"}}
