"""What was found out about a request, for the next one that differs in its numbers and its id alone.

Clients send the same JSON around other tensors again and again. Once such a frame has been read and checked with care,
all of it is known; what is left to do is to make arrays of the numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from ox.graph.contract import Array
from ox.serve.v2.inputs import CODES
from ox.serve.v2.request import Request, Wanted

MOST = 64  # frames that are remembered
LONGEST = 4096  # bytes of one of them
LONGEST_ID = 128
START = b'{"id":'
Body = bytes | bytearray
PROOF = [0.125, "where the numbers were"]


class Tensor(NamedTuple):
    """How one input is read."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    elements: int
    size: int  # bytes


class Plan(NamedTuple):
    """All there is to know of a request but its numbers and its id."""

    tensors: list[Tensor]
    size: int  # bytes of all tensors
    rows: int
    key: tuple[Any, ...]
    outputs: Sequence[Wanted]
    parameters: Mapping[str, Any]
    form: Any

    def request(self, identifier: str | None, feed: dict[str, Array]) -> Request:
        return Request(identifier, feed, self.rows, self.key, self.outputs, self.parameters, self.form)


def plan_of(request: Request) -> Plan | None:
    """What to remember of a request; None if anything in it may mean something else the next time."""
    if any(wanted.window is not None for wanted in request.outputs):
        return None
    tensors = []
    for name, array in request.feed.items():
        if array.dtype.char not in "bhilqBHILQefd" or not array.size:
            return None
        tensors.append(Tensor(name, array.dtype, array.shape, array.size, array.nbytes))
    size = sum(tensor.size for tensor in tensors)
    return Plan(tensors, size, request.rows, request.key, request.outputs, request.parameters, request.form)


class Plans:
    """The frames of one model's requests, of one kind. One is remembered when it comes for the second time."""

    def __init__(self) -> None:
        self._plans: dict[bytes, Any] = {}
        self._seen: set[int] = set()
        self.get = self._plans.get

    def worthwhile(self, frame: bytes) -> bool:
        """Whether this frame, which is not remembered, should be."""
        if len(frame) > LONGEST:
            return False
        mark = hash(frame)
        if mark in self._seen:
            return True
        if len(self._seen) >= 16 * MOST:
            self._seen.clear()
        self._seen.add(mark)
        return False

    def put(self, frame: bytes, plan: Any) -> None:
        if len(self._plans) >= MOST:
            self._plans.clear()
        self._plans[frame] = plan


def split_id(text: Body) -> tuple[str | None, int]:
    """The id at a text's very start, where many clients put it, and the place of the quote that ends it.

    None and 0 where there is none, or one that only a JSON parser can read.
    """
    if text[:6] != START:
        return None, 0
    first = 6 if text[6:7] == b'"' else 7
    last = text.find(b'"', first + 1, first + LONGEST_ID)
    if last < 0 or (first == 7 and text[6:8] != b' "'):
        return None, 0
    try:
        identifier = text[first + 1 : last].decode()
    except UnicodeDecodeError:
        return None, 0
    if "\\" in identifier or not identifier.isprintable():
        return None, 0
    return identifier, last


class BinaryPlans(Plans):
    """Requests whose tensors all follow the JSON: everything before them is the frame."""

    def read(self, body: Body, at: int) -> Request | None:
        """The request, if its frame is known and its tensors are all there."""
        identifier, start = split_id(body)
        if at > 2 * LONGEST:  # not worth a look
            return None
        plan: Plan | None = self.get(bytes(body[start:at]))
        if plan is None or len(body) - at != plan.size:
            return None
        feed = {}
        for name, dtype, shape, _, size in plan.tensors:
            array = np.ndarray(shape, dtype, body, at)
            feed[name] = array if array.flags.aligned else array.copy()
            at += size
        return plan.request(identifier, feed)

    def learn(self, body: Body, at: int, request: Request) -> None:
        """Remembers a request that was read with care, if all of its tensors are those that follow the JSON."""
        identifier, start = split_id(body)
        frame = bytes(body[start:at])
        if identifier == request.id and self.worthwhile(frame) and not (start and b'"id"' in frame):
            plan = plan_of(request)
            if plan is not None and plan.size == len(body) - at:
                self.put(frame, plan)


class JsonPlans(Plans):
    """Requests of one tensor, whose flat numbers stand in the JSON: everything around them is the frame."""

    def read(self, body: Body) -> Request | None:
        """The request, if its frame is known and its numbers are such."""
        identifier, start = split_id(body)
        first, last = _numbers(body, start)
        if not last or first + len(body) - last > 2 * LONGEST:
            return None
        entry = self.get(bytes(body[start:first] + body[last:]))
        if entry is None:
            return None
        text = body[first:last]
        if b"u" in text or b"l" in text:  # true, false, null: struct would take them for numbers
            return None
        plan, pack = entry
        name, dtype, shape, _, _ = plan.tensors[0]
        try:
            array = np.ndarray(shape, dtype, pack(*orjson.loads(text)))
        except (struct.error, OverflowError, TypeError, ValueError):
            return None  # the careful way explains it
        request: Request = plan.request(identifier, {name: array})
        return request

    def learn(self, body: Body, document: dict[str, Any], request: Request) -> None:
        """Remembers a request that was read with care from `document`, all of whose tensors are JSON."""
        identifier, start = split_id(body)
        first, last = _numbers(body, start)
        if not last or identifier != request.id or len(request.feed) != 1:
            return
        frame = bytes(body[start:first] + body[last:])
        if not self.worthwhile(frame) or (start and b'"id"' in frame):
            return
        # Were those the numbers, and nothing else? Then the same text around others gives the same document.
        try:
            other = orjson.loads(body[:first] + orjson.dumps(PROOF) + body[last:])
        except orjson.JSONDecodeError:
            return
        (tensor,), (original,) = other["inputs"], document["inputs"]
        if tensor.get("data") != PROOF or {**other, "inputs": [{**tensor, "data": original["data"]}]} != document:
            return
        plan = plan_of(request)
        if plan is not None:
            (only,) = plan.tensors
            code = next(code for code in CODES.values() if np.dtype(code) == only.dtype)
            self.put(frame, (plan, struct.Struct(f"<{only.elements}{code}").pack))


def _numbers(body: Body, start: int) -> tuple[int, int]:
    """Where the list after the first "data" begins and ends; 0, 0 if there is none."""
    at = body.find(b'"data"', start)
    first = body.find(b"[", at, at + 10) if at > 0 else -1
    last = body.find(b"]", first) if first > 0 else -1
    return (first, last + 1) if last > 0 else (0, 0)
