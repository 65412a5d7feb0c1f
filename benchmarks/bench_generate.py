"""Tokens per second and the time to the first token of `ox serve` beside other engines, for 1, 8 and 32 texts at once.

    LLAMA_SERVER=…/llama-server PEER_PYTHON=…/bin/python python benchmarks/bench_generate.py [--rounds 3]

The model is a LLaMA of 17 million random parameters, in float32 and int8; prompts of 64 tokens that nobody has seen
before, texts of 128, greedy. ox and llama.cpp's server stream over HTTP to clients on the same machine; transformers
and onnxruntime-genai run batches in their own process, without a server. Processes take turns; figures are medians.
Nothing is guessed: texts of random weights go round in circles.

PEER_PYTHON is the interpreter of an environment with transformers, torch, onnxruntime-genai, onnx-ir, gguf and
safetensors. Sides that are missing are named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parent / "build" / "bench-generate"
STREAMS = (1, 8, 32)
PROMPT, TOKENS = 64, 128
REQUESTS = {1: 4, 8: 2, 32: 2}  # of each stream
CONTEXT = 256
Figures = dict[str, float]


def prepare(python: str | None) -> None:
    """Writes the model in all forms, once."""
    if not (FOLDER / "ox-int8" / "model.onnx").exists():
        subprocess.run([sys.executable, HERE / "generation" / "make_model.py", FOLDER], check=True)
    if python is None:
        return
    if not (FOLDER / "int8.gguf").exists():
        subprocess.run([python, HERE / "generation" / "write_gguf.py", FOLDER], check=True)
    if not (FOLDER / "genai" / "genai_config.json").exists():
        builder = [python, "-m", "onnxruntime_genai.models.builder", "-i", FOLDER / "hf", "-o", FOLDER / "genai"]
        subprocess.run([*builder, "-p", "fp32", "-e", "cpu"], check=True, stdout=subprocess.DEVNULL)


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


@contextmanager
def server(command: list[str], port: int, path: str) -> Iterator[None]:
    """A server that has answered; stopped at the end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        give_up = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).read()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > give_up:
                    raise SystemExit(f"{command[0]} does not start") from None
                time.sleep(0.1)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def load(port: int, streams: int, seed: int) -> Figures:
    """The figures of clients, after a request that warms up."""
    script = [sys.executable, str(HERE / "generation" / "load.py"), str(port)]
    subprocess.run([*script, "1", "1", str(PROMPT), "16", "0"], check=True, stdout=subprocess.DEVNULL)
    words = [str(streams), str(REQUESTS[streams]), str(PROMPT), str(TOKENS), str(seed)]
    out = subprocess.run([*script, *words], check=True, capture_output=True, text=True).stdout
    return dict(json.loads(out))


def ox_side(folder: str, threads: int, streams: int, seed: int) -> Figures:
    port = free_port()
    (FOLDER / folder / "ox.toml").write_text("[models.ox]\ngeneration = {draft_tokens = 0}\n")
    line = [sys.executable, "-m", "ox_cli", "serve", str(FOLDER / folder), "--port", str(port), "--name", "ox"]
    with server([*line, "--device", "cpu"], port, "/v2/health/ready"):
        return load(port, streams, seed)


def llama_side(file: str, threads: int, streams: int, seed: int) -> Figures:
    port = free_port()
    line = [os.environ["LLAMA_SERVER"], "-m", str(FOLDER / file), "--port", str(port), "-t", str(threads)]
    line += ["-np", str(streams), "-c", str(CONTEXT * streams), "--no-webui", "--temp", "0"]
    with server(line, port, "/health"):
        return load(port, streams, seed)


def in_process(name: str, folder: str, threads: int, streams: int, seed: int) -> Figures:
    words = [name, str(FOLDER / folder), str(threads), str(streams), str(PROMPT), str(TOKENS)]
    script = [os.environ["PEER_PYTHON"], str(HERE / "generation" / "in_process.py"), *words]
    out = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(out.splitlines()[-1]))


SIDES = {
    "ox": lambda *a: ox_side("ox", *a),
    "llama.cpp": lambda *a: llama_side("model.gguf", *a),
    "transformers": lambda *a: in_process("transformers", "hf", *a),
    "onnxruntime-genai": lambda *a: in_process("genai", "genai", *a),
    "ox int8": lambda *a: ox_side("ox-int8", *a),
    "llama.cpp int8": lambda *a: llama_side("int8.gguf", *a),
}


def missing(side: str) -> str:
    """Why a side cannot run; "" if it can."""
    if side.startswith("llama.cpp"):
        return "" if "LLAMA_SERVER" in os.environ else "LLAMA_SERVER is not set"
    if side in ("transformers", "onnxruntime-genai"):
        return "" if "PEER_PYTHON" in os.environ else "PEER_PYTHON is not set"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", default=",".join(map(str, STREAMS)))
    parser.add_argument("--only", default=",".join(SIDES))
    options = parser.parse_args()
    prepare(os.environ.get("PEER_PYTHON"))
    threads = len(os.sched_getaffinity(0))
    chosen = [side for side in options.only.split(",") if not missing(side)]
    for side in options.only.split(","):
        if missing(side):
            print(f"{side} is left out: {missing(side)}")
    found: dict[tuple[str, int], list[Figures]] = {}
    for number in range(options.rounds):
        for streams in map(int, options.streams.split(",")):
            for side in chosen:
                figures = SIDES[side](threads, streams, number)
                found.setdefault((side, streams), []).append(figures)
                print(f"round {number + 1}, {streams} at once, {side}: {shown(figures)}", flush=True)
    table(found)


def shown(figures: Mapping[str, float]) -> str:
    text = f"{figures['tokens_per_s']:,.0f} tokens/s"
    if "first_ms" in figures:
        text += f", first token {figures['first_ms']:.0f} ms, p99 {figures['p99_ms']:.0f} ms"
    return text


def table(found: Mapping[tuple[str, int], list[Figures]]) -> None:
    """Medians, and how many times a peer's tokens per second ox has."""
    print()
    for (side, streams), rounds in found.items():
        middle = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        own = found.get(("ox int8" if side.endswith("int8") else "ox", streams))
        ratio = ""
        if own is not None and not side.startswith("ox"):
            mine = statistics.median(each["tokens_per_s"] for each in own)
            ratio = f", ox has {mine / middle['tokens_per_s']:.2f}x"
        print(f"{streams:>2} at once, {side:<18} {shown(middle)}{ratio}")


if __name__ == "__main__":
    main()
