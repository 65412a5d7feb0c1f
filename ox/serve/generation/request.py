"""A request for a text, and the events that answer it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ox.errors import ServeError
from ox.generation.sampling_params import SamplingParams
from ox.serve.generation.grammar import LarkPart

MOST_LOGPROBS = 20
MOST_STOPS = 64  # strings or tokens that end a text
MOST_WORD = 256  # characters of one of bad_words
FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, eq=False)
class Constraint:
    """What a text must look like. Texts of one request share the object, which is compiled once.

    Attributes:
        kind: "json_schema", "json_object" (any object), "regex", "choice" or "grammar".
        value: the schema (a mapping, or true), the regular expression, the possible texts, or the source of the grammar
            in llguidance's dialect of Lark; None for "json_object".
        strict: whether what the package lacks of JSON schema is an error; else it is left out of the grammar.
        where: which parameter of the request says so, for errors.
        parts: of a grammar, what its source calls by name.
        checked: constraints that must be possible, too.
    """

    kind: Literal["json_schema", "json_object", "regex", "choice", "grammar"]
    value: Mapping[str, Any] | bool | str | Sequence[LarkPart] | None = None
    strict: bool = True
    where: str = ""
    parts: Mapping[str, Constraint] = field(default_factory=dict)
    checked: Sequence[Constraint] = ()


@dataclass(frozen=True)
class GenerationRequest:
    """A request for one text.

    Attributes:
        prompt: the ids of its tokens, one or more.
        sampling: how tokens are chosen.
        max_tokens: the most tokens of the text; None for what the context has room for, 0 to compute the prompt only.
        stop: strings that end the text, which are not part of it.
        stop_token_ids: tokens that end it, beside those of the model.
        ignore_eos: whether the text goes on at the model's own end tokens.
        logprobs: for each token its logarithmic probability, and the likeliest so many tokens (0: none of these); None
            for neither.
        index: of several texts of one prompt and seed, which one.
        priority: 1 is the highest; 0 for the model's default.
        deadline: when the text must be complete, by the engine's clock; None for no limit.
        constraint: what the text must look like.
        client: requests of one client take turns with those of others.
        min_tokens: before so many tokens nothing ends the text: end tokens are not generated, and stop strings are
            ignored. Only a constraint that nothing can follow ends it earlier.
        include_stop: whether the string or token that ends the text is part of it.
        skip_special_tokens: whether special tokens have no text.
        shown_tokens: special tokens that have one all the same.
        end_of_text: is called with each piece of the text, in their order, by the engine's thread; where it gives true,
            the text ends.
        allowed_token_ids: only these tokens are generated; None for all.
        bad_words: strings that are not generated, as long as they are spelled with their own tokens.
        prompt_logprobs: as `logprobs`, for the tokens of the prompt, in one event before the first token.

    Raises:
        ServeError: a value out of range, or two that contradict each other (400).
    """

    prompt: Sequence[int]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    index: int = 0
    priority: int = 0
    deadline: float | None = None
    constraint: Constraint | None = None
    client: str = ""
    min_tokens: int = 0
    include_stop: bool = False
    skip_special_tokens: bool = True
    shown_tokens: frozenset[int] = frozenset()
    end_of_text: Callable[[str], bool] | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        if len(self.prompt) == 0:
            raise ServeError("the prompt is empty", expected="one token or more", hint="a text, or a start token")
        _whole("max_tokens", self.max_tokens, 0, None)
        _whole("min_tokens", self.min_tokens, 0, None)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            expected = f"at most max_tokens, {self.max_tokens}"
            raise ServeError("min_tokens is larger than max_tokens", expected=expected, got=str(self.min_tokens))
        _whole("logprobs", self.logprobs, 0, MOST_LOGPROBS)
        _whole("prompt_logprobs", self.prompt_logprobs, 0, MOST_LOGPROBS)
        _whole("priority", self.priority, 0, None)
        if not all(isinstance(text, str) and text for text in self.stop) or len(self.stop) > MOST_STOPS:
            expected = f"at most {MOST_STOPS} texts of a character or more"
            raise ServeError("stop has texts that no text can end at", expected=expected, got=repr(self.stop)[:100])
        if len(self.stop_token_ids) > MOST_STOPS:
            got = f"{len(self.stop_token_ids)} tokens"
            raise ServeError("too many stop_token_ids", expected=f"at most {MOST_STOPS}", got=got)
        words = self.bad_words
        if len(words) > MOST_STOPS or not all(isinstance(word, str) and 0 < len(word) <= MOST_WORD for word in words):
            expected = f"at most {MOST_STOPS} texts of 1 to {MOST_WORD} characters"
            raise ServeError("invalid bad_words", expected=expected, got=repr(self.bad_words)[:100])
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise ServeError("allowed_token_ids is empty", expected="one token or more", got="[]")


@dataclass(frozen=True, slots=True)
class Usage:
    """How many tokens a request took; `cached_tokens` of the prompt were not computed for it."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class TokenLogprob(NamedTuple):
    """How likely a token of a prompt was after those before it.

    Attributes:
        token: its id.
        logprob: its logarithmic probability.
        rank: 1 for the likeliest token of all, 2 for the next one, and so on.
        top_logprobs: the likeliest tokens and their logarithmic probabilities, the likeliest first.
    """

    token: int
    logprob: float
    rank: int
    top_logprobs: Sequence[tuple[int, float]]


@dataclass(slots=True)
class TokenEvent:
    """A token of a text, its end, or what was asked for about its prompt.

    Attributes:
        token: its id; None for an end without a token (a text that was cancelled, or has no tokens), and with
            `prompt_logprobs`.
        text: what can be shown of the text that was not before: "" while a character is not whole or may be the begin
            of a stop string, and always where the model has no tokenizer.
        logprob: its logarithmic probability, where it was asked for.
        top_logprobs: the likeliest tokens and their logarithmic probabilities, the likeliest first.
        finish_reason: None, except with the last event.
        stopped_by: the string or token of the request that ended the text.
        usage: with the last event.
        prompt_logprobs: of each token of the prompt but the first, where they were asked for: in an event before the
            first token, which has nothing else.
    """

    token: int | None
    text: str = ""
    logprob: float | None = None
    top_logprobs: Sequence[tuple[int, float]] = ()
    finish_reason: FinishReason | None = None
    stopped_by: str | int | None = None
    usage: Usage | None = None
    prompt_logprobs: Sequence[TokenLogprob] | None = None


def _whole(name: str, value: Any, least: int, most: int | None) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        expected = f"a whole number from {least}" + (" on" if most is None else f" to {most}")
        raise ServeError(f"{name} is out of range", expected=expected, got=repr(value)[:100])
