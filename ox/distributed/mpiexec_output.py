"""What mpiexec prints, without the banner that MPICH puts before the one line that says which rank ended, and how."""

from __future__ import annotations

import os
from contextlib import suppress

RULE = b"=" * 20
BEGINNING = b"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
AFTERWARDS = (
    b"YOUR APPLICATION TERMINATED WITH THE EXIT STRING",
    b"This typically refers to a problem with your application.",
    b"Please see the FAQ page for debugging suggestions",
)


def without_banner(source: int, target: int) -> None:
    """Copy one file descriptor to another until it ends. What cannot be part of a banner goes on at once, also in the
    middle of a line: a bar that moves does move."""
    banner = Banner()
    with suppress(OSError):  # nobody reads any more
        while data := os.read(source, 1 << 16):
            _write(target, banner.rest(data))
        _write(target, banner.end())


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


class Banner:
    """Takes a banner out of what comes, piece by piece."""

    def __init__(self) -> None:
        self._line = b""  # what has come of a line and is held back
        self._passed = False  # whether the beginning of this line went on already
        self._held = b""  # a rule, which may begin a banner
        self._inside = False

    def rest(self, data: bytes) -> bytes:
        """What may be shown of `data`, and of what was held back before."""
        shown = b""
        *lines, last = data.split(b"\n")
        for line in lines:
            shown += self._whole(self._line + line + b"\n")
            self._line, self._passed = b"", False
        self._line += last
        if self._line and not self._held and not self._inside and (self._passed or not _may_begin(self._line)):
            shown, self._line, self._passed = shown + self._line, b"", True
        return shown

    def end(self) -> bytes:
        """What is left."""
        return self._held + (b"" if self._inside else self._line)

    def _whole(self, line: bytes) -> bytes:
        if self._passed:
            return line
        text = _unlabelled(line)
        if self._inside:
            self._inside = not text.startswith(RULE)
            return b""
        if self._held:
            held, self._held = self._held, b""
            self._inside = text.startswith(BEGINNING)
            return b"" if self._inside else held + self._whole(line)
        if text.startswith(RULE):
            self._held = line
            return b""
        return b"" if text.startswith(AFTERWARDS) else line


def _unlabelled(line: bytes) -> bytes:
    """A line without the number of its rank."""
    return line.partition(b"] ")[2] if line.startswith(b"[") and line[1:2].isdigit() else line


def _may_begin(part: bytes) -> bool:
    """Whether a line that begins so may be of a banner."""
    return any(whole.startswith(part[: len(whole)]) for whole in (RULE, *AFTERWARDS))
