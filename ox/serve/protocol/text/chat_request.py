"""The request for the next message of a conversation, which all dialects of chats share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ox.errors import ServeError
from ox.serve.generation.request import Constraint, GenerationRequest
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.message_reader import MessageReader
from ox.serve.protocol.text.messages import read_messages, read_tools
from ox.serve.protocol.text.reasoning import ReasoningParser, opens_reasoning
from ox.serve.protocol.text.sampling import MAX_TOKENS, TextOptions, read_logprobs, read_options, with_format
from ox.serve.protocol.text.stream_options import StreamOptions, read_stream_options
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.protocol.text.tool_calls import ToolCallParser
from ox.serve.protocol.text.tool_formats import BARE, ToolFormat
from ox.serve.protocol.text.tool_grammar import call_schema


@dataclass(frozen=True)
class ChatCall:
    """A request that was read: the conversation as tokens, and what is said of the answer; in any dialect."""

    model: TextModel
    prompt: Sequence[int]
    options: TextOptions
    tool_format: ToolFormat | None  # of the calls in the text; None where they stay a part of it
    offered: Mapping[str, Mapping[str, Any]]  # the schemas of arguments, by the names of functions
    most_calls: int | None
    reasoning_begun: bool  # by the prompt
    stream: bool
    stream_options: StreamOptions

    def requests(self, client: str) -> list[GenerationRequest]:
        """One for each answer."""
        return self.options.requests(self.prompt, client)

    def readers(self) -> list[MessageReader]:
        """One for each answer, which divides it into text and calls."""
        return [self.reader() for _ in range(self.options.choices)]

    def reader(self) -> MessageReader:
        """For one answer."""
        form, marks = self.tool_format, self.model.reasoning
        return MessageReader(
            None if form is None else ToolCallParser(form, self.offered, self.most_calls),
            None if marks is None else ReasoningParser(marks, self.reasoning_begun),
        )


def read_chat(fields: Fields, model: TextModel) -> ChatCall:
    """Reads a request, except for its model. The fields are those of OpenAI's chat, into which the other dialects
    translate theirs.

    Raises:
        ParameterError: a parameter is wrong, refused or unknown.
        ServeError: the model has no chat template or no tokenizer, or the template refuses the messages.
    """
    read_ignored(fields)
    options = read_options(fields, model, _max_tokens(fields))
    options = replace(with_format(options, fields), logprobs=_logprobs(fields))
    stream, stream_options = read_stream_options(fields)
    messages, tools = read_messages(fields), read_tools(fields)
    if tools.required:
        options = replace(options, constraint=Constraint("json_schema", call_schema(tools.schemas)))
    _refuse_others(fields)
    fields.finish()
    if model.template is None:
        hint = "/v1/completions, or a chat_template.jinja beside the model"
        raise ServeError(f"model '{model.name}' has no chat template", hint=hint)
    # The template writes the special tokens itself.
    text = model.template.render(messages, tools.offered)
    prompt = model.encode(text, special=False)
    options.check_length(prompt, model, "messages")
    form = BARE if tools.required else model.tool_format if tools.schemas else None
    begun = model.reasoning is not None and opens_reasoning(text, model.reasoning)
    return ChatCall(model, prompt, options, form, tools.schemas, tools.most, begun, stream, stream_options)


def _refuse_others(fields: Fields) -> None:
    """Parameters of OpenAI that need what this server does not have."""
    fields.only("modalities", (["text"],), "models of texts alone are served")
    fields.only("verbosity", ("medium",), "the prompt says how long an answer should be")
    for name in ("audio", "functions", "function_call", "prediction", "reasoning_effort", "web_search_options"):
        hint = "'tools' and 'tool_choice'" if name.startswith("function") else "a request without it"
        fields.only(name, (), hint=hint)


def _max_tokens(fields: Fields) -> int | None:
    old = fields.whole("max_tokens", 1, MAX_TOKENS)
    new = fields.whole("max_completion_tokens", 1, MAX_TOKENS)
    if old is not None and new is not None and old != new:
        raise ParameterError("max_tokens", "'max_tokens' and 'max_completion_tokens' contradict each other",
                             expected="one of them", got=f"{old} and {new}")  # fmt: skip
    return new if old is None else old


def _logprobs(fields: Fields) -> int | None:
    wanted, top = fields.flag("logprobs"), read_logprobs(fields, "top_logprobs")
    if top is not None and not wanted:
        raise ParameterError("top_logprobs", "'top_logprobs' needs 'logprobs'", hint='"logprobs": true')
    return (top or 0) if wanted else None


def read_ignored(fields: Fields) -> None:
    """Parameters that say who asks, or whose usual values change nothing."""
    for name in ("user", "safety_identifier", "prompt_cache_key"):
        fields.text(name)
    fields.object("metadata")
    fields.only("store", (False,), "this server keeps no texts")
    fields.only("service_tier", ("auto", "default"), "there is one")
