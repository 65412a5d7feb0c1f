"""Many clients that come, stop reading, leave in the middle, send nonsense and return; then everything is as before."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest
from waiting import give_way, wait_until

from ox.serve import ModelConfig, Server

CLIENTS, REQUESTS = 200, 2


class Client:
    """One that behaves by chance."""

    def __init__(self, port: int, seed: int) -> None:
        self._port, self._chance = port, random.Random(seed)
        self.ends: dict[str, int] = {}

    async def run(self) -> None:
        for _ in range(REQUESTS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                self.ends[await self._once(reader, writer)] = 1
            finally:
                writer.transport.abort()

    async def _once(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        body: dict[str, Any] = {
            "model": "tiny", "prompt": "the cat"[: self._chance.randint(1, 7)], "ignore_eos": True,
            "max_tokens": self._chance.randint(1, 150), "stream": self._chance.random() < 0.7,
            "n": self._chance.choice([1, 1, 1, 3]), "logprobs": self._chance.choice([None, 20]),
        }  # fmt: skip
        what = self._chance.choice(["read", "read", "leave", "pause", "nonsense", "half"])
        data = b'{"model": "tiny", "prompt": [-1]}' if what == "nonsense" else json.dumps(body).encode()
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(data)
        )
        writer.write(data[: len(data) // 2] if what == "half" else data)
        if what in ("leave", "half"):
            if what == "leave" and self._chance.random() < 0.5:
                await reader.read(100)  # in the middle of its text
            return what
        begin = b""
        if what == "pause":
            begin = await reader.read(100)
            await give_way(self._chance.randint(1, 1000))
        answer = begin + await reader.read(-1)
        if answer.startswith(b"HTTP/1.1 200"):
            whole = answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") if body["stream"] else answer.endswith(b"}}}")
            assert whole, answer[-200:]
        else:
            assert answer.startswith((b"HTTP/1.1 503", b"HTTP/1.1 400")), answer[:200]
        return answer[9:12].decode()


@pytest.mark.slow
def test_restless_clients(decoder: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = ModelConfig(threads=1, max_queue=100, deadline_ms=600_000, generation={"cache_mib": 8, "max_texts": 16})
    with caplog.at_level(logging.ERROR, "ox.serve"), Server([decoder], options=options) as server:
        engine, listener = server.models[0].generation, server._listener_state
        assert engine is not None
        clients = [Client(server.port or 0, seed) for seed in range(CLIENTS)]

        async def all_of_them() -> None:
            await asyncio.gather(*(client.run() for client in clients))

        asyncio.run(all_of_them())
        wait_until(lambda: not (engine.stats()["running"] or engine.stats()["waiting"] or listener.connections))
        assert listener.buffered == 0 and listener.unread == 0
        assert {end for client in clients for end in client.ends} >= {"200", "400", "leave", "half"}
    assert not caplog.records
