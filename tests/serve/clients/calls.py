"""The calls of one client, run one after the other in the environment of the clients.

A program of calls has functions with `works` or `refused`; each takes the server's URL and asserts what it gets. The
result of each is a line of JSON on stdout.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

Function = Callable[[str], Any]
QUESTION = "What do you say to a friend"
ANSWER = "Hello there, friend."  # of the scripted decoder
WEATHER = "I want to know the weather"  # it calls get_weather, and answers as above when it has the result
PERSON = "Who is this person"  # its answer is JSON


def works(call: str) -> Callable[[Function], Function]:
    """A call that works; `call` says how it is written."""

    def declare(function: Function) -> Function:
        function.call = call  # type: ignore[attr-defined]
        return function

    return declare


def refused(call: str, how: str) -> Callable[[Function], Function]:
    """A call that is refused; the function asserts how."""
    return works(call)


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def main(names: Mapping[str, Any]) -> None:
    """Runs the calls among the names of a module. Its URL is an argument of the program."""
    url = sys.argv[1]
    for name, function in names.items():
        if not (inspect.isfunction(function) and hasattr(function, "call")):
            continue
        error = ""
        try:
            asyncio.run(function(url)) if inspect.iscoroutinefunction(function) else function(url)
        except Exception:
            error = traceback.format_exc()
        print(json.dumps({"name": name, "error": error}), flush=True)
