"""The parameters of a request, read one by one, with errors that name them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ox.errors import ServeError
from ox.serve.protocol.v2.document import nearest, quote


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
        names: of a request in another dialect, the client's names by those of the document, for errors.
    """

    def __init__(self, document: Mapping[str, Any], prefix: str = "", names: Mapping[str, str] | None = None) -> None:
        self._left = {name: value for name, value in document.items() if value is not None}
        self._prefix, self._names, self._read = prefix, names or {}, set[str]()

    def shown(self, name: str) -> str:
        """The client's name of a parameter."""
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
        name = self.shown(name)
        return ParameterError(name, f"'{name}' is wrong", expected=expected, got=quote(value))

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

    def wholes(self, name: str, most: int, below: int) -> tuple[int, ...]:
        """A list of at most `most` whole numbers from 0 on and below `below`."""
        value = self.take(name, [])
        good = type(value) is list and len(value) <= most
        if not good or not all(type(number) is int and 0 <= number < below for number in value):
            raise self.wrong(name, f"a list of at most {most} whole numbers from 0 to {below - 1}", value)
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

    def finish(self, hint: str | None = None) -> None:
        """Raises ParameterError for the first parameter that nobody has read; the hint is a name like it, or `hint`."""
        for name in self._left:
            shown = quote(self._prefix + name)
            raise ParameterError(
                (self._prefix + name)[:80], f"Unknown parameter: {shown}", code="unknown_parameter",
                hint=nearest(name, self._read) or hint,
            )  # fmt: skip
