"""OpenAI's Python package."""

from __future__ import annotations

import json

import openai
from calls import ANSWER, PERSON, QUESTION, WEATHER, main, refused, works
from pydantic import BaseModel

MODEL = "scripted"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Person(BaseModel):
    name: str
    age: int


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@works("`models.list`, `models.retrieve`")
def models(url: str) -> None:
    assert "scripted" in [each.id for each in client(url).models.list()]
    assert client(url).models.retrieve("scripted").id == "scripted"


@works("`completions.create`, also with `stream=True`")
def completions(url: str) -> None:
    answer = client(url).completions.create(model=MODEL, prompt="<|plain|>", temperature=0)
    assert answer.choices[0].text == ANSWER and answer.choices[0].finish_reason == "stop"
    pieces = client(url).completions.create(model=MODEL, prompt="<|plain|>", temperature=0, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == ANSWER


@works("`chat.completions.create`")
def chat(url: str) -> None:
    answer = client(url).chat.completions.create(model=MODEL, messages=user(QUESTION), temperature=0)
    assert answer.choices[0].message.content == ANSWER and answer.usage.completion_tokens == 5


@works("`chat.completions.create(stream=True)` with `include_usage`")
def chat_stream(url: str) -> None:
    pieces = list(client(url).chat.completions.create(
        model=MODEL, messages=user(QUESTION), temperature=0, stream=True, stream_options={"include_usage": True}
    ))  # fmt: skip
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == ANSWER
    assert pieces[-1].usage.completion_tokens == 5


@works("`AsyncOpenAI().chat.completions.create(stream=True)`")
async def chat_async(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as asking:
        stream = await asking.chat.completions.create(model=MODEL, messages=user(QUESTION), temperature=0, stream=True)
        assert "".join([piece.choices[0].delta.content or "" async for piece in stream]) == ANSWER


@works("`chat.completions.stream`, the helper")
def chat_helper(url: str) -> None:
    with client(url).chat.completions.stream(
        model=MODEL, messages=user(WEATHER), temperature=0, tools=[TOOL]
    ) as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_completion().choices[0].message
    assert "tool_calls.function.arguments.done" in kinds and message.tool_calls[0].function.name == "get_weather"


@works("`chat.completions.parse` with a Pydantic model")
def parse(url: str) -> None:
    answer = client(url).chat.completions.parse(
        model=MODEL, messages=user(PERSON), temperature=0, response_format=Person
    )
    assert answer.choices[0].message.parsed == Person(name="Ada", age=36)


@works("tools: a call, its result, the answer")
def tools(url: str) -> None:
    messages = user(WEATHER)
    answer = client(url).chat.completions.create(model=MODEL, messages=messages, temperature=0, tools=[TOOL])
    (call,) = answer.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Bern"})
    assert answer.choices[0].finish_reason == "tool_calls"
    messages += [answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny in Bern"}]
    answer = client(url).chat.completions.create(model=MODEL, messages=messages, temperature=0, tools=[TOOL])
    assert answer.choices[0].message.content == ANSWER


@works("`responses.create`, also with `stream=True`")
def responses(url: str) -> None:
    answer = client(url).responses.create(model=MODEL, input=QUESTION, temperature=0)
    assert answer.output_text == ANSWER and answer.status == "completed"
    events = list(client(url).responses.create(model=MODEL, input=QUESTION, temperature=0, stream=True))
    assert "".join(each.delta for each in events if each.type == "response.output_text.delta") == ANSWER
    assert events[-1].type == "response.completed"


@works("`responses.create` with `previous_response_id`, `responses.retrieve`, `.delete`")
def responses_stored(url: str) -> None:
    first = client(url).responses.create(model=MODEL, input=QUESTION, temperature=0)
    second = client(url).responses.create(model=MODEL, input="And now", previous_response_id=first.id, temperature=0)
    assert second.usage.input_tokens > first.usage.input_tokens
    assert client(url).responses.retrieve(first.id).output_text == ANSWER
    client(url).responses.delete(first.id)
    try:
        client(url).responses.retrieve(first.id)
    except openai.NotFoundError:
        pass
    else:
        raise AssertionError("it is still there")


@works("`responses.stream`, the helper, with tools")
def responses_tools(url: str) -> None:
    tool = {"type": "function", **TOOL["function"]}
    with client(url).responses.stream(model=MODEL, input=WEATHER, temperature=0, tools=[tool]) as stream:
        kinds = {event.type for event in stream}
        (call,) = [each for each in stream.get_final_response().output if each.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Bern"})
    assert "response.function_call_arguments.delta" in kinds
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny in Bern"}
    history = [{"role": "user", "content": WEATHER}, call.model_dump(), result]
    assert client(url).responses.create(model=MODEL, input=history, temperature=0, tools=[tool]).output_text == ANSWER


@works("`responses.parse` with a Pydantic model")
def responses_parse(url: str) -> None:
    answer = client(url).responses.parse(model=MODEL, input=PERSON, temperature=0, text_format=Person)
    assert answer.output_parsed == Person(name="Ada", age=36)


@works("`embeddings.create`")
def embeddings(url: str) -> None:
    answer = client(url).embeddings.create(model="sentences", input=["light", "light and darkness"])
    assert [len(each.embedding) for each in answer.data] == [6, 6]


@refused("`audio.speech.create`, `images.generate`, `files.list`", "404")
def others(url: str) -> None:
    calls = (
        lambda: client(url).audio.speech.create(model=MODEL, input="a", voice="alloy"),
        lambda: client(url).images.generate(model=MODEL, prompt="a"),
        lambda: client(url).files.list(),
    )
    for call in calls:
        try:
            call()
        except openai.NotFoundError as error:
            assert "there is no /v1/" in str(error)
        else:
            raise AssertionError("it was answered")


@works("`responses.input_tokens.count`")
def input_tokens(url: str) -> None:
    counted = client(url).responses.input_tokens.count(model=MODEL, input=QUESTION)
    assert counted.input_tokens == client(url).responses.create(model=MODEL, input=QUESTION).usage.input_tokens


if __name__ == "__main__":
    main(globals())
