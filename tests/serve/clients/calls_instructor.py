"""Instructor, on top of OpenAI's package."""

from __future__ import annotations

import instructor
import openai
from calls import PERSON, main, works
from calls_openai import Person, user


def person(url: str, mode: instructor.Mode) -> Person:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        asking = instructor.from_openai(client, mode=mode)
        return asking.create(
            model="scripted", messages=user(PERSON), response_model=Person, temperature=0, max_retries=0
        )


@works("`create(response_model=...)` in the mode `JSON_SCHEMA`")
def by_schema(url: str) -> None:
    assert person(url, instructor.Mode.JSON_SCHEMA).model_dump() == {"name": "Ada", "age": 36}


@works("the same in the mode `JSON`")
def by_json(url: str) -> None:
    assert person(url, instructor.Mode.JSON).model_dump() == {"name": "Ada", "age": 36}


@works("the same in the mode `TOOLS`")
def by_tools(url: str) -> None:
    assert isinstance(person(url, instructor.Mode.TOOLS), Person)


if __name__ == "__main__":
    main(globals())
