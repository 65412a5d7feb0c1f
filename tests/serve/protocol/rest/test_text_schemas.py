"""The OpenAPI document agrees with what the server takes and answers, in every dialect for texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto
from rows import rows
from text_folders import folder as folder
from text_folders import pairs as pairs
from text_folders import pieces as pieces
from text_folders import sentences as sentences

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.serve import ModelConfig, Server
from ox.serve.protocol.anthropic.request import read_message
from ox.serve.protocol.ollama.request import read_chat_request, read_generate_request
from ox.serve.protocol.openai.completions import read_completion
from ox.serve.protocol.responses.request import read_response
from ox.serve.protocol.rest.openapi import openapi
from ox.serve.protocol.rest.routes import TABLE
from ox.serve.protocol.rest.text_routes import TEXT_ROUTES
from ox.serve.protocol.text.chat_request import read_chat
from ox.serve.protocol.text.fields import Fields
from ox.serve.protocol.text.generate import read_generate
from ox.serve.protocol.text.parameters import parameters_in
from ox.serve.protocol.text.response_store import MEMORY, ResponseStore
from ox.serve.protocol.text.text_model import TextModel

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
pytest.importorskip("llguidance", reason="the extra text is not installed")

DOCUMENT = openapi([], TABLE)
USER = [{"role": "user", "content": "Hi"}]
CHAT = {"model": "tiny", "messages": USER}
STORE = ResponseStore(MEMORY, 1 << 20, 60, SYSTEM)
Read = Callable[[dict[str, Any], TextModel], object]
# By route: the dialect, a request that is taken, and what reads it.
READERS: dict[str, tuple[str, dict[str, Any], Read]] = {
    "/v1/completions": (
        "completions",
        {"model": "tiny", "prompt": "a"},
        lambda body, model: read_completion(Fields(body), model),
    ),
    "/v1/chat/completions": ("chat", CHAT, lambda body, model: read_chat(Fields(body), model)),
    "/v1/responses": (
        "responses",
        {"model": "tiny", "input": "Hi"},
        lambda body, model: read_response(Fields(body), model, STORE, ""),
    ),
    "/v1/messages": ("messages", {**CHAT, "max_tokens": 5}, lambda body, model: read_message(Fields(body), model)),
    "/api/chat": ("ollama", CHAT, lambda body, model: read_chat_request(Fields(body), model)),
    "/api/generate": (
        "ollama",
        {"model": "tiny", "prompt": "a"},
        lambda body, model: read_generate_request(Fields(body), model),
    ),
    "/v2/models/{model}/generate": ("generate", {"text_input": "a"}, read_generate),
}
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 5.0, 21, 200, -0.5, 1.5, 1 << 40, "", "a", "auto", "none", "json", "low",
    [], ["a"], [""], ["a"] * 17, [1], [-1], [[1]], [[]], ["a", [1]], [{}], {}, {"a": 1}, {"5": 1}, {"5": 500},
    {"include_usage": None}, {"include_usage": 1}, *({"type": kind} for kind in ("text", "json_object", "enabled")),
    {"type": "auto"}, {"type": None}, USER,
]  # fmt: skip
# Whether these are taken depends on more than their schema says: on the template, on other parameters, on the context.
DEPENDENT = {
    "messages", "prompt", "text_input", "input", "instructions", "system", "tools", "tool_choice", "documents",
    "chat_template_kwargs", "previous_response_id", "stream_options", "top_logprobs", "min_tokens",
    "truncate_prompt_tokens", "structured_outputs", "guided_json",
}  # fmt: skip


def request_schema(path: str) -> Any:
    return DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]


@rows("path", READERS)
def test_what_is_taken_fits_the_document_and_else_is_refused(scripted: Server, path: str) -> None:
    dialect, base, read = READERS[path]
    (model,) = [each.text for each in scripted.models if each.name == "tiny"]
    assert model is not None
    schema, differ, taken = request_schema(path), [], 0
    for parameter in parameters_in(dialect).values():
        name = parameter.names[dialect]
        outer, _, inner = name.rpartition(".")
        field = outer or inner
        if field == "model" or field not in schema["properties"]:
            continue
        validator = jsonschema.Draft202012Validator({**schema, "properties": {field: schema["properties"][field]}})
        for value in VALUES:
            body = base | ({outer: {inner: value}} if outer else {inner: value})
            fits = validator.is_valid(body)
            try:
                read(body if dialect == "generate" else {**body, "model": None}, model)
            except ServeError as error:
                if fits and name not in DEPENDENT and getattr(error, "code", "") != "context_length_exceeded":
                    differ.append((name, value, error.one_line()))
            else:
                taken += 1
                differ += [] if fits else [(name, value, "taken")]
    assert not differ
    assert taken > 100


def test_what_is_required(ask: Callable[..., tuple[int, Any]]) -> None:
    """A request without a field that the document requires is refused, and so is null in its place."""
    required = {
        path: schema["required"]
        for path in DOCUMENT["paths"]
        if "requestBody" in DOCUMENT["paths"][path].get("post", {}) and (schema := request_schema(path))["required"]
    }
    assert required["/v1/messages"] == ["model", "messages", "max_tokens"]
    assert len(required) >= len(READERS) - 2  # Ollama's names of models are two
    for path, names in required.items():
        target = path.replace("{model}", "tiny").replace("{version}", "1")
        validator = jsonschema.Draft202012Validator(request_schema(path))
        for name in names:
            body = {"model": "tiny", "max_tokens": 5, **READERS.get(path, ("", {}))[1], name: None}
            assert ask("POST", target, body)[0] in (400, 404), (path, name)
            assert not validator.is_valid(body)


@pytest.fixture(scope="module")
def everything(scripted_folder: Path, sentences: Path, pairs: Path, build: Any) -> Iterator[Server]:
    ends = (TensorProto.FLOAT, ["batch", 4])
    scores = build("scores", [("Identity", ["x"], ["y"], {})], {"x": ends}, {"y": ends})
    paths = [scripted_folder / "tiny", sentences, pairs, scores]
    with Server(paths, options=ModelConfig("cpu", instances=1, threads=1)) as running:
        yield running


RESPONSE = {"model": "tiny", "input": "Hi"}
RERANK = {"model": "pairs", "query": "a", "documents": ["a", "b"]}
SCORE = {"model": "pairs", "text_1": "a", "text_2": ["a", "b"]}
# Of each route requests that are answered, by what stands in the braces of its path; in their order.
CALLS: list[tuple[str, str, list[Any]]] = [
    ("POST", "/v1/completions", [{"model": "tiny", "prompt": "a"}, {"model": "tiny", "prompt": "a", "stream": True},
                                 {"model": "tiny", "prompt": ["a", "b"], "logprobs": 1, "echo": True}]),
    ("POST", "/v1/chat/completions", [CHAT, {**CHAT, "stream": True}, {**CHAT, "n": 2, "prompt_logprobs": 1}]),
    ("POST", "/v1/responses", [RESPONSE, {**RESPONSE, "stream": True}, {**RESPONSE, "max_output_tokens": 1}]),
    ("POST", "/v1/responses/input_tokens", [RESPONSE]),
    ("GET", "/v1/responses/{response}", [None]),
    ("GET", "/v1/responses/{response}/input_items", [None]),
    ("DELETE", "/v1/responses/{response}", [None]),
    ("POST", "/v1/messages", [{**CHAT, "max_tokens": 5}, {**CHAT, "max_tokens": 2, "stream": True}]),
    ("POST", "/v1/messages/count_tokens", [CHAT]),
    ("POST", "/api/chat", [{**CHAT, "stream": False}, CHAT, {"model": "tiny"}]),
    ("POST", "/api/generate", [{"model": "tiny", "prompt": "a", "stream": False}, {"model": "tiny", "prompt": "a"},
                               {"model": "tiny"}]),
    ("POST", "/api/embed", [{"model": "sentences", "input": ["a", "b"]}]),
    ("POST", "/api/embeddings", [{"model": "sentences", "prompt": "a"}]),
    ("GET", "/api/tags", [None]), ("GET", "/api/ps", [None]), ("GET", "/api/version", [None]),
    ("POST", "/api/show", [{"model": "tiny"}, {"model": "sentences"}]),
    ("GET", "/v1/models", [None]), ("GET", "/v1/models/{model}", [None]),
    ("POST", "/v1/embeddings", [{"model": "sentences", "input": "a"},
                                {"model": "sentences", "input": [[1]], "encoding_format": "base64"}]),
    ("POST", "/v1/rerank", [RERANK]), ("POST", "/v2/rerank", [RERANK]),
    ("POST", "/score", [SCORE]), ("POST", "/v1/score", [SCORE]),
    ("POST", "/embed", [{"model": "sentences", "inputs": ["a", "b"]}]),
    ("POST", "/rerank", [{"model": "pairs", "query": "a", "texts": ["a", "b"]}]),
    ("POST", "/tokenize", [{"model": "tiny", "prompt": "a", "return_token_strs": True}, CHAT]),
    ("POST", "/detokenize", [{"model": "tiny", "tokens": [1]}]),
    ("GET", "/tokenizer_info", [None]),
    ("POST", "/v2/models/{model}/generate", [{"text_input": "a"}, {"text_input": "a", "id": "b"}]),
    ("POST", "/v2/models/{model}/generate_stream", [{"text_input": "a"}]),
    ("POST", "/v2/models/{model}/versions/{version}/generate", [{"text_input": "a"}]),
    ("POST", "/v1/models/{model}:predict", [{"instances": [[1, 2, 3, 4]]}]),
]  # fmt: skip
# What answers errors alone here: nothing is in the background, and there are two models that read texts.
ERRORS = [("POST", "/v1/responses/{response}/cancel"), ("GET", "/info")]


def test_answers_fit_the_document(everything: Server, connect: Any) -> None:
    documented = {(route.method, route.path) for route in TEXT_ROUTES if not route.undocumented}
    assert documented - {(method, path) for method, path, _ in CALLS} == set(ERRORS)
    components = {"components": DOCUMENT["components"]}
    names = {"model": "tiny", "version": "1"}
    with connect(everything) as client:
        _, _, body = client.ask("POST", "/v1/responses", json.dumps(RESPONSE).encode())
        names["response"] = json.loads(body)["id"]
        for method, path, requests in CALLS:
            target = path.format(**{**names, "model": "scores" if path.endswith(":predict") else "tiny"})
            operation = DOCUMENT["paths"][path][method.lower()]
            done = operation["responses"]["200"]
            for request in requests:
                asked = request and {**request, **({} if path.endswith(":predict") else {"unheard_of": 1})}
                if request is not None:
                    jsonschema.validate(request, request_schema(path))
                with connect(everything) as each:
                    status, headers, body = each.ask(method, target, json.dumps(asked).encode() if asked else b"")
                assert status == 200, (path, request, body)
                assert ("ox-warning" in headers) <= ("ox-warning" in done.get("headers", {})), path
                kind = headers["content-type"].partition(";")[0]
                assert kind in done["content"], (path, kind)
                if kind == "application/json":
                    jsonschema.validate(json.loads(body), {**components, **done["content"][kind]["schema"]})
        for method, path in [*ERRORS, *((method, path) for method, path, _ in CALLS)]:
            target = path.format(**dict.fromkeys(names, "no"))
            status, _, body = client.ask(method, target, b'{"model": "no"}')
            if status != 200:
                (name,) = [DOCUMENT["paths"][path][method.lower()]["responses"]["default"]["$ref"].split("/")[-1]]
                jsonschema.validate(json.loads(body), DOCUMENT["components"]["schemas"][name])
            assert status in (400, 404) or method == "GET", (path, status)
