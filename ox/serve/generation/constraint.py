"""Holds texts to a JSON schema, a regular expression or a choice, by the package llguidance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ox.errors import ServeError, first_line
from ox.installation import install_command
from ox.serve.generation.cache_slots import Array
from ox.serve.generation.grammar_source import grammars
from ox.serve.generation.request import Constraint
from ox.serve.text.tokenizer import Tokenizer


class Constraints:
    """What constrained texts of one model share.

    Args:
        tokenizer: None where the model has none.
        end_tokens: with which a text that is complete ends.
    """

    def __init__(self, tokenizer: Tokenizer | None, vocab_size: int, end_tokens: tuple[int, ...]) -> None:
        self._tokenizer, self._vocab_size, self._end_tokens = tokenizer, vocab_size, end_tokens
        self._tokens: Any = None  # llguidance's view of the tokenizer, made for the first request
        self._compiled: WeakKeyDictionary[Constraint, Any] = WeakKeyDictionary()

    def matcher(self, constraint: Constraint) -> Matcher:
        """For one text. The first one of a constraint may take a second; those after it are copies.

        Raises:
            ServeError: the model has no tokenizer, the package is missing, or no text can be of this form (400).
        """
        compiled = self._compiled.get(constraint)
        if compiled is None:
            compiled = self._compiled[constraint] = self._compile(constraint)
        return Matcher(compiled.deep_copy(), self._vocab_size)

    def _compile(self, constraint: Constraint) -> Any:
        if self._tokenizer is None:
            raise ServeError("texts of a form need a tokenizer", hint="tokenizer.json beside the model")
        if not self._end_tokens:
            raise ServeError(
                "texts of a form need a token that ends them", hint="eos_token_id in generation_config.json"
            )
        try:
            import llguidance
        except ImportError as error:
            raise ServeError(
                "structured output needs the package llguidance", status=501, hint=install_command("text")
            ) from error
        if self._tokens is None:
            text = self._tokenizer.raw.to_str()
            try:
                self._tokens = llguidance.LLTokenizer(text, n_vocab=self._vocab_size, eos_token=list(self._end_tokens))
            except BaseException as error:
                # A panic, as of tokens of more than 1,024 bytes, is a BaseException: the request would hang.
                if not isinstance(error, ValueError) and type(error).__name__ != "PanicException":
                    raise
                raise ServeError(
                    "texts of a form need another tokenizer",
                    expected="one whose tokens are bytes (ByteLevel or ByteFallback), at most 1,024 each",
                    got=first_line(error)[:200],
                ) from error
        for each in constraint.checked:
            grammars(each, llguidance.LLMatcher, self._special)
        grammar = grammars(constraint, llguidance.LLMatcher, self._special)
        matcher = llguidance.LLMatcher(self._tokens, json.dumps({"grammars": grammar}), log_level=0)
        if matcher.is_error():
            got = matcher.get_error().strip().partition("\n")[0][:300]
            raise ServeError("the form of the text is too large", got=got, hint="a smaller schema, or fewer tools")
        return matcher

    def _special(self, text: str) -> int | None:
        """The id of a special token by its text."""
        assert self._tokenizer is not None
        token = self._tokenizer.id_of(text)
        return token if token is not None and self._tokens.is_special_token(token) else None


class Matcher:
    """The state of one text."""

    def __init__(self, matcher: Any, vocab_size: int) -> None:
        self._matcher, self._vocab_size = matcher, vocab_size
        self._allowed: Array | None = None  # by the tokens until now

    def allowed(self) -> Array:
        """The tokens that can follow, a bit for each, the lowest first: uint32 [ceil(vocabulary / 32)].

        Raises:
            ServeError: the form has grown beyond what the package computes (400).
        """
        if self._allowed is None:
            self._allowed = self._bits(self._matcher)
        return self._allowed

    def allowed_after(self, draft: Sequence[int]) -> list[Array]:
        """The tokens that can follow now, and after each token of a draft up to the first one that cannot follow, or
        that completes the text.

        Raises:
            ServeError: as of `allowed`.
        """
        after, matcher = [self.allowed()], self._matcher.deep_copy()
        for token in draft:
            if not after[-1][token >> 5] >> np.uint32(token & 31) & 1:
                break
            matcher.consume_token(token)
            if matcher.is_stopped():
                break
            after.append(self._bits(matcher))
        return after

    def _bits(self, matcher: Any) -> Array:
        words = np.frombuffer(matcher.compute_bitmask(), np.uint32)
        _check(matcher)
        bits = np.zeros(-(-self._vocab_size // 32), np.uint32)
        count = min(len(bits), len(words))
        bits[:count] = words[:count]
        return bits

    def add(self, token: int) -> bool:
        """The text goes on with this token.

        Returns:
            whether it is complete, and nothing can follow.
        """
        self._allowed = None
        self._matcher.consume_token(token)
        _check(self._matcher)
        return bool(self._matcher.is_stopped())


def _check(matcher: Any) -> None:
    if matcher.is_error():
        got = matcher.get_error().strip().partition("\n")[0][:300]
        raise ServeError("the text cannot be held to its form", got=got, hint="a simpler form")
