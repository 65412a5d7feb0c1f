"""Calls of tools in texts, however they are cut into pieces."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from rows import rows

from ox.errors import ArgumentError
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.protocol.text.message_parts import Message
from ox.serve.protocol.text.tool_calls import ToolCallParser
from ox.serve.protocol.text.tool_formats import (
    BARE,
    HERMES,
    LLAMA3,
    MISTRAL,
    MISTRAL_NAMED,
    PHI,
    QWEN3_CODER,
    ToolFormat,
    find_format,
    named_format,
)

WRITE = {
    "type": "object",
    "properties": {
        "path": {"type": "string"}, "count": {"$ref": "#/$defs/Count"}, "tags": {"type": ["array", "null"]},
        "flag": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "kind": {"enum": ["a", 1]},
    },
    "$defs": {"Count": {"type": "integer"}},
}  # fmt: skip
OFFERED: dict[str, Any] = {"f": {}, "g": {}, "write": WRITE, "a/b": {}, "mcp:f": {}}
F, G = '{"name": "f", "arguments": {"x": "}<"}}', '{"name": "g", "arguments": {}}'
FX, GX = ("f", '{"x": "}<"}'), ("g", "{}")
LONG = "123456789012345678901234"
WHOLE = '{"name": "f", "arguments": {"a": 1}'
TEXTS: list[tuple[ToolFormat, str, str, list[tuple[str, str]]]] = [
    (HERMES, "no call", "no call", []),
    (HERMES, "", "", []),
    (HERMES, f"Hi <b>! <tool_call>\n{F}\n</tool_call>", "Hi <b>!", [FX]),
    (HERMES, f"<tool_call>{F}</tool_call>\n<tool_call>{G}</tool_call>", "", [FX, GX]),
    (HERMES, f"\n\n<tool_call>{F}</tool_call>\n\n<tool_call>{G}</tool_call>\n", "", [FX, GX]),
    (HERMES, f" Hi \n<tool_call>{F}</tool_call> then", " Hi then", [FX]),
    (HERMES, "no call \n", "no call \n", []),
    (HERMES, f"<tool_call>{F}", "", [FX]),  # ended without its mark
    (HERMES, f"<tool_call>{F}\n</tool_", "", [FX]),
    (HERMES, f"<tool_call>[{F}, {G}]</tool_call>", "", [FX, GX]),  # a list
    (HERMES, f"<tool_call>\n{F}\n{G}\n</tool_call>", "", [FX, GX]),
    (HERMES, f"<tool_call>{F}}}</tool_call>", "", [FX]),  # a brace too many
    (HERMES, f"<tool_call>{F}<tool_call>{G}", "", [FX, GX]),
    (HERMES, " <tool_call>what</tool_call>a ", " <tool_call>what</tool_call>a ", []),
    (HERMES, f"<tool_call>what <tool_call>{G}</tool_call>", "<tool_call>what", [GX]),
    (HERMES, "<tool_call>what", "<tool_call>what", []),
    (HERMES, "a <tool_ca", "a <tool_ca", []),
    (HERMES, '<tool_call>{"name": 5}</tool_call>', '<tool_call>{"name": 5}</tool_call>', []),
    (HERMES, '<tool_call>{"name": "h"}</tool_call>', '<tool_call>{"name": "h"}</tool_call>', []),  # not offered
    (HERMES, '<tool_call>{"name": "f", "arguments": 5}', '<tool_call>{"name": "f", "arguments": 5}', []),
    (HERMES, '<tool_call>{"name": "f", "arguments": {x: 5}}', '<tool_call>{"name": "f", "arguments": {x: 5}}', []),
    (HERMES, '<tool_call>{"name": "f", "city": 5}', '<tool_call>{"name": "f", "city": 5}', []),
    (HERMES, '<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>', "", [("f", '{"a": 1}')]),
    (HERMES, '<tool_call>{"parameters": {"a": 1}, "name": "f"}</tool_call>', "", [("f", '{"a": 1}')]),
    (HERMES, '<tool_call>{"id": "1", "name": "f", "arguments": null}</tool_call>', "", [("f", "{}")]),
    (HERMES, '<tool_call>{"name": "f", "arguments": ""}</tool_call>', "", [("f", "{}")]),
    (HERMES, '<tool_call>{"name": "f", "arguments": "{\\"a\\": [1]}"}</tool_call>', "", [("f", '{"a": [1]}')]),
    (HERMES, '<tool_call>{"name": "f", "arguments": "a"}</tool_call>',
     '<tool_call>{"name": "f", "arguments": "a"}</tool_call>', []),
    (HERMES, f'<tool_call>{{"name": "f", "arguments": {{"n": {LONG}}}}}</tool_call>', "", [("f", f'{{"n": {LONG}}}')]),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"t": "see </tool_call>\\""}}</tool_call>', "",
     [("f", '{"t": "see </tool_call>\\""}')]),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"t": "two\nlines"}}</tool_call>', "",
     [("f", '{"t": "two\\nlines"}')]),
    (HERMES, f'<tool_call>{{"type": "function", "function": {{"name": "f", "arguments": "{{\\"n\\": {LONG}}}"}}}}', "",
     [("f", f'{{"n": {LONG}}}')]),
    (HERMES, f'<tool_call>{WHOLE}, "parameters": {{}}}}</tool_call>', "", [("f", '{"a": 1}')]),
    (HERMES, f'<tool_call>{WHOLE}, "parameters": {{"a":1}}}}</tool_call>', "", [("f", '{"a": 1}')]),
    (HERMES, '<tool_call>{"name": "f", "arguments": {}, "parameters": {"a": 1}}</tool_call>', "", [("f", '{"a": 1}')]),
    (HERMES, '<tool_call>{"arguments": null, "parameters": "{\\"a\\": 1}", "name": "f"}', "", [("f", '{"a": 1}')]),
    (HERMES, '<tool_call>{"parameters": {"b": 1}, "arguments": {"a": 1}, "name": "f"}',
     '<tool_call>{"parameters": {"b": 1}, "arguments": {"a": 1}, "name": "f"}', []),  # no one can know which
    (HERMES, f"<tool_call>{WHOLE}</tool_call> then", " then", [("f", '{"a": 1}')]),  # a brace is missing
    (HERMES, '<tool_call>{"name": "f", "arguments": {}', "", [("f", "{}")]),
    (HERMES, f"<tool_call>{WHOLE}", "", [("f", '{"a": 1}')]),
    (HERMES, '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"\\ud83d\\"}"}', "", [("f", '{"a": "\ufffd"}')]),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"a": "\\ud83d\\ude00 \\uDC00\\ud83d\\n\\ud83d\\ud83d"}}', "",
     [("f", '{"a": "\\ud83d\\ude00 \\ufffd\\ufffd\\n\\ufffd\\ufffd"}')]),  # halves of surrogate pairs
    (HERMES, '<tool_call>{"name": "f", "arguments": {"a": "\\\\ud83d\\u00e9"}}', "",
     [("f", '{"a": "\\\\ud83d\\u00e9"}')]),
    (LLAMA3, '{"name": "f", "parameters": {"a": 1}}', "", [("f", '{"a": 1}')]),
    (LLAMA3, '{"name": "f", "arguments": {"a": 1}}', "", [("f", '{"a": 1}')]),
    (LLAMA3, '{"type": "function", "function": "f", "parameters": {"a": 1}}', "", [("f", '{"a": 1}')]),
    (LLAMA3, '\n{"name": "f", "parameters": {"a": 1}}; {"name": "g"}', "", [("f", '{"a": 1}'), GX]),
    (LLAMA3, '<|python_tag|>{"name": "f", "parameters": {"a": "x; y"}}\n{"name": "g"}', "",
     [("f", '{"a": "x; y"}'), GX]),
    (LLAMA3, f"[{F}, {G}]", "", [FX, GX]),
    (LLAMA3, '{"name": "f"};', '{"name": "f"};', []),  # a document: no mark, and no arguments
    (LLAMA3, '{"name": "f", "id": 3}', '{"name": "f", "id": 3}', []),
    (LLAMA3, '{"type": "person", "name": "f"}', '{"type": "person", "name": "f"}', []),
    (LLAMA3, '{"id": "f", "function": "f"}', '{"id": "f", "function": "f"}', []),
    (LLAMA3, '{"name": "f", "parameters": null}', "", [("f", "{}")]),
    (LLAMA3, '<|python_tag|>{"name": "f"}', "", [("f", "{}")]),
    (LLAMA3, '{"name": "f", "parameters": {"a": 1}, "why": "so"}', "", [("f", '{"a": 1}')]),
    (LLAMA3, '{"name": "f", "parameters": {}} and more', " and more", [("f", "{}")]),
    (LLAMA3, '{"name": "f"', '{"name": "f"', []),
    (LLAMA3, ' {"name": "Alice", "age": 30}', ' {"name": "Alice", "age": 30}', []),
    (LLAMA3, '{"name": "f", "age": 30}', '{"name": "f", "age": 30}', []),
    (LLAMA3, '{"a": {"name": "f"}}', '{"a": {"name": "f"}}', []),
    (LLAMA3, "[1, 2]", "[1, 2]", []),
    (LLAMA3, "Hello {", "Hello {", []),
    (LLAMA3, "", "", []),
    (QWEN3_CODER, "Hi\n<tool_call>\n<function=write>\n<parameter=path>\na \"b\"\n\n</parameter>\n<parameter=count>\n"
     f"{LONG}\n</parameter>\n<parameter=tags>[1]</parameter><parameter=flag>True</parameter>\n</function>\n</tool_call>",
     "Hi", [("write", f'{{"path": "a \\"b\\"\\n", "count": {LONG}, "tags": [1], "flag": true}}')]),
    (QWEN3_CODER, "<function=f>\n</function>\n<tool_call><function=write><parameter=kind>1</parameter>"
     "<parameter=count>many</parameter><parameter=more>{\"a\": 1}</parameter></function></tool_call>", "",
     [("f", "{}"), ("write", '{"kind": 1, "count": "many", "more": {"a": 1}}')]),
    (QWEN3_CODER, "<tool_call><function=write><parameter=path>a</parameter><parameter=count>1</parameter>"
     "<parameter=path>b</parameter>\n<parameter=count>2</parameter><parameter=x>NaN</parameter></function>", "",
     [("write", '{"path": "a", "count": 1, "x": "NaN"}')]),
    (QWEN3_CODER, "<tool_call><function=write><parameter=path>a</parameter></tool_call>\nso", "\nso",
     [("write", '{"path": "a"}')]),
    (QWEN3_CODER, "<tool_call><function=write><parameter=count>\n5\n<parameter=path>\nBern\n</function>\n</tool_call>",
     "", [("write", '{"count": 5, "path": "Bern"}')]),  # without the ends of values
    (QWEN3_CODER, "<tool_call><function=write><parameter=path>\na\n</parameter >\n<parameter=count>\n5</parameter\n>"
     "</function></tool_call>", "", [("write", '{"path": "a", "count": 5}')]),
    (QWEN3_CODER, "<tool_call><function=write><parameter=path>\n<parameter=x>\n<parameter=path>\n</function>\n</b>\n"
     "</parameter></function></tool_call>", "",
     [("write", '{"path": "<parameter=x>\\n<parameter=path>\\n</function>\\n</b>"}')]),
    (QWEN3_CODER, "<tool_call><function=write><parameter=count>null</parameter><parameter=flag>TRUE</parameter>"
     "<parameter=tags>[1, NaN]</parameter><parameter=kind>None</parameter><parameter=x>TRUE</parameter></function>", "",
     [("write", '{"count": null, "flag": true, "tags": "[1, NaN]", "kind": "None", "x": "TRUE"}')]),
    (QWEN3_CODER, '<tool_call><function=write><parameter=x>{"a": "</parameter>", "b": "\nc\\ud83d"}</parameter>'
     "</function>", "", [("write", '{"x": {"a": "</parameter>", "b": "\\nc\\ufffd"}}')]),
    (QWEN3_CODER, "<tool_call><function=h></function>", "<tool_call><function=h></function>", []),
    (QWEN3_CODER, f"<tool_call>{F}</tool_call>", "", [FX]),
    (MISTRAL, f"[TOOL_CALLS] [{F}, {G}]", "", [FX, GX]),
    (MISTRAL, f"Hi[TOOL_CALLS][{F}, 5]", "Hi, 5]", [FX]),
    (MISTRAL, "[TOOL_CALLS]", "[TOOL_CALLS]", []),
    (MISTRAL_NAMED, '[TOOL_CALLS]f[ARGS]{"a": "[TOOL_CALLS]"}[TOOL_CALLS]g[ARGS]{}', "",
     [("f", '{"a": "[TOOL_CALLS]"}'), GX]),
    (MISTRAL_NAMED, '[TOOL_CALLS]f[CALL_ID]abc[ARGS]{"a": 1}', "", [("f", '{"a": 1}')]),
    (MISTRAL_NAMED, '[TOOL_CALLS]f{"a": 1}', "", [("f", '{"a": 1}')]),
    (MISTRAL_NAMED, "[TOOL_CALLS]f[ARGS]{[TOOL_CALLS]g[ARGS]{}}", "[TOOL_CALLS]f[ARGS]{", [GX]),
    (MISTRAL_NAMED, "[TOOL_CALLS]g[ARGS]{}[TOOL_CALLS]g[ARGS]{}", "", [GX, GX]),
    (MISTRAL_NAMED, '[TOOL_CALLS]a/b[ARGS]{"a": 1}[TOOL_CALLS]mcp:f[ARGS]{}', "",
     [("a/b", '{"a": 1}'), ("mcp:f", "{}")]),
    (MISTRAL_NAMED, '[TOOL_CALLS]f[ARGS]null[TOOL_CALLS]g[ARGS]"{\\"a\\": 1}"', "", [("f", "{}"), ("g", '{"a": 1}')]),
    (MISTRAL_NAMED, "[TOOL_CALLS]f[TOOL_CALLS]g[ARGS][TOOL_CALLS]f[CALL_ID]abc[ARGS]", "",
     [("f", "{}"), GX, ("f", "{}")]),
    (MISTRAL_NAMED, "[TOOL_CALLS]f", "", [("f", "{}")]),
    (MISTRAL_NAMED, "[TOOL_CALLS]f[ARGS]null and more", " and more", [("f", "{}")]),
    (MISTRAL_NAMED, "[TOOL_CALLS]f[ARGS]never", "[TOOL_CALLS]f[ARGS]never", []),
    (MISTRAL_NAMED, "[TOOL_CALLS]h[ARGS]{}", "[TOOL_CALLS]h[ARGS]{}", []),
    (MISTRAL_NAMED, "[TOOL_CALLS] what is that", "[TOOL_CALLS] what is that", []),
    (PHI, f"functools[{F}, {G}]", "", [FX, GX]),
    (PHI, f"<|tool_call|>[{F}]<|/tool_call|>", "", [FX]),
    (PHI, "import functools as f", "import functools as f", []),
    (BARE, '{"name": "f", "arguments": {"a": 1}}', "", [("f", '{"a": 1}')]),
    (BARE, '{"name": "f", "argu', '{"name": "f", "argu', []),
]  # fmt: skip


CUT: list[tuple[ToolFormat, str, str, list[tuple[str, str]]]] = [  # calls whose arguments are not a JSON object
    (HERMES, '<tool_call>{"name": "f", "arguments": {"a": [1, ', "", [("f", '{"a": [1, ')]),
    (HERMES, f'<tool_call>{G}</tool_call><tool_call>{{"name": "f", "arguments": {{"a', "", [GX, ("f", '{"a')]),
    (HERMES, f'<tool_call>{WHOLE}, "parameters": {{"a": 2}}}}</tool_call>', "", [("f", '{"a": 1')]),  # which is it?
    (HERMES, f'<tool_call>{WHOLE}, "parameters": {{"a', "", [("f", '{"a": 1')]),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', "", [("f", '{"a": NaN}')]),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"a": 1]}</tool_call>', "", [("f", '{"a": 1]')]),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"a": "\\ud83d', "", [("f", '{"a": "')]),
    (LLAMA3, '{"name": "f", "parameters": {"a": "', "", [("f", '{"a": "')]),
    (MISTRAL, f'[TOOL_CALLS][{F[:-1]}, {{"name": "g", "arguments": {{"x', "", [FX, ("g", '{"x')]),
    (MISTRAL_NAMED, '[TOOL_CALLS]f[ARGS]{"a": {}', "", [("f", '{"a": {}')]),
    (PHI, '<|tool_call|>[{"name": "f", "arguments": {"a": "]', "", [("f", '{"a": "]')]),
    (QWEN3_CODER, "<tool_call><function=write><parameter=path>1 < 2 </para", "", [("write", '{"path": "1 < 2 ')]),
    (QWEN3_CODER, "<tool_call><function=write><parameter=count>1</parameter>", "", [("write", '{"count": 1')]),
]  # fmt: skip


def read(form: ToolFormat, text: str, cut: int, most: int | None = None, broken: bool = False) -> Message:
    """The message of a text in pieces of so many characters; 0 for pieces by chance."""
    chance, parser, message = random.Random(text), ToolCallParser(form, OFFERED, most), Message()
    while text:
        size = cut or chance.randint(1, 9)
        for piece in parser.add(text[:size]):
            message.add(piece)
        text = text[size:]
    for piece in parser.finish():
        message.add(piece)
    assert parser.broken == broken
    return message


@rows(("form", "text", "shown", "calls"), TEXTS + CUT)
def test_calls(form: ToolFormat, text: str, shown: str, calls: list[tuple[str, str]]) -> None:
    for cut in (1, 2, 3, len(text) or 1, 0):
        message = read(form, text, cut, broken=(form, text, shown, calls) in CUT)
        assert (message.text, [(call.name, call.arguments) for call in message.calls]) == (shown, calls)
        assert len({call.id for call in message.calls}) == len(calls)


def test_arguments_come_in_pieces() -> None:
    parser = ToolCallParser(HERMES, OFFERED)
    assert parser.add('<tool_call>{"name": "f", "arguments": {') == []  # may be no JSON
    begin, delta = parser.add('"x": "a')
    assert (begin.name, begin.index, delta.arguments) == ("f", 0, '{"x": "a')  # type: ignore[union-attr]
    assert [each.arguments for each in parser.add('b", ')] == ['b", ']  # type: ignore[union-attr]
    parser = ToolCallParser(QWEN3_CODER, OFFERED)
    parser.add("<tool_call><function=write><parameter=path>")
    assert [each.arguments for each in parser.add("long text")] == ["long text"]  # type: ignore[union-attr]


def test_names_that_are_cut() -> None:
    """A call without arguments is one where the model ended the text; else the name may go on."""
    parser = ToolCallParser(MISTRAL_NAMED, OFFERED)
    assert parser.add("[TOOL_CALLS]f") == [] and parser.finish(cut=True) == ["[TOOL_CALLS]f"]


def test_calls_end_after_the_most() -> None:
    for cut in (1, 5, 100, 0):
        message = read(HERMES, f"Hi <tool_call>{F}</tool_call><tool_call>{G}</tool_call> end", cut, most=1)
        assert (message.text, [call.name for call in message.calls]) == ("Hi", ["f"])


def test_long_texts_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ox.serve.protocol.text.tool_calls.MAX_HELD", 100)
    parser = ToolCallParser(HERMES, OFFERED)
    shown = ""
    for _ in range(50):
        shown += "".join(each for each in parser.add('<tool_call>{"a": "long') if isinstance(each, str))
    assert shown + "".join(map(str, parser.finish())) == '<tool_call>{"a": "long' * 50


def test_ids_are_of_the_length_that_templates_ask_for() -> None:
    (call,) = read(MISTRAL, f"[TOOL_CALLS][{F}]", 3).calls
    assert len(call.id) == 9 and call.id.isalnum()


@rows(("source", "form"), [
    ("... <tool_call></tool_call>", HERMES),
    ("<tool_call><function=example><parameter=p>", QWEN3_CODER),
    ("{{ '<|python_tag|>' }}", LLAMA3),
    ("[TOOL_CALLS]", MISTRAL),
    ("[TOOL_CALLS]{{ name }}[ARGS]", MISTRAL_NAMED),
    ("'<|tool|>' + message['tools'] + '<|/tool|>'", PHI),
    ("<tool_call>{{ name }}<arg_key>", None),
    ("{{ messages }}", None),
])  # fmt: skip
def test_formats_of_templates(source: str, form: ToolFormat | None) -> None:
    assert find_format(source) == form


def test_named_formats() -> None:
    assert named_format("mistral", "[ARGS] [TOOL_CALLS]") is MISTRAL_NAMED
    assert named_format("hermes", "[TOOL_CALLS]") is HERMES
    for name in ("Hermes", "json", 5):
        with pytest.raises(ArgumentError, match="hermes, llama3, qwen3_coder, mistral, phi, none"):
            GenerationOptions(tool_parser=name)


def test_arguments_are_json() -> None:
    for _, _, _, calls in TEXTS:
        assert all(isinstance(json.loads(arguments), dict) for _, arguments in calls)
