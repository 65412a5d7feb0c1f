"""The routes of OpenAI's, vLLM's and Text Embeddings Inference's APIs: a part of `ox.serve.protocol.rest.routes`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ox.errors import ServeError
from ox.serve.access.permission import Permission
from ox.serve.protocol.anthropic import handlers as anthropic
from ox.serve.protocol.anthropic.errors import ANTHROPIC_ERRORS
from ox.serve.protocol.ollama import handlers as ollama
from ox.serve.protocol.ollama import models as ollama_models
from ox.serve.protocol.openai import handlers as openai
from ox.serve.protocol.openai import text_schemas as texts
from ox.serve.protocol.openai.chat import chat_answer
from ox.serve.protocol.openai.completions import completion_answer, read_completion
from ox.serve.protocol.openai.embeddings import embeddings
from ox.serve.protocol.openai.errors import OPENAI_ERRORS
from ox.serve.protocol.openai.rerank import rerank
from ox.serve.protocol.openai.score import score
from ox.serve.protocol.openai.tokenize import detokenize, tokenize, tokenizer_info
from ox.serve.protocol.responses import handlers as responses
from ox.serve.protocol.rest.routing import READ, Context, PathParameters, Reply, Route
from ox.serve.protocol.rest.target import path_segments
from ox.serve.protocol.tei.embed import embed
from ox.serve.protocol.tei.errors import TEI_ERRORS
from ox.serve.protocol.tei.info import REPLY as INFO
from ox.serve.protocol.tei.info import info
from ox.serve.protocol.tei.rerank import rerank as tei_rerank
from ox.serve.protocol.text.chat_request import read_chat
from ox.serve.protocol.text.parameters import required_in
from ox.serve.transport.http import Exchange

ANY_MODEL = Permission("infer", "")  # the model is in the body; its handler checks the key for that model

plain = partial(Route, lenient=True)
v1, tei, claude = (partial(plain, errors=errors) for errors in (OPENAI_ERRORS, TEI_ERRORS, ANTHROPIC_ERRORS))
lines = partial(plain, stream_type="application/x-ndjson")
LISTING = Permission("read", "")  # of models; their handlers check the key for each
# How errors are written where there is no route, by the first parts of the path: the first that fits.
PREFIXES = ((("v1", "messages"), ANTHROPIC_ERRORS), (("v1",), OPENAI_ERRORS))


def not_found(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """Answers 404, where a path is known for other methods or its permission."""
    raise no_such_path(path_segments(exchange.target))


def no_such_path(parts: Sequence[str]) -> ServeError:
    """The error for an unknown path; it names those of its dialect that begin alike."""
    known = _similar_paths(parts) or ["/docs", "/v2/models/MODEL/infer", "/metrics"]
    hint = " or ".join(filter(None, (", ".join(known[:-1]), known[-1])))
    return ServeError(f"there is no /{'/'.join(parts)[:200]}", status=404, hint=hint)


def _similar_paths(parts: Sequence[str]) -> list[str]:
    """The paths of OpenAI's, Anthropic's and Ollama's APIs that have the most first segments in common with a path."""
    paths = [route.path for route in TEXT_ROUTES if route.path.startswith(("/v1/", "/api/")) and not route.undocumented]
    without_base = "/".join(["/v1", *parts])  # of a client whose base URL lacks /v1
    if without_base in paths:
        return [without_base]
    for size in range(len(parts), 0, -1):
        start = "/".join(["", *parts[:size]])
        if found := [path for path in paths if f"{path}/".startswith(f"{start}/") and (size > 1 or "{" not in path)]:
            return list(dict.fromkeys(found))
    return []


