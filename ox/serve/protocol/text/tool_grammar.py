"""What a text may be where a model must or may call tools: grammars of calls in the formats of models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ox.serve.generation.grammar import LarkPart, Mark, Part, Until, quoted
from ox.serve.generation.json_schema import References, as_reference, moved
from ox.serve.generation.request import Constraint
from ox.serve.protocol.text.messages import Tools
from ox.serve.protocol.text.reasoning import ReasoningMarks
from ox.serve.protocol.text.tool_formats import BARE, PHI, QWEN3_CODER, ToolFormat
from ox.serve.protocol.text.xml_call import END_FUNCTION, FUNCTION, PARAMETER
from ox.serve.protocol.text.xml_values import END_PARAMETER, check_strict, is_verbatim, is_writable

Source = list[LarkPart]
_SPACES = r"[ \t\r\n]*"
# Neither an object nor a list of objects, which the parser reads as calls without a mark.
_NO_CALL = rf"{_SPACES}[^{{\[ \t\r\n](.|\n)*|{_SPACES}\[({_SPACES}[^{{ \t\r\n](.|\n)*)?|[ \t\r\n]+"
_NAMELESS = {"type": "object", "properties": {"name": False}}


def call_schema(offered: Mapping[str, Mapping[str, Any]], key: str = "arguments") -> dict[str, Any]:
    """The JSON schema of a call of one of these functions.

    Args:
        offered: the schemas of arguments, by the names of the functions.
        key: the name of the arguments in the call.
    """
    calls, definitions = list[dict[str, Any]](), {}
    for number, (name, schema) in enumerate(offered.items()):
        definitions[f"call{number}"] = moved(dict(schema), f"#/$defs/call{number}")
        calls.append({
            "type": "object", "properties": {"name": {"const": name}, key: {"$ref": f"#/$defs/call{number}"}},
            "required": ["name", key], "additionalProperties": False,
        })  # fmt: skip
    return {"anyOf": calls, "$defs": definitions}


def with_calls(tools: Tools, form: ToolFormat | None, answer: Constraint | None) -> Constraint | None:
    """What a text must look like.

    Args:
        tools: that may be called.
        form: how the model writes calls; None if that is not known.
        answer: what it must look like where the model does not call; None for any text.

    Returns:
        calls, where one is required; calls or the answer; or any text in which the calls of strict functions have
        arguments of their schemas. None for any text.

    Raises:
        ServeError: the format of calls cannot express the schema of a strict function (400).
    """
    if not tools.schemas or (not tools.required and form is None):
        return answer
    form = form or BARE
    if not tools.required and answer is None and not tools.strict:
        return None
    call, parts = _call(form, tools)
    joint = {"llama3": '"; "', "hermes": '"\\n"?', "qwen3_coder": '"\\n"?'}.get(form.name, "")
    calls = Source()
    for begin, end in _around(form):
        calls += [" | " if calls else "", *begin, " call "]
        if tools.most is None and form is not BARE:
            comma = '", "' if form.listed else joint
            again: Source = [] if form.listed else [*begin]
            close: Source = [] if form.listed else [*end]
            calls += [*close, f" ({comma} ", *again, " call ", *close, ")*", *(end if form.listed else [])]
        else:
            calls += [*end]
    source: Source = ["start: calls"]
    if not tools.required and answer is not None:
        source.append(" | answer\nanswer: ")
        source.append(Part("answer"))
        parts["answer"] = answer
    elif not tools.required:
        return _triggered(tools, form, call, parts)
    source += ["\ncalls: ", *calls, "\ncall: ", *call, "\n"]
    return _constraint(tools, source, parts)


def after_reasoning(constraint: Constraint, marks: ReasoningMarks, begun: bool) -> Constraint:
    """The same for a text with reasoning before it.

    Args:
        marks: of the reasoning.
        begun: whether the prompt has begun it; else the text may do so.
    """
    thought: Source = ["(", Until(marks.end), " SPACES?)"] if begun else [
        "(", Mark(marks.begin), " ", Until(marks.end), " SPACES?)?"
    ]  # fmt: skip
    return Constraint(
        "grammar", ["start: ", *thought, " answer\nanswer: ", Part("answer"), "\n"], parts={"answer": constraint}
    )


def _constraint(tools: Tools, source: Source, parts: dict[str, Constraint]) -> Constraint:
    checked = [
        Constraint("json_schema", schema, name in tools.strict, tools.places[name])
        for name, schema in tools.schemas.items()
    ]
    return Constraint("grammar", source, parts=parts, checked=checked)


def _around(form: ToolFormat) -> list[tuple[Source, Source]]:
    """What stands before and after a call, or a list of them: each way that the format has."""
    if form is QWEN3_CODER:  # some models leave the outer marks out
        inner: Source = [Mark(FUNCTION), " "]
        return [([Mark("<tool_call>"), ' "\\n"? ', *inner], [' "\\n"? ', Mark(form.end)]), (inner, [])]
    if form.end == "</tool_call>":
        return [([Mark("<tool_call>"), ' "\\n"? '], [' "\\n"? ', Mark(form.end)])]
    if form.named:
        return [([Mark(form.begins[0])], [])]
    if form.listed:
        close: Source = [' "]" ', Mark(form.end)] if form.end else [' "]"']
        found: list[tuple[Source, Source]] = [([Mark(form.begins[-1]), ' "[" '], close)]
        return found if form is not PHI else [([Mark("functools["), " "], [' "]"']), *found]
    return [([], [])]


def _call(form: ToolFormat, tools: Tools) -> tuple[Source, dict[str, Constraint]]:
    """The source of one call, and its parts."""
    if form is not QWEN3_CODER and not form.named:
        return [Part("call")], {"call": Constraint("json_schema", call_schema(tools.schemas, form.key), strict=False)}
    source, parts = Source(), dict[str, Constraint]()
    for number, (name, schema) in enumerate(tools.schemas.items()):
        source.append(" | " if source else "")
        if form.named:
            source += [quoted(name), " ", Mark("[ARGS]"), " ", Part(f"call{number}")]
            parts[f"call{number}"] = Constraint("json_schema", dict(schema), strict=False)
        else:
            source += _xml(name, tools, number, parts)
    return source, parts


def _xml(name: str, tools: Tools, number: int, parts: dict[str, Constraint]) -> Source:
    """One function's call; its arguments in the order of the schema."""
    schema, strict = tools.schemas[name], name in tools.strict
    references = References(schema)
    if strict:
        check_strict(references, schema, tools.places[name])
    definitions = {"call": moved(schema, "#/$defs/call")}
    source: Source = [quoted(f"{name}>\n"), " "]
    required = references.required
    for place, (key, part) in enumerate(references.properties.items()):
        if not is_writable(key) or part is False:
            continue
        value = f"call{number}_{place}"
        source += ["(", quoted(f"{PARAMETER}{key}>\n"), " "]
        if is_verbatim(references, key, strict):
            choices = [each for each in references.chooses(key) if END_PARAMETER not in each]
            if choices:
                source += ["(", " | ".join(map(quoted, choices)), ") ", quoted(f"\n{END_PARAMETER}\n")]
            else:  # the first such mark ends the text, also inside of a line
                source += [Until(END_PARAMETER), ' "\\n"']
        else:
            if '"$' in json.dumps(part):  # it refers to others, so that it needs the whole schema
                part = {"$ref": as_reference(f"#/$defs/call{references.pointer_to(part)[1:]}"), "$defs": definitions}
            parts[value] = Constraint("json_schema", part, strict=False)
            source += [Part(value), " ", quoted(f"\n{END_PARAMETER}\n")]
        source.append(") " if key in required else ")? ")
    return [*source, quoted(END_FUNCTION)]


def _triggered(tools: Tools, form: ToolFormat, call: Source, parts: dict[str, Constraint]) -> Constraint:
    """Any text, in which a mark is followed by a call."""
    around = _around(form)
    if not around[0][0]:  # of Llama 3: a text that begins as a call is one
        rest: Source = [' ("; " call)*'] if tools.most is None else []
        parts["nameless"] = Constraint("json_schema", _NAMELESS)
        nameless = Part("nameless")
        source: Source = ["start: (call", *rest, ") | NO_CALL? | ", nameless, f"\nNO_CALL: /{_NO_CALL}/\n"]
    else:
        hits = Source()
        for (mark, *others), end in around:
            assert isinstance(mark, Mark)
            trigger = Until(mark.text)
            comma = ' (", " call)*' if form.listed and tools.most is None else ""
            hits += [" | " if hits else "", trigger, " ", *others, f" call{comma} "]
            hits += end
        source = ["start: hit* ANY_TEXT\n"] if tools.most is None else ["start: hit | ANY_TEXT\n"]
        source += ["hit: ", *hits, "\n"]
    return _constraint(tools, [*source, "call: ", *call, "\n"], parts)
