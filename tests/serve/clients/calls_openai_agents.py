"""OpenAI's Agents SDK."""

from __future__ import annotations

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from calls import ANSWER, PERSON, QUESTION, WEATHER, get_weather, main, works
from calls_openai import Person
from openai import AsyncOpenAI

set_tracing_disabled(True)


def agent(url: str, **more: object) -> Agent:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    chat = OpenAIChatCompletionsModel(model="scripted", openai_client=client)
    return Agent("a", model=chat, model_settings=ModelSettings(temperature=0, parallel_tool_calls=False), **more)


@works("`Runner.run` with `OpenAIChatCompletionsModel`")
async def run(url: str) -> None:
    assert (await Runner.run(agent(url), QUESTION)).final_output == ANSWER


@works("`Runner.run` with `OpenAIResponsesModel`, and a tool")
async def responses(url: str) -> None:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    model = OpenAIResponsesModel(model="scripted", openai_client=client)
    asking = Agent("a", model=model, model_settings=ModelSettings(temperature=0), tools=[function_tool(get_weather)])
    answer = await Runner.run(asking, WEATHER)
    assert answer.final_output == ANSWER and len(answer.raw_responses) == 2


@works("`Runner.run_streamed`")
async def stream(url: str) -> None:
    answer = Runner.run_streamed(agent(url), QUESTION)
    kinds = {event.type async for event in answer.stream_events()}
    assert "raw_response_event" in kinds and answer.final_output == ANSWER


@works("`tools`")
async def tools(url: str) -> None:
    answer = await Runner.run(agent(url, tools=[function_tool(get_weather)]), WEATHER)
    assert answer.final_output == ANSWER and len(answer.raw_responses) == 2


@works("`output_type`, beside tools")
async def structured(url: str) -> None:
    answer = await Runner.run(agent(url, tools=[function_tool(get_weather)], output_type=Person), PERSON)
    assert answer.final_output == Person(name="Ada", age=36)


if __name__ == "__main__":
    main(globals())
