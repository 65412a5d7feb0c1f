"""The OpenAPI document at /openapi.json: all calls, and the request format of each loaded model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from ox._version import __version__
from ox.graph.contract import DTYPES, Array, TensorInfo, dtype_name
from ox.serve.protocol.rest.routing import Route
from ox.serve.repository.model import Model

Document = dict[str, Any]
MAX_SAMPLE_ELEMENTS = 1024  # elements of a golden sample
ERROR = {"description": "What is wrong, what was expected, what to try", "content": {}}
ABOUT = """The Open Inference Protocol V2 with Triton's extensions. Tensors are sent as JSON, or as raw bytes after \
the JSON: then the header Inference-Header-Content-Length is the length of the JSON, and the parameter \
binary_data_size of each tensor is its number of bytes. If the header is 0, there is no JSON and \
the body is the only input."""
LENGTH = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "description": "Length of the JSON in bytes; absent without binary tensors, 0 without JSON",
    "schema": {"type": "integer", "minimum": 0},
}
WARNING = {
    "ox-warning": {
        "description": "The fields that changed nothing: unused=NAME, ...; unknown=NAME, ...",
        "schema": {"type": "string"},
    }
}


def openapi(models: Iterable[Model], table: Sequence[Route], root_path: str = "") -> Document:
    """The OpenAPI 3.1 document of a table of routes. Its paths are relative to `root_path`, the path under which a
    proxy publishes the server; without one, to the document's own URL."""
    paths: Document = {}
    for model in models:
        for route in table:
            if route.each_model and model.text is None:
                path = route.path.format(model=quote(model.name), version=model.version)
                paths[path] = {route.method.lower(): _inference(model, path)}
    for route in table:
        if not (route.each_model or route.undocumented):
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    forms = {route.errors.name: route.errors for route in table}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ox", "version": __version__, "description": ABOUT},
        "servers": [{"url": root_path or "."}],
        "paths": paths,
        "components": {
            "schemas": {name: _object(form.schema) for name, form in forms.items()},
            "responses": {
                name: {**ERROR, "content": _json({"$ref": f"#/components/schemas/{name}"})} for name in forms
            },
        },
    }


