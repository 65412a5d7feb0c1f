"""All parameters of requests for texts: each is declared here, once for all dialects that have it.

The readers of requests, the OpenAPI document and the table of docs/openai.md are made from this list.
CONTRIBUTING.md says how a parameter is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ox.serve.generation.request import MOST_LOGPROBS, MOST_STOPS
from ox.serve.protocol.text.parameter import (
    DIALECTS,
    Parameter,
    flag,
    number,
    only,
    other,
    texts,
    texts_schema,
    tokens,
    unused,
    whole,
)

MAX_CHOICES = 128  # texts of one request
MAX_STOPS = 16
MAX_TOKENS = (1 << 31) - 1
MAX_SEED = (1 << 64) - 1
MAX_ALLOWED = 1 << 16
MAX_CHOICE = 1000
MAX_NOTES, MAX_NOTE_KEY, MAX_NOTE = 16, 64, 512  # OpenAI's bounds of `metadata`: pairs, characters
OPENAI = "completions chat"
ALL = "completions chat responses messages generate"
TEXT, OBJECT, LIST, BOOLEAN = {"type": "string"}, {"type": "object"}, {"type": "array"}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}
IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
OBJECTS = {"type": "array", "items": OBJECT}
TEXT_OR_PARTS = {"anyOf": [TEXT, OBJECTS]}
MESSAGES = {**OBJECTS, "minItems": 1}
METADATA = {"type": "object", "maxProperties": MAX_NOTES, "propertyNames": {"maxLength": MAX_NOTE_KEY},
            "additionalProperties": {**TEXT, "maxLength": MAX_NOTE}}  # fmt: skip


def _typed(*types: str) -> dict[str, Any]:
    """Objects with one of these types."""
    return {"type": "object", "properties": {"type": {"enum": list(types)}}, "required": ["type"]}


PARAMETERS: tuple[Parameter, ...] = (
    # ---- what the text continues
    other("model", TEXT, "completions chat responses messages ollama", "its name",
          required="completions chat responses messages"),
    other("messages", MESSAGES, "chat messages", "the conversation", required="chat messages"),
    other("messages", OBJECTS, "ollama", "the conversation"),
    other("messages", {"anyOf": [TEXT, MESSAGES]}, "responses=input", "the conversation, or the next message",
          required="responses"),
    other("prompt", {"anyOf": [TEXT, IDS, {"type": "array", "items": {"anyOf": [TEXT, IDS]}, "minItems": 1}]},
          "completions", "what the texts continue", required="completions"),
    other("prompt", TEXT, "ollama generate=text_input", "what the text continues", required="generate"),
    other("instructions", TEXT, "responses ollama=system", "a message of the system before the others"),
    other("instructions", TEXT_OR_PARTS, "messages=system", "a message of the system before the others"),
    other("previous_response_id", TEXT, "responses", "the conversation that ended with this response"),
    other("tools", OBJECTS, "chat responses messages ollama", "functions that the model may call"),
    other("tool_choice", {"anyOf": [{"enum": ["auto", "none", "required"]}, OBJECT]}, "chat responses",
          "whether functions are called; an object names one"),
    other("tool_choice", _typed("auto", "any", "none", "tool"), "messages",
          "types `auto`, `any`, `none`; `tool` with a name"),
    other("parallel_tool_calls", BOOLEAN, "chat responses", "`false`: one call at most"),
    other("chat_template_kwargs", OBJECT, "chat responses",
          "variables of the chat template, such as `enable_thinking`; at most 64 KiB"),
    flag("add_generation_prompt", "chat",
          "whether the prompt ends with the begin of an answer; by default yes"),
    flag("continue_final_message", "chat", "the answer continues the last message"),
    other("documents", OBJECTS, "chat", "a variable of the chat template; refused where the template has none"),
    other("reasoning_effort", TEXT, "chat responses=reasoning.effort messages=output_config.effort",
          "a variable of the chat template; no effect where the template has none"),
    whole("truncate_prompt_tokens", -1, MAX_TOKENS, OPENAI,
          "only so many of the last tokens of the prompt; -1: as many as the context has room for"),
    flag("add_special_tokens", "completions",
         "whether the tokenizer adds its special tokens to a prompt; by default yes"),
    # ---- how tokens are chosen
    number("temperature", 0, 2, f"{ALL} ollama=options.temperature", "0 takes the likeliest token",
           sets="sampling.temperature"),
    number("top_p", 0, 1, f"{ALL} ollama=options.top_p", "only the likeliest tokens that add up to it; 0: one token",
           sets="sampling.top_p"),
    whole("top_k", -1, MAX_TOKENS, f"{ALL} ollama=options.top_k", "only so many tokens; 0 and -1 for all",
          to=lambda value: max(0, value), sets="sampling.top_k"),
    number("min_p", 0, 1, f"{ALL} ollama=options.min_p", "only tokens of this part of the highest probability",
           sets="sampling.min_p"),
    whole("seed", -(1 << 63), MAX_SEED, f"{ALL} ollama=options.seed", "the same seed, the same texts",
          to=lambda value: value % (1 << 63), sets="sampling.seed"),
    number("repetition_penalty", 0, 2, ALL, "above 1: fewer tokens that were there",
           above=True, sets="sampling.repetition_penalty"),
    other("repetition_penalty", {"type": "number", "minimum": 0, "maximum": 2}, "ollama=options.repeat_penalty",
          "above 1: fewer tokens that were there; 0: none"),
    number("presence_penalty", -2, 2, f"{ALL} ollama=options.presence_penalty", "for tokens that are in the text",
           sets="sampling.presence_penalty"),
    number("frequency_penalty", -2, 2, f"{ALL} ollama=options.frequency_penalty", "for each time that they are",
           sets="sampling.frequency_penalty"),
    other("logit_bias", {
        "type": "object", "propertyNames": {"pattern": "^[0-9]{1,11}$"},
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}},
          ALL, "added to the scores of tokens, by their ids; at most 1,024"),
    tokens("allowed_token_ids", MAX_ALLOWED, ALL, "only these tokens", least=1, sets="request.allowed_token_ids"),
    texts("bad_words", MOST_STOPS, ALL, "texts that are not generated", sets="request.bad_words"),
    # ---- where a text ends
    whole("max_tokens", 0, MAX_TOKENS, "completions chat generate",
          "of the text; by default 16 for completions, or what the context has room for; in chats always that",
          sets="request.max_tokens"),
    other("max_tokens", {"type": "integer", "minimum": 1, "maximum": MAX_TOKENS},
          "responses=max_output_tokens messages", "of the text; by default what the context has room for",
          required="messages"),
    other("max_tokens", {"type": "integer", "minimum": -MAX_TOKENS, "maximum": MAX_TOKENS},
          "ollama=options.num_predict", "of the text; 0 and less: what the context has room for, which is the most"),
    whole("max_completion_tokens", 0, MAX_TOKENS, "chat", "the newer name of `max_tokens`"),
    whole("min_tokens", 0, MAX_TOKENS, ALL, "before so many nothing ends the text", sets="request.min_tokens"),
    texts("stop", MAX_STOPS, "completions chat responses generate messages=stop_sequences ollama=options.stop",
          "strings that end the text",
          sets="request.stop"),
    tokens("stop_token_ids", MAX_STOPS, ALL, "tokens that end it", sets="request.stop_token_ids"),
    flag("include_stop_str_in_output", ALL,
          "whether what ends the text is a part of it", sets="request.include_stop"),
    flag("ignore_eos", ALL, "the text goes on at the model's end token", sets="request.ignore_eos"),
    # ---- what it must look like
    other("response_format", _typed("text", "json_object", "json_schema"), "completions chat responses=text.format",
          "types `text`, `json_object`, `json_schema`, both also with `schema` beside the type; needs "
          "`llguidance` (extra `text`)"),
    other("response_format", _typed("json_schema"), "messages=output_config.format", "type `json_schema`"),
    other("response_format", {"anyOf": [{"enum": ["", "json"]}, OBJECT]}, "ollama=format",
          "JSON, or what an object describes as its schema"),
    other("structured_outputs", OBJECT, ALL,
          "one of `json`, `regex`, `choice`, `grammar` (in Lark's form, as `llguidance` reads it), `json_object`"),
    other("guided_json", {"type": ["object", "string"]}, ALL, "older name of `structured_outputs.json`"),
    other("guided_regex", {**TEXT, "minLength": 1}, ALL, "older name of `structured_outputs.regex`"),
    other("guided_choice", texts_schema(MAX_CHOICE), ALL, "older name of `structured_outputs.choice`"),
    other("guided_grammar", {**TEXT, "minLength": 1}, ALL, "older name of `structured_outputs.grammar`"),
    # ---- what is answered
    whole("n", 1, MAX_CHOICES, OPENAI, "texts for each prompt, at most 128 in a request"),
    other("stream", BOOLEAN, f"{ALL} ollama", "server-sent events (Ollama: lines of JSON)"),
    other("stream_options", {"type": "object", "properties": {
        "include_usage": BOOLEAN, "continuous_usage_stats": BOOLEAN, "include_obfuscation": BOOLEAN}},
          OPENAI, "`include_usage`: the last event has it; `continuous_usage_stats`: each event has it"),
    flag("echo", "completions", "the text begins with the prompt; with `logprobs` also its tokens"),
    whole("logprobs", 0, MOST_LOGPROBS, "completions",
          "the likeliest so many tokens at each place", sets="request.logprobs"),
    flag("logprobs", "chat ollama", "log-probabilities of the tokens"),
    whole("top_logprobs", 0, MOST_LOGPROBS, "chat responses ollama", "the likeliest so many tokens at each place"),
    whole("prompt_logprobs", 0, MOST_LOGPROBS, OPENAI,
          "the same for the tokens of the prompt, in vLLM's form; not in streams",
          sets="request.prompt_logprobs"),
    flag("return_tokens_as_token_ids", OPENAI, "tokens of log-probabilities are `token_id:42`"),
    flag("skip_special_tokens", ALL, "whether special tokens have no text; by default yes",
         sets="request.skip_special_tokens"),
    whole("priority", 0, MAX_TOKENS, OPENAI, "1 is the highest; 0 for the model's default", sets="request.priority"),
    # ---- taken, and without effect
    unused("user", TEXT, f"{OPENAI} responses", "who asks"),
    unused("safety_identifier", TEXT, f"{OPENAI} responses", "who asks"),
    unused("metadata", OBJECT, f"{OPENAI} messages", "the client's own notes"),
    other("metadata", METADATA, "responses", "the client's own notes; at most 16, as OpenAI's"),
    unused("request_id", TEXT, OPENAI, "the client's own name of the request"),
    unused("prompt_cache_key", TEXT, f"{OPENAI} responses", "prompts that begin alike are known anyway"),
    unused("prompt_cache_retention", TEXT, f"{OPENAI} responses", "they are kept as long as there is memory"),
    unused("cache_salt", TEXT, OPENAI, "prompts that begin alike are computed once for all clients", silent=()),
    unused("prediction", OBJECT, "chat", "a guess of the text, which would only save time", silent=()),
    other("include", TEXTS, "responses", "`message.output_text.logprobs`; more has no effect"),
    other("thinking", _typed("enabled", "adaptive", "disabled"), "messages", "`enable_thinking` of the chat template"),
    other("thinking", {"enum": [True, False, "low", "medium", "high"]}, "ollama=think",
          "`enable_thinking` and `reasoning_effort` of the chat template"),
    other("raw", BOOLEAN, "ollama", "`prompt` is continued without the chat template"),
    other("keep_alive", {"type": ["string", "number"]}, "ollama", "no effect: models stay loaded"),
    other("store", BOOLEAN, "responses", "whether the response can be read later; by default yes"),
    unused("store", BOOLEAN, OPENAI, "texts of these calls are never kept", silent=(False,)),
    unused("service_tier", TEXT, f"{OPENAI} responses messages", "there is one", silent=("auto", "default",
          "standard_only")),
    unused("verbosity", TEXT, "chat responses=text.verbosity",
          "the prompt says how long an answer should be", silent=("medium",)),
    whole("max_tool_calls", 1, MAX_TOKENS, "responses", "no effect: it limits built-in tools, of which there are none"),
    unused("guided_decoding_backend", TEXT, OPENAI, "there is one", silent=()),
    unused("guided_whitespace_pattern", TEXT, OPENAI, "JSON is on one line", silent=()),
    unused("length_penalty", {"type": ["number", "integer"]}, OPENAI, "of beam search", silent=(1.0,)),
    unused("early_stopping", {"type": ["boolean", "string"]}, OPENAI, "of beam search", silent=(False,)),
    unused("spaces_between_special_tokens", BOOLEAN, OPENAI, "texts are as the tokenizer writes them", silent=(True,)),
    # ---- refused, except for values that change nothing
    only("best_of", (1,), OPENAI, hint="'n' texts, of which the client takes the best"),
    only("n", (1,), "responses messages ollama generate", why="a request has one text here", hint="several requests"),
    only("use_beam_search", (False,), OPENAI),
    only("detokenize", (True,), OPENAI, why="answers are texts", hint="'logprobs' with 'return_tokens_as_token_ids'"),
    only("suffix", ("",), "completions ollama", why="this model makes only what follows a prompt"),
    only("modalities", (["text"],), "chat", why="models of texts alone are served"),
    only("audio", (), "chat", why="models of texts alone are served"),
    only("web_search_options", (), "chat", why="this server searches nothing", hint="a tool of the client's own"),
    only("functions", (), "chat", hint="'tools' and 'tool_choice'"),
    only("function_call", (), "chat", hint="'tools' and 'tool_choice'"),
    only("chat_template", (), "chat", why="a template is a program, and comes with the model",
         hint="'chat_template_kwargs', for the model's own template"),
    only("logits_processors", (), OPENAI, why="they are programs", hint="'logit_bias'"),
)  # fmt: skip


def parameters_in(dialect: str) -> Mapping[str, Parameter]:
    """The parameters of a dialect, by the names that they have in OpenAI's chats."""
    return _BY_DIALECT[dialect]


