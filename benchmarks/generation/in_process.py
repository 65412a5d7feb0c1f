"""A peer without a server: batches of texts, in its own process. Run by the peer's environment.

python in_process.py transformers|genai MODEL THREADS STREAMS PROMPT TOKENS prints a line of JSON.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable

VOCABULARY = 4096
ROUNDS = 3  # batches, of which the first warms up


def transformers(model: str, threads: int, tokens: int) -> Callable[[list[list[int]]], int]:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    found = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()

    @torch.inference_mode()
    def run(prompts: list[list[int]]) -> int:
        ids = torch.tensor(prompts)
        out = found.generate(
            ids, attention_mask=torch.ones_like(ids), min_new_tokens=tokens, max_new_tokens=tokens, do_sample=False,
            pad_token_id=0,
        )  # fmt: skip
        return int((out.shape[1] - ids.shape[1]) * out.shape[0])

    return run


def genai(model: str, threads: int, tokens: int) -> Callable[[list[list[int]]], int]:
    import onnxruntime_genai as og

    found = og.Model(model)

    def run(prompts: list[list[int]]) -> int:
        params = og.GeneratorParams(found)
        length = len(prompts[0]) + tokens
        params.set_search_options(
            max_length=length, min_length=length, batch_size=len(prompts), do_sample=False,
            past_present_share_buffer=True,
        )  # fmt: skip
        generator = og.Generator(found, params)
        generator.append_tokens(prompts)
        count = 0
        while not generator.is_done():
            generator.generate_next_token()
            count += 1
        return count * len(prompts)

    return run


def main(name: str, model: str, threads: int, streams: int, length: int, tokens: int) -> None:
    run = {"transformers": transformers, "genai": genai}[name](model, threads, tokens)
    draw = random.Random(0)
    best = 0.0
    for number in range(ROUNDS):
        prompts = [[draw.randrange(3, VOCABULARY) for _ in range(length)] for _ in range(streams)]
        begun = time.perf_counter()
        got = run(prompts)
        seconds = time.perf_counter() - begun
        if got != streams * tokens:
            raise SystemExit(f"expected {streams * tokens} tokens, got {got}")
        if number:
            best = max(best, got / seconds)
    print(json.dumps({"tokens_per_s": best}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7]))
