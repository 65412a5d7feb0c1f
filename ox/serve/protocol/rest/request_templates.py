"""Templates of parsed requests, for later requests that differ only in numbers and id.

Clients send the same JSON around other tensors again and again. After such a frame (the request without its numbers)
has been parsed and checked once, only the numbers are converted to arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from ox.graph.contract import Array
from ox.serve.protocol.v2.inputs import CODES
from ox.serve.protocol.v2.request import Request, RequestedOutput

MAX_TEMPLATES = 64  # cached frames
MAX_FRAME_BYTES = 4096  # bytes of one frame
MAX_ID_BYTES = 128
ID_PREFIX = b'{"id":'
Body = bytes | bytearray
SENTINEL = [0.125, "where the numbers were"]


class TensorLayout(NamedTuple):
    """Name, dtype, shape and size of one input."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    elements: int
    size: int  # bytes


class RequestTemplate(NamedTuple):
    """A parsed request without its numbers and its id."""

    tensors: list[TensorLayout]
    size: int  # bytes of all tensors
    rows: int
    key: tuple[Any, ...]
    outputs: Sequence[RequestedOutput]
    parameters: Mapping[str, Any]
    form: Any

    def build(self, identifier: str | None, feed: dict[str, Array]) -> Request:
        return Request(identifier, feed, self.rows, self.key, self.outputs, self.parameters, self.form)


def template_of(request: Request) -> RequestTemplate | None:
    """The template of a request; None if its frame does not determine everything else."""
    if any(wanted.region_slice is not None for wanted in request.outputs):
        return None
    tensors = []
    for name, array in request.feed.items():
        if array.dtype.char not in "bhilqBHILQefd" or not array.size:
            return None
        tensors.append(TensorLayout(name, array.dtype, array.shape, array.size, array.nbytes))
    size = sum(tensor.size for tensor in tensors)
    return RequestTemplate(
        tensors, size, request.rows, request.key, request.outputs, request.parameters, request.writer_state
    )


class TemplateCache:
    """A cache of templates by frame, for one model. A frame is cached when it appears for the second time."""

    def __init__(self) -> None:
        self._templates: dict[bytes, Any] = {}
        self._seen: set[int] = set()
        self.get = self._templates.get

    def seen_before(self, frame: bytes) -> bool:
        """Whether an uncached frame has appeared before, and so should be cached."""
        if len(frame) > MAX_FRAME_BYTES:
            return False
        mark = hash(frame)
        if mark in self._seen:
            return True
        if len(self._seen) >= 16 * MAX_TEMPLATES:
            self._seen.clear()
        self._seen.add(mark)
        return False

    def add(self, frame: bytes, plan: Any) -> None:
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        self._templates[frame] = plan


def split_id(text: Body) -> tuple[str | None, int]:
    """The id at the start of the text, where many clients put it, and the position of its closing quote.

    None and 0 if there is none, or if it needs a JSON parser.
    """
    if text[:6] != ID_PREFIX:
        return None, 0
    first = 6 if text[6:7] == b'"' else 7
    last = text.find(b'"', first + 1, first + MAX_ID_BYTES)
    if last < 0 or (first == 7 and text[6:8] != b' "'):
        return None, 0
    try:
        identifier = text[first + 1 : last].decode()
    except UnicodeDecodeError:
        return None, 0
    if "\\" in identifier or not identifier.isprintable():
        return None, 0
    return identifier, last


class BinaryTemplates(TemplateCache):
    """Templates of requests whose tensors all follow the JSON: the frame is the JSON."""

    def read(self, body: Body, at: int) -> Request | None:
        """The request, if its frame is cached and its tensors are complete; otherwise None."""
        identifier, start = split_id(body)
        if at > 2 * MAX_FRAME_BYTES:  # too long for a cached frame
            return None
        plan: RequestTemplate | None = self.get(bytes(body[start:at]))
        if plan is None or len(body) - at != plan.size:
            return None
        feed = {}
        for name, dtype, shape, _, size in plan.tensors:
            array = np.ndarray(shape, dtype, body, at)
            feed[name] = array if array.flags.aligned else array.copy()
            at += size
        return plan.build(identifier, feed)

    def remember(self, body: Body, at: int, request: Request) -> None:
        """Caches the template of a parsed request, if all of its tensors follow the JSON."""
        identifier, start = split_id(body)
        frame = bytes(body[start:at])
        if identifier == request.id and self.seen_before(frame) and not (start and b'"id"' in frame):
            plan = template_of(request)
            if plan is not None and plan.size == len(body) - at:
                self.add(frame, plan)


class JsonTemplates(TemplateCache):
    """Templates of requests with one tensor as a flat JSON list: the frame is the text around the list."""

    def read(self, body: Body) -> Request | None:
        """The request, if its frame is cached and its numbers are valid; otherwise None."""
        identifier, start = split_id(body)
        first, last = _data_bounds(body, start)
        if not last or first + len(body) - last > 2 * MAX_FRAME_BYTES:
            return None
        entry = self.get(bytes(body[start:first] + body[last:]))
        if entry is None:
            return None
        text = body[first:last]
        if b"u" in text or b"l" in text:  # true, false, null: struct takes them as numbers
            return None
        plan, pack = entry
        name, dtype, shape, _, _ = plan.tensors[0]
        try:
            array = np.ndarray(shape, dtype, pack(*orjson.loads(text)))
        except (struct.error, OverflowError, TypeError, ValueError):
            return None  # the full parser reports the error
        request: Request = plan.build(identifier, {name: array})
        return request

    def remember(self, body: Body, document: dict[str, Any], request: Request) -> None:
        """Caches the template of a request parsed from `document`, if its tensor is JSON."""
        identifier, start = split_id(body)
        first, last = _data_bounds(body, start)
        if not last or identifier != request.id or len(request.feed) != 1:
            return
        frame = bytes(body[start:first] + body[last:])
        if not self.seen_before(frame) or (start and b'"id"' in frame):
            return
        # Check that these are the numbers: with other numbers, the same text must give the same document.
        try:
            other = orjson.loads(body[:first] + orjson.dumps(SENTINEL) + body[last:])
        except orjson.JSONDecodeError:
            return
        (tensor,), (original,) = other["inputs"], document["inputs"]
        if tensor.get("data") != SENTINEL or {**other, "inputs": [{**tensor, "data": original["data"]}]} != document:
            return
        plan = template_of(request)
        if plan is not None:
            (only,) = plan.tensors
            code = next(code for code in CODES.values() if np.dtype(code) == only.dtype)
            self.add(frame, (plan, struct.Struct(f"<{only.elements}{code}").pack))


def _data_bounds(body: Body, start: int) -> tuple[int, int]:
    """The bounds of the list after the first "data"; 0, 0 if there is none."""
    at = body.find(b'"data"', start)
    first = body.find(b"[", at, at + 10) if at > 0 else -1
    last = body.find(b"]", first) if first > 0 else -1
    return (first, last + 1) if last > 0 else (0, 0)
