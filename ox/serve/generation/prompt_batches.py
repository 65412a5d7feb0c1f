"""Which parts of prompts are read next, and which of them in one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ox.serve.generation.cache_slots import Array
from ox.serve.generation.decoder_run import DecoderRun
from ox.serve.generation.prefix_cache import BLOCK, PrefixCache
from ox.serve.generation.scheduler import Scheduler
from ox.serve.generation.scores import NOTHING, Need, ScoreRows
from ox.serve.generation.text import Text

RUN_TOKENS = 16  # a run costs about as much as so many tokens of it, whatever it reads
Part = tuple[Text, Array]


def next_parts(texts: Sequence[Text], prefixes: PrefixCache, room: int) -> list[Part]:
    """Parts of prompts that are not read yet, by priority and then in the order in which their texts got slots; at most
    `room` tokens.

    A text that begins like another one whose prompt is read now waits for it: what is computed for that one is not
    computed again.
    """
    reading = [text for text in texts if not (text.decoding or text.handle.paused)]
    parts: list[Part] = []
    for text in sorted(reading, key=lambda text: (text.level, text.admitted)):
        if room <= 0:
            break
        scores, most = text.prompt_scores, room
        if scores is not None:
            most = min(room, scores.part)
        if text.computed == 0:
            if scores is None and any(_begins_alike(text, other) for other, _ in parts):
                continue
            text.computed = prefixes.restore(text.tokens if scores is None else scores.reusable, text.row)
            if text.cached is None:
                text.cached = text.computed
        part = np.array(text.tokens[text.computed : text.computed + most], np.int64)
        room -= len(part)
        parts.append((text, part))
    return parts


def _begins_alike(one: Text, other: Text) -> bool:
    return len(one.tokens) > BLOCK and one.tokens[:BLOCK] == other.tokens[:BLOCK]


def batches(parts: Iterable[Part]) -> list[list[Part]]:
    """Runs for parts of texts. Begins of texts share one, padded to equal length, if that costs less than another run;
    ONNX Runtime reads later parts one by one, and those with scores after each token."""
    runs: list[list[Part]] = []
    begins: list[Part] = []
    for text, part in parts:
        if text.computed or text.prompt_scores is not None:
            runs.append([(text, part)])
        else:
            begins.append((text, part))
    batch: list[Part] = []
    for text, part in sorted(begins, key=lambda each: len(each[1])):
        if batch and (len(part) - len(batch[-1][1])) * len(batch) <= RUN_TOKENS:
            batch.append((text, part))
        else:
            batch = [(text, part)]
            runs.append(batch)
    return runs


def read_batch(batch: Sequence[Part], run: DecoderRun, scheduler: Scheduler, vocab_size: int) -> ScoreRows:
    """Reads parts of prompts in one run.

    Returns:
        for each text the scores after its part, as far as they are needed.

    Raises:
        ServeError: the model gives no scores of a prompt whose log-probabilities are wanted (500).
        Exception: of ONNX Runtime.
    """
    text, part = batch[0]
    needs = needs_of(batch, vocab_size)
    if text.prompt_scores is not None:
        scores = run.read_scored(text.row, part, text.computed)
        text.prompt_scores.add(text.computed, scores)
        return scores[-1:]
    if len(batch) == 1:
        return [run.read(text.row, part, text.computed, needs[0])]
    return run.begin(scheduler.join([text for text, _ in batch]), [part for _, part in batch], needs)


def needs_of(batch: Iterable[Part], vocab_size: int) -> list[Need | None]:
    """What is needed of the scores after each part: nothing before the end of a prompt, or where no token follows."""
    return [
        text.need(vocab_size) if text.most and text.computed + len(part) == len(text.tokens) else NOTHING
        for text, part in batch
    ]


def needs_of_step(texts: Iterable[Text], draft: Sequence[int], vocab_size: int) -> list[Need | None]:
    """What is needed of the scores after a token of each text, and after each token of a draft of a single text."""
    return [need for text in texts for need in text.needs(vocab_size, draft)]
