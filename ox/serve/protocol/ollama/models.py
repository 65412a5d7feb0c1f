"""What Ollama's clients ask about models: which there are, which run, and what each is like."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import orjson

from ox._version import __version__
from ox.errors import ServeError
from ox.serve.protocol.ollama.request import LATEST, find_model
from ox.serve.protocol.openai.embeddings import KINDS
from ox.serve.protocol.openai.requests import read_fields
from ox.serve.protocol.rest.routing import Context, Handler, PathParameters, Reply
from ox.serve.protocol.v2.document import timestamp
from ox.serve.repository.model import Model
from ox.serve.transport.http import Exchange

FORMAT = "onnx"
FAR_FUTURE = "9999-12-31T00:00:00Z"  # models are not unloaded by time


def version(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """The version of this server."""
    return Reply(orjson.dumps({"version": __version__}))


def tags(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """The models that the client may read and that make texts or vectors of texts."""
    return Reply(orjson.dumps({"models": [_entry(model) for model in _models(context, exchange)]}))


def running(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """The same models: all that are served are loaded."""
    models = [
        {**_entry(model), "expires_at": FAR_FUTURE, "size_vram": 0, "context_length": _context_length(model)}
        for model in _models(context, exchange)
    ]
    return Reply(orjson.dumps({"models": models}))


def show(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """What a model is like.

    Raises:
        ServeError: there is no such model (404), or the client may not use it (403).
    """
    fields, find = read_fields(context, exchange), context.service.repository.find
    model: Model = find_model(context, exchange, fields, find, "read")
    template, capabilities = "", ["embedding"]
    if model.text is not None:
        capabilities = ["completion"]
        if model.text.template is not None:
            template = model.text.template.source
            capabilities += ["tools"] if model.text.tool_format is not None else []
            capabilities += ["thinking"] if model.text.reasoning is not None else []
    elif not _reads_texts(model):
        capabilities = []
    info = {"general.architecture": FORMAT, "general.basename": model.name}
    return Reply(
        orjson.dumps({
            "modelfile": "", "parameters": "", "template": template, "details": _details(),
            "model_info": {**info, f"{FORMAT}.context_length": _context_length(model)},
            "capabilities": capabilities, "modified_at": timestamp(model.stages.start_s),
        })
    )  # fmt: skip


def refused(action: str) -> Handler:
    """A handler that refuses to change the models."""

    def handle(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
        raise ServeError(
            f"this server does not {action} models over Ollama's API", status=501,
            hint="files in the folder that is served, or /v2/repository",
        )  # fmt: skip

    return handle


def _models(context: Context, exchange: Exchange) -> list[Model]:
    client = context.text.client(exchange)
    newest = {model.name: model for model in context.service.repository.models() if client.may("read", model.name)}
    return [model for model in newest.values() if model.text is not None or _reads_texts(model)]


def _reads_texts(model: Model) -> bool:
    return model.text_tensors is not None and model.text_tensors.kind in KINDS


def _entry(model: Model) -> dict[str, Any]:
    """A model in a list. The digest is of its name and version: files are not hashed."""
    name = model.name + LATEST
    digest = sha256(f"{model.name}/{model.version}".encode()).hexdigest()
    modified = timestamp(model.stages.start_s)
    return {"name": name, "model": name, "modified_at": modified, "size": 0, "digest": digest, "details": _details()}


def _details() -> dict[str, Any]:
    return {"parent_model": "", "format": FORMAT, "family": FORMAT, "families": [FORMAT], "parameter_size": "",
            "quantization_level": ""}  # fmt: skip


def _context_length(model: Model) -> int | None:
    if model.text is not None:
        return model.text.engine.context_length
    return None if model.text_tensors is None else model.text_tensors.tokenizer.max_length
