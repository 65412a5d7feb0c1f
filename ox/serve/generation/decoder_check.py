"""Whether a form of a decoder gives the scores of its file: a few texts, alone, in parts, together, and a long one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ox.errors import LoadError, first_line
from ox.serve.generation.cache_slots import Array, CacheShape, CacheSlots
from ox.serve.generation.decoder_memory import HOST
from ox.serve.generation.decoder_run import DecoderRun, SharedCacheRun
from ox.serve.generation.prefix_cache import BLOCK
from ox.serve.generation.scores import BestScores, Need, ScoreRows, Scores
from ox.serve.runtime.standard_form import ATTENTION
from ox.tolerance import Through, compare

PROMPTS = (7, 3, 1)  # lengths of the texts
STEPS = 2
ROWS, RUNS = 4, 8  # of the measurement of threads
NOISE, MOST_NOISE = 4, 0.1  # how many times the noise of the file itself, and which part of the largest score
CHECKS = 6  # times the size of the long text: its past, its slot, and the inputs and outputs of a run of two
LONGEST = 4096  # tokens of it
BEST = 5  # tokens that are compared with all


class Checked(NamedTuple):
    """A decoder in its file.

    Attributes:
        shapes: of keys and values, by the name of the input.
        gpu_shapes: theirs on a GPU, where they may be of a narrower type.
        operators: in its graph.
        through: the lowest precision that its values go through, see `ox.tolerance.compare`.
        gpu_through: the same on a GPU.
    """

    path: Path
    shapes: Mapping[str, CacheShape]
    gpu_shapes: Mapping[str, CacheShape]
    vocab_size: int
    context_length: int
    operators: frozenset[str]
    through: Through
    gpu_through: Through


class ScoresDiffer(Exception):
    """A form gives other scores than the file."""


class DecoderCheck:
    """Texts, and the scores that the file itself gives for them alone."""

    def __init__(self, decoder: Checked, session: Any, now: Callable[[], float]) -> None:
        self._decoder, self._session, self._now = decoder, session, now
        random = np.random.default_rng(0)
        most = max(1, decoder.context_length - STEPS)
        lengths = [min(length, most) for length in PROMPTS]
        self._texts = [random.integers(0, decoder.vocab_size, length + STEPS) for length in lengths]
        self._lengths = lengths
        self._expected = [
            [self._alone(text[: length + step]) for step in range(STEPS + 1)]
            for text, length in zip(self._texts, lengths, strict=True)
        ]
        self._noise = self._own_noise()
        longest = min(decoder.context_length, LONGEST) - 1
        self._past = [
            random.standard_normal((shape.heads, longest, shape.size)).astype(narrow.dtype).astype(shape.dtype)
            for shape, narrow in zip(decoder.shapes.values(), decoder.gpu_shapes.values(), strict=True)
        ]
        self._long = self._run(self._texts[0][:1], self._past)

    @property
    def nbytes(self) -> int:
        """Of the largest slots of the check."""
        longest: int = self._past[0].shape[1]
        return 2 * (longest + 1) * sum(shape.nbytes for shape in self._decoder.shapes.values())

    def _alone(self, tokens: Array) -> Array:
        shapes = self._decoder.shapes.values()
        return self._run(tokens, [np.zeros((shape.heads, 0, shape.size), shape.dtype) for shape in shapes])

    def _run(self, tokens: Array, past: Sequence[Array]) -> Array:
        before = past[0].shape[1]
        mask = np.ones((1, before + len(tokens)), np.int64)
        return self._scores(tokens[None], mask, [value[None] for value in past])[0][0]  # type: ignore[no-any-return]

    def _own_noise(self) -> float:
        """How far the file's own scores are apart: of texts alone, of the same ones in a batch with padding before
        them, and read token by token. That is next to nothing, except where activations are
        quantized by their range. (GroupQueryAttention takes no padding before a text.)"""
        width = max(self._lengths)
        ids, mask = np.zeros((2, len(self._lengths), width), np.int64)
        for row, (text, length) in enumerate(zip(self._texts, self._lengths, strict=True)):
            ids[row, width - length :], mask[row, width - length :] = text[:length], 1
        shapes = self._decoder.shapes.values()
        none = [np.zeros((len(ids), shape.heads, 0, shape.size), shape.dtype) for shape in shapes]
        pairs = []
        if ATTENTION not in self._decoder.operators:
            pairs = [(row, self._expected[place][0]) for place, row in enumerate(self._scores(ids, mask, none)[0])]
        for text, length, expected in zip(self._texts, self._lengths, self._expected, strict=True):
            past = [value[:1] for value in none]
            for place, token in enumerate(text[: length + STEPS]):
                scores, past = self._scores(np.array([[token]]), np.ones((1, place + 1), np.int64), past)
                if place >= length - 1:
                    pairs.append((scores[0], expected[place - length + 1]))
        return max(float(np.abs(row.astype(np.float64) - expected).max()) for row, expected in pairs)

    def _scores(self, ids: Array, mask: Array, past: Sequence[Array]) -> tuple[Array, list[Array]]:
        """After the last token of each row, by the file itself, and the keys and values of all tokens."""
        names = {info.name for info in self._session.get_inputs()}
        before = past[0].shape[2]
        optional = {
            "attention_mask": mask,
            "position_ids": np.maximum(mask.cumsum(1) - 1, 0)[:, before:],
            "use_cache_branch": np.array([before > 0]),
        }
        feed: dict[str, Any] = {"input_ids": ids, **dict(zip(self._decoder.shapes, past, strict=True))}
        feed |= {name: value for name, value in optional.items() if name in names}
        presents = [name.replace("past_key_values", "present") for name in self._decoder.shapes]
        try:
            logits, *new = self._session.run(["logits", *presents], feed)
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            raise LoadError(
                f"{self._decoder.path} does not take the tokens of a text",
                expected=f"tokens {list(ids.shape)} after {before} others",
                got=first_line(error)[:300],
                hint="an export for CPUs: some operators of exports for GPUs are for these only",
            ) from error
        return logits[:, -1], new

    def check(self, run: DecoderRun, together: bool = True) -> None:
        """Prompts of several lengths, in one run and each in two parts; tokens of all of them, together or not; a token
        after a text as long as the context, which shows windows and biases by distance.

        Raises:
            ScoresDiffer: the scores are others.
        """
        self._through = self._decoder.through if run.memory is HOST else self._decoder.gpu_through
        every = list(range(len(self._texts)))
        for group in [every] if together else [[each] for each in every]:
            self._check_texts(run, group)
        slots = CacheSlots(self._shapes(run), 1 + together, self._past[0].shape[1] + 1, run.memory)
        self._fill_by_blocks(slots)
        run.attach(slots)
        text, lengths = self._texts[0], [self._past[0].shape[1]]
        if together:  # beside a short one, which shows whether distances stay as they are
            lengths.append(self._lengths[0])
            run.read(1, text[: lengths[1]], 0)
        step = text[[0, *lengths[1:]], None], np.array(lengths)
        scores = [np.array(row) for row in run.step(*step)]
        self._compare("a long text", scores[0], self._long)
        if together:
            self._compare("a short text beside a long one", scores[1], self._expected[0][1])
        self._check_best(run.step(*step, [Need(BEST, True)] * len(lengths)), scores)

    def _fill_by_blocks(self, slots: CacheSlots) -> None:
        """Writes the long text into the first row, and its begin by a block of the last row."""
        size = min(BLOCK, self._past[0].shape[1])
        slots.write(slots.rows - 1, 0, [value[:, :size] for value in self._past])
        slots.write_blocks(0, [0], size, slots.read_blocks(slots.rows - 1, [0], size))
        slots.write(0, size, [value[:, size:] for value in self._past])

    def _check_best(self, best: ScoreRows, scores: Sequence[Array]) -> None:
        """The best scores of rows, where they come alone, and their sums."""
        for row, whole in zip(best, scores, strict=True):
            if isinstance(row, BestScores):
                whole = whole.astype(np.float32)
                expected = np.sort(whole)[::-1][: len(row.scores)]
                log_sum = np.log(np.exp(whole - whole.max(), dtype=np.float64).sum())
                for got, exact in (row.scores, expected), (whole[row.tokens], expected), (row.log_sum, log_sum):
                    self._compare("the best tokens", np.array(got, np.float32), np.array(exact, np.float32))

    def _shapes(self, run: DecoderRun) -> Mapping[str, CacheShape]:
        return self._decoder.shapes if run.memory is HOST else self._decoder.gpu_shapes

    def fill(self, slots: CacheSlots) -> None:
        """Gives each row a text, for `check_captured`: as long as the slots, or as the longest of the check."""
        longest = self._longest_in(slots)
        slots.write(0, 0, [value[:, :longest] for value in self._past])
        for row in range(1, slots.rows):
            slots.move(0, row, longest)

    def check_captured(self, run: SharedCacheRun, slots: CacheSlots, rows: int) -> None:
        """Has a step of so many short texts captured. Then a step of others, the first as long as its slot, is replayed
        as it was before: a graph that kept how many tokens it had read gives other scores.

        Args:
            slots: what `run` works on, filled by `fill`.

        Raises:
            ScoresDiffer: the scores are others.
        """
        random = np.random.default_rng(rows)
        tokens = random.integers(0, self._decoder.vocab_size, (2, rows, 1))
        lengths = np.ones((2, rows), np.int64)
        lengths[1] = random.integers(1, self._longest_in(slots) + 1, rows)
        lengths[1, 0] = self._longest_in(slots)
        expected = [np.array(run.step(*step)) for step in zip(tokens, lengths, strict=True)]
        run.capture(rows)
        for step, before in zip(zip(tokens, lengths, strict=True), expected, strict=True):
            for row, scores in zip(run.step(*step), before, strict=True):
                self._compare("a captured step", row, scores)

    def _longest_in(self, slots: CacheSlots) -> int:
        return min(slots.capacity - 1, int(self._past[0].shape[1]))

    def _check_texts(self, run: DecoderRun, group: list[int]) -> None:
        run.attach(CacheSlots(self._shapes(run), len(group), max(self._lengths) + STEPS, run.memory))
        begins = [self._texts[each][: self._lengths[each]] for each in group]
        for each, scores in zip(group, run.begin(0, begins), strict=True):
            self._compare("prompts together", scores, self._expected[each][0])
        for row, each in enumerate(group):
            text, length = self._texts[each], self._lengths[each]
            first = length // 2
            if first:
                run.read(row, text[:first], 0)
            self._compare("a prompt in parts", run.read(row, text[first:length], first), self._expected[each][0])
        lengths = np.array([self._lengths[each] for each in group])
        for step in range(STEPS):
            tokens = np.array([self._texts[each][self._lengths[each] + step] for each in group])
            for each, scores in zip(group, run.step(tokens[:, None], lengths + step), strict=True):
                self._compare("texts together" if len(group) > 1 else "a text", scores, self._expected[each][step + 1])

    def step_s(self, run: DecoderRun) -> float:
        """How long a token of a few texts takes, at best."""
        slots = CacheSlots(self._shapes(run), ROWS, STEPS, run.memory)
        run.attach(slots)
        tokens, lengths = np.zeros((ROWS, 1), np.int64), np.ones(ROWS, np.int64)
        times = []
        for _ in range(RUNS):
            started = self._now()
            run.step(tokens, lengths)
            times.append(self._now() - started)
        return min(times)

    def _compare(self, what: str, got: Scores, expected: Array) -> None:
        assert isinstance(got, np.ndarray)  # of all tokens, as nothing else was asked for
        difference = compare(got, expected, self._through)
        largest = float(np.abs(expected.astype(np.float64)).max())
        allowed = difference.allowed + min(NOISE * self._noise, MOST_NOISE * largest)
        if not difference.max_abs <= allowed:
            raise ScoresDiffer(f"scores of {what} differ by {difference.max_abs:.1e}, at most {allowed:.1e}")
