"""Pydantic AI with OpenAI's chat."""

from __future__ import annotations

from calls import ANSWER, PERSON, QUESTION, WEATHER, get_weather, main, works
from calls_openai import Person
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

SETTINGS = {"temperature": 0}


def model(url: str) -> OpenAIChatModel:
    return OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))


@works("`Agent.run`")
async def run(url: str) -> None:
    assert (await Agent(model(url), model_settings=SETTINGS).run(QUESTION)).output == ANSWER


@works("`Agent.run_stream`")
async def stream(url: str) -> None:
    async with Agent(model(url), model_settings=SETTINGS).run_stream(QUESTION) as answer:
        assert [piece async for piece in answer.stream_text()][-1] == ANSWER


@works("tools")
async def tools(url: str) -> None:
    answer = await Agent(model(url), tools=[get_weather], model_settings=SETTINGS).run(WEATHER)
    assert answer.output == ANSWER
    assert any(getattr(part, "content", "") == "sunny in Bern" for each in answer.all_messages() for part in each.parts)


@works("`output_type=NativeOutput(...)`, beside tools")
async def structured(url: str) -> None:
    agent = Agent(model(url), tools=[get_weather], output_type=NativeOutput(Person), model_settings=SETTINGS)
    assert (await agent.run(PERSON)).output == Person(name="Ada", age=36)


if __name__ == "__main__":
    main(globals())
