"""Tools, reasoning and forms of answers in chats, through OpenAI's own package, with models that follow scripts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import rows
from scripted_decoder import GENERATION, HERMES, MESSAGES, write_scripted_decoder

from ox.serve import ModelConfig, RequestLimits, Server

pytest.importorskip("jinja2", reason="the extra text is not installed")

PARIS = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
SCRIPTS = {
    "call": ["<tool_call>", '\n{"name": "get_', 'weather", "argu', 'ments": {"city": "Paris"', "}}\n", "</tool_call>"],
    "two": ["Let me", " look.", "\n<tool_call>", PARIS, "</tool_call>", "\n<tool_call>", PARIS, "</tool_call>"],
    "cut": ["<tool_call>", '{"name": "get_weather", "arguments": ', '{"city": "Par'],
    "json": ["<tool_call>", '\n{"name": "get_weather", "arguments": {"town": "X"}}\n', "</tool_call>"],
    "unknown": ["<tool_call>", '{"name": "transfer"}', "</tool_call>"],
    "think": ["<think>", "\nlet me think", "\n</think>\n\n", "the answer"],
    "form": ["<think>", "so", "</think>", '{"ok": true}'],
    "thinkcall": ["<think>", "I could <tool_call>", "</think>", "\n<tool_call>", PARIS, "</tool_call>"],
    "answer": ['{"ok": true}'],
}  # fmt: skip
LLAMA = ['{"name": "Al', 'ice", "age"', ": 30}"]
DOCUMENT = '{"name": "get_weather"}'
FORMATS = {
    "mistral": ("{#[TOOL_CALLS] [ARGS]#}", ["[TOOL_CALLS]", "get_weather", "[ARGS]", '{"city": ', '"Paris"}']),
    "llama3": ("{#<|python_tag|>#}", ["<|python_tag|>", PARIS.replace("arguments", "parameters")]),
    "qwen3_coder": (
        "{#<function= <parameter=#}",
        [
            "<tool_call>\n<function=get_weather>\n",
            "<parameter=city>\nParis\n",
            "</parameter>\n</function>\n</tool_call>",
        ],
    ),
    "phi": ("{#<|tool|><|/tool|>#}", ["<|tool_call|>", f"[{PARIS}]", "<|/tool_call|>"]),
}
SPECIAL = ["[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<|tool_call|>", "<|/tool_call|>"]
CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"$ref": "#/$defs/City"}}, "required": ["city"],
                        "additionalProperties": False, "$defs": {"City": {"enum": ["Paris", "Rome"]}}}  # fmt: skip
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
STRICT = {"type": "function", "function": {**WEATHER["function"], "strict": True}}  # type: ignore[dict-item]
OK = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": OK}}
ONE = [("get_weather", {"city": "Paris"})]


def write(root: Path) -> None:
    write_scripted_decoder(root / "hermes", SCRIPTS)
    write_scripted_decoder(root / "thinks", SCRIPTS, "{#<think></think>#}" + HERMES)
    # The two tokens of the prompt after that of the script stand for its first pieces.
    opened = MESSAGES + GENERATION.replace("SCRIPT", "SCRIPT<think>\n")
    write_scripted_decoder(root / "opened", {"done": ["<think>", "\n", "so", "</think>", '{"ok": true}']}, opened)
    for name, (mark, script) in FORMATS.items():
        scripts = {"call": script, "alice": LLAMA, "document": [DOCUMENT]}
        write_scripted_decoder(root / name, scripts, mark + MESSAGES + GENERATION, special=SPECIAL)


@pytest.fixture(scope="module")
def scripted(shared_folder: Callable[..., Path]) -> Iterator[Any]:
    """A client of a server of these models; the last word of a message names the script."""
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    root = shared_folder("scripted_tools", write)
    folders = [root / name for name in ("hermes", "thinks", "opened", *FORMATS)]
    with (
        Server(folders, options=ModelConfig(threads=1), limits=RequestLimits(json=200_000)) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=60) as client,
    ):
        yield client


def ask(client: Any, script: str, model: str = "hermes", **more: Any) -> Any:
    """The choice of an answer, which is the same as a stream."""
    messages = [{"role": "user", "content": script}]
    asked = {"model": model, "temperature": 0, "max_tokens": 100, "messages": messages, **more}
    whole = client.chat.completions.create(**asked).choices[0]
    calls, text, thought, reason = dict[int, list[str]](), "", "", None
    for chunk in client.chat.completions.create(**asked, stream=True):
        choice = chunk.choices[0]
        text += choice.delta.content or ""
        thought += getattr(choice.delta, "reasoning_content", None) or ""
        reason = choice.finish_reason or reason
        for delta in choice.delta.tool_calls or ():
            if delta.function.name:
                assert delta.id and delta.index == len(calls)
            call = calls.setdefault(delta.index, ["", ""])
            call[0] += delta.function.name or ""
            call[1] += delta.function.arguments or ""
    message = whole.message
    assert (text, reason) == (message.content or "", whole.finish_reason)
    assert thought == (getattr(message, "reasoning_content", None) or "")
    assert [*calls.values()] == [[call.function.name, call.function.arguments] for call in message.tool_calls or ()]
    return whole


def calls_of(choice: Any) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or ()]


def test_calls(scripted: Any) -> None:
    choice = ask(scripted, "call", tools=[WEATHER])
    assert (calls_of(choice), choice.message.content, choice.finish_reason) == (ONE, None, "tool_calls")
    choice = ask(scripted, "two", tools=[WEATHER])
    assert (calls_of(choice), choice.message.content) == (ONE * 2, "Let me look.")
    choice = ask(scripted, "cut", tools=[WEATHER], max_tokens=3)
    assert choice.message.tool_calls[0].function.arguments == '{"city": "Par' and choice.finish_reason == "length"


def test_what_is_not_a_call(scripted: Any) -> None:
    for script, more in (("unknown", {}), ("call", {"tool_choice": "none"})):
        choice = ask(scripted, script, tools=[WEATHER], **more)
        assert (choice.message.content, calls_of(choice)) == ("".join(SCRIPTS[script]), [])
        assert choice.finish_reason == "stop"
    choice = ask(scripted, "alice", "llama3", tools=[WEATHER])
    assert (choice.message.content, calls_of(choice)) == ("".join(LLAMA), [])


def test_documents_with_names_of_functions(scripted: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    named = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    form = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": named}}
    choice = ask(scripted, "document", "llama3", tools=[WEATHER], response_format=form)
    assert (choice.message.content, calls_of(choice), choice.finish_reason) == (DOCUMENT, [], "stop")


def test_names_with_slashes_and_colons(scripted: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    for model in FORMATS:
        tool = {"type": "function", "function": {"name": "mcp:a/b", "parameters": CITY}}
        choice = ask(scripted, "plain", model, tools=[tool], tool_choice="required", parallel_tool_calls=False)
        assert [name for name, _ in calls_of(choice)] == ["mcp:a/b"]


def test_formats_with_special_tokens(scripted: Any) -> None:
    for model in FORMATS:
        choice = ask(scripted, "call", model, tools=[WEATHER])
        assert (calls_of(choice), choice.message.content, choice.finish_reason) == (ONE, None, "tool_calls")
        assert "[TOOL_CALLS]" not in ask(scripted, "call", model).message.content  # without tools they are not shown


def test_one_call(scripted: Any) -> None:
    choice = ask(scripted, "two", tools=[WEATHER], parallel_tool_calls=False)
    assert (calls_of(choice), choice.message.content, choice.finish_reason) == (ONE, "Let me look.", "tool_calls")
    answer = scripted.chat.completions.create(
        model="hermes", temperature=0, messages=[{"role": "user", "content": "two"}], tools=[WEATHER],
        parallel_tool_calls=False,
    )  # fmt: skip
    assert answer.usage.completion_tokens == 4  # the text ends there
    assert ask(scripted, "answer", parallel_tool_calls=False).message.content == '{"ok": true}'


ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
    {"type": "function", "function": {"name": "get_weather"}}]}}  # fmt: skip


@rows("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_call_that_is_required(scripted: Any, choice: Any) -> None:
    """Also where the model would not call, and beside the form of an answer."""
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    for script, more in (("call", {}), ("plain", {}), ("answer", {"response_format": FORM})):
        made = ask(scripted, script, tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False, **more)
        assert [name for name, _ in calls_of(made)] == ["get_weather"]
        assert calls_of(made)[0][1]["city"] in ("Paris", "Rome") and made.finish_reason == "tool_calls"


def test_allowed_tools(scripted: Any) -> None:
    other = {"type": "function", "function": {"name": "transfer"}}
    assert calls_of(ask(scripted, "call", tools=[WEATHER, other], tool_choice=ALLOWED)) == ONE
    assert calls_of(ask(scripted, "unknown", tools=[WEATHER, other], tool_choice=ALLOWED)) == []
    assert calls_of(ask(scripted, "unknown", tools=[WEATHER, other])) == [("transfer", {})]


def test_a_call_or_an_answer(scripted: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    for form in (FORM, {"type": "json_object"}):
        assert calls_of(ask(scripted, "call", tools=[WEATHER], response_format=form)) == ONE
        choice = ask(scripted, "answer", tools=[WEATHER], response_format=form)
        assert (choice.message.content, calls_of(choice)) == ('{"ok": true}', [])


def test_strict_functions(scripted: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    assert calls_of(ask(scripted, "json", tools=[WEATHER])) == [("get_weather", {"town": "X"})]
    ((name, arguments),) = calls_of(ask(scripted, "json", tools=[STRICT], parallel_tool_calls=False))
    assert name == "get_weather" and arguments["city"] in ("Paris", "Rome")


def test_strict_functions_in_xml(scripted: Any) -> None:
    """Strings that are restricted by a pattern, or stand beside null, are values of the schema."""
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    for schema in ({"type": "string", "pattern": "^(Paris|Rome)$"}, {"anyOf": [{"const": "Paris"}, {"type": "null"}]}):
        parameters = {**CITY, "properties": {"city": schema}}
        tool = {"type": "function", "function": {"name": "get_weather", "parameters": parameters, "strict": True}}
        choice = ask(scripted, "plain", "qwen3_coder", tools=[tool], tool_choice="required", parallel_tool_calls=False)
        ((_, arguments),) = calls_of(choice)
        assert arguments["city"] in ("Paris", "Rome", None)


def test_reasoning(scripted: Any) -> None:
    choice = ask(scripted, "think", "thinks")
    assert (choice.message.reasoning_content, choice.message.content) == ("let me think", "the answer")
    assert ask(scripted, "think").message.content == "".join(SCRIPTS["think"])  # the template has no reasoning
    choice = ask(scripted, "thinkcall", "thinks", tools=[WEATHER])
    assert (calls_of(choice), choice.message.reasoning_content) == (ONE, "I could <tool_call>")
    choice = ask(scripted, "done", "opened")
    assert (choice.message.reasoning_content, choice.message.content) == ("so", '{"ok": true}')


def test_forms_after_reasoning(scripted: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    for script, model in (("form", "thinks"), ("done", "opened")):
        choice = ask(scripted, script, model, response_format=FORM)
        assert (choice.message.reasoning_content, choice.message.content) == ("so", '{"ok": true}')


def test_what_schemas_lack(scripted: Any) -> None:
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    schema = {**OK, "properties": {"ok": {"type": "boolean", "not": {"const": False}}}}
    loose, strict = ({**FORM, "json_schema": {"name": "a", "schema": schema, "strict": each}} for each in (False, True))
    assert ask(scripted, "answer", response_format=loose).message.content == '{"ok": true}'
    with pytest.raises(openai.BadRequestError, match=r"'not' of JSON schema is not supported.*#/properties/ok"):
        ask(scripted, "answer", response_format=strict)


def test_bad_schemas(scripted: Any) -> None:
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(140):
        deep = {"type": "object", "properties": {"a": deep}}
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    for schema, words in ((deep, "128 levels"), (endless, "requires itself")):
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        with pytest.raises(openai.BadRequestError, match=words):
            ask(scripted, "plain", tools=[tool], tool_choice="required")


def test_a_format_that_is_set(shared_folder: Callable[..., Path]) -> None:
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    folder = shared_folder("scripted_tools", write) / "hermes"
    for name, content in (("none", "".join(SCRIPTS["call"])), ("hermes", None), ("mistral", "".join(SCRIPTS["call"]))):
        with (
            Server([folder], options=ModelConfig(threads=1, generation={"tool_parser": name})) as server,
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=60) as client,
        ):
            assert ask(client, "call", tools=[WEATHER]).message.content == content


HISTORY: list[list[dict[str, Any]]] = [
    [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
    [{"role": "assistant", "content": None}],
    [{"role": "assistant", "content": None, "refusal": "no"}],
    [{"role": "assistant", "content": None, "tool_calls": []}],
    [{"role": "assistant", "content": "a", "reasoning_content": "b"}, {"role": "tool", "content": None}],
    [{"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":'}}]},
     {"role": "tool", "tool_call_id": "c", "content": "error"}],
]  # fmt: skip


@rows("messages", HISTORY)
def test_histories(scripted: Any, messages: list[dict[str, Any]]) -> None:
    user = {"role": "user", "content": "answer"}
    assert ask(scripted, "", messages=[user, *messages, user]).message.content == '{"ok": true}'
