"""The request for the next message of a conversation, which all dialects of chats share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ox.errors import ServeError
from ox.serve.generation.request import GenerationRequest
from ox.serve.protocol.text.chat_template import continued_key
from ox.serve.protocol.text.fields import Fields, ParameterError, renaming
from ox.serve.protocol.text.message_reader import MessageReader
from ox.serve.protocol.text.messages import Tools, read_messages, read_tools
from ox.serve.protocol.text.object_keys import remark_unknown_keys
from ox.serve.protocol.text.parameters import parameters_in, readers_in
from ox.serve.protocol.text.prompt import read_template_variables, truncated
from ox.serve.protocol.text.reasoning import ReasoningMarks, ReasoningParser, ends_reasoning, opens_reasoning
from ox.serve.protocol.text.sampling import TextOptions, read_options, with_format
from ox.serve.protocol.text.stream_options import StreamOptions, read_stream_options
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.protocol.text.tool_calls import ToolCallParser
from ox.serve.protocol.text.tool_formats import BARE, ToolFormat
from ox.serve.protocol.text.tool_grammar import after_reasoning, with_calls


@dataclass(frozen=True)
class ChatCall:
    """A request that was read: the conversation as tokens, and what is said of the answer; in any dialect."""

    model: TextModel
    prompt: Sequence[int]
    options: TextOptions
    tool_format: ToolFormat | None  # of the calls in the text; None where they stay a part of it
    tools: Tools
    reasoning_begun: bool  # by the prompt
    stream: bool
    stream_options: StreamOptions
    token_ids: bool = False  # tokens of log-probabilities are shown as their ids

    def requests(self, client: str) -> list[GenerationRequest]:
        """One for each answer."""
        requests = self.options.requests(self.prompt, client)
        shown = self.model.reasoning_marks | (frozenset() if self.tool_format is None else self.model.call_marks)
        if shown:
            requests = [replace(request, shown_tokens=shown) for request in requests]
        if self.tool_format is not None and self.tools.most is not None:
            requests = [replace(request, end_of_text=self.reader().completes) for request in requests]
        return requests

    def readers(self) -> list[MessageReader]:
        """One for each answer, which divides it into text and calls."""
        return [self.reader() for _ in range(self.options.choices)]

    def reader(self) -> MessageReader:
        """For one answer."""
        form, marks, tools = self.tool_format, self.model.reasoning, self.tools
        return MessageReader(
            None if form is None else ToolCallParser(form, tools.schemas, tools.most, tools.strict),
            None if marks is None else ReasoningParser(marks, self.reasoning_begun),
        )


def read_chat(fields: Fields, model: TextModel) -> ChatCall:
    """Reads a request of OpenAI's chat, except for its model; raises as `read_chat_fields`."""
    remark_unknown_keys(fields, "chat", model.template)
    return read_chat_fields(fields, model)


@renaming
def read_chat_fields(fields: Fields, model: TextModel, counting: bool = False, dialect: str = "chat") -> ChatCall:
    """Reads the fields of OpenAI's chat, into which the other dialects translate theirs.

    Args:
        fields: the request.
        model: it goes to.
        counting: only the tokens are wanted, which may be more than the model's context has room for.
        dialect: the one that was translated; its own readers of parameters are used where it has some.

    Raises:
        ParameterError: a parameter is wrong, refused or unknown.
        ServeError: the model has no chat template or no tokenizer, or the template refuses the messages.
    """
    declared = {**parameters_in("chat"), **readers_in(dialect)}
    options, values = read_options(fields, model, declared)
    max_tokens = _max_tokens(options.max_tokens, values.get("max_completion_tokens"))
    options = replace(with_format(options, fields), max_tokens=max_tokens, logprobs=_logprobs(values))
    stream, stream_options = read_stream_options(fields)
    if stream and "prompt_logprobs" in options.others:
        raise ParameterError("prompt_logprobs", "'prompt_logprobs' is not for streams", hint='"stream": false')
    messages, tools = read_messages(fields), read_tools(fields)
    variables = read_template_variables(fields, model, values)
    fields.finish(declared)
    if model.template is None:
        hint = "/v1/completions, or a chat_template.jinja beside the model"
        raise ServeError(f"model '{model.name}' has no chat template", hint=hint)
    # The template writes the special tokens itself.
    text = model.template.render(messages, tools.offered, variables)
    most = values.get("truncate_prompt_tokens")
    prompt = truncated(model.encode(text, special=False), most, model, options.max_tokens)
    if not counting:
        options.check_length(prompt, model, "messages")
    form = model.tool_format if tools.schemas else None
    if tools.required and form is None:
        form = BARE
    begun = model.reasoning is not None and opens_reasoning(
        text,
        model.reasoning,
        _continued(messages[-1], model.reasoning) if "continue_final_message" in variables else "",
    )
    constraint = with_calls(tools, form, options.constraint)
    if constraint is not None and model.reasoning is not None and not ends_reasoning(text, model.reasoning):
        constraint = after_reasoning(constraint, model.reasoning, begun)
    options = replace(options, constraint=constraint)
    as_ids = values.get("return_tokens_as_token_ids", False)
    return ChatCall(model, prompt, options, form, tools, begun, stream, stream_options, as_ids)


def _continued(message: Mapping[str, Any], marks: ReasoningMarks) -> str:
    """The message that the answer continues, with its reasoning where it has no other text."""
    key = continued_key(message)
    if message["role"] != "assistant":
        return ""
    return str(message[key]) if key == "content" else f"{marks.begin}{message[key]}"


def _max_tokens(old: int | None, new: int | None) -> int | None:
    if old is not None and new is not None and old != new:
        raise ParameterError("max_tokens", "'max_tokens' and 'max_completion_tokens' contradict each other",
                             expected="one of them", got=f"{old} and {new}")  # fmt: skip
    return new if old is None else old


def _logprobs(values: Mapping[str, Any]) -> int | None:
    top, wanted = values.get("top_logprobs"), values.get("logprobs", False)
    if top and not wanted:
        raise ParameterError("top_logprobs", "'top_logprobs' needs 'logprobs'", hint='"logprobs": true')
    return (top or 0) if wanted else None
