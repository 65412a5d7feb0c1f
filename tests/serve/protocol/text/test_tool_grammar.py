"""Grammars of calls: which texts they allow."""

from __future__ import annotations

from typing import Any

import pytest
from rows import rows

from ox.errors import ServeError
from ox.serve.generation.constraint import Constraints
from ox.serve.generation.request import Constraint
from ox.serve.protocol.text.fields import Fields
from ox.serve.protocol.text.message_parts import Message
from ox.serve.protocol.text.messages import Tools, read_tools
from ox.serve.protocol.text.reasoning import MARKS
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
)
from ox.serve.protocol.text.tool_grammar import after_reasoning, with_calls

tokenizers = pytest.importorskip("tokenizers", reason="the extra text is not installed")
pytest.importorskip("llguidance", reason="the extra text is not installed")

KIND = {"$defs": {"K": {"$anchor": "kind", "enum": ["yes", "no"]}}}
OTHER = {"$defs": {"K": {"$anchor": "kind", "enum": ["other"]}}}
TREE: dict[str, Any] = {
    "type": "object", "properties": {"child": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["child"],
    "additionalProperties": False,
}  # fmt: skip


def of_kind(reference: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"k": {"$ref": reference}}, "required": ["k"]}
    return {**schema, "additionalProperties": False, **more}


FUNCTIONS = {
    "f": of_kind("#/$defs/K", **KIND),
    "g": of_kind("#kind", **OTHER),
    "tree": TREE,
    "id": of_kind("http://x/y#/definitions/K", **{"$id": "http://x/y", "definitions": KIND["$defs"]}),
    "write": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "lines": {"$ref": "#/$defs/a%20N"}, "mode": {"enum": ["a", "w"]}},
        "required": ["path", "mode"],
        "$defs": {"a N": {"type": "integer"}},
    },
}
ANSWER = Constraint("json_schema", of_kind("#/$defs/K", **KIND))


@pytest.fixture(scope="module")
def constraints() -> Constraints:
    """With special tokens, as models of these formats have them."""
    raw = tokenizers.Tokenizer(tokenizers.models.BPE())
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    raw.model = tokenizers.models.BPE({each: index for index, each in enumerate(alphabet)}, [])
    raw.add_special_tokens(["<eos>", "[TOOL_CALLS]", "[ARGS]", "</think>", "<|tool_call|>", "<|/tool_call|>"])
    raw.add_tokens(["<tool_call>"])

    class Tokenizer:
        def __init__(self) -> None:
            self.raw = raw

        def id_of(self, token: str) -> int | None:
            return raw.token_to_id(token)  # type: ignore[no-any-return]

    return Constraints(Tokenizer(), raw.get_vocab_size(), (raw.token_to_id("<eos>"),))  # type: ignore[arg-type]


def allowed(constraints: Constraints, constraint: Constraint, text: str) -> str:
    """ "whole" where the text may end here, "begin" where it may go on, else the part that is allowed."""
    matcher = constraints.matcher(constraint)
    ids = constraints._tokenizer.raw.encode(text, add_special_tokens=False).ids  # type: ignore[union-attr]
    for place, token in enumerate(ids):
        if not matcher.allowed()[token >> 5] >> (token & 31) & 1:
            return str(constraints._tokenizer.raw.decode(ids[:place], skip_special_tokens=False))  # type: ignore[union-attr]
        if matcher.add(token):
            return "whole" if place == len(ids) - 1 else "more than whole"
    end = constraints._end_tokens[0]
    return "whole" if matcher.allowed()[end >> 5] >> (end & 31) & 1 else "begin"


def tools_of(choice: Any = "auto", strict: tuple[str, ...] = (), **more: Any) -> Tools:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema, "strict": name in strict}}
        for name, schema in FUNCTIONS.items()
    ]
    return read_tools(Fields({"tools": tools, "tool_choice": choice, **more}))


def call(name: str, arguments: str, key: str = "arguments") -> str:
    return f'{{"name": "{name}", "{key}": {arguments}}}'


