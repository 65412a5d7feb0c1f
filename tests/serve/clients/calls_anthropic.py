"""Anthropic's Python package."""

from __future__ import annotations

import anthropic
from calls import ANSWER, QUESTION, WEATHER, main, refused, works

TOOL = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def asked(text: str) -> dict[str, object]:
    messages = [{"role": "user", "content": text}]
    return {"model": "scripted", "max_tokens": 50, "messages": messages, "extra_body": {"temperature": 0}}


@works("`messages.create`")
def create(url: str) -> None:
    answer = client(url).messages.create(**asked(QUESTION), system="Be short.")
    assert (answer.content[0].text, answer.stop_reason) == (ANSWER, "end_turn")
    assert answer.usage.output_tokens == 5


@works("`messages.stream`, the helper")
def stream(url: str) -> None:
    with client(url).messages.stream(**asked(QUESTION)) as pieces:
        assert "".join(pieces.text_stream) == ANSWER
        assert pieces.get_final_message().stop_reason == "end_turn"


@works("tools: a call, its result, the answer")
def tools(url: str) -> None:
    first = asked(WEATHER)
    answer = client(url).messages.create(**first, tools=[TOOL])
    (call,) = [each for each in answer.content if each.type == "tool_use"]
    assert (call.name, call.input, answer.stop_reason) == ("get_weather", {"city": "Bern"}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny in Bern"}
    messages = [*first["messages"], {"role": "assistant", "content": answer.content},
                {"role": "user", "content": [result]}]  # fmt: skip
    answer = client(url).messages.create(**{**first, "messages": messages}, tools=[TOOL])
    assert answer.content[0].text == ANSWER


@works("`messages.stream` with tools")
def tools_stream(url: str) -> None:
    with client(url).messages.stream(**asked(WEATHER), tools=[TOOL]) as pieces:
        kinds = {event.type for event in pieces}
        call = next(each for each in pieces.get_final_message().content if each.type == "tool_use")
    assert "input_json" in kinds and call.input == {"city": "Bern"}


@works("`messages.count_tokens`")
def count(url: str) -> None:
    counted = client(url).messages.count_tokens(model="scripted", messages=[{"role": "user", "content": QUESTION}])
    usage = client(url).messages.create(**asked(QUESTION)).usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0) > 0


@works("documents of texts, messages of the system, `context_management`")
def documents(url: str) -> None:
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a fact"}}
    content = [document, {"type": "text", "text": QUESTION}]
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": content}]
    extra = {"temperature": 0, "context_management": {"edits": []}}
    answer = client(url).messages.create(**{**asked(QUESTION), "messages": messages, "extra_body": extra})
    assert answer.content[0].text == ANSWER


@works("`models.list` and `models.retrieve`")
def models(url: str) -> None:
    listed = [each for each in client(url).models.list() if each.id == "scripted"]
    assert listed == [client(url).models.retrieve("scripted")]
    assert (listed[0].type, listed[0].display_name) == ("model", "scripted") and listed[0].created_at.year > 2000


@refused("`messages.batches`", "404, with the paths that there are")
def batches(url: str) -> None:
    try:
        client(url).messages.batches.list()
    except anthropic.NotFoundError as error:
        assert "try /v1/messages or /v1/messages/count_tokens" in error.body["error"]["message"]
    else:
        raise AssertionError("it was answered")


@refused("`messages.create` for a model that there is not", "404, `not_found_error`")
def unknown(url: str) -> None:
    try:
        client(url).messages.create(**{**asked(QUESTION), "model": "nothing"})
    except anthropic.NotFoundError as error:
        assert error.body["error"]["type"] == "not_found_error"
    else:
        raise AssertionError("it was answered")


if __name__ == "__main__":
    main(globals())
