"""The generation engine: many texts of one decoder at once, which come and go between tokens."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ox.clock import SYSTEM, Clock
from ox.errors import OxError
from ox.serve.batching.fairness import Share
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.generation.batch_sampler import next_events
from ox.serve.generation.constraint import Constraints
from ox.serve.generation.decoder import UNLIMITED, Decoder
from ox.serve.generation.decoder_folder import DecoderFolder, decoder_file
from ox.serve.generation.draft_model import load_draft
from ox.serve.generation.drafter import Drafter
from ox.serve.generation.generation_errors import failed, late, not_started, unloaded
from ox.serve.generation.generation_stats import GenerationStats
from ox.serve.generation.handle import GenerationHandle
from ox.serve.generation.outbox import Outbox
from ox.serve.generation.prompt_batches import Part, batches, needs_of_step, next_parts, read_batch
from ox.serve.generation.queue_limit import QueueLimit
from ox.serve.generation.request import FinishReason, GenerationRequest
from ox.serve.generation.request_reader import RequestReader
from ox.serve.generation.scheduler import Scheduler, cache_budget
from ox.serve.generation.text import OnError, OnEvent, Text
from ox.serve.runtime.runtime_error import run_failure
from ox.serve.runtime.source import read

log = logging.getLogger("ox.serve")


class GenerationEngine:
    """Runs the requests of one decoder, in a thread of its own: between two tokens of the texts that run, others join,
    the prompts of those are read in parts, and those that are complete leave.

    Args:
        decoder: is this engine's alone.
        folder: what lies beside its file.
        options: how much runs at once.
        budget: bytes of the cache.
        max_queue: the most requests that wait.
        start_s: how long a request without a deadline may wait.
        levels, usual_level: the lowest priority, and that of requests which ask for none.
        share: this model's part of the cores.
        draft: a smaller decoder of the same tokens, whose guesses are checked.
        clock: of deadlines.
        max_graphs: the most CUDA graphs, one for each number of texts, where steps are captured.

    Attributes:
        tokenizer: None where the folder has none.
        context_length: the most tokens of a prompt and its text together.
        max_texts: that run at once; fewer than in `options` where the cache has fixed slots for fewer.
        vocab_size: how many tokens the model knows.
        defaults: how texts are made where a request says nothing, as in generation_config.json.
        end_tokens: tokens that end a text.

    Raises:
        LoadError: tokenizer and model do not fit each other, or one text does not fit into the cache.
    """

    def __init__(
        self,
        decoder: Decoder,
        folder: DecoderFolder,
        options: GenerationOptions,
        budget: int,
        *,
        max_queue: int = 1024,
        start_s: float = 10.0,
        levels: int = 10,
        usual_level: int = 5,
        share: Share | None = None,
        draft: Decoder | None = None,
        clock: Clock = SYSTEM,
        max_graphs: int = 256,
    ) -> None:
        self.clock, self.vocab_size = clock, decoder.vocab_size
        folder.check_vocabulary(self.vocab_size)
        self.tokenizer, self.defaults = folder.tokenizer, folder.defaults
        self.end_tokens = folder.end_tokens(self.vocab_size)
        self.constraints = Constraints(self.tokenizer, self.vocab_size, self.end_tokens)
        self._run, self.context_length = decoder.run, decoder.context_length
        token_bytes = sum(shape.nbytes for shape in decoder.shapes.values())
        if self.context_length == UNLIMITED:
            draft_bytes = 0 if draft is None else sum(shape.nbytes for shape in draft.shapes.values())
            self.context_length = max(2, budget // (token_bytes + draft_bytes))
        self._drafter = Drafter(0 if self._run.singly else options.draft_tokens, draft, self.context_length)
        most, budget = options.max_texts if decoder.batched else 1, budget - self._drafter.nbytes
        self._scheduler = Scheduler(decoder.shapes, self._run, most, self.context_length, budget)
        self.max_texts = self._scheduler.slots.rows
        decoder.capture(self._scheduler.slots, max_graphs)
        self._prefill_tokens, self._share = options.prefill_tokens, share
        self._reader = RequestReader(
            tokenizer=self.tokenizer, constraints=self.constraints, end_tokens=self.end_tokens,
            vocab_size=self.vocab_size, context_length=self.context_length,
            max_length=folder.max_length or self.context_length,
            start_s=start_s, levels=levels, usual_level=usual_level,
        )  # fmt: skip
        self._queue_limit, self._start_s = QueueLimit(max_queue), start_s
        self._outbox, self._stats = Outbox(), GenerationStats()
        self._condition = threading.Condition()
        self._incoming: list[Text] = []
        self._wakeup = self._closing = self._abort = False
        self._thread: threading.Thread | None = None  # from the first request on

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], options: GenerationOptions | None = None, threads: int | None = None
    ) -> GenerationEngine:
        """An engine of its own, outside of a server.

        Args:
            path: a decoder's folder, or its file.
            threads: of ONNX Runtime; None: measured.

        Raises:
            LoadError, DeviceError: the decoder cannot be loaded.
        """
        options = options or GenerationOptions()
        file = decoder_file(Path(path))
        folder = DecoderFolder.read(file)
        decoder = Decoder(read(file), threads, folder=folder)
        draft = load_draft(options, folder, decoder.vocab_size, threads)
        return cls(decoder, folder, options, cache_budget(options, decoder.run.memory), draft=draft)

    # ---- from any thread

    def submit(
        self,
        request: GenerationRequest,
        on_event: OnEvent,
        on_error: OnError,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> GenerationHandle:
        """Has a text made.

        Args:
            on_event: gets its tokens, the last with a finish_reason.
            on_error: gets why there are no more.
            loop: where they are called, those of all texts of a turn together; without one, in the engine's thread,
                where they must not take long.

        Raises:
            ServeError: tokens that the model does not have, a prompt that fills the context, a form that no text can
                have (400), too many requests wait, or the model is unloaded (503).
        """
        handle, now = GenerationHandle(self._wake), self.clock.now()
        text = self._reader.read(request, handle, on_event, on_error, loop, now)
        with self._condition:
            if self._closing:
                raise unloaded()
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="ox-generation", daemon=True)
                thread.start()  # may fail, where a process has all the threads that it may have
                self._thread = thread
            waiting = len(self._incoming) + len(self._scheduler.waiting)
            self._queue_limit.enter(request.client, waiting)
            self._incoming.append(text)
            self._wakeup = True
            self._condition.notify()
        return handle

    def stats(self) -> dict[str, Any]:
        """What the engine does now, and what it has done."""
        with self._condition:
            self._stats.counts["preemptions"] = self._scheduler.preemptions
            waiting = len(self._incoming) + len(self._scheduler.waiting)
            return {**self._scheduler.state(), "waiting": waiting, **self._stats.snapshot()}

    def stop(self, finish: bool = False) -> None:
        """Takes no more requests. Does not wait: `close` does.

        Args:
            finish: whether the texts that were accepted are completed; else each gets an error.
        """
        with self._condition:
            self._closing, self._abort, self._wakeup = True, not finish, True
            self._condition.notify()

    def close(self, finish: bool = True) -> None:
        """Takes no more requests, waits for the end of those that it has, and gives the memory back."""
        self.stop(finish)
        if self._thread is not None:
            self._thread.join()
        self._scheduler.prefixes.clear()
        self._run.release()
        self._drafter.release()

    def _wake(self) -> None:
        with self._condition:
            self._wakeup = True
            self._condition.notify()

    # ---- the engine's thread

    def _work(self) -> None:
        try:
            self._run_steps()
        except BaseException as error:  # a defect, after which nothing can be relied on
            log.exception("the generation engine has ended")
            with self._condition:
                self._closing = True
                texts = [*self._scheduler.texts, *self._scheduler.waiting, *self._incoming]
            for text in texts:
                self._outbox.put(text, failed(error))
            self._outbox.flush()

    def _run_steps(self) -> None:
        busy = False
        while True:
            with self._condition:
                if not (busy or self._wakeup):
                    self.clock.wait(self._condition, lambda: self._wakeup, self._scheduler.pause(self.clock.now()))
                self._wakeup = False
                incoming, self._incoming = self._incoming, []
                for text in incoming:
                    self._scheduler.waiting.enter(text)
                self._stats.counts["requests"] += len(incoming)
                abort, closing = self._abort, self._closing
            self._guarded(partial(self._end_expired, abort))
            busy = self._guarded(self._step)
            self._outbox.flush()
            if closing and not (self._scheduler.texts or self._scheduler.waiting):
                return

    def _end_expired(self, abort: bool) -> None:
        """Texts that were cancelled, are too late, or all of them."""
        now = self.clock.now()
        for text in (*self._scheduler.texts, *self._scheduler.waiting):
            if abort:
                self._end(text, unloaded())
            elif text.handle.cancelled:
                self._end(text, "cancelled")
            elif text.request.deadline is not None:
                if now >= text.request.deadline:
                    self._end(text, late())
            elif text.cached is None and text.row < 0 and now >= text.start_by:
                self._end(text, not_started(self._start_s))

    def _end(self, text: Text, why: FinishReason | OxError) -> None:
        news = why if isinstance(why, OxError) else text.end(why)
        self._finish(text, "error" if isinstance(why, OxError) else why)
        self._outbox.put(text, news)  # last: where that fails, the text is still among those that `_guarded` ends

    def _fail(self, texts: list[Text], error: Exception) -> None:
        """A run of these texts has failed."""
        why = error if isinstance(error, OxError) else self._run.memory.refusal(error) or run_failure(error)
        for text in texts:
            self._end(text, why)

    def _finish(self, text: Text, why: str) -> None:
        if text.row >= 0:
            if why != "error":
                self._scheduler.save(text)
            self._scheduler.remove(text)
        self._scheduler.waiting.leave(text)
        with self._condition:
            self._stats.ended(why)
            self._queue_limit.leave(text.request.client)

    def _guarded(self, work: Callable[[], bool | None]) -> bool:
        try:
            return bool(work())
        except Exception as error:  # a defect: whoever waits gets to hear it
            log.exception("the generation engine failed")
            texts, why = list(self._scheduler.texts), self._run.memory.refusal(error) or failed(error)
            for text in reversed(texts):  # the last row first: none is moved, which fails on a device that has failed
                self._end(text, why)
            return bool(texts)  # those that wait have their turn now

    def _step(self) -> bool:
        """Reads parts of prompts, then gives each text a token; whether there is more to do."""
        scheduler = self._scheduler
        scheduler.admit(self.clock.now())
        has_cores = self._share is not None and bool(scheduler.texts) and self._share.acquire()
        started = self.clock.now()
        try:
            self._prefill()
            self._decode()
        finally:
            spent = self.clock.now() - started
            if has_cores and self._share is not None:
                self._share.release(spent)
        with self._condition:
            self._stats.busy_s += spent
        # where no text goes on, one that waits gets a slot in the next turn
        return any(not text.handle.paused for text in (*scheduler.texts, *scheduler.waiting))

    def _prefill(self) -> None:
        room = self._prefill_tokens
        while room > 0 and (parts := next_parts(self._scheduler.texts, self._scheduler.prefixes, room)):
            for batch in batches(parts):
                room -= sum(len(part) for _, part in batch)
                self._read(batch)

    def _read(self, batch: list[Part]) -> None:
        texts = [text for text, _ in batch]
        try:
            scores = read_batch(batch, self._run, self._scheduler, self.vocab_size)
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            self._fail(texts, error)
            return
        for text, part in batch:
            text.computed += len(part)
            text.decoding = text.computed == len(text.tokens)
            self._scheduler.waiting.served(text, len(part))
        complete = [(text, row) for text, row in zip(texts, scores, strict=True) if text.decoding]
        for text, _ in complete:
            self._end_prompt(text)
        if going := [(text, row) for text, row in complete if text.most]:
            self._emit([text for text, _ in going], [row for _, row in going])
        if complete:
            self._outbox.flush()  # first tokens do not wait for those of the others
        for text, _ in going:
            if text.row >= 0:
                self._scheduler.save(text)

    def _end_prompt(self, text: Text) -> None:
        """The whole prompt has been read, or, after a text lost its slot, what it has."""
        if text.generated == 0:
            with self._condition:
                self._stats.read(text.prompt_length, text.cached or 0)
        if text.prompt_scores is not None:
            self._outbox.put(text, text.prompt_scores.event())
            text.prompt_scores = None
        if not text.most:
            self._end(text, "length")

    def _decode(self) -> None:
        if not any(text.runnable for text in self._scheduler.texts):
            return
        self._scheduler.reserve()
        rows = self._scheduler.runnable()
        texts = self._scheduler.texts[:rows]
        if not texts:
            return
        draft: list[int] = []
        lengths = np.array([text.computed for text in texts], np.int64)
        try:
            if rows == 1:  # where several texts share a run, more tokens cost more time than they save
                draft = self._drafter.draft(texts[0], self._scheduler.slots.capacity)
            tokens = np.array([[text.tokens[-1], *draft] for text in texts], np.int64)
            needs = None if self._run.memory.kind == "cpu" else needs_of_step(texts, draft, self.vocab_size)
            scores = self._run.step(tokens, lengths, needs)
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            self._fail(texts, error)
            return
        if draft:
            self._accept(texts[0], draft, scores)
        else:
            self._append(texts, scores)

    def _accept(self, text: Text, draft: list[int], scores: Any) -> None:
        """The next tokens of a text, as long as they are those of a draft, and the one after (see `Drafter`)."""
        accepted = 0
        for place in range(len(scores)):
            self._append([text], scores[place : place + 1])
            right = place < len(draft) and text.tokens[-1] == draft[place]
            accepted += right
            if not right or text.row < 0:
                break
        self._drafter.count(text, len(draft), accepted)
        with self._condition:
            self._stats.counts["drafted_tokens"] += len(draft)
            self._stats.counts["accepted_tokens"] += accepted

    def _append(self, texts: list[Text], scores: Any) -> None:
        for text in texts:
            text.computed += 1
            self._scheduler.waiting.served(text, 1)
        self._emit(texts, scores)

    def _emit(self, texts: list[Text], scores: Any) -> None:
        """The next token of each text, from scores."""
        outcomes = next_events(texts, scores)
        now = self.clock.now()
        with self._condition:
            for text, outcome in zip(texts, outcomes, strict=True):
                if not isinstance(outcome, OxError):
                    self._stats.emitted(text.generated == 1, now - text.last_s)
                    text.last_s = now
        for text, outcome in zip(texts, outcomes, strict=True):
            if isinstance(outcome, OxError):
                self._end(text, outcome)
            else:
                if outcome.finish_reason is not None:
                    self._finish(text, outcome.finish_reason)
                self._outbox.put(text, outcome)