F, G, TREES = call("f", '{"k": "yes"}'), call("g", '{"k": "other"}'), call("tree", '{"child": {"child": null}}')
PARAMETERS = call("f", '{"k": "yes"}', "parameters")
ID = call("id", '{"k": "no"}')
HERMES_F, HERMES_G = f"<tool_call>\n{F}\n</tool_call>", f"<tool_call>\n{G}\n</tool_call>"
WRITE = (
    "<tool_call>\n<function=write>\n<parameter=path>\na <b>\n</parameter>\n<parameter=lines>\n5\n</parameter>\n"
    "<parameter=mode>\nw\n</parameter>\n</function>\n</tool_call>"
)
CALLS = [  # each is allowed where a call is required
    (HERMES, HERMES_F), (HERMES, f"{HERMES_G}\n{HERMES_F}"), (HERMES, f"<tool_call>\n{TREES}\n</tool_call>"),
    (HERMES, f"<tool_call>\n{ID}\n</tool_call>"), (HERMES, f"<tool_call>{F}</tool_call><tool_call>{G}</tool_call>"),
    (LLAMA3, PARAMETERS), (LLAMA3, f"{PARAMETERS}; {PARAMETERS}"),
    (MISTRAL, f"[TOOL_CALLS][{F}, {TREES}]"),
    (MISTRAL_NAMED, '[TOOL_CALLS]f[ARGS]{"k": "yes"}[TOOL_CALLS]g[ARGS]{"k": "other"}'),
    (PHI, f"functools[{G}, {ID}]"), (PHI, f"<|tool_call|>[{G}, {ID}]<|/tool_call|>"), (QWEN3_CODER, WRITE), (BARE, F),
    (QWEN3_CODER, "<tool_call>\n<function=g>\n<parameter=k>\nother\n</parameter>\n</function>\n</tool_call>"),
    (QWEN3_CODER, "<tool_call>\n<function=tree>\n<parameter=child>\n{\"child\": null}\n</parameter>\n</function>\n"
     "</tool_call>"),
]  # fmt: skip
WRONG = [  # and where it ends to be
    (HERMES, call("f", '{"k": "other"}'), '"k": "'), (HERMES, call("g", '{"k": "yes"}'), '"k": "'),
    (HERMES, call("h", "{}"), '"name": "'), (HERMES, call("tree", '{"child": 5}'), '"child": '),
]  # fmt: skip


@rows(("form", "text"), CALLS)
def test_calls_that_are_required(constraints: Constraints, form: ToolFormat, text: str) -> None:
    required = with_calls(tools_of("required"), form, ANSWER)
    assert required is not None
    assert allowed(constraints, required, text) == "whole"
    assert allowed(constraints, required, '{"k": "yes"}') in ("", "{", '{"')  # the answer is not


@rows(("form", "text"), CALLS)
def test_a_call_or_an_answer(constraints: Constraints, form: ToolFormat, text: str) -> None:
    either = with_calls(tools_of(), form, ANSWER)
    assert either is not None
    assert allowed(constraints, either, text) == "whole"
    assert allowed(constraints, either, '{"k": "yes"}') == "whole"
    assert allowed(constraints, either, '{"k": "other"}') == '{"k": "'
    assert allowed(constraints, either, "Hello") == ""


@rows(("form", "text", "end"), WRONG)
def test_wrong_calls(constraints: Constraints, form: ToolFormat, text: str, end: str) -> None:
    required = with_calls(tools_of("required"), form, None)
    assert required is not None
    assert allowed(constraints, required, f"<tool_call>\n{text}").endswith(end)


def test_one_call(constraints: Constraints) -> None:
    for more in ({"parallel_tool_calls": False}, {"choice": {"type": "function", "function": {"name": "f"}}}):
        one = with_calls(tools_of(**{"choice": "required", **more}), HERMES, None)  # type: ignore[arg-type]
        assert one is not None
        assert allowed(constraints, one, HERMES_F) == "whole"
        assert allowed(constraints, one, f"{HERMES_F}\n{HERMES_F}") == "more than whole"


