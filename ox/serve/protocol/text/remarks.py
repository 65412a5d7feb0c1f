"""What a response says about parameters of its request that change nothing."""

from __future__ import annotations

import re

HEADER = b"ox-warning"
MOST = 8  # names in a header
LONGEST = 60  # characters of one of them
UNSAFE = re.compile(r"[^A-Za-z0-9_.\[\]-]")  # what could end a header line, or be taken for something else in it


class Remarks:
    """The parameters of one request that change nothing: unknown ones, and known ones without an effect.

    Attributes:
        unknown: how many unknown ones there are.
    """

    __slots__ = ("_first", "_unused", "unknown")

    def __init__(self) -> None:
        self.unknown = 0
        self._first: list[tuple[str, str | None]] = []
        self._unused: list[str] = []

    def add_unknown(self, name: str, hint: str | None) -> None:
        """An unknown parameter.

        Args:
            name: as the client wrote it.
            hint: what it may have meant.
        """
        self.unknown += 1
        if len(self._first) < MOST:
            self._first.append((name, hint))

    def add_unused(self, name: str) -> None:
        """A parameter, or one of its values, that is known and has no effect on this model."""
        self._unused.append(name)

    @property
    def first_unknown(self) -> tuple[str, str | None] | None:
        """The first unknown parameter, and what it may have meant."""
        return self._first[0] if self._first else None

    def header(self) -> bytes:
        """The header line with its CRLF: names alone, never values; b"" where there is nothing to say."""
        if not (self.unknown or self._unused):
            return b""
        said = []
        if self._unused:
            said.append("unused=" + _listed([_safe(name) for name in self._unused[:MOST]], len(self._unused)))
        if self.unknown:
            names = [_safe(name) + (f" (try {_safe(hint)})" if hint else "") for name, hint in self._first]
            said.append("unknown=" + _listed(names, self.unknown))
        return b"%b: %b\r\n" % (HEADER, "; ".join(said).encode())


def _safe(name: str) -> str:
    return UNSAFE.sub("?", name.strip("'")[:LONGEST])


def _listed(names: list[str], count: int) -> str:
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return ", ".join(names) + more
