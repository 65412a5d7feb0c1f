"""Ollama's Python package."""

from __future__ import annotations

import json

import ollama
from calls import ANSWER, PERSON, QUESTION, WEATHER, get_weather, main, refused, works
from calls_openai import Person, user

COLD = {"temperature": 0}


def client(url: str) -> ollama.Client:
    return ollama.Client(host=url)


@works("`chat`, also with `stream=True`")
def chat(url: str) -> None:
    answer = client(url).chat("scripted", user(QUESTION), options=COLD)
    assert (answer.message.content, answer.done, answer.done_reason) == (ANSWER, True, "stop")
    pieces = list(client(url).chat("scripted", user(QUESTION), options=COLD, stream=True))
    assert "".join(piece.message.content for piece in pieces) == ANSWER and pieces[-1].eval_count == 5


@works("`generate`, also with `stream=True`")
def generate(url: str) -> None:
    assert client(url).generate("scripted", QUESTION, options=COLD).response == ANSWER
    pieces = client(url).generate("scripted", QUESTION, options=COLD, stream=True)
    assert "".join(piece.response for piece in pieces) == ANSWER


@works("`chat` with tools, given as functions")
def tools(url: str) -> None:
    messages = user(WEATHER)
    answer = client(url).chat("scripted", messages, tools=[get_weather], options=COLD)
    (call,) = answer.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", {"city": "Bern"})
    messages += [answer.message, {"role": "tool", "tool_name": "get_weather", "content": "sunny in Bern"}]
    assert client(url).chat("scripted", messages, tools=[get_weather], options=COLD).message.content == ANSWER


@works("`chat` with `format`, a schema")
def structured(url: str) -> None:
    answer = client(url).chat("scripted", user(PERSON), format=Person.model_json_schema(), options=COLD)
    assert json.loads(answer.message.content) == {"name": "Ada", "age": 36}


@works("`embed`")
def embed(url: str) -> None:
    assert [len(each) for each in client(url).embed("sentences", ["light", "darkness"]).embeddings] == [6, 6]


@works("`list`, `show`, `ps`")
def models(url: str) -> None:
    assert "scripted" in {each.model.removesuffix(":latest") for each in client(url).list().models}
    assert "tools" in client(url).show("scripted").capabilities
    assert "scripted" in {each.model.removesuffix(":latest") for each in client(url).ps().models}


@refused("`pull`", "the files of models are in the server's folder")
def pull(url: str) -> None:
    try:
        client(url).pull("llama3")
    except ollama.ResponseError as error:
        assert error.status_code >= 400 and error.error
    else:
        raise AssertionError("it was answered")


if __name__ == "__main__":
    main(globals())