TEXT_ROUTES = [
    v1("POST", "/v1/completions", ANY_MODEL, openai.texts(read_completion, completion_answer), "Continues prompts",
          openai.COMPLETION, openai.TEXTS, required=required_in("completions")),
    v1("POST", "/v1/chat/completions", ANY_MODEL, openai.texts(read_chat, chat_answer), "The next message of a chat",
          openai.CHAT, openai.TEXTS, required=required_in("chat")),
    v1("POST", "/v1/responses", ANY_MODEL, responses.create, "The next response of a conversation",
          responses.REQUEST, responses.RESPONSE, required=required_in("responses")),
    v1("POST", "/v1/responses/input_tokens", ANY_MODEL, responses.count_tokens, "The tokens of the input",
          responses.REQUEST, responses.TOKENS, required=required_in("responses")),
    v1("GET", "/v1/responses/{response}", ANY_MODEL, responses.retrieve, "A stored response",
          reply=responses.RESPONSE),
    v1("DELETE", "/v1/responses/{response}", ANY_MODEL, responses.delete, "Removes a stored response",
          reply=responses.DELETED),
    v1("POST", "/v1/responses/{response}", ANY_MODEL, not_found, undocumented="a call that this server does not have"),
    v1("POST", "/v1/responses/{response}/cancel", ANY_MODEL, responses.cancel, "Refused: responses are complete",
          reply=responses.RESPONSE),
    v1("GET", "/v1/responses/{response}/input_items", ANY_MODEL, responses.input_items,
          "The input of a stored response", reply=responses.ITEMS),
    claude("POST", "/v1/messages", ANY_MODEL, anthropic.messages, "The next message, as Anthropic's API has it",
           anthropic.REQUEST, anthropic.MESSAGE, required=required_in("messages")),
    claude("POST", "/v1/messages/count_tokens", ANY_MODEL, anthropic.count_tokens, "The tokens of a prompt",
           anthropic.COUNT, anthropic.TOKENS, required=("model", "messages")),
    lines("POST", "/api/chat", ANY_MODEL, ollama.chat, "The next message, as Ollama's API has it",
          ollama.CHAT, ollama.MESSAGE),
    lines("POST", "/api/generate", ANY_MODEL, ollama.generate, "A text, as Ollama's API has it",
          ollama.GENERATE, ollama.RESPONSE),
    plain("POST", "/api/embed", ANY_MODEL, ollama.embed, "Vectors of texts, as Ollama's API has them",
          ollama.EMBED, ollama.VECTORS, required=("input",)),
    plain("POST", "/api/embeddings", ANY_MODEL, ollama.embeddings, "The vector of a text, in Ollama's older form",
          ollama.PROMPT, ollama.VECTOR, required=("prompt",)),
    Route("GET", "/api/tags", LISTING, ollama_models.tags, "The models, as Ollama's API has them", reply=ollama.MODELS),
    Route("GET", "/api/ps", LISTING, ollama_models.running, "The models that are loaded", reply=ollama.MODELS),
    plain("POST", "/api/show", LISTING, ollama_models.show, "What a model is like", ollama.NAME, ollama.SHOWN),
    Route("GET", "/api/version", LISTING, ollama_models.version, "The version of the server", reply=ollama.VERSION),
    *(Route(method, f"/api/{action}", LISTING, ollama_models.refused(action), undocumented="refused")
      for method, action in (("POST", "pull"), ("POST", "push"), ("POST", "create"), ("POST", "copy"),
                             ("DELETE", "delete"))),
    v1("GET", "/v1/models", LISTING, openai.models, "The models that make or read texts",
          reply=openai.MODELS),
    v1("GET", "/v1/models/{model}", READ, openai.model, "A model that makes or reads texts", reply=openai.MODEL),
    v1("POST", "/v1/embeddings", ANY_MODEL, embeddings, "Vectors of texts", texts.EMBEDDINGS, texts.VECTORS,
       required=("input",)),
    *(v1("POST", path, ANY_MODEL, rerank, "Documents by relevance", texts.RERANK, texts.RANKED,
         required=("query", "documents"))
      for path in ("/v1/rerank", "/v2/rerank")),
    *(v1("POST", path, ANY_MODEL, score, "Scores of pairs of texts", texts.SCORE, texts.SCORES)
      for path in ("/score", "/v1/score")),
    tei("POST", "/embed", ANY_MODEL, embed, "Vectors of texts, as Text Embeddings Inference has them",
        texts.TEI_EMBED, {}, required=("inputs",)),
    tei("POST", "/rerank", ANY_MODEL, tei_rerank, "Texts by relevance, as Text Embeddings Inference has them",
        texts.TEI_RERANK, {}, required=("query",)),
    tei("GET", "/info", LISTING, info, "The model that reads texts", reply=INFO, query=("model",)),
    plain("POST", "/tokenize", ANY_MODEL, tokenize, "The tokens of a text", texts.TOKENIZE, texts.TOKENIZED),
    plain("POST", "/detokenize", ANY_MODEL, detokenize, "The text of tokens", texts.DETOKENIZE, texts.PROMPT,
          required=("tokens",)),
    Route("GET", "/tokenizer_info", LISTING, tokenizer_info, "Special tokens and the chat template",
          reply=texts.TOKENIZER, query=("model",)),
]  # fmt: skip
