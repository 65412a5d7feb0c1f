"""Checks requests against the model, and makes texts of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.errors import ArgumentError, ServeError
from ox.generation.stopping import Stopping
from ox.serve.generation.constraint import Constraints
from ox.serve.generation.handle import GenerationHandle
from ox.serve.generation.request import GenerationRequest
from ox.serve.generation.text import OnError, OnEvent, Text
from ox.serve.generation.token_mask import TokenMask
from ox.serve.text.tokenizer import Tokenizer, WithShownTokens, WithSpecialTokens


class RequestReader:
    """Reads the requests of one model.

    Args:
        tokenizer: None where the model has none.
        constraints: makes what holds a text to its form.
        end_tokens: tokens that end a text.
        vocab_size: how many tokens the model knows.
        context_length: the most tokens of a prompt and its text together.
        max_length: the same for requests that do not say how long the text may be.
        start_s: how long a request without a deadline may wait.
        levels, usual_level: the lowest priority, and that of requests which ask for none.
    """

    def __init__(
        self,
        *,
        tokenizer: Tokenizer | None,
        constraints: Constraints,
        end_tokens: tuple[int, ...],
        vocab_size: int,
        context_length: int,
        max_length: int,
        start_s: float,
        levels: int,
        usual_level: int,
    ) -> None:
        self._tokenizer, self._constraints, self._end_tokens = tokenizer, constraints, end_tokens
        self._vocab_size, self._context_length, self._max_length = vocab_size, context_length, max_length
        self._start_s, self._levels, self._usual_level = start_s, levels, usual_level
        self._last_mask: tuple[tuple[Any, ...], TokenMask] | None = None  # and what of its request it was made of

    def read(
        self,
        request: GenerationRequest,
        handle: GenerationHandle,
        on_event: OnEvent,
        on_error: OnError,
        loop: asyncio.AbstractEventLoop | None,
        arrived: float,
    ) -> Text:
        """A text that can begin; it has `arrived` at that time.

        Raises:
            ServeError: tokens that the model does not have, a prompt that fills the context, a form that no text can
                have (400).
        """
        count = len(request.prompt)
        longest = self._context_length - (request.max_tokens != 0)
        if count > longest:
            raise ServeError(
                "the prompt is longer than the model's context",
                expected=f"at most {longest} tokens{', so that one can follow' * (request.max_tokens != 0)}",
                got=f"{count} tokens",
                hint="a shorter prompt",
            )
        prompt = np.asarray(request.prompt)
        if prompt.dtype.kind not in "iu" or prompt.ndim != 1:
            got = repr(request.prompt)[:100]
            raise ServeError("the prompt is no list of tokens", expected="whole numbers", got=got)
        self._check_tokens("the prompt", prompt)
        self._check_tokens("logit_bias", np.array(list(request.sampling.logit_bias), np.int64))
        ends = (*request.stop_token_ids, *(() if request.ignore_eos else self._end_tokens))
        tokenizer: Any = self._tokenizer
        if tokenizer is not None and not request.skip_special_tokens:
            tokenizer = WithSpecialTokens(tokenizer)
        elif tokenizer is not None and request.shown_tokens:
            tokenizer = WithShownTokens(tokenizer, request.shown_tokens)
        try:
            stopping = Stopping.read(ends, request.stop, tokenizer, request.include_stop)
        except ArgumentError as error:
            raise ServeError(error.what, expected=error.expected, got=error.got) from error
        room = self._context_length - count
        return Text(
            request,
            handle,
            on_event,
            on_error,
            loop=loop,
            stopping=stopping,
            matcher=None if request.constraint is None else self._constraints.matcher(request.constraint),
            most=min(room, max(1, self._max_length - count) if request.max_tokens is None else request.max_tokens),
            mask=self._mask(request, ends),
            vocab_size=self._vocab_size,
            level=min(request.priority, self._levels) or self._usual_level,
            arrived=arrived,
            start_by=arrived + self._start_s,
        )

    def _mask(self, request: GenerationRequest, ends: Sequence[int]) -> TokenMask | None:
        """What of the request forbids tokens, beside a constraint; None for nothing. Texts of one request, which come
        one after another, share it."""
        if not (request.min_tokens or request.bad_words or request.allowed_token_ids):
            return None
        key = (request.min_tokens, request.bad_words, request.allowed_token_ids, tuple(ends))
        last = self._last_mask
        if last is not None and last[0] == key:
            return last[1]
        self._check_tokens("allowed_token_ids", np.array(request.allowed_token_ids or (), np.int64))
        if request.bad_words and self._tokenizer is None:
            raise ServeError("bad_words need a tokenizer", hint="tokenizer.json beside the model")
        # at the beginning of a text, and after a space
        spelled = [text for word in request.bad_words for text in (word, f" {word.lstrip()}")]
        words = [self._tokenizer.encode(text, special=False) for text in spelled] if self._tokenizer else []
        known = [token for token in ends if token < self._vocab_size]
        allowed = request.allowed_token_ids
        mask = TokenMask(self._vocab_size, known, request.min_tokens, allowed, filter(None, words))
        self._last_mask = key, mask
        return mask

    def _check_tokens(self, what: str, tokens: Any) -> None:
        wrong = tokens[(tokens < 0) | (tokens >= self._vocab_size)]
        if len(wrong):
            expected = f"0 to {self._vocab_size - 1}"
            raise ServeError(f"{what} has a token that the model does not have", expected=expected, got=str(wrong[0]))
