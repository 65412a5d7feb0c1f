"""The parameters of sampling that all dialects of text have: from JSON to requests for the engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from ox.generation.sampling_params import SamplingParams
from ox.serve.generation.request import Constraint, GenerationRequest
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.parameter import Parameter
from ox.serve.protocol.text.parameters import MAX_CHOICE
from ox.serve.protocol.text.remarks import Remarks
from ox.serve.protocol.text.text_model import CONTEXT_LENGTH, TextModel

MAX_BIASES = 1024
DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")  # of generation_config.json
MAX_REGEX, MAX_GRAMMAR = 10_000, 100_000
CONSTRAINTS = ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs")


FORMS = frozenset(CONSTRAINTS)
PLAIN = SamplingParams()


@dataclass(frozen=True)
class TextOptions:
    """What a request says about all of its texts.

    Attributes:
        sampling: how tokens are chosen.
        choices: the number of texts for each prompt.
        max_tokens, logprobs, constraint: as of `GenerationRequest`.
        others: more fields of `GenerationRequest`.
        remarks: what the response says about parameters that change nothing.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    choices: int = 1
    max_tokens: int | None = None
    constraint: Constraint | None = None
    logprobs: int | None = None
    others: Mapping[str, Any] = field(default_factory=dict)
    remarks: Remarks = field(default_factory=Remarks)

    def requests(self, prompt: Sequence[int], client: str, each: bool = False) -> list[GenerationRequest]:
        """One for each of the texts that continue a prompt; requests of one client take turns with those of others.

        Args:
            prompt: its tokens.
            client: who asks.
            each: whether each text, not the first one alone, gives the log-probabilities of the prompt.
        """
        others = dict(self.others)
        requests = []
        for index in range(self.choices):
            if index == 1 and not each:
                others.pop("prompt_logprobs", None)
            request = GenerationRequest(
                prompt, self.sampling, self.max_tokens, logprobs=self.logprobs, index=index,
                constraint=self.constraint, client=client, **others,
            )  # fmt: skip
            requests.append(request)
        return requests

    def check_form(self, model: TextModel) -> None:
        """Compiles the constraint once, so that the engine has what it needs; raises ServeError if it is wrong."""
        if self.constraint is not None:
            model.engine.constraints.matcher(self.constraint)

    def with_default(self, tokens: int) -> TextOptions:
        """With at most so many tokens, or what the context has room for, where the request says nothing; and with no
        fewer than its `min_tokens`."""
        if self.max_tokens is not None:
            return self
        return replace(self, max_tokens=max(tokens, self.others.get("min_tokens", 0)))

    def check_length(self, prompt: Sequence[int], model: TextModel, name: str) -> None:
        """Raises ParameterError for a prompt without tokens, or one that leaves no room for the text; `name` is the
        prompt's in the request."""
        if not prompt:
            raise ParameterError(name, "the prompt has no tokens", expected="a character or more")
        least = self.others.get("min_tokens", 0)
        if self.max_tokens is not None and least > self.max_tokens:
            raise ParameterError("min_tokens", "'min_tokens' is larger than 'max_tokens'",
                                 expected=f"at most {self.max_tokens}", got=str(least))  # fmt: skip
        context, asked = model.engine.context_length, 1 if self.max_tokens is None else self.max_tokens
        if len(prompt) + asked > context:
            raise ParameterError(
                name if not self.max_tokens else "max_tokens",
                "the prompt and the text are longer than the model's context", code="context_length_exceeded",
                expected=CONTEXT_LENGTH.format(context), got=f"{len(prompt)} of the prompt, and {asked} to be made",
                hint="a shorter prompt, or a smaller max_tokens",
            )  # fmt: skip


def read_options(
    fields: Fields, model: TextModel, declared: Mapping[str, Parameter]
) -> tuple[TextOptions, dict[str, Any]]:
    """What a request says about its texts: those of the declared parameters that need no code of their own, and what
    holds a text to a form.

    Args:
        fields: the request.
        model: it goes to.
        declared: the parameters of its dialect, see `ox.serve.protocol.text.parameters`.

    Returns:
        the options, and the values of parameters that are neither of sampling nor of the engine, by name.

    Raises:
        ParameterError: one is out of range, or two contradict each other.
    """
    found: dict[str, dict[str, Any]] = {"sampling": {}, "request": {}, "": {}}
    for name in fields.left():
        parameter = declared.get(name)
        if parameter is not None and parameter.read is not None:
            value = parameter.read(fields, model)
            if value is not None:  # those that change nothing have none
                found[parameter.owner][parameter.attribute] = value
    sampling, request, values = found["sampling"], found["request"], found[""]
    defaults = model.defaults
    for name in DEFAULTS:
        if name in defaults and name not in sampling:
            sampling[name] = max(0, defaults[name])
    if "logit_bias" in fields:
        sampling["logit_bias"] = _logit_bias(fields, model.engine.vocab_size)
    options = TextOptions(
        SamplingParams(**sampling) if sampling else PLAIN, values.pop("n", 1), request.pop("max_tokens", None),
        _constraint(fields), request.pop("logprobs", None), request, fields.remarks,
    )  # fmt: skip
    return options, values


