"""Clients that stream texts from a server in OpenAI's dialect: tokens per second, and the time to the first token.

python load.py PORT STREAMS REQUESTS PROMPT TOKENS SEED prints a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time

VOCABULARY = 4096


async def stream(port: int, prompts: list[list[int]], tokens: int, first: list[float]) -> int:
    """One client, with one connection a request; returns how many tokens it got."""
    got = 0
    for prompt in prompts:
        body = json.dumps({
            "model": "ox", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True,
            "stream_options": {"include_usage": True},
        }).encode()  # fmt: skip
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"  # noqa: E501
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        begun = time.perf_counter()
        writer.write(head.encode() + body)
        seen, usage = False, None
        while line := await reader.readline():
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            if not seen:
                first.append(time.perf_counter() - begun)
                seen = True
            if b'"completion_tokens"' in line:
                usage = json.loads(line[6:]).get("usage") or usage
        writer.close()
        if usage is None or usage["completion_tokens"] != tokens:
            raise SystemExit(f"expected {tokens} tokens, got {usage}")
        got += tokens
    return got


async def main(port: int, streams: int, requests: int, length: int, tokens: int, seed: int) -> None:
    draw = random.Random(seed)
    prompts = [
        [[draw.randrange(3, VOCABULARY) for _ in range(length)] for _ in range(requests)] for _ in range(streams)
    ]
    first: list[float] = []
    begun = time.perf_counter()
    got = sum(await asyncio.gather(*(stream(port, each, tokens, first) for each in prompts)))
    seconds = time.perf_counter() - begun
    first.sort()
    p99 = first[min(len(first) - 1, int(len(first) * 0.99))]
    print(json.dumps({"tokens_per_s": got / seconds, "first_ms": 1000 * first[len(first) // 2], "p99_ms": 1000 * p99}))


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:7])))
