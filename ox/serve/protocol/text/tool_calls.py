"""Finds calls of tools in the text of a model, while it comes."""

from __future__ import annotations

import re
import secrets
from collections.abc import Container, Mapping
from typing import Any

from ox.serve.protocol.text.json_call import SPACE, JsonCall
from ox.serve.protocol.text.marks import overlap
from ox.serve.protocol.text.message_parts import CallBegin, CallDelta
from ox.serve.protocol.text.tool_formats import ToolFormat
from ox.serve.protocol.text.xml_call import FUNCTION, XmlCall

MAX_HELD = 1 << 20  # characters that may be a call; more are passed on as text
MISTRAL_MARK, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_NAME = re.compile(r"[\w.:/\-]{0,256}\Z")
_CLOSING = SPACE + "}];,"  # which may stand after a call without a meaning

Found = str | CallBegin | CallDelta


class ToolCallParser:
    """Divides a text into what is shown and calls.

    A call is certain when an offered function is named and its arguments begin; from then on the arguments are passed
    on as they come. Until then it is held, and passed on as text, unchanged, if it turns out not to be a call.

    Args:
        form: how the model writes calls.
        offered: the schemas of arguments, by the names of the functions.
        most: how many calls a text may have; what follows the last one is left out. None for any number.
        strict: the names of functions whose arguments a grammar holds to the schema.

    Attributes:
        complete: whether the last call that there may be is complete.
        broken: whether a call has arguments that are not a JSON object, such as one that the end of the text has cut.
    """

    def __init__(
        self,
        form: ToolFormat,
        offered: Mapping[str, Mapping[str, Any]],
        most: int | None = None,
        strict: Container[str] = (),
    ) -> None:
        self._form, self._offered, self._most, self._strict = form, offered, most, strict
        # the begin of a mark, or spaces that may stand before one
        self._begins = re.compile("|".join([r"\s\Z", *(re.escape(mark[0]) for mark in form.begins)]))
        self._input = ""  # what was not read
        self._raw = ""  # what was read since the last text or call, and may be text
        self._step = self._begin_of_text if form.bare else self._in_text
        self._call: JsonCall | XmlCall | None = None
        self._in_list = self._marked = self._begun = False
        self._calls = 0  # that have begun
        self._found: list[Found] = []
        self.complete = self.broken = False

    def add(self, text: str) -> list[Found]:
        """What is known after more text; texts and parts of arguments are not empty."""
        if self._step == self._in_text and text and not self._input and not self._begins.search(text):
            return [text]
        self._input += text
        self._run()
        return self._taken()

    @property
    def called(self) -> bool:
        """Whether a call has begun."""
        return self._calls > 0

    def finish(self, cut: bool = False) -> list[Found]:
        """What was held, where the text ends; `cut` where the model had not completed it."""
        if self._step == self._name and not cut:
            name, _, rest = self._input.partition(ARGS)
            name = name.partition(CALL_ID)[0].strip()
            if name in self._offered and not rest.strip():
                self._input = ""
                self._call_without_arguments(name)
        if not self.complete:
            begun = self._call is not None and self._pass_on(self._call, self._call.close(), ended=True)
            held = self._raw + self._input
            rest = self._input if self._step == self._after_call else held.strip(_CLOSING)
            if not begun and not (self._calls and self._form.end.startswith(rest)):
                self._show(held)
        self._input = self._raw = ""
        return self._taken()

    def _taken(self) -> list[Found]:
        found, self._found = self._found, []
        return found

    def _run(self) -> None:
        while self._input and not self.complete and self._step():
            pass
        if len(self._raw) + len(self._input) > MAX_HELD and (self._call is None or self._call.name is None):
            self._fail()

    def _show(self, text: str) -> None:
        if not text:
            return
        if self._found and isinstance(self._found[-1], str):
            self._found[-1] += text
        else:
            self._found.append(text)

    def _read(self, count: int) -> None:
        """The next characters belong to what may be a call."""
        self._raw += self._input[:count]
        self._input = self._input[count:]

    def _fail(self) -> bool:
        """What was read is text; so is what comes, up to the next mark."""
        self._show(self._raw)
        self._raw, self._call, self._in_list, self._step = "", None, False, self._in_text
        return True

    def _skip_space(self) -> bool:
        """Whether there is anything else after spaces."""
        self._read(len(self._input) - len(self._input.lstrip(SPACE)))
        return bool(self._input)

    # Each step reads on, and says whether it did: False where it needs more text.

    def _begin_of_text(self) -> bool:
        """Where a call may begin without a mark."""
        if not self._skip_space():
            return False
        if self._input[0] in "{[":
            self._step = self._begin_of_call
            return True
        self._input, self._raw, self._step = self._raw + self._input, "", self._in_text
        return True

    def _in_text(self) -> bool:
        marks = self._form.begins
        places = [(place, mark) for mark in marks if (place := self._input.find(mark)) >= 0]
        if places:
            place, mark = min(places)
            text = self._input[:place].rstrip()
            self._show(text)
            self._input, self._step, self._marked = self._input[len(text) :], self._begin_of_call, True
            self._read(place - len(text))
            if mark != FUNCTION:  # which the call itself begins with
                self._read(len(mark))
            return True
        # spaces before a call are not text, and the last characters may be the begin of a mark
        kept = overlap(self._input, *marks)
        text = self._input[: len(self._input) - kept].rstrip()
        self._show(text)
        self._input = self._input[len(text) :]
        return False

    def _begin_of_call(self) -> bool:
        if not self._skip_space():
            return False
        form, first = self._form, self._input[0]
        if first == "[" and not self._in_list:
            self._in_list = True
            self._read(1)
        elif first == "{":
            self._call, self._step = JsonCall(self._offered, bare=not (self._marked or self._calls)), self._inside
        elif first == "<" and form.end == "</tool_call>":
            self._call, self._step = XmlCall(self._offered, self._strict), self._inside
        elif MISTRAL_MARK in form.begins and not self._in_list:
            self._step = self._name
        else:
            return self._fail()
        return True

    def _name(self) -> bool:
        """The name of Mistral's function, before its arguments: an object, a string of JSON, null or nothing."""
        text = self._input
        places = [place for mark in ("{", ARGS, CALL_ID, MISTRAL_MARK) if (place := text.find(mark)) >= 0]
        if not places:
            kept = overlap(text, ARGS, CALL_ID, MISTRAL_MARK)
            return False if _NAME.match(text[: len(text) - kept].strip()) else self._fail()
        name, rest = text[: min(places)].strip(), text[min(places) :]
        if name not in self._offered:
            return self._fail()
        if rest.startswith(CALL_ID):
            places = [place for mark in ("{", ARGS, MISTRAL_MARK) if (place := rest.find(mark)) >= 0]
            if not places:
                return False
            rest = rest[min(places) :]
        marked = rest.startswith(ARGS)
        value = rest.removeprefix(ARGS).lstrip(SPACE)
        if value.startswith("{") or (marked and value.startswith('"')):
            self._read(len(text) - len(value))
            self._call, self._step = JsonCall(self._offered, name=name), self._inside
        elif value.startswith(MISTRAL_MARK) or (marked and value.startswith("null")):
            self._input = value.removeprefix("null")
            self._call_without_arguments(name)
        elif MISTRAL_MARK.startswith(value) or "null".startswith(value):
            return False
        else:
            return self._fail()
        return True

    def _call_without_arguments(self, name: str) -> None:
        call = JsonCall(self._offered, name=name)
        part, _ = call.add("{}")
        self._pass_on(call, part, ended=True)
        self._step, self.complete = self._after_call, self._calls == self._most

    def _inside(self) -> bool:
        call = self._call
        assert call is not None
        part, count = call.add(self._input)
        self._read(count)
        self._pass_on(call, part, ended=call.state != "reading")
        if call.state == "failed":
            self._read(1 if isinstance(call, XmlCall) else 0)  # of its mark, which is not looked for again
            return self._fail()
        if call.state == "complete":
            self._call, self._step = None, self._after_call
            self.complete = self._calls == self._most
            return True
        return False

    def _pass_on(self, call: JsonCall | XmlCall, part: str, ended: bool) -> bool:
        """A part of a call's arguments, and whether it is the last one. Returns whether the call is certain."""
        if call.name is None:
            return False
        if not self._begun:
            self._found.append(self._begin(call.name))
            self._calls += 1
        if part:
            self._found.append(CallDelta(self._calls - 1, part))
        self._begun, self._raw = not ended, ""
        self.broken |= ended and not call.whole
        return True

    def _begin(self, name: str) -> CallBegin:
        if self._form.id_length is None:
            return CallBegin(self._calls, name)
        return CallBegin(self._calls, name, secrets.token_hex(self._form.id_length)[: self._form.id_length])

    def _after_call(self) -> bool:
        if not self._skip_space():
            return False
        form, first = self._form, self._input[0]
        if self._in_list and first in ",]":
            self._in_list = first == ","
            self._read(1)
            if first == ",":
                self._step = self._begin_of_call
            return True
        if form.end and form.end.startswith(self._input[: len(form.end)]):
            if len(self._input) < len(form.end):
                return False
            self._input, self._raw, self._step = self._input[len(form.end) :], "", self._in_text
            return True
        if first in "}]":  # one too many, which some models write
            self._read(1)
            return True
        if first == ";" and form.bare:
            self._read(1)
            return True
        if first == "{" or (first == "[" and MISTRAL_MARK not in form.begins):
            self._step = self._begin_of_call
            return True
        if form.end == "</tool_call>" and FUNCTION.startswith(self._input[: len(FUNCTION)]):
            if len(self._input) < len(FUNCTION):
                return False
            self._step = self._begin_of_call
            return True
        self._input, self._raw, self._step = self._raw + self._input, "", self._in_text
        return True