def with_format(options: TextOptions, fields: Fields) -> TextOptions:
    """OpenAI's response_format as a constraint.

    Raises:
        ParameterError: no such format, or it contradicts another constraint.
    """
    form = fields.object("response_format")
    if form is None:
        return options
    name, where, kind = "response_format", fields.shown("response_format"), form.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise fields.wrong(name, 'a type of "text", "json_object" or "json_schema"', kind)
    # llama.cpp and others have the schema beside the type, too
    outer = form["json_schema"] if kind == "json_schema" and "json_schema" in form else form
    schema = outer.get("schema") if isinstance(outer, dict) else None
    if kind == "text":
        if schema is not None:
            fields.remarks.add_unused(f"{where}.schema")
        return options
    if kind == "json_object" and schema is None:
        constraint = Constraint("json_object")
    else:
        if not isinstance(outer, dict) or not isinstance(schema, dict):
            expected = '{"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}'
            raise ParameterError(f"{name}.{kind}", "the schema is missing", expected=expected)
        strict = outer.get("strict")
        if strict is not None and type(strict) is not bool:
            raise fields.wrong(f"{name}.strict", "true or false", strict)
        constraint = Constraint("json_schema", schema, strict is True, where)
    if options.constraint is not None:
        raise ParameterError(name, "'response_format' and a guided_ parameter contradict each other")
    return replace(options, constraint=constraint)


def _constraint(fields: Fields) -> Constraint | None:
    """vLLM's structured_outputs, and its older names guided_json, guided_regex, guided_choice and guided_grammar."""
    if not fields.has_any(FORMS):
        return None
    found: list[Constraint] = []
    for name in CONSTRAINTS[:4]:
        found += _of_kind(fields, name, name.removeprefix("guided_"))
    inner = fields.inside("structured_outputs")
    if inner is not None:
        for name in ("json", "regex", "choice", "grammar"):
            found += _of_kind(inner, name, name)
        if inner.flag("json_object"):
            found.append(Constraint("json_object"))
        inner.only("structural_tag", (), "tags of a format of its own are not read", hint="'tools', or a grammar")
        for name in ("disable_any_whitespace", "disable_fallback", "disable_additional_properties"):
            inner.flag(name)
        inner.only("whitespace_pattern", (), "JSON is on one line")
        inner.finish()
        if not found:
            raise fields.wrong("structured_outputs", "one of json, regex, choice, grammar and json_object", {})
    if len(found) > 1:
        name = "structured_outputs" if inner is not None else "guided_json"
        expected = "one of json, regex, choice, grammar and json_object"
        raise ParameterError(name, "two forms of the text contradict each other", expected=expected)
    return found[0] if found else None


def _of_kind(fields: Fields, name: str, kind: str) -> list[Constraint]:
    """The form that a parameter asks for; none without it."""
    if name not in fields:
        return []
    where = fields.shown(name)
    if kind == "choice":
        choice = fields.texts(name, MAX_CHOICE)
        longest = max(map(len, choice), default=0)
        if longest > MAX_REGEX:  # a step takes the longer, the longer a choice is
            raise fields.wrong(name, f"texts of at most {MAX_REGEX:,} characters", longest)
        return [Constraint("choice", choice, where=where)] if choice else []
    value = fields.take(name)
    if kind == "json":
        schema = value
        if isinstance(schema, str):
            try:
                schema = orjson.loads(schema)
            except orjson.JSONDecodeError:
                schema = None
        if not isinstance(schema, dict):
            raise fields.wrong(name, "a JSON schema, as an object or as its text", value)
        return [Constraint("json_schema", schema, where=where)]
    words, most = ("a regular expression", MAX_REGEX) if kind == "regex" else ("a grammar in Lark's form", MAX_GRAMMAR)
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise fields.wrong(name, f"{words} of at most {most:,} characters", value)
    return [Constraint("regex" if kind == "regex" else "grammar", value, where=where)]


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
