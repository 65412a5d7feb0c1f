"""Calls of tools in texts, however they are cut into pieces."""

from __future__ import annotations

import json
import random
from typing import Any

from rows import rows

from ox.serve.protocol.text.tool_calls import ToolCall, ToolCallParser, ToolFormat, format_of

F, G = '{"name": "f", "arguments": {"x": "}<"}}', '{"name": "g", "arguments": {}}'
TEXTS: list[tuple[ToolFormat, str, str, list[tuple[str, Any]]]] = [
    ("hermes", "no call", "no call", []),
    ("hermes", f"Hi <b>! <tool_call>\n{F}\n</tool_call>", "Hi <b>!", [("f", {"x": "}<"})]),
    ("hermes", f"<tool_call>{F}</tool_call>\n<tool_call>{G}</tool_call>", "", [("f", {"x": "}<"}), ("g", {})]),
    ("hermes", f"\n\n<tool_call>{F}</tool_call>\n\n<tool_call>{G}</tool_call>\n", "", [("f", {"x": "}<"}), ("g", {})]),
    ("hermes", f" Hi \n<tool_call>{F}</tool_call> then", " Hi then", [("f", {"x": "}<"})]),
    ("hermes", "no call \n", "no call \n", []),
    ("hermes", f"<tool_call>{F}", "", [("f", {"x": "}<"})]),  # ended without its mark
    ("hermes", "<tool_call>what</tool_call>a", "<tool_call>what</tool_call>a", []),
    ("hermes", "<tool_call>what", "<tool_call>what", []),
    ("hermes", "a <tool_ca", "a <tool_ca", []),
    ("hermes", '<tool_call>{"name": 5}</tool_call>', '<tool_call>{"name": 5}</tool_call>', []),
    ("hermes", '<tool_call>{"name": "f", "arguments": 5}', '<tool_call>{"name": "f", "arguments": 5}', []),
    ("llama3", '{"name": "f", "parameters": {"a": 1}}', "", [("f", {"a": 1})]),
    ("llama3", '\n{"name": "f", "parameters": {"a": 1}}; {"name": "g"}', "", [("f", {"a": 1}), ("g", {})]),
    ("llama3", '{"name": "f", "parameters": {"a": "x; y"}}', "", [("f", {"a": "x; y"})]),
    ("llama3", '{"name": "f"};', "", [("f", {})]),
    ("llama3", '{"name": "f"} or {"name": "g"}', '{"name": "f"} or {"name": "g"}', []),
    ("llama3", '{"name": "f"}; no', '{"name": "f"}; no', []),
    ("llama3", '{"name": "f"', '{"name": "f"', []),
    ("llama3", "Hello {", "Hello {", []),
    ("llama3", "", "", []),
    ("forced", '{"name": "f", "arguments": {"a": 1}}', "", [("f", {"a": 1})]),
    ("forced", '{"name": "f", "argu', '{"name": "f", "argu', []),
]  # fmt: skip


@rows(("form", "text", "shown", "calls"), TEXTS)
def test_calls(form: ToolFormat, text: str, shown: str, calls: list[tuple[str, Any]]) -> None:
    dice = random.Random(1)
    for cut in (1, 3, len(text) or 1, 0):
        parser, rest, found = ToolCallParser(form), text, []
        while rest:
            size = cut or dice.randint(1, 9)
            found += parser.add(rest[:size])
            rest = rest[size:]
        found += parser.finish()
        assert "".join(each for each in found if isinstance(each, str)) == shown
        made = [each for each in found if isinstance(each, ToolCall)]
        assert [(call.name, json.loads(call.arguments)) for call in made] == calls


def test_formats() -> None:
    assert format_of("... <tool_call></tool_call>") == "hermes"
    assert format_of("{{ '<|python_tag|>' }}") == "llama3"
    assert format_of("[TOOL_CALLS]") is None
