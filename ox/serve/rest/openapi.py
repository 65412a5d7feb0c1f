"""The document at /openapi.json: every call, and for each model that is loaded what its requests look like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import numpy as np

from ox import __version__
from ox.graph.contract import DTYPES, Array, TensorInfo, dtype_name
from ox.serve.repository.model import Model
from ox.serve.rest.routes import TABLE, Route

Document = dict[str, Any]
MOST_SHOWN = 1024  # elements of a golden sample
ERROR = {"description": "What is wrong, what was expected, what to try", "content": {}}
ABOUT = """The Open Inference Protocol V2 with Triton's extensions. Tensors travel as JSON, or as raw bytes behind it: \
then the header Inference-Header-Content-Length says where the JSON ends, and each tensor's parameter binary_data_size \
how many bytes are its. With 0 in that header there is no JSON, and the body is the only input."""
LENGTH = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "description": "Bytes of JSON before the first binary tensor; absent if there is none, 0 for no JSON at all",
    "schema": {"type": "integer", "minimum": 0},
}
# What stands in a body of a call that is not inference.
BODIES: Mapping[str, Document] = {
    "index": {"ready": {"type": "boolean"}},
    "load": {"parameters": {"type": "object", "description": "config: JSON; file:VERSION/NAME: base64"}},
    "unload": {"parameters": {"type": "object", "properties": {"unload_dependents": {"type": "boolean"}}}},
    "register": {
        "key": {"type": "string"},
        "offset": {"type": "integer", "minimum": 0},
        "byte_size": {"type": "integer", "minimum": 1},
    },
    "setting": {"trace_level": {"type": "array", "items": {"enum": ["OFF", "TIMESTAMPS"]}}},
    "logging": {"log_info": {"type": "boolean"}, "log_verbose_level": {"type": "integer", "minimum": 0}},
    "unregister": {},
}
# What stands in an answer about health, by the path; what is not ready says so with 400.
HEALTH: Mapping[str, Document] = {
    "/v2/health/live": {"live": {"type": "boolean"}},
    "/v2/health/ready": {"ready": {"type": "boolean"}},
    "/v2/models/{model}/ready": {"name": {"type": "string"}, "ready": {"type": "boolean"}},
    "/v2/models/{model}/versions/{version}/ready": {"name": {"type": "string"}, "ready": {"type": "boolean"}},
}


def openapi(models: Iterable[Model]) -> Document:
    """The document, in the form of OpenAPI 3.1; its addresses are relative to its own."""
    paths: Document = {}
    for model in models:
        name = quote(model.name)
        for path in (f"v2/models/{name}/infer", f"v2/models/{name}/versions/{model.version}/infer"):
            paths[f"/{path}"] = {"post": _inference(model, path)}
    for route in TABLE:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "ox", "version": __version__, "description": ABOUT},
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {
            "schemas": {"Error": _object({"error": {"type": "string"}})},
            "responses": {"Error": {**ERROR, "content": _json({"$ref": "#/components/schemas/Error"})}},
        },
    }


def _operation(route: Route) -> Document:
    names = re.findall(r"{(\w+)}", route.path)
    operation: Document = {
        "operationId": _identifier(f"{route.method} {route.path}"),
        "summary": route.about,
        "responses": {
            "200": {"description": "Done"}
            if route.form is None
            else {"description": "The answer", "content": _json({})},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }
    if (told := HEALTH.get(route.path)) is not None:
        operation["responses"]["200"]["content"] = _json(_object(told))
        if "ready" in told:
            error = {"$ref": "#/components/schemas/Error"}
            content = _json({"anyOf": [_object(told), error]})
            operation["responses"]["400"] = {"description": "Not ready", "content": content}
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if route.method == "POST" and (fields := BODIES[route.path.rpartition("/")[2]]):
        operation["requestBody"] = {"content": _json({"type": "object", "properties": fields})}
    return operation


def _inference(model: Model, path: str) -> Document:
    examples = _examples(model)
    request = _object({"inputs": _tensors(model.inputs)}, "inputs", id={"type": "string"}, outputs=_wanted(model))
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
        data={"type": "array", "description": "in row-major order; flat, or nested as the shape says"},
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


def _wanted(model: Model) -> Document:
    names = [info.name for info in model.outputs]
    entry = _object({"name": {"enum": names}}, parameters={"type": "object"}) if names else False
    return {"type": "array", "items": entry, "description": "without it all of them"}


def _examples(model: Model) -> tuple[Document | None, Document | None]:
    """A golden sample as request and reply, where there is one that JSON can carry and a page can show."""
    for sample in model.samples:
        arrays = [*sample.inputs.values(), *sample.outputs.values()]
        if sum(array.size for array in arrays) <= MOST_SHOWN and all(map(_shown, arrays)):
            reply = {"model_name": model.name, "model_version": model.version, "outputs": _data(sample.outputs)}
            return {"inputs": _data(sample.inputs)}, reply
    return None, None


def _shown(array: Array) -> bool:
    return array.dtype.kind in "biuO" or (array.dtype.kind == "f" and bool(np.isfinite(array).all()))


def _data(arrays: Mapping[str, Array]) -> list[Document]:
    return [
        {"name": name, "shape": list(array.shape), "datatype": dtype_name(array.dtype), "data": array.ravel().tolist()}
        for name, array in arrays.items()
    ]


def _object(required: Document, *also: str, **optional: Any) -> Document:
    """The schema of an object whose fields of `required` must be there."""
    names = list(dict.fromkeys([*required, *also]))
    return {"type": "object", "properties": {**required, **optional}, "required": names}


def _json(schema: Document, example: Document | None = None) -> Document:
    media: Document = {"schema": schema}
    if example is not None:
        media["example"] = example
    return {"application/json": media}


def _identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_").lower()