@rows(("form", "texts", "refused", "end"), [
    (HERMES, ["Hello <b>", f"Hi {HERMES_F}\n{HERMES_G} so"],
     'Hi <tool_call>\n{"name": "f", "arguments": {"k": 5', '"k": '),
    (LLAMA3, ["", "\n", " Hi", "[1, {}]", "["], ' {"name": "f"', " "), (LLAMA3, ["{}"], '[ {"name": "f"', "[ "),
    (LLAMA3, ["Hello", '{"a": 1}', PARAMETERS], '{"name": "f", "parameters": {"k": 5', '"k": '),
    (MISTRAL, ["Hello", f"Hi[TOOL_CALLS][{F}]"], '[TOOL_CALLS][{"name": "f", "arguments": {"k": 5', '"k": '),
    (QWEN3_CODER, ["Hello", f"Hi\n{WRITE}"], WRITE.replace("5", "five"), "<parameter=lines>\n"),
    (QWEN3_CODER, ["Hello", WRITE[11:]], WRITE[11:].replace("5", "five"), "<parameter=lines>\n"),  # without its mark
    (PHI, ["Hello", f"A<|tool_call|>[{F}]<|/tool_call|>functools[{F}]<|tool_call|>[{F}, {G}]<|/tool_call|>"],
     '<|tool_call|>[{"name": "f", "arguments": {"k": 5', '"k": '),
    (PHI, ["import functools", f"functools[{F}]"], 'functools[{"name": "f", "arguments": {"k": 5', '"k": '),
])  # fmt: skip
def test_strict_functions(constraints: Constraints, form: ToolFormat, texts: list[str], refused: str, end: str) -> None:
    strict = with_calls(tools_of(strict=("f",)), form, None)
    assert strict is not None
    for text in texts:
        assert allowed(constraints, strict, text) == "whole"
    assert allowed(constraints, strict, refused).endswith(end)
    assert with_calls(tools_of(), form, None) is None


def test_after_reasoning(constraints: Constraints) -> None:
    begun = after_reasoning(ANSWER, MARKS[0], begun=True)
    free = after_reasoning(ANSWER, MARKS[0], begun=False)
    assert allowed(constraints, begun, '{ hm </think>\n\n{"k": "no"}') == "whole"
    assert allowed(constraints, begun, '{"k": "no"}') == "begin"
    assert allowed(constraints, begun, "hm </think>" + "\n" * 9).endswith("</think>" + "\n" * 8)
    assert allowed(constraints, free, '<think> hm </think>{"k": "no"}') == "whole"
    assert allowed(constraints, free, '{"k": "no"}') == "whole"
    assert allowed(constraints, free, "hm") == ""


