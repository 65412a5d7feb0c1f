"""The parameters of sampling that all dialects of text have: from JSON to requests for the engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ox.generation.sampling_params import SamplingParams
from ox.serve.generation.request import MOST_LOGPROBS, Constraint, GenerationRequest
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.text_model import TextModel

MAX_CHOICES = 128  # texts of one request
MAX_STOPS = 16
MAX_BIASES = 1024
MAX_TOKENS = (1 << 31) - 1
MAX_SEED = (1 << 64) - 1


@dataclass(frozen=True)
class TextOptions:
    """What a request says about all of its texts."""

    sampling: SamplingParams
    choices: int
    max_tokens: int | None
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    constraint: Constraint | None
    logprobs: int | None = None

    def requests(self, prompt: Sequence[int], client: str) -> list[GenerationRequest]:
        """One for each of the texts that continue a prompt; requests of one client take turns with those of others."""
        return [
            GenerationRequest(
                prompt, self.sampling, self.max_tokens, self.stop, self.stop_token_ids, self.ignore_eos,
                self.logprobs, index=index, constraint=self.constraint, client=client,
            )
            for index in range(self.choices)
        ]  # fmt: skip

    def check_form(self, model: TextModel) -> None:
        """Compiles the constraint once, so that the engine has what it needs; raises ServeError if it is wrong."""
        if self.constraint is not None:
            model.engine.constraints.matcher(self.constraint)

    def with_default(self, tokens: int) -> TextOptions:
        """With at most so many tokens, or what the context has room for, where the request says nothing."""
        return replace(self, max_tokens=tokens) if self.max_tokens is None else self

    def check_length(self, prompt: Sequence[int], model: TextModel, name: str) -> None:
        """Raises ParameterError for a prompt without tokens, or one that leaves no room for the text; `name` is the
        prompt's in the request."""
        if not prompt:
            raise ParameterError(name, "the prompt has no tokens", expected="a character or more")
        context, asked = model.engine.context_length, self.max_tokens or 1
        if len(prompt) + asked > context:
            raise ParameterError(
                name if self.max_tokens is None else "max_tokens",
                "the prompt and the text are longer than the model's context", code="context_length_exceeded",
                expected=f"at most {context} tokens", got=f"{len(prompt)} of the prompt, and {asked} to be made",
                hint="a shorter prompt, or a smaller max_tokens",
            )  # fmt: skip


def read_options(fields: Fields, model: TextModel, max_tokens: int | None) -> TextOptions:
    """The parameters of sampling, and the extras of vLLM.

    Raises:
        ParameterError: one is out of range, or two contradict each other.
    """
    defaults = model.defaults
    choices = fields.whole("n", 1, MAX_CHOICES, 1) or 1
    top_k = fields.whole("top_k", -1, MAX_TOKENS, defaults.get("top_k", 0))
    seed = fields.whole("seed", -(1 << 63), MAX_SEED)
    sampling = SamplingParams(
        temperature=fields.number("temperature", 0, 2, defaults.get("temperature", 1.0)),
        top_p=fields.number("top_p", 0, 1, defaults.get("top_p", 1.0), above=True),
        top_k=max(0, top_k or 0),
        min_p=fields.number("min_p", 0, 1, defaults.get("min_p", 0.0)),
        repetition_penalty=fields.number(
            "repetition_penalty", 0, 2, defaults.get("repetition_penalty", 1.0), above=True
        ),
        presence_penalty=fields.number("presence_penalty", -2, 2, 0.0),
        frequency_penalty=fields.number("frequency_penalty", -2, 2, 0.0),
        logit_bias=_logit_bias(fields, model.engine.vocab_size),
        seed=None if seed is None else seed % (1 << 63),
    )
    return TextOptions(
        sampling,
        choices,
        max_tokens,
        fields.texts("stop", MAX_STOPS),
        fields.wholes("stop_token_ids", MAX_STOPS, model.engine.vocab_size),
        fields.flag("ignore_eos"),
        _constraint(fields),
    )


def read_logprobs(fields: Fields, name: str) -> int | None:
    """How many of the likeliest tokens are wanted at each place."""
    return fields.whole(name, 0, MOST_LOGPROBS)


def with_format(options: TextOptions, fields: Fields) -> TextOptions:
    """OpenAI's response_format as a constraint.

    Raises:
        ParameterError: no such format, or it contradicts another constraint.
    """
    form = fields.object("response_format")
    if form is None or form.get("type") == "text":
        return options
    name = "response_format"
    if form.get("type") == "json_object":
        constraint = Constraint("json_object")
    elif form.get("type") == "json_schema":
        outer = form.get("json_schema")
        schema = outer.get("schema") if isinstance(outer, dict) else None
        if not isinstance(schema, dict):
            expected = '{"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}'
            raise ParameterError(f"{name}.json_schema", "the schema is missing", expected=expected)
        constraint = Constraint("json_schema", schema)
    else:
        raise fields.wrong(name, 'a type of "text", "json_object" or "json_schema"', form.get("type"))
    if options.constraint is not None:
        raise ParameterError(name, "'response_format' and a guided_ parameter contradict each other")
    return replace(options, constraint=constraint)


def _constraint(fields: Fields) -> Constraint | None:
    """vLLM's guided_json, guided_regex and guided_choice."""
    found: list[Constraint] = []
    schema = fields.take("guided_json")
    if schema is not None:
        if not isinstance(schema, dict):
            raise fields.wrong("guided_json", "a JSON schema, as an object", schema)
        found.append(Constraint("json_schema", schema))
    expression = fields.take("guided_regex")
    if expression is not None:
        if not isinstance(expression, str) or not 0 < len(expression) <= 10_000:
            raise fields.wrong("guided_regex", "a regular expression of at most 10,000 characters", expression)
        found.append(Constraint("regex", expression))
    choice = fields.texts("guided_choice", 1000)
    if choice:
        found.append(Constraint("choice", choice))
    if len(found) > 1:
        expected = "one of guided_json, guided_regex and guided_choice"
        raise ParameterError("guided_json", "two guided_ parameters contradict each other", expected=expected)
    return found[0] if found else None


def _logit_bias(fields: Fields, vocab_size: int) -> dict[int, float]:
    given: dict[str, Any] = fields.object("logit_bias") or {}
    biases = {}
    expected = f'at most {MAX_BIASES} numbers from -100 to 100 by ids of tokens below {vocab_size}, {{"42": -1}}'
    if len(given) > MAX_BIASES:
        raise fields.wrong("logit_bias", expected, given)
    for token, bias in given.items():
        number = isinstance(bias, int | float) and not isinstance(bias, bool) and math.isfinite(bias)
        if not (token.isascii() and token.isdigit() and len(token) < 12 and int(token) < vocab_size):
            raise fields.wrong("logit_bias", expected, token)
        if not number or not -100 <= bias <= 100:
            raise fields.wrong("logit_bias", expected, bias)
        biases[int(token)] = float(bias)
    return biases
