"""Loads a decoder: into the fastest form that gives the same scores as the file itself."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ox.devices.machine import available_memory
from ox.devices.machine import threads as usable_threads
from ox.devices.runtime import onnxruntime
from ox.errors import LoadError
from ox.graph.contract import Contract
from ox.graph.reader.model_file import parse
from ox.serve.generation.cache_slots import Array, CacheShape, CacheSlots
from ox.serve.generation.decoder_folder import DECODER, DecoderFolder
from ox.serve.generation.decoder_run import TYPES, AppendedCacheRun, DecoderRun, SharedCacheRun
from ox.serve.runtime.decoder_graph import PAST, DecoderGraph, PatternMissing
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.source import Source
from ox.serve.runtime.standard_form import ATTENTION, StandardForm, standardize
from ox.tolerance import compare

PROMPTS = (7, 3, 1)  # lengths of the texts of the check
STEPS = 2
ROWS, RUNS = 4, 8  # of the measurement of threads
NOISE, MOST_NOISE = 4, 0.1  # how many times the noise of the file itself, and which part of the largest score
CHECKS = 8  # times the size of that text: its past, in float64, as inputs, outputs and in slots for two
LONGEST = 4096  # tokens of the check of a long text
MOST_POSITIONS = 1 << 18  # of a table of rotary embeddings
UNLIMITED = 1 << 31  # of a file that does not tell its context length


class Rewriting(NamedTuple):
    """What is done to the graph beside sharing the cache."""

    last_scores: bool = True
    join_products: bool = True
    rotary: bool = True


# in the order in which they are tried
REWRITINGS = (
    Rewriting(),
    Rewriting(rotary=False),
    Rewriting(rotary=False, join_products=False),
    Rewriting(False, False, False),
)

log = logging.getLogger("ox.serve")


class Decoder:
    """A decoder in ONNX Runtime.

    Args:
        source: its checked file.
        threads: of ONNX Runtime; None: measured.
        control: ends the load from another thread.
        folder: tells what the file does not: the longest context, sizes, and other names of inputs and outputs.

    Attributes:
        threads: of a run.
        rewriting: of its graph, if the cache is shared.
        shapes: of keys and values, by the name of the input.
        run: how it is run.
        form: that in words.
        batched: whether texts of several lengths may share a run.

    Raises:
        LoadError: ONNX Runtime refuses it, or it has other inputs and outputs.
    """

    def __init__(
        self,
        source: Source,
        threads: int | None = None,
        control: LoadControl | None = None,
        folder: DecoderFolder | None = None,
    ) -> None:
        self._source, self.path, self.threads = source, source.path, threads or usable_threads()
        self._folder = folder or DecoderFolder(source.path, {}, None)
        self._control = control or LoadControl()
        self._through = Contract.from_metadata(source.metadata).through
        model, form = self._parsed()
        self._file: str | bytes = model.SerializeToString() if form.changed else str(source.path)
        original = self._session(self._file)
        self.shapes = self._cache_shapes(original)
        self.vocab_size, self.context_length = self._sizes(original)
        if form.longest is not None and form.longest < self.context_length:
            log.warning("%s: texts have at most %d tokens: %s", self.path, form.longest, form.why)
            self.context_length = form.longest
        self._check_memory()
        self._check_cases = _Cases(self, original)
        self.batched = True
        self.run, self.form = self._fastest(original)
        if threads is None and self.threads > 1:
            self._measure_threads()

    def _parsed(self) -> tuple[Any, StandardForm]:
        """The file, in the form that is known here."""
        model = parse(self.path)
        return model, standardize(model, self._folder.names, self._folder.window)

    def _sizes(self, session: Any) -> tuple[int, int]:
        """How many tokens the model knows, and how many it can see."""
        about = json.loads(self._source.metadata.get(DECODER, "{}"))
        context_length = self._folder.context_length or UNLIMITED
        shape = next(info.shape for info in session.get_outputs() if info.name == "logits")
        if not isinstance(about, dict):
            raise LoadError(f"the metadata {DECODER} of {self.path} is no JSON object", got=repr(about)[:100])
        said = shape[-1] if isinstance(shape[-1], int) else self._folder.vocab_size
        size, length = about.get("vocab_size", said), about.get("context_length", context_length)
        known = size == shape[-1] or not isinstance(shape[-1], int)
        if type(size) is not int or not known or size < 1 or type(length) is not int or length < 2:
            raise LoadError(
                f"{self.path} does not tell how many tokens it knows and sees",
                expected="a number of scores, and a context of two tokens or more",
                got=f"logits {shape}; {DECODER} {about}"[:200],
            )
        return size, length

    def _check_memory(self) -> None:
        """Raises LoadError if the check of a long text does not fit."""
        needed = min(self.context_length, LONGEST) * sum(shape.nbytes for shape in self.shapes.values())
        if CHECKS * needed > available_memory():
            raise LoadError(
                f"keys and values of one text of {self.path} do not fit into the memory that there is",
                expected=f"at most {available_memory() // CHECKS >> 20:,} MiB for {self.context_length:,} tokens",
                got=f"{needed >> 20:,} MiB",
            )

    def _fastest(self, original: Any) -> tuple[SharedCacheRun | AppendedCacheRun, str]:
        reasons = []
        for rewriting in REWRITINGS:
            self._control.enter("checking the graph with a shared cache")
            try:
                run = self._shared(rewriting)
                self._check_cases.check(run)
                self.rewriting = rewriting
                return run, "shared cache"
            except _Differs as error:
                reasons.append(str(error))
            except PatternMissing as error:
                reasons.append(str(error))
            except Exception as error:  # ONNX Runtime's exceptions share no base class
                reasons.append(str(error).strip().splitlines()[0][:200])
        log.warning("%s: the cache is copied with each token: %s", self.path, "; ".join(dict.fromkeys(reasons)))
        appended = AppendedCacheRun(original)
        try:
            self._check_cases.check(appended)
        except _Differs as error:
            self.batched = False
            log.warning("%s: texts are not run together: %s", self.path, error)
            self._check_alone(appended)
        return appended, "copied cache"

    def _check_alone(self, run: DecoderRun) -> None:
        """Raises LoadError if a text alone gets other scores in parts than as a whole."""
        try:
            self._check_cases.check(run, together=False)
        except _Differs as error:
            raise LoadError(
                f"{self.path} cannot continue a text from its keys and values", expected="the scores of the whole text",
                got=str(error), hint="another export: a text must not change what its earlier tokens are",
            ) from error  # fmt: skip

    def _shared(self, rewriting: Rewriting) -> SharedCacheRun:
        graph = DecoderGraph(self._parsed()[0])
        if rewriting.join_products:
            graph.join_products()
        known = self.context_length <= MOST_POSITIONS
        graph.share_cache(self.context_length if rewriting.rotary and known else 0)
        if rewriting.last_scores:
            graph.last_scores()
        return SharedCacheRun(self._session(graph.serialized()), self.vocab_size, rewriting.last_scores)

    def _measure_threads(self) -> None:
        """Takes one thread instead of all where it is not slower, as in small models."""
        several, count = self.run, self.threads
        self._control.enter("measuring threads")
        several_s = self._check_cases.step_s(several)
        self.threads = 1
        one: DecoderRun
        if isinstance(several, SharedCacheRun):
            one = self._shared(self.rewriting)
        else:
            one = AppendedCacheRun(self._session(self._file))
        if self._check_cases.step_s(one) <= several_s:
            self.run = one
        else:
            self.threads = count

    def _session(self, model: str | bytes) -> Any:
        ort = onnxruntime()
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        folded = str(self._source.largest_fold)
        options.add_session_config_entry("optimization.constant_folding_max_output_size_in_bytes", folded)
        options.log_severity_level = 4
        # The many small products of a step are over before a sleeping thread wakes. Between two steps the pool sleeps:
        # the event loop and other models need the cores.
        options.add_session_config_entry("session.intra_op.allow_spinning", "1")
        options.add_session_config_entry("session.force_spinning_stop", "1")
        if isinstance(model, bytes):  # weights beside the file are found there
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", str(self.path.parent)
            )
        # looked at between two steps of the optimizer; ONNX Runtime before 1.22 does not have it
        stop = partial(getattr(options, "set_load_cancellation_flag", bool), True)
        self._control.add_stop(stop)
        try:
            return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            self._control.check()
            got = str(error).strip().splitlines()[0][:300]
            raise LoadError(f"ONNX Runtime refuses {self.path}", got=got) from error
        finally:
            self._control.forget(stop)

    def _cache_shapes(self, session: Any) -> dict[str, CacheShape]:
        inputs = {info.name: info for info in session.get_inputs()}
        pasts = [name for name in inputs if PAST.fullmatch(name)]
        outputs = {info.name for info in session.get_outputs()}
        presents = {name.replace("past_key_values", "present") for name in pasts}
        known = {"input_ids", "attention_mask", "position_ids", "use_cache_branch", *pasts}
        if not pasts or {"input_ids"} - inputs.keys() or {"logits", *presents} - outputs or inputs.keys() - known:
            raise LoadError(
                f"{self.path} is no decoder with a cache",
                expected="input_ids, attention_mask, past_key_values.N.key and .value to logits and present.N...",
                got=f"inputs {', '.join(inputs)}; outputs {', '.join(outputs)}"[:500],
                hint="ox.export.save_decoder, or Optimum's task text-generation-with-past",
            )
        shapes = {}
        for name in pasts:
            shape = list(inputs[name].shape)
            if len(shape) == 4:
                for place, said in zip((1, 3), self._folder.cache_dims, strict=True):
                    shape[place] = shape[place] if isinstance(shape[place], int) else said
            whole = len(shape) == 4 and isinstance(shape[1], int) and isinstance(shape[3], int)
            if not whole or inputs[name].type not in TYPES:
                raise LoadError(
                    f"'{name}' of {self.path} is no cache that can be given",
                    expected="float32 or float16 [batch, 8, past, 64]",
                    got=f"{inputs[name].type} {shape}",
                )
            shapes[name] = CacheShape(shape[1], shape[3], TYPES[inputs[name].type])
        return shapes


class _Differs(Exception):
    """A form gives other scores than the file."""


class _Cases:
    """Texts, and the scores that the file itself gives for them alone."""

    def __init__(self, decoder: Decoder, session: Any) -> None:
        self._decoder, self._session = decoder, session
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
            random.standard_normal((shape.heads, longest, shape.size)).astype(shape.dtype)
            for shape in decoder.shapes.values()
        ]
        self._long = self._run(self._texts[0][:1], self._past)

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
        if ATTENTION not in self._decoder._source.operators:
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
                got=str(error).strip().splitlines()[0][:300],
            ) from error
        return logits[:, -1], new

    def check(self, run: DecoderRun, together: bool = True) -> None:
        """Prompts of several lengths, one of them in two parts; tokens of all of them, together or not; a token after a
        text as long as the context, which shows windows and biases by distance.

        Raises:
            _Differs: the scores are others.
        """
        every = list(range(len(self._texts)))
        for group in [every] if together else [[each] for each in every]:
            self._check_texts(run, group)
        slots = CacheSlots(self._decoder.shapes, 1 + together, self._past[0].shape[1] + 1)
        slots.write(0, 0, self._past)
        run.attach(slots)
        text, lengths = self._texts[0], [self._past[0].shape[1]]
        if together:  # beside a short one, which shows whether distances stay as they are
            lengths.append(self._lengths[0])
            run.read(1, text[: lengths[1]], 0)
        scores = run.step(text[[0, *lengths[1:]]], np.array(lengths))
        self._compare("a long text", scores[0], self._long)
        if together:
            self._compare("a short text beside a long one", scores[1], self._expected[0][1])

    def _check_texts(self, run: DecoderRun, group: list[int]) -> None:
        run.attach(CacheSlots(self._decoder.shapes, len(group), max(self._lengths) + STEPS))
        for row, each in enumerate(group):
            text, length = self._texts[each], self._lengths[each]
            first = length // 2
            if first:
                run.read(row, text[:first], 0)
            self._compare("a prompt in parts", run.read(row, text[first:length], first), self._expected[each][0])
        lengths = np.array([self._lengths[each] for each in group])
        for step in range(STEPS):
            tokens = np.array([self._texts[each][self._lengths[each] + step] for each in group])
            for each, scores in zip(group, run.step(tokens, lengths + step), strict=True):
                self._compare("texts together" if len(group) > 1 else "a text", scores, self._expected[each][step + 1])

    def step_s(self, run: DecoderRun) -> float:
        """How long a token of a few texts takes, at best."""
        slots = CacheSlots(self._decoder.shapes, ROWS, STEPS)
        run.attach(slots)
        tokens, lengths = np.zeros(ROWS, np.int64), np.ones(ROWS, np.int64)
        times = []
        for _ in range(RUNS):
            begun = perf_counter()
            run.step(tokens, lengths)
            times.append(perf_counter() - begun)
        return min(times)

    def _compare(self, what: str, got: Array, expected: Array) -> None:
        difference = compare(got, expected, self._decoder._through)
        largest = float(np.abs(expected.astype(np.float64)).max())
        allowed = difference.allowed + min(NOISE * self._noise, MOST_NOISE * largest)
        if not difference.max_abs <= allowed:
            raise _Differs(f"scores of {what} differ by {difference.max_abs:.1e}, at most {allowed:.1e}")
