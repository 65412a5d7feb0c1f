"""Answers of 24 MB: clients that read them as fast as they can, and clients that hardly read at all."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 6_000_000
SIZE = 4 * WIDTH
QUICK, SLOW = 24, 16  # clients
PIECE, PAUSE_S = 8192, 1.0  # what a slow one reads, and how often: twice what it has to while nobody waits
REFUSED = (503, 504)  # busy, or too late: said so, and nothing of an answer was sent


def model() -> bytes:
    """y = the number that x is, six million times."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])
        for name, width in (("x", 1), ("y", WIDTH))
    ]
    shape = numpy_helper.from_array(np.array([1, WIDTH]), "shape")
    graph = helper.make_graph([helper.make_node("Expand", ["x", "shape"], ["y"])], "big", ends[:1], ends[1:], [shape])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(made.SerializeToString())


def put(folder: Path) -> None:
    path = folder / "big" / "1" / "model.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(model())
    onnx.checker.check_model(str(path))


def request(number: float) -> bytes:
    entry = {"name": "x", "shape": [1, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}
    text = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    head = (
        f"POST /v2/models/big/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(text) + 4}\r\n"
        f"inference-header-content-length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text + struct.pack("<f", number)


class Readers:
    """All of them. What became of each request is in `seen`, by (kind of client, outcome)."""

    def __init__(self, port: int) -> None:
        self.port, self.stop = port, False
        self.sent: Counter[str] = Counter()
        self.seen: Counter[tuple[str, str]] = Counter()

    async def run(self) -> None:
        """Until `stop`, and what was asked by then is answered."""
        quick = [self._client("quick", number) for number in range(QUICK)]
        slow = [self._client("slow", number) for number in range(SLOW)]
        await asyncio.gather(*quick, *slow)

    def problems(self) -> list[str]:
        """What may not be."""
        wrong = [
            f"{count} x {kind}: {what}" for (kind, what), count in self.seen.items() if what not in self._fine(kind)
        ]
        for kind, sent in self.sent.items():
            known = sum(count for (other, _), count in self.seen.items() if other == kind)
            if known != sent:
                wrong.append(f"{sent - known} requests of {kind} clients without an outcome")
        if not self.seen["quick", "whole"]:
            wrong.append("no quick client got an answer")
        return wrong

    @staticmethod
    def _fine(kind: str) -> tuple[str, ...]:
        return ("whole", "refused") if kind == "quick" else ("whole", "refused", "ended for slowness")

    async def _client(self, kind: str, number: int) -> None:
        while not self.stop:
            self.sent[kind] += 1
            self.seen[kind, await self._ask(kind, float(number))] += 1

    async def _ask(self, kind: str, number: float) -> str:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            if kind == "slow":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * PIECE)
            got = b""
            try:
                await loop.sock_connect(client, ("127.0.0.1", self.port))
                await loop.sock_sendall(client, request(number))
                while b"\r\n\r\n" not in got:
                    piece = await loop.sock_recv(client, PIECE)
                    if not piece:
                        return "closed without an answer"
                    got += piece
                head, _, rest = got.partition(b"\r\n\r\n")
                status = int(head.split()[1])
                length = next(
                    int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length")
                )
                body = bytearray(rest)
                while len(body) < length:
                    if kind == "slow" and status == 200 and not self.stop:
                        await asyncio.sleep(PAUSE_S)
                        piece = await loop.sock_recv(client, PIECE)
                    else:
                        piece = await loop.sock_recv(client, 1 << 20)
                    if not piece:
                        break
                    body += piece
            except OSError as error:
                return self._cut(kind, got, type(error).__name__)
        if len(body) < length:
            return self._cut(kind, got, "closed")
        if status != 200:
            await asyncio.sleep(0.2)
            return "refused" if status in REFUSED else f"status {status}"
        right = (np.frombuffer(body, np.float32, WIDTH, length - SIZE) == number).all()
        return "whole" if right else "wrong numbers"

    @staticmethod
    def _cut(kind: str, got: bytes, how: str) -> str:
        if not got:
            return f"no answer ({how})"
        return "ended for slowness" if kind == "slow" else f"A 200 THAT IS CUT ({how})"
