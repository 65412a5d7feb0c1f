"""LiteLLM, by its providers for servers of OpenAI's and vLLM's API."""

from __future__ import annotations

import json

import litellm
from calls import ANSWER, QUESTION, WEATHER, main, works
from calls_openai import TOOL, user


@works('`completion("openai/...")`, also with `stream=True`')
def openai_provider(url: str) -> None:
    asked = {"model": "openai/scripted", "api_base": f"{url}/v1", "api_key": "none", "temperature": 0}
    assert litellm.completion(messages=user(QUESTION), **asked).choices[0].message.content == ANSWER
    pieces = litellm.completion(messages=user(QUESTION), stream=True, **asked)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == ANSWER


@works('`completion("hosted_vllm/...")` with tools and `reasoning_effort`')
def vllm_provider(url: str) -> None:
    answer = litellm.completion(
        "hosted_vllm/scripted", user(WEATHER), api_base=f"{url}/v1", tools=[TOOL], temperature=0,
        reasoning_effort="low",
    )  # fmt: skip
    function = answer.choices[0].message.tool_calls[0].function
    assert (function.name, json.loads(function.arguments)) == ("get_weather", {"city": "Bern"})


@works('`completion("anthropic/...")`, `completion("ollama_chat/...")`')
def other_dialects(url: str) -> None:
    for model in ("anthropic/scripted", "ollama_chat/scripted"):
        answer = litellm.completion(model, user(QUESTION), api_base=url, api_key="none", temperature=0, max_tokens=50)
        assert answer.choices[0].message.content == ANSWER, model


@works('`text_completion("openai/...")`')
def text(url: str) -> None:
    answer = litellm.text_completion(
        "<|plain|>", "text-completion-openai/scripted", api_base=f"{url}/v1", api_key="none", temperature=0
    )
    assert answer.choices[0].text == ANSWER


@works("`embedding`")
def embedding(url: str) -> None:
    answer = litellm.embedding("openai/sentences", ["light"], api_base=f"{url}/v1", api_key="none")
    assert len(answer.data[0]["embedding"]) == 6


@works('`rerank("hosted_vllm/...")`')
def rerank(url: str) -> None:
    texts = ["light", "the light and the darkness of the deep", "light and darkness"]
    answer = litellm.rerank("hosted_vllm/pairs", "God", texts, api_base=url, api_key="none", top_n=3)
    assert [each["index"] for each in answer.results] == [1, 2, 0]


if __name__ == "__main__":
    main(globals())
