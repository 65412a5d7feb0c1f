"""The parameters of a request, read one by one, with errors that name them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ox.errors import ServeError
from ox.serve.protocol.text.remarks import MOST, Remarks
from ox.serve.protocol.v2.document import nearest, quote

P = ParamSpec("P")
R = TypeVar("R")
ALIKE = 0.75  # difflib's ratio; with less, "input" is like "min_p"


class ParameterError(ServeError):
    """A parameter of a request is wrong; `param` is its name, `code` a word for programs."""

    def __init__(self, param: str, what: str, *, code: str | None = None, status: int = 400, **fields: Any) -> None:
        super().__init__(what, status=status, **fields)
        self.param, self.code = param, code


class Fields:
    """Reads an object of a request. A value of null is the same as none. All methods raise ParameterError.

    Args:
        document: the object.
        prefix: before the names, for objects inside of others.
        names: of a request in another dialect, the client's names by those of the document, for errors; "tools[].a" is
            a field of each object of a list.
        remarks: collects the unknown parameters; None for a new collection.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        prefix: str = "",
        names: Mapping[str, str] | None = None,
        remarks: Remarks | None = None,
    ) -> None:
        self._left = {name: value for name, value in document.items() if value is not None}
        self._prefix, self._names, self._read = prefix, names or {}, set[str]()
        self.remarks = Remarks() if remarks is None else remarks

    def __contains__(self, name: str) -> bool:
        """Whether there is such a parameter, which nobody has read."""
        return name in self._left

    def has_any(self, names: frozenset[str]) -> bool:
        """Whether one of these is there, and nobody has read it."""
        return not names.isdisjoint(self._left)

    def peek(self, name: str) -> Any:
        """A value that stays to be read; None without it."""
        return self._left.get(name)

    def left(self) -> list[str]:
        """The names of those that nobody has read."""
        return list(self._left)

    def inside(self, name: str) -> Fields | None:
        """The fields of a parameter that is an object; None without it."""
        value = self.object(name)
        return None if value is None else Fields(value, self.shown(name) + ".", remarks=self.remarks)

    def shown(self, name: str) -> str:
        """The client's name of a parameter, or of a field in a list, such as `tools[0].function.name`."""
        for ours, theirs in self._names.items():
            outer, mark, inner = ours.partition("[]")
            match = re.match(rf"{re.escape(outer)}(\[\d+\]){re.escape(inner)}\b", name) if mark else None
            if match is not None:
                return self._prefix + theirs.replace("[]", match[1], 1) + name[match.end() :]
        return self._prefix + self._names.get(name, name)

    def take(self, name: str, default: Any = None) -> Any:
        """Any value."""
        self._read.add(name)
        return self._left.pop(name, default)

    def required(self, name: str) -> None:
        """Raises ParameterError if there is no such parameter; does not read it."""
        if name not in self._left:
            name = self.shown(name)
            raise ParameterError(name, f"Missing required parameter: '{name}'", code="missing_required_parameter")

    def wrong(self, name: str, expected: str, value: Any) -> ParameterError:
        return wrong(self.shown(name), expected, value)

    def number(self, name: str, low: float, high: float, default: float, above: bool = False) -> float:
        """A number from `low`, or above it, to `high`; where there is none, `default`."""
        value = self.take(name)
        if value is None:
            return default
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not good or not low <= value <= high or (above and value == low):
            most = f" to {high:g}" if math.isfinite(high) else ""
            raise self.wrong(name, f"a number {'above' if above else 'from'} {low:g}{most}", value)
        return float(value)

    def whole(self, name: str, low: int, high: int, default: int | None = None) -> int | None:
        """A whole number from `low` to `high`."""
        value = self.take(name, default)
        if type(value) is float and value.is_integer():  # JSON has one kind of numbers
            value = int(value)
        if value is not None and (type(value) is not int or not low <= value <= high):
            raise self.wrong(name, f"a whole number from {low} to {high}", value)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.take(name, default)
        if type(value) is not bool:
            raise self.wrong(name, "true or false", value)
        return value

    def text(self, name: str, default: str = "") -> str:
        value = self.take(name, default)
        if type(value) is not str:
            raise self.wrong(name, "a string", value)
        return value

    def object(self, name: str) -> dict[str, Any] | None:
        value = self.take(name)
        if value is not None and type(value) is not dict:
            raise self.wrong(name, "an object", value)
        return value

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """A string, or a list of at most `most` of them; none is empty."""
        value = self.take(name, [])
        texts = [value] if isinstance(value, str) else value
        if type(texts) is not list or len(texts) > most or not all(type(text) is str and text for text in texts):
            raise self.wrong(name, f"a string, or a list of at most {most} strings, none of them empty", value)
        return tuple(texts)

    def wholes(self, name: str, most: int, below: int, least: int = 0) -> tuple[int, ...]:
        """A list of `least` to `most` whole numbers from 0 on and below `below`."""
        value = self.take(name, [])
        good = type(value) is list and least <= len(value) <= most
        if not good or not all(type(number) is int and 0 <= number < below for number in value):
            count = f"{least} to {most}" if least else f"at most {most}"
            raise self.wrong(name, f"a list of {count} whole numbers from 0 to {below - 1}", value)
        return tuple(value)

    def only(self, name: str, values: Iterable[Any], why: str = "", hint: str | None = None) -> None:
        """A parameter that has no other values here than these.

        Args:
            why: why another one is refused.
            hint: what to use instead.

        Raises:
            ParameterError: it has another one.
        """
        value, shown = self.take(name), self.shown(name)
        if value is not None and not any(value == each and type(value) is type(each) for each in values):
            raise ParameterError(
                shown, f"'{shown}' is not supported" + (why and f": {why}"), code="unsupported_parameter", hint=hint,
                got=quote(value),
            )  # fmt: skip

    def rest(self) -> dict[str, Any]:
        """All parameters that were not read, for the reader of another dialect; they count as read here."""
        left, self._left = self._left, {}
        return left

    def finish(self, known: Iterable[str] = ()) -> None:
        """What nobody has read becomes a remark, with a name like it; `known` are more names that there are."""
        if self._left:
            names = (*self._read, *known)
            for name in self._left:
                like = self._like(name, names)
                self.remarks.add_unknown(self._prefix + name, like and self.shown(like))

    def remark_unknown(self, name: str, where: str, known: tuple[str, ...]) -> None:
        """Remarks a key of an object at a place of the request; `known` are those that there are."""
        self.remarks.add_unknown(f"{where}.{name}", self._like(name, known))

    def _like(self, name: str, names: tuple[str, ...]) -> str | None:
        # the comparison is slow, and a body has room for a million names
        return _nearest(name[:100], names) if self.remarks.unknown < MOST else None

    def renamed(self, error: ParameterError) -> ParameterError:
        """An error that names a parameter of the document, with the client's name of it; what stands in a list of
        another name has no place there."""
        shown = self.shown(error.param)
        if shown == error.param:
            name = re.split(r"[.\[]", error.param, maxsplit=1)[0]
            if name not in self._names:
                return error
            shown = self.shown(name)
        what = error.what.replace(f"'{error.param}'", f"'{shown}'")
        fields = {"expected": error.expected, "got": error.got, "hint": error.hint, "where": error.where}
        return ParameterError(shown, what, code=error.code, status=error.status, **fields)


