"""Parts of the step "serving by CUDA": texts from decoders on the GPU beside those of the CPU."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gpu_run import device
from gpu_run.served_models import VOCABULARY, decoder

LIKELY = 5  # tokens whose probabilities the CPU's texts have
LONG, SHORT = (100, 200), (1, 40)  # tokens of prompts
WAIT_S = 120


class Text:
    """A greedy text, and for each of its tokens the logarithmic probabilities of some, if they were asked for."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.likely: list[dict[int, float]] = []
        self.error: Exception | None = None
        self.done = threading.Event()

    def on_event(self, event: Any) -> None:
        self.tokens.append(event.token)
        self.likely.append(dict(event.top_logprobs))
        if event.finish_reason is not None:
            self.done.set()

    def on_error(self, error: Exception) -> None:
        self.error = error
        self.done.set()


def texts(dtype: str, place: str, lengths: tuple[int, int], logprobs: int | None, **options: Any) -> list[Text]:
    """All at once, from a server with one model.

    Args:
        dtype: of its cache.
        place: the device.
        lengths: the fewest and the most tokens of a prompt.
        logprobs: how many probabilities each token has; None for none.
        options: as of `ModelConfig`.
    """
    from ox.generation import SamplingParams
    from ox.serve import ModelConfig, Server
    from ox.serve.generation.request import GenerationRequest

    random, written = np.random.default_rng(0), list[Text]()
    count, tokens = (3, 12) if device.short() else (12, 40)
    with Server([Path(decoder(dtype).name) / "writer"], options=ModelConfig(place, **options), watch=False) as server:
        (model,) = server.models
        assert f"generates texts on {'cuda:0' if place == 'cuda' else place}" in model.describe(), model.describe()
        for _ in range(count):
            prompt = random.integers(0, VOCABULARY, random.integers(*lengths)).tolist()
            request = GenerationRequest(
                prompt, sampling=SamplingParams(temperature=0), max_tokens=tokens, ignore_eos=True, logprobs=logprobs
            )
            written.append(Text())
            model.generation.submit(request, written[-1].on_event, written[-1].on_error)
        for text in written:
            assert text.done.wait(WAIT_S), "a text does not end"
            if text.error is not None:
                raise text.error
    return written


def compared(found: Sequence[Text], expected: Sequence[Text], dtype: str) -> dict[str, Any]:
    """How many tokens are the CPU's. A text may go on with another token only where that was as likely for the CPU,
    within the tolerance of the type; from there on it is another text."""
    import ox
    from ox.tolerance import TABLE

    tolerance, same = 4 * TABLE[np.dtype(getattr(ox, dtype))][0], 0
    for number, (text, other) in enumerate(zip(found, expected, strict=True)):
        assert len(text.tokens) == len(other.tokens), f"text {number} has another length"
        place = next(
            (i for i, pair in enumerate(zip(text.tokens, other.tokens, strict=True)) if len({*pair}) > 1), None
        )
        same += len(text.tokens) if place is None else place
        if place is not None:
            likely = other.likely[place]
            behind = likely[other.tokens[place]] - likely.get(text.tokens[place], -np.inf)
            assert behind <= tolerance, f"token {place} of text {number} is less likely by {behind:.3f} on the CPU"
    return {"texts": len(found), "tokens": sum(len(text.tokens) for text in found), "as on the CPU": same}


@cache
def of_the_cpu(dtype: str, lengths: tuple[int, int]) -> list[Text]:
    return texts(dtype, "cpu", lengths, LIKELY)


def beside_the_cpu(dtype: str, lengths: tuple[int, int] = SHORT, **options: Any) -> dict[str, Any]:
    return compared(texts(dtype, "cuda", lengths, None, **options), of_the_cpu(dtype, lengths), dtype)


def in_float16() -> dict[str, Any]:
    """Several at once."""
    return beside_the_cpu("float16")


def in_bfloat16() -> dict[str, Any]:
    return beside_the_cpu("bfloat16")


def in_float32() -> dict[str, Any]:
    """Which no GPU does: an error with cuda, and the CPU with auto."""
    from ox.errors import DeviceError

    try:
        texts("float32", "cuda", SHORT, None)
    except DeviceError as error:
        assert "has a cache of float32" in str(error), error
    else:
        raise AssertionError("a cache of float32 was not refused")
    return {"refused": 1}


def of_long_prompts() -> dict[str, Any]:
    """Read in parts, between the tokens of other texts."""
    return beside_the_cpu("float16", LONG, generation={"prefill_tokens": 16})


def by_cuda_graphs() -> dict[str, Any]:
    """A graph for each number of texts."""
    return beside_the_cpu("float16", cuda={"enable_cuda_graph": True}, generation={"max_texts": 4})
