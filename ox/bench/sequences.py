"""Load of sequences: each client sends the requests of one sequence in their order, and then begins another one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, cast

from ox.bench.answer import OK, Reply, ResponseValidator
from ox.bench.client import Client
from ox.bench.grpc import GrpcClient
from ox.bench.http1 import HttpClient
from ox.bench.model import Model
from ox.bench.protobuf import framed
from ox.protobuf import field

if TYPE_CHECKING:
    from ox.bench.pool import Pool

DIGITS = 13  # of an id: all requests have the same length
# What a request over HTTP has in its JSON, and what is written in its place.
PARAMETERS = {"sequence_id": 10 ** (DIGITS - 1), "sequence_start": False, "sequence_end": False}
FRAME = 5  # bytes before a message of gRPC


class SequenceValidator(ResponseValidator):
    """Says what is wrong with an answer to a request of a sequence: its values depend on the requests before.

    Args:
        length: requests of a sequence.
        part, parts: of the processes that send, which one this is.
    """

    def __init__(
        self, model: Model, known: Sequence[Reply], grpc: bool, length: int, part: int = 0, parts: int = 1
    ) -> None:
        super().__init__(model, known, grpc, check=False)
        self.length, self.ids = length, new_ids(part, parts)


class Steps:
    """Where a client is in its sequence."""

    def __init__(self, validator: SequenceValidator) -> None:
        self._validator = validator
        self._id = self._sent = 0

    @property
    def unfinished(self) -> bool:
        """Whether a sequence was begun whose last request was not sent."""
        return self._sent > 0

    def next(self) -> tuple[int, bool, bool]:
        """Of the next request: the id of its sequence, and whether it is the first and the last one."""
        if not self._sent:
            self._id = next(self._validator.ids)
        first, last = self._sent == 0, self._sent == self._validator.length - 1
        self._sent = 0 if last else self._sent + 1
        return self._id, first, last

    def abandon(self) -> None:
        """A request has failed, and those after it would: another sequence is begun."""
        self._sent = 0


class SequenceClient(Client):
    """Sends sequences; another base class speaks the protocol."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.steps = Steps(cast(SequenceValidator, pool.judge))

    @property
    def unfinished(self) -> bool:
        return self.steps.unfinished

    def answered(self, reply: Reply) -> None:
        if reply.status != OK or reply.failure is not None:
            self.steps.abandon()
        super().answered(reply)


class HttpSequences(SequenceClient, HttpClient):
    def send(self, request: bytes) -> None:
        super().send(http_step(request, *self.steps.next()))


class GrpcSequences(SequenceClient, GrpcClient):
    def send(self, request: bytes) -> None:
        super().send(grpc_step(request, *self.steps.next()))


def new_ids(part: int = 0, parts: int = 1) -> Iterator[int]:
    """Ids that no other process, step or load has."""
    first = 10 ** (DIGITS - 1) + secrets.randbelow(8 * 10 ** (DIGITS - 1))
    return count(first - first % parts + part, parts)


def http_step(request: bytes, identity: int, first: bool, last: bool) -> bytes:
    """A request with PARAMETERS as one of a sequence, in as many bytes."""
    for name, value in (("sequence_id", identity), ("sequence_start", first), ("sequence_end", last)):
        old = b'"%s":%s' % (name.encode(), str(PARAMETERS[name]).lower().encode())
        new = b'"%s":%s' % (name.encode(), str(value).lower().encode())
        request = request.replace(old, new.ljust(len(old)), 1)
    return request


def grpc_step(request: bytes, identity: int, first: bool, last: bool) -> bytes:
    """A framed ModelInferRequest with the parameters of a sequence: 4 parameters (1 key, 2 value); of a value 1
    bool_param, 2 int64_param."""
    values = ("sequence_id", field(2, identity)), ("sequence_start", field(1, first)), ("sequence_end", field(1, last))
    parameters = (field(4, field(1, name) + field(2, value)) for name, value in values)
    return framed(request[FRAME:] + b"".join(parameters))