def wrong(where: str, expected: str, value: Any) -> ParameterError:
    """An error about a value at a place of a request, such as `messages[0].role`."""
    return ParameterError(where, f"'{where}' is wrong", expected=expected, got=quote(value))


def string_in(document: Mapping[str, Any], name: str, where: str) -> str:
    """A string of an object at a place of a request; raises ParameterError if it has none."""
    value = document.get(name)
    if not isinstance(value, str):
        raise wrong(f"{where}.{name}", "a string", value)
    return value


def renaming(read: Callable[Concatenate[Fields, P], R]) -> Callable[Concatenate[Fields, P], R]:
    """The same reader of a request, whose errors name parameters as the client does."""

    @wraps(read)
    def reading(fields: Fields, /, *arguments: P.args, **named: P.kwargs) -> R:
        try:
            return read(fields, *arguments, **named)
        except ParameterError as error:
            raise fields.renamed(error) from None

    return reading


def refuse_unknown(remarks: Remarks) -> None:
    """Raises ParameterError for the first unknown parameter: what --strict does."""
    if remarks.first_unknown is not None:
        name, like = remarks.first_unknown
        what = f"Unknown parameter: {quote(name)}"
        raise ParameterError(name[:80], what, code="unknown_parameter", hint=like and f"'{like}'")


@lru_cache(256)
def _nearest(name: str, names: tuple[str, ...]) -> str | None:
    like = nearest(name, names, ALIKE)
    return like and like.strip("'")
