"""The engine of texts by itself: first tokens of texts that come at once, and drafts of a text that is alone.

    python benchmarks/bench_text_engine.py FOLDER [--draft FOLDER] [--streams 1,8,32]

FOLDER is a decoder's, of `ox export` of the recipe kjv_llama or of bench_generate.py. Times are CPU time of the
engine's thread, which runs ONNX Runtime with one thread: they hold on a machine that does other things, too. Prompts
have 64 tokens: the begins of chapters that the recipe was not trained on, or random ones without a tokenizer.
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from ox.generation import SamplingParams
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.generation.engine import GenerationEngine
from ox.serve.generation.request import GenerationRequest, TokenEvent

PROMPT, TOKENS, TEXTS, ROUNDS = 64, 128, 12, 3
DRAWN = {"temperature": 0.8, "top_p": 0.95}


def prompts(engine: GenerationEngine, count: int, seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    if engine.tokenizer is None:
        return [[draw.randrange(3, engine.vocab_size) for _ in range(PROMPT)] for _ in range(count)]
    from ox_models.kjv_data import chapters, split
    from ox_models.kjv_llama import conversation

    texts = [engine.tokenizer.encode(conversation(chapter)) for chapter in split(chapters())[2]]
    return [ids[:PROMPT] for ids in draw.sample([ids for ids in texts if len(ids) >= PROMPT], count)]


def write(
    engine: GenerationEngine, prompts: list[list[int]], tokens: int, sampling: SamplingParams
) -> list[list[float]]:
    """For each text the times of its tokens; all texts come at once."""
    times: list[list[float]] = [[] for _ in prompts]
    left, done = [len(prompts)], threading.Event()

    def receiver(place: int) -> Callable[[TokenEvent], None]:
        def on_event(event: TokenEvent) -> None:
            times[place].append(time.thread_time())
            if event.finish_reason is not None:
                left[0] -= 1
                if not left[0]:
                    done.set()

        return on_event

    with engine._condition:  # none begins before all are there
        for place, prompt in enumerate(prompts):
            request = GenerationRequest(prompt, sampling, max_tokens=tokens, ignore_eos=True)
            engine.submit(request, receiver(place), print)
    done.wait()
    return times


def first_tokens(folder: Path, streams: int) -> None:
    engine = GenerationEngine.open(folder, GenerationOptions(cache_mib=512, draft_tokens=0), threads=1)
    greedy, found = SamplingParams(temperature=0), []
    for number in range(ROUNDS + 1):
        begun = max(write(engine, prompts(engine, 1, 100 + number), 1, greedy)[0])
        times = write(engine, prompts(engine, streams, number), TOKENS, greedy)
        first = sorted(each[0] - begun for each in times)
        gaps = [later - earlier for each in times for earlier, later in pairwise(each)]
        seconds = max(map(max, times)) - begun
        found.append((streams * TOKENS / seconds, 1e3 * first[streams // 2], 1e3 * first[-1], 1e3 * max(gaps)))
    engine.close()
    rate, middle, last, gap = (statistics.median(column) for column in zip(*found[1:], strict=True))
    print(f"{streams:>2} at once: {rate:,.0f} tokens/s, first tokens after {middle:.0f} ms, the last of them after "
          f"{last:.0f} ms; at most {gap:.0f} ms between two tokens of a text", flush=True)  # fmt: skip


def alone(folder: Path, name: str, options: GenerationOptions, sampling: SamplingParams) -> None:
    engine = GenerationEngine.open(folder, options, threads=1)
    texts = prompts(engine, TEXTS + 1, 0)
    write(engine, texts[:1], TOKENS, sampling)
    times = [write(engine, [text], TOKENS, sampling)[0] for text in texts[1:]]
    stats = engine.stats()
    engine.close()
    each = [1e3 * (tokens[-1] - tokens[0]) / (len(tokens) - 1) for tokens in times]
    print(f"alone, {name}: {statistics.mean(each):.2f} ms per token, at most {max(each):.2f}; "
          f"{stats['accepted_tokens']:,} of {stats['drafted_tokens']:,} guesses were right", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--streams", default="1,8,32")
    options = parser.parse_args()
    for streams in map(int, options.streams.split(",")):
        first_tokens(options.folder, streams)
    ways = {"no guesses": {"draft_tokens": 0}, "guesses from the text": {}}
    if options.draft is not None:
        ways["and by a smaller model"] = {"draft": str(options.draft.resolve())}
    for kind, sampling in (("greedy", SamplingParams(temperature=0)), ("drawn", SamplingParams(seed=0, **DRAWN))):
        for _ in range(ROUNDS):
            for name, given in ways.items():
                alone(options.folder, f"{kind}, {name}", GenerationOptions(cache_mib=512, **given), sampling)


if __name__ == "__main__":
    main()
