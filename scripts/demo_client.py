"""Sends every test digit to a running `ox serve`, one per request, many at once, and counts the correct answers.

    python scripts/demo_client.py http://127.0.0.1:8000 --in-process in_process.json

`in_process.json` is what `ox eval model.onnx --json` printed; the server must get exactly as many right, or this fails.
Only the standard library and NumPy, so it doubles as an example of a client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from ox_models.digits_data import split

ROWS, BATCHES = "ox_batch_rows_sum", "ox_batch_rows_count"  # as /metrics names them


def wait_until_ready(url: str, server: int | None, seconds: float = 30.0) -> None:
    """Polls the readiness call; fails when the time is up or the server's process has gone."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(f"{url}/v2/health/ready", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            if server is not None and not alive(server):
                sys.exit("demo: the server stopped before it was ready")
            if time.monotonic() > give_up:
                sys.exit(f"demo: the server was not ready after {seconds:g} s: {error}")
            time.sleep(0.05)


def alive(process: int) -> bool:
    """Whether the process still runs; one that ended and waits to be collected by its parent does not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return str(reply.read().decode())


def requests_for(images: np.ndarray, url: str, model: str) -> list[bytes]:
    """One complete HTTP request an image."""
    (entry,) = json.loads(get(f"{url}/v2/models/{model}"))["inputs"]
    host = urlsplit(url).netloc
    requests = []
    for image in images:
        tensor = {"name": entry["name"], "datatype": "FP32", "shape": [1, *image.shape], "data": image.ravel().tolist()}
        body = json.dumps({"inputs": [tensor]}).encode()
        head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        requests.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return requests


async def ask(url: str, requests: list[bytes], total: int, connections: int) -> tuple[list[int], list[float]]:
    """Sends `total` requests in turn over `connections` kept-alive connections: the answers and seconds of each."""
    where = urlsplit(url)
    answers, seconds = [-1] * total, [0.0] * total
    numbers = iter(range(total))

    async def one_connection() -> None:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        for number in numbers:
            began = time.perf_counter()
            writer.write(requests[number % len(requests)])
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = re.search(r"(?i)\r\ncontent-length: *(\d+)", head)
            body = await reader.readexactly(int(length.group(1)) if length else 0)
            seconds[number] = time.perf_counter() - began
            if " 200 " not in head.split("\r\n", 1)[0]:
                sys.exit(f"demo: the server refused: {body.decode(errors='replace')}")
            answers[number] = int(np.argmax(json.loads(body)["outputs"][0]["data"]))
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(one_connection() for _ in range(connections)))
    return answers, seconds


def counted(metrics: str, name: str) -> float:
    """The sum of a Prometheus series over its labels."""
    return sum(float(value) for value in re.findall(rf"(?m)^{name}(?:{{[^}}]*}})? (\S+)$", metrics))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model", default="model")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument(
        "--requests", type=int, default=7200, help="for the measurement, after every digit was asked once"
    )
    parser.add_argument("--in-process", type=Path, help="what `ox eval model.onnx --json` printed")
    parser.add_argument("--server", type=int, help="process id, to notice early that the server has gone")
    options = parser.parse_args()

    images, labels = split().held_back
    wait_until_ready(options.url, options.server)
    requests = requests_for(images, options.url, options.model)

    answers, _ = asyncio.run(ask(options.url, requests, len(requests), options.connections))
    right = sum(answer == label for answer, label in zip(answers, labels.tolist(), strict=True))
    print(f"{right} of {len(labels)} test digits correct through the server: {right / len(labels):.1%}")
    if options.in_process:
        expected = json.loads(options.in_process.read_text())
        if (right, len(labels)) != (expected["correct"], expected["count"]):
            sys.exit(f"demo: in process it was {expected['correct']} of {expected['count']}; they must be equal")
        print(f"the same count as in process ({expected['correct']} of {expected['count']})")

    before = get(f"{options.url}/metrics")
    began = time.perf_counter()
    again, seconds = asyncio.run(ask(options.url, requests, options.requests, options.connections))
    elapsed = time.perf_counter() - began
    after = get(f"{options.url}/metrics")
    if any(answer != answers[number % len(answers)] for number, answer in enumerate(again)):
        sys.exit("demo: an answer changed between two askings of the same digit")
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    rows, batches = (
        counted(after, name) - counted(before, name) for name in ("ox_batch_rows_sum", "ox_batch_rows_count")
    )
    print(
        f"{len(again) / elapsed:,.0f} requests/s over {options.connections} connections · p50 {p50:.2f} ms · "
        f"p99 {p99:.2f} ms · mean batch {rows / batches if batches else float('nan'):.2f}"
    )
    print("(this client, in Python, shares the cores with the server)")


if __name__ == "__main__":
    main()