STRING, NULL, MARK = {"type": "string"}, {"type": "null"}, "</parameter>"
VALUES: list[tuple[dict[str, Any], bool, str, str | None]] = [  # the argument in XML, and as JSON; None: refused
    (STRING, True, 'a "b"', r'"a \"b\""'), (STRING, True, '"b"', r'"\"b\""'),
    ({**STRING, "enum": ["m", ""]}, True, "m", '"m"'), ({**STRING, "enum": ["m", ""]}, True, "", '""'),
    ({**STRING, "enum": ["m"]}, True, '"m"', None),
    ({"anyOf": [{**STRING, "enum": ["m"]}, NULL]}, False, '"m"', '"m"'),
    ({"anyOf": [STRING, NULL]}, True, "null", "null"), ({"anyOf": [STRING, NULL]}, True, '"null"', '"null"'),
    ({"anyOf": [STRING, NULL]}, True, "m", None), ({"type": ["string", "integer"]}, True, '"5"', '"5"'),
    ({}, True, '"m"', '"m"'), ({}, True, "5", "5"), ({"enum": ["m", 1]}, True, '"m"', '"m"'),
    ({"anyOf": [{"$ref": "#/$defs/M"}, NULL]}, True, '"m"', '"m"'), ({"allOf": [STRING]}, True, '"m"', '"m"'),
    ({"$ref": "#/$defs/M"}, True, "m", '"m"'), ({"$ref": "#/$defs/M"}, True, "n", None),
    ({**STRING, "pattern": "^a+$"}, True, '"aa"', '"aa"'), ({**STRING, "pattern": "^a+$"}, True, '"b"', None),
    ({**STRING, "pattern": "^a+$"}, False, "b", '"b"'), ({**STRING, "maxLength": 2}, True, '"ab"', '"ab"'),
    ({**STRING, "maxLength": 2}, True, '"abc"', None), ({**STRING, "minLength": 2}, True, '"a"', None),
    ({**STRING, "format": "date"}, True, '"2020-01-31"', '"2020-01-31"'),
    ({**STRING, "format": "date"}, True, '"January"', None),
    ({"anyOf": [{**STRING, "const": "a"}, {**STRING, "const": "b"}]}, True, '"b"', '"b"'),
    ({"anyOf": [{**STRING, "const": "a"}, {**STRING, "const": "b"}]}, True, "c", None),
    ({**STRING, "enum": [MARK, "m"]}, True, f'"{MARK}"', f'"{MARK}"'),
    ({**STRING, "enum": [MARK, "m"]}, False, "m", '"m"'),
    ({"type": "array", "items": STRING}, True, f'["{MARK}, {MARK}", "m"]', f'["{MARK}, {MARK}", "m"]'),
    (STRING, True, f"a{MARK}b", None),
]  # fmt: skip


def xml(key: str, value: str) -> str:
    return f"<tool_call>\n<function=f>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>"


def tools_with(schema: dict[str, Any], strict: bool = True) -> Tools:
    function = {"name": "f", "parameters": schema, "strict": strict}
    return read_tools(Fields({"tools": [{"type": "function", "function": function}], "tool_choice": "required"}))


def arguments_of(text: str, tools: Tools, cut: int) -> list[str]:
    parser, message = ToolCallParser(QWEN3_CODER, tools.schemas, tools.most, tools.strict), Message()
    pieces = [text[place : place + cut] for place in range(0, len(text), cut)]
    for piece in [found for each in pieces for found in parser.add(each)] + parser.finish():
        message.add(piece)
    return [call.arguments for call in message.calls]


@rows(("schema", "strict", "value", "argument"), VALUES)
def test_values_in_xml(
    constraints: Constraints, schema: dict[str, Any], strict: bool, value: str, argument: str | None
) -> None:
    """What the grammar allows is read as a value of the schema."""
    whole = {"type": "object", "properties": {"k": schema}, "required": ["k"], "$defs": {"M": {"enum": ["m"]}}}
    tools = tools_with(whole, strict)
    required = with_calls(tools, QWEN3_CODER, None)
    assert required is not None
    assert (allowed(constraints, required, xml("k", value)) == "whole") == (argument is not None)
    if argument is not None:
        for cut in (1, 3, 1000):
            assert arguments_of(xml("k", value), tools, cut) == [f'{{"k": {argument}}}']


OBJECT = {"type": "object", "properties": {"k": STRING}}


@rows(("schema", "place"), [
    ({**OBJECT, "anyOf": [{"required": ["k"]}]}, "'anyOf'.* #"), ({**OBJECT, "allOf": [OBJECT]}, "'allOf'.* #"),
    ({"$ref": "#/$defs/M", "$defs": {"M": {**OBJECT, "oneOf": [OBJECT]}}}, "'oneOf'.* #/.defs/M"),
    ({**OBJECT, "$ref": "#/$defs/M", "$defs": {"M": OBJECT}}, "'.ref'.* #"),
    ({**OBJECT, "minProperties": 1}, "'minProperties'.* #"), ({**OBJECT, "required": ["z"]}, "'required'.* #.*z"),
    ({**OBJECT, "properties": {"a>b": STRING}}, "'properties'.* #.*a>b"),
])  # fmt: skip
def test_what_xml_cannot_hold(constraints: Constraints, schema: dict[str, Any], place: str) -> None:
    words = f"(?s){place.split('.*')[0]} of JSON schema is not supported in calls of the format qwen3_coder.*'f', tools"
    with pytest.raises(ServeError, match=words + ".*" + place.split(".*", 1)[1]):
        with_calls(tools_with(schema), QWEN3_CODER, None)
    loose = with_calls(tools_with(schema, strict=False), QWEN3_CODER, None)
    assert loose is not None
    assert allowed(constraints, loose, "<tool_call>\n<function=f>\n</function>\n</tool_call>") == "whole"


