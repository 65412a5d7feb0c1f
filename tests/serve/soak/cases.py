"""What is asked, and what is a right answer to it. Every answer is held against the output of exactly one version."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import orjson
from world import STABLE, WIDTH, World

from ox.bench.address import Address
from ox.bench.answer import OK, Reply, read
from ox.bench.model import Model, Tensor, as_bytes
from ox.bench.protobuf import fields, framed
from ox.bench.request import build
from ox.protobuf import field

BUSY = ("HTTP 503", "HTTP 504", "gRPC 14", "gRPC 4", "gRPC 8")
Judge = Callable[[Reply, float], str | None]


@dataclass(frozen=True)
class Case:
    """`judge` says what is wrong with a reply to a request that was sent at that time, or None."""

    name: str
    request: bytes
    judge: Judge


def status(reply: Reply) -> str:
    if reply.failure is not None:
        return " ".join(reply.failure.split()[:2]) if reply.failure.startswith("gRPC") else reply.failure
    return f"HTTP {reply.status}"


def succeeded(reply: Reply) -> bool:
    return reply.failure is None and reply.status == OK


def version(reply: Reply, grpc: bool) -> str:
    if grpc:
        return next((as_bytes(value).decode() for number, value in fields(reply.body) if number == 2), "")
    return str(orjson.loads(reply.body[: reply.json_length])["model_version"])


def cases(address: Address, world: World) -> list[Case]:
    """One of each kind for this transport; a client draws from them."""
    draw = random.Random(1 if address.grpc else 2)
    made: list[Case] = []

    def request(name: str, x: np.ndarray, binary: bool, where: str = "x", kind: str = "FP32") -> bytes:  # type: ignore[type-arg]
        shape = (-1, *x.shape[1:])
        model = Model(name, (Tensor(where, kind, shape),), (Tensor("y", "FP32", (-1, WIDTH)),))
        return build(address, model, {where: x}, binary)

    def shifted(name: str, x: np.ndarray, absent: tuple[str, ...] = ()) -> Judge:  # type: ignore[type-arg]
        def judge(reply: Reply, sent: float) -> str | None:
            if not succeeded(reply):
                return None if status(reply) in absent else f"{name} refused: {status(reply)} {reply.body[:200]!r}"
            (output,) = read(reply, address.grpc)
            number = float(output.values.ravel()[0] - x.ravel()[0])
            if output.values.shape != x.shape or not np.array_equal(output.values, x + np.float32(number)):
                return f"{name} answered with a mixture: {output.values - x}"
            if name == "grow" and version(reply, address.grpc) != f"{number:.0f}":
                return f"grow {number} says that it is {version(reply, address.grpc)}"
            return world.problem(name, int(number), sent)

        return judge

    for binary in (True,) if address.grpc else (True, False):
        for rows in (1, 1, 1, 2, 5):
            x = np.array([[draw.randrange(-50, 50) for _ in range(WIDTH)] for _ in range(rows)], np.float32)
            made.append(Case("grow", request("grow", x, binary), shifted("grow", x)))
            made.append(Case("flip", request("flip", x, binary), shifted("flip", x)))
            made.append(Case("stable", request("stable", x, binary), exactly(x @ STABLE, address.grpc)))
        absent = ("HTTP 404", "HTTP 400", "HTTP 503", "gRPC 5", "gRPC 3", "gRPC 14", "gRPC 9")
        made.append(Case("guest", request("guest", x, binary), shifted("guest", x, absent)))
        table = np.arange(4 * WIDTH, dtype=np.float32).reshape(4, WIDTH)
        for number in (0, 1, 2, 3):
            i = np.array([number])
            made.append(Case("picky", request("picky", i, binary, "i", "INT64"), exactly(table[i], address.grpc)))
        refused = refusal("HTTP 400", "HTTP 500", "gRPC 3", "gRPC 13")
        made.append(Case("picky, a row that fails", request("picky", np.array([9]), binary, "i", "INT64"), refused))
        x = np.zeros((1, WIDTH + 1), np.float32)
        made.append(Case("wrong shape", request("stable", x, binary), refusal("HTTP 400", "gRPC 3")))
        made.append(Case("no such model", request("nobody", x, binary), refusal("HTTP 404", "gRPC 5")))
        gone = refusal("HTTP 400", "HTTP 404", "HTTP 503", "gRPC 5", "gRPC 3", "gRPC 9", "gRPC 14")
        made.append(Case("broken", request("broken", x[:, 1:], binary), gone))
    return [*made, *(bad_messages() if address.grpc else bad_bodies(address))]


def exactly(y: np.ndarray, grpc: bool) -> Judge:  # type: ignore[type-arg]
    def judge(reply: Reply, sent: float) -> str | None:
        if not succeeded(reply):
            return f"refused: {status(reply)} {reply.body[:200]!r}"
        (output,) = read(reply, grpc)
        return None if np.array_equal(output.values, y) else f"{output.values} instead of {y}"

    return judge


def refusal(*allowed: str) -> Judge:
    def judge(reply: Reply, sent: float) -> str | None:
        if status(reply) not in allowed:
            return f"{status(reply)} instead of {' or '.join(allowed)}: {reply.body[:200]!r}"
        if reply.failure is None and not orjson.loads(reply.body)["error"]:
            return "an error without a word"
        return None if b"Traceback" not in reply.body else "a stack trace"

    return judge


def bad_bodies(address: Address) -> list[Case]:
    def post(body: bytes, *lines: str, path: str = "/v2/models/stable/infer", method: str = "POST") -> bytes:
        head = [f"{method} {path} HTTP/1.1", f"host: {address.authority}", f"content-length: {len(body)}", *lines]
        return "\r\n".join([*head, "", ""]).encode() + body

    entry = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32"}
    short = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": 4 * WIDTH}}]}).encode()
    return [
        Case("no JSON", post(b'{"inputs": ['), refusal("HTTP 400")),
        Case("deep JSON", post(b"[" * 50_000), refusal("HTTP 400")),
        Case("no inputs", post(b"{}"), refusal("HTTP 400")),
        Case(
            "numbers that are none",
            post(json.dumps({"inputs": [{**entry, "data": ["a"]}]}).encode()),
            refusal("HTTP 400"),
        ),
        Case(
            "too few bytes",
            post(short + b"1234", f"inference-header-content-length: {len(short)}"),
            refusal("HTTP 400"),
        ),
        Case("too long a header", post(short, "inference-header-content-length: 999999"), refusal("HTTP 400")),
        Case("no such path", post(b"", path="/v2/nothing"), refusal("HTTP 404")),
        Case("wrong method", post(b"", method="PUT"), refusal("HTTP 405")),
        Case("unknown encoding", post(b"{}", "content-encoding: br"), refusal("HTTP 415", "HTTP 400")),
    ]


def bad_messages() -> list[Case]:
    tensor = field(5, field(1, "x") + field(2, "FP32") + field(3, b"\x01\x08"))
    return [
        Case("no protobuf", framed(b"\xff" * 40), refusal("gRPC 3", "gRPC 13")),
        Case("no inputs", framed(field(1, "stable")), refusal("gRPC 3")),
        Case("too few bytes", framed(field(1, "stable") + tensor + field(7, b"1234")), refusal("gRPC 3")),
    ]
