"""LlamaIndex's package for servers of OpenAI's API."""

from __future__ import annotations

from calls import ANSWER, PERSON, QUESTION, WEATHER, get_weather, main, works
from calls_openai import Person
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike


def model(url: str, **more: object) -> OpenAILike:
    return OpenAILike(
        model="scripted", api_base=f"{url}/v1", api_key="none", temperature=0, context_window=8192, max_retries=0,
        **{"is_chat_model": True, "is_function_calling_model": True, **more},
    )  # fmt: skip


@works("`OpenAILike.chat`, `.stream_chat`")
def chat(url: str) -> None:
    messages = [ChatMessage(role="user", content=QUESTION)]
    assert model(url).chat(messages).message.content == ANSWER
    assert [piece.message.content for piece in model(url).stream_chat(messages)][-1] == ANSWER


@works("`.complete`, `.stream_complete`")
def complete(url: str) -> None:
    plain = model(url, is_chat_model=False)
    assert plain.complete("<|plain|>").text == ANSWER
    assert "".join(piece.delta for piece in plain.stream_complete("<|plain|>")) == ANSWER


@works("`.predict_and_call` with a tool")
def tools(url: str) -> None:
    tool = FunctionTool.from_defaults(get_weather)
    assert str(model(url).predict_and_call([tool], WEATHER)) == "sunny in Bern"


@works("`.structured_predict`")
def structured(url: str) -> None:
    answer = model(url, should_use_structured_outputs=True).structured_predict(Person, PromptTemplate(PERSON))
    assert answer == Person(name="Ada", age=36)


if __name__ == "__main__":
    main(globals())