def test_properties_of_a_reference(constraints: Constraints) -> None:
    schema = {"$ref": "#/$defs/M", "$defs": {"M": {**OBJECT, "required": ["k"]}}}
    required = with_calls(tools_with(schema), QWEN3_CODER, None)
    assert required is not None
    assert allowed(constraints, required, xml("k", "m")) == "whole"
    assert allowed(constraints, required, "<tool_call>\n<function=f>\n</function>").endswith("<function=f>\n<")


LACKS: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}


def test_parts_of_a_schema_are_not_the_whole(constraints: Constraints) -> None:
    """Each argument of a call in XML has a grammar of its own, which repeats the schema only if it refers to it."""
    properties = {f"p{index}": {"type": "integer"} for index in range(100)}
    for more in ({}, {"last": {"$ref": "#/properties/p0"}}):
        tools = read_tools(Fields({"tools": [{"type": "function", "function": {
            "name": "f", "parameters": {"type": "object", "properties": {**properties, **more}}}}],
            "tool_choice": "required"}))  # fmt: skip
        required = with_calls(tools, QWEN3_CODER, None)
        assert required is not None and len(required.parts) == 100 + len(more)
        sizes = [len(str(part.value)) for part in required.parts.values()]
        assert max(sizes[:100]) < 30 and (not more or sizes[100] > 2000)
        constraints.matcher(required)
    every = {name: {"$ref": "#/$defs/a"} for name in properties}
    tools = read_tools(Fields({"tools": [{"type": "function", "function": {
        "name": "f", "parameters": {"type": "object", "$defs": {"a": {"type": "integer"}}, "properties": every}}}],
        "tool_choice": "required"}))  # fmt: skip
    required = with_calls(tools, QWEN3_CODER, None)
    assert required is not None
    with pytest.raises(ServeError, match="the grammar of a text is too long"):
        constraints.matcher(required)


def test_properties_that_are_not_an_object(constraints: Constraints) -> None:
    function = {"name": "f", "parameters": {"properties": 5}}
    tools = read_tools(Fields({"tools": [{"type": "function", "function": function}], "tool_choice": "required"}))
    required = with_calls(tools, HERMES, None)
    assert required is not None
    with pytest.raises(ServeError, match="properties must be an object"):
        constraints.matcher(required)


@rows(("schema", "words"), [
    (LACKS, "'uniqueItems' of JSON schema is not supported.*'f', tools.0..function.parameters #/properties/a.*strict"),
    ({"type": "object", "not": {"required": ["a"]}}, "'not' of JSON schema is not supported"),
    ({"type": "object", "properties": {"a": {"format": "idn-email"}}}, "'format'.*#/properties/a"),
    ({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?!a)b"}}}, "'pattern'"),
])  # fmt: skip
def test_what_is_lacking(constraints: Constraints, schema: dict[str, Any], words: str) -> None:
    for strict in (True, False):
        function = {"name": "f", "parameters": schema, "strict": strict}
        tools = read_tools(Fields({"tools": [{"type": "function", "function": function}], "tool_choice": "required"}))
        required = with_calls(tools, HERMES, None)
        assert required is not None
        if strict:
            with pytest.raises(ServeError, match=f"(?s){words}"):
                constraints.matcher(required)
        else:
            assert allowed(constraints, required, '<tool_call>\n{"name": "f", "arguments": {') == "begin"
