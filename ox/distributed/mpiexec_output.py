"""Filters the output of mpiexec: removes the banner that MPICH prints when a rank fails. The line with the rank
stays."""

from __future__ import annotations

import os
from contextlib import suppress

RULE = b"=" * 20
HEADING = b"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
EPILOGUE = (
    b"YOUR APPLICATION TERMINATED WITH THE EXIT STRING",
    b"This typically refers to a problem with your application.",
    b"Please see the FAQ page for debugging suggestions",
)


def copy_without_banner(source: int, target: int) -> None:
    """Copies one file descriptor to another until end of file. Text that cannot belong to a banner is copied
    immediately, also parts of lines, so that progress bars move."""
    banner = Banner()
    with suppress(OSError):  # the reader has closed its end
        while data := os.read(source, 1 << 16):
            _write(target, banner.filter(data))
        _write(target, banner.end())


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


class Banner:
    """Removes banners from a stream of bytes."""

    def __init__(self) -> None:
        self._line = b""  # the part of the current line that is not yet shown
        self._line_shown = False  # whether the beginning of this line is already shown
        self._rule = b""  # a line of ====, which may be the first of a banner
        self._inside = False

    def filter(self, data: bytes) -> bytes:
        """The bytes to show now: of `data` and of earlier data that was delayed."""
        shown = b""
        *lines, last = data.split(b"\n")
        for line in lines:
            shown += self._complete_line(self._line + line + b"\n")
            self._line, self._line_shown = b"", False
        self._line += last
        if self._line and not self._rule and not self._inside and (self._line_shown or not _may_begin(self._line)):
            shown, self._line, self._line_shown = shown + self._line, b"", True
        return shown

    def end(self) -> bytes:
        """The delayed bytes, at the end of the stream."""
        return self._rule + (b"" if self._inside else self._line)

    def _complete_line(self, line: bytes) -> bytes:
        if self._line_shown:
            return line
        text = _without_label(line)
        if self._inside:
            self._inside = not text.startswith(RULE)
            return b""
        if self._rule:
            held, self._rule = self._rule, b""
            self._inside = text.startswith(HEADING)
            return b"" if self._inside else held + self._complete_line(line)
        if text.startswith(RULE):
            self._rule = line
            return b""
        return b"" if text.startswith(EPILOGUE) else line


def _without_label(line: bytes) -> bytes:
    """A line without its label ``[rank]``."""
    return line.partition(b"] ")[2] if line.startswith(b"[") and line[1:2].isdigit() else line


def _may_begin(part: bytes) -> bool:
    """Whether this can be the beginning of a line of a banner."""
    return any(whole.startswith(part[: len(whole)]) for whole in (RULE, *EPILOGUE))