def readers_in(dialect: str) -> Mapping[str, Parameter]:
    """Those parameters of a dialect that need no code of their own, by the same names."""
    return _READERS[dialect]


def names_in(dialect: str) -> Mapping[str, str]:
    """What a dialect calls its parameters, by the names in OpenAI's chats; only those that differ.

    >>> names_in("responses")["max_tokens"]
    'max_output_tokens'
    """
    return _RENAMED[dialect]


def required_in(dialect: str) -> tuple[str, ...]:
    """What a dialect calls the parameters without which it refuses a request."""
    return tuple(each.names[dialect] for each in PARAMETERS if dialect in each.required)


def schemas_in(dialect: str) -> dict[str, Any]:
    """The JSON schemas of a dialect's parameters, by its own names; "options.seed" stands in "options"."""
    schemas: dict[str, Any] = {}
    for parameter in _BY_DIALECT[dialect].values():
        outer, _, inner = parameter.names[dialect].rpartition(".")
        schema = {**parameter.schema, "description": parameter.about} if parameter.about else dict(parameter.schema)
        if outer:
            schemas.setdefault(outer, {"type": "object", "properties": {}})["properties"][inner] = schema
        else:
            schemas[inner] = schema
    return schemas


_BY_DIALECT = {dialect: {each.name: each for each in PARAMETERS if dialect in each.names} for dialect in DIALECTS}
_READERS = {
    dialect: {each.name: each for each in found.values() if each.read} for dialect, found in _BY_DIALECT.items()
}
_RENAMED = {
    dialect: {name: each.names[dialect] for name, each in found.items() if each.names[dialect] != name}
    for dialect, found in _BY_DIALECT.items()
}
