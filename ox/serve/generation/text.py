"""A text that is being generated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ox.devices.gpu.top_k import MOST_BEST
from ox.errors import OxError, ServeError
from ox.generation.sampler import Sampler
from ox.generation.stopping import Stopping
from ox.serve.generation.handle import GenerationHandle
from ox.serve.generation.prompt_lookup import PromptLookup
from ox.serve.generation.prompt_scores import PromptScores
from ox.serve.generation.request import FinishReason, GenerationRequest, TokenEvent, Usage
from ox.serve.generation.scores import NOTHING, Array, BestScores, LogProbabilities, Need, Scores
from ox.serve.generation.token_mask import TokenMask, is_allowed

if TYPE_CHECKING:
    from ox.serve.generation.constraint import Matcher

OnEvent = Callable[[TokenEvent], None]
OnError = Callable[[OxError], None]


class Text:
    """A request with what became of it so far. It outlives its slot: a text that was preempted goes on later.

    Args:
        most: the most tokens of the text.
        vocab_size: how many tokens the model knows.
        level: its priority, 1 is the highest.
        arrived: the time by the engine's clock.
        start_by: when it is not worth starting any more, by the same clock.
    """

    __slots__ = (
        "admitted",
        "arrived",
        "cached",
        "computed",
        "decoding",
        "handle",
        "last_s",
        "level",
        "lookup",
        "loop",
        "mask",
        "matcher",
        "most",
        "on_error",
        "on_event",
        "plain",
        "prompt_length",
        "prompt_scores",
        "request",
        "row",
        "sampler",
        "start_by",
        "stop_tokens",
        "tokens",
        "watcher",
    )

    def __init__(
        self,
        request: GenerationRequest,
        handle: GenerationHandle,
        on_event: OnEvent,
        on_error: OnError,
        *,
        loop: asyncio.AbstractEventLoop | None,
        stopping: Stopping,
        matcher: Matcher | None,
        mask: TokenMask | None,
        most: int,
        vocab_size: int,
        level: int,
        arrived: float,
        start_by: float,
    ) -> None:
        self.request, self.handle, self.loop = request, handle, loop
        self.on_event, self.on_error = on_event, on_error
        self.tokens = [int(token) for token in request.prompt]
        self.prompt_length = len(self.tokens)
        self.most, self.level, self.start_by = most, level, start_by
        self.watcher, self.stop_tokens = stopping.watch(), stopping.tokens
        self.matcher, self.mask = matcher, mask
        self.lookup = PromptLookup()
        self.sampler = Sampler(request.sampling, self.tokens, request.index)
        params = request.sampling
        penalties = params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1
        # whether scores are taken as they are
        self.plain = not (params.logit_bias or penalties)
        # until the whole prompt has been read; None where they are not wanted
        self.prompt_scores = (
            None
            if request.prompt_logprobs is None
            else PromptScores(self.tokens[:], request.prompt_logprobs, vocab_size)
        )
        self.row = -1  # its slot
        self.computed = 0  # tokens whose keys and values are there
        self.decoding = False  # all tokens but the last have been read
        self.cached: int | None = None  # tokens of the prompt that were not computed for it
        self.admitted = 0
        self.arrived = self.last_s = arrived

    @property
    def runnable(self) -> bool:
        return self.decoding and not self.handle.paused

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def is_restricted(self) -> bool:
        """Whether some tokens cannot follow now."""
        return self.matcher is not None or self._is_masked

    @property
    def _is_masked(self) -> bool:
        return self.mask is not None and self.mask.restricts(self.generated)

    def forbid(self, scores: Array) -> None:
        """Sets the scores [vocabulary] of tokens that cannot follow to minus infinity.

        Raises:
            ServeError: no token can follow, or the form has grown beyond what is computed (400).
        """
        (allowed,) = self._allowed_after(())
        if allowed is not None:
            scores[~is_allowed(allowed, len(scores))] = -np.inf

    def _allowed_after(self, draft: Sequence[int]) -> list[Array | None]:
        """The tokens that can follow now, and after each token of a draft, None for all tokens: up to the first one
        that a constraint does not allow, or that completes it. Raises ServeError as `forbid`."""
        every: list[Array | None] = [None] * (1 + len(draft))
        if self.matcher is not None:
            every = [*self.matcher.allowed_after(draft)]
        if self.mask is None or not self._is_masked:
            return every
        text, now = [*self.tokens[self.prompt_length :], *draft], self.generated
        return [self.mask.allowed(text[: now + i], allowed) for i, allowed in enumerate(every)]

    def need(self, vocab_size: int) -> Need | None:
        """What of its scores chooses the next token; None for all of them."""
        params = self.request.sampling
        if not self.plain or not (params.greedy or 0 < params.top_k < vocab_size):
            return None
        best, logprobs = max(1 if params.greedy else params.top_k, self.request.logprobs or 0), self.request.logprobs
        if best > MOST_BEST:
            return None
        if not self.is_restricted:
            return Need(best, logprobs is not None)
        if logprobs is not None:  # of the scores before tokens are forbidden
            return None
        try:
            return Need(best, allowed=self._allowed_after(())[0])
        except ServeError:  # which the choice of the token raises again, for this text alone
            return None

    def needs(self, vocab_size: int, draft: Sequence[int]) -> list[Need | None]:
        """What is needed of its scores now, and after each token of a draft."""
        need = self.need(vocab_size)
        if need is None or not self.is_restricted:
            return [need] * (1 + len(draft))
        try:
            after = self._allowed_after(draft)
        except ServeError:
            return [need, *[None] * len(draft)]
        return [*(need._replace(allowed=allowed) for allowed in after), *[NOTHING] * (1 + len(draft) - len(after))]

    def logprobs(self, scores: Scores) -> LogProbabilities | None:
        """The logarithmic probabilities of tokens, if they were asked for."""
        return None if self.request.logprobs is None else LogProbabilities(scores)

    def choose(self, scores: Scores) -> int:
        """The next token, which is not added yet, of texts that are not greedy or have penalties or bias.

        Raises:
            ArgumentError: no token can be chosen.
        """
        if isinstance(scores, BestScores):
            return self.sampler.choose_of(scores.tokens, scores.scores)
        return self.sampler(scores)

    def add(self, token: int, logprobs: LogProbabilities | None) -> TokenEvent:
        """The next token.

        Raises:
            ServeError: the text cannot be held to its form.
        """
        self.tokens.append(token)
        shown, stopped = self.watcher.add(token, self.generated > self.request.min_tokens)
        complete = self.matcher is not None and self.matcher.add(token)
        event = TokenEvent(token, shown or "")
        if stopped or complete:
            event.finish_reason = "stop"
            by = self.watcher.stopped_by
            event.stopped_by = by if isinstance(by, str) or by in self.request.stop_token_ids else None
        elif event.text and self._is_ended_by(event.text):
            event.finish_reason = "stop"
        elif self.generated >= self.most:
            event.finish_reason = "length"
        if event.finish_reason is not None:
            event.usage = self.usage()
            if not stopped:
                event.text += self.watcher.rest()
        if logprobs is not None:
            event.logprob = logprobs.of(token)
            event.top_logprobs = logprobs.top(self.request.logprobs or 0)
        return event

    def _is_ended_by(self, text: str) -> bool:
        """Whether the request's reader of the text says that it ends here. What it raises ends this text alone."""
        if self.request.end_of_text is None:
            return False
        try:
            return self.request.end_of_text(text)
        except Exception as error:
            raise ServeError("the text could not be read", status=500, got=str(error)[:200]) from error

    def end(self, reason: FinishReason) -> TokenEvent:
        """An end without a further token."""
        return TokenEvent(None, self.watcher.rest(), finish_reason=reason, usage=self.usage())

    def usage(self) -> Usage:
        return Usage(self.prompt_length, self.cached or 0, self.generated)
