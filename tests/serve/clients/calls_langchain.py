"""LangChain's package for OpenAI."""

from __future__ import annotations

from calls import ANSWER, PERSON, QUESTION, WEATHER, get_weather, main, works
from calls_openai import Person
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings


def chat(url: str, **more: object) -> ChatOpenAI:
    return ChatOpenAI(model="scripted", base_url=f"{url}/v1", api_key="none", temperature=0, max_retries=0, **more)


@works("`ChatOpenAI.invoke`, `.stream`, `.batch`")
def invoke(url: str) -> None:
    assert chat(url).invoke(QUESTION).content == ANSWER
    assert "".join(piece.content for piece in chat(url).stream(QUESTION)) == ANSWER
    assert [each.content for each in chat(url).batch([QUESTION] * 3)] == [ANSWER] * 3


@works("`.bind_tools`, with one call at a time")
def tools(url: str) -> None:
    asking = chat(url).bind_tools([tool(get_weather)], parallel_tool_calls=False)
    message = asking.invoke(WEATHER)
    (call,) = message.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Bern"})
    result = ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"])
    assert asking.invoke([HumanMessage(WEATHER), message, result]).content == ANSWER


@works("`.with_structured_output`, by a schema")
def structured(url: str) -> None:
    answer = chat(url).with_structured_output(Person, method="json_schema").invoke(PERSON)
    assert answer == Person(name="Ada", age=36)


@works("`OpenAIEmbeddings(check_embedding_ctx_length=False)`")
def embeddings(url: str) -> None:
    asking = OpenAIEmbeddings(model="sentences", base_url=f"{url}/v1", api_key="none", check_embedding_ctx_length=False)
    assert len(asking.embed_query("light")) == 6


if __name__ == "__main__":
    main(globals())