def _operation(route: Route) -> Document:
    names = re.findall(r"{(\w+)}", route.path)
    operation: Document = {
        "operationId": _identifier(f"{route.method} {route.path}"),
        "summary": route.about,
        "responses": {
            "200": {"description": "Done"}
            if route.reply is None
            else {"description": "The response", "content": _json({})},
            "default": {"$ref": f"#/components/responses/{route.errors.name}"},
        },
    }
    done = operation["responses"]["200"]
    if route.reply:
        reply = _object({name: schema for name, schema in route.reply.items() if name not in route.optional},
                        **{name: route.reply[name] for name in route.optional})  # fmt: skip
        content = _json(reply)
        if route.events or "stream" in (route.request or {}):
            content = {**({} if route.events else content), route.stream_type: {"schema": {"type": "string"}}}
        done["content"] = content
        if "ready" in route.reply:
            error = {"$ref": "#/components/schemas/Error"}
            content = _json({"anyOf": [reply, error]})
            operation["responses"]["400"] = {"description": "Not ready", "content": content}
    if names or route.query:
        places = [*(("path", name) for name in names), *(("query", name) for name in route.query)]
        operation["parameters"] = [
            {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
            for place, name in places
        ]
    if route.request:
        schema = _request(route.request, route.required) if route.lenient else _object({}, **route.request)
        operation["requestBody"] = {"required": bool(route.required), "content": _json(schema)}
    if route.lenient and route.request:
        done["headers"] = WARNING
    return operation


def _request(fields: Document, required: Sequence[str] = ()) -> Document:
    """The schema of an object whose other fields may be null."""
    properties = {name: schema if name in required else _nullable(schema) for name, schema in fields.items()}
    return {"type": "object", "properties": properties, "required": list(required)}


def _nullable(schema: Document) -> Document:
    """The same schema, or null; also for the fields of an object."""
    if "properties" in schema:
        schema = {**schema, **_request(schema["properties"], schema.get("required", ()))}
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "const" in schema:
        return {**{name: value for name, value in schema.items() if name != "const"}, "enum": [schema["const"], None]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    kinds = schema.get("type")
    return schema if kinds is None else {**schema, "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]}


def _inference(model: Model, path: str) -> Document:
    examples = _examples(model)
    request = _object(
        {"inputs": _tensors(model.inputs)}, "inputs", id={"type": "string"}, outputs=_requested_outputs(model)
    )
    request["properties"]["parameters"] = {"type": "object"}
    reply = _object(
        {"model_name": {"const": model.name}, "model_version": {"const": model.version}},
        id={"type": "string"},
        outputs=_tensors(model.outputs),
    )
    raw = {"schema": {"type": "string", "format": "binary"}}
    return {
        "operationId": _identifier(path),
        "summary": f"Runs {model.name}",
        "parameters": [LENGTH],
        "requestBody": {
            "required": True,
            "content": {**_json(request, examples[0]), "application/octet-stream": raw},
        },
        "responses": {
            "200": {
                "description": "The outputs",
                "content": {**_json(reply, examples[1]), "application/octet-stream": raw},
            },
            "default": {"$ref": "#/components/responses/Error"},
        },
    }


def _tensors(infos: Iterable[TensorInfo]) -> Document:
    schemas = [_tensor(info) for info in infos]
    return {"type": "array", "items": {"oneOf": schemas} if schemas else False, "maxItems": len(schemas)}


def _tensor(info: TensorInfo) -> Document:
    sizes = [{"const": size} if isinstance(size, int) else _size(size) for size in info.dims]
    count = len(sizes)
    shape: Document = {"type": "array", "minItems": count, "maxItems": count}
    if sizes:
        shape |= {"prefixItems": sizes}
    schema = _object(
        {"name": {"const": info.name}, "shape": shape, "datatype": {"const": info.dtype}},
        data={"type": "array", "description": "in row-major order; flat, or nested like the shape"},
        parameters={"type": "object"},
    )
    schema["properties"]["data"] |= {"items": {"anyOf": [_element(info.dtype), {"type": "array"}]}}
    if info.dtype == "BF16":
        del schema["properties"]["data"]
    if info.meaning is not None:
        schema["description"] = info.meaning
    return schema


def _size(name: str | None) -> Document:
    schema: Document = {"type": "integer", "minimum": 0}
    return schema if name is None else schema | {"description": name}


def _element(dtype: str) -> Document:
    if dtype in ("BOOL", "BYTES"):
        return {"type": "boolean" if dtype == "BOOL" else "string"}
    if DTYPES[dtype].kind in "iu":
        bounds = np.iinfo(DTYPES[dtype])
        return {"type": "integer", "minimum": int(bounds.min), "maximum": int(bounds.max)}
    return {"type": "number"}


def _requested_outputs(model: Model) -> Document:
    names = [info.name for info in model.outputs]
    entry = _object({"name": {"enum": names}}, parameters={"type": "object"}) if names else False
    return {"type": "array", "items": entry, "description": "default: all outputs"}


def _examples(model: Model) -> tuple[Document | None, Document | None]:
    """A golden sample as example request and response, if it is small and JSON can represent it."""
    for sample in model.samples:
        arrays = [*sample.inputs.values(), *sample.outputs.values()]
        if sum(array.size for array in arrays) <= MAX_SAMPLE_ELEMENTS and all(map(_fits_json, arrays)):
            reply = {"model_name": model.name, "model_version": model.version, "outputs": _data(sample.outputs)}
            return {"inputs": _data(sample.inputs)}, reply
    return None, None


def _fits_json(array: Array) -> bool:
    return array.dtype.kind in "biuO" or (array.dtype.kind == "f" and bool(np.isfinite(array).all()))


def _data(arrays: Mapping[str, Array]) -> list[Document]:
    return [
        {"name": name, "shape": list(array.shape), "datatype": dtype_name(array.dtype), "data": array.ravel().tolist()}
        for name, array in arrays.items()
    ]


def _object(required: Document, *also: str, **optional: Any) -> Document:
    """The schema of an object; the fields of `required`, and those named in `also`, are required."""
    names = list(dict.fromkeys([*required, *also]))
    return {"type": "object", "properties": {**required, **optional}, "required": names}


def _json(schema: Document, example: Document | None = None) -> Document:
    media: Document = {"schema": schema}
    if example is not None:
        media["example"] = example
    return {"application/json": media}


def _identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_").lower()
