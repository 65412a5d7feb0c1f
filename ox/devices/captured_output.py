"""What libraries print to this process's standard output and error, kept from the terminal."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def captured_output() -> Iterator[list[str]]:
    """Lines that are printed meanwhile, by Python or by C, in a list that is filled at the end.

    Of the whole process: not for programs whose other threads print.
    """
    lines: list[str] = []
    with tempfile.TemporaryFile() as file, io.StringIO() as text, contextlib.redirect_stdout(text):
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is not None:
                stream.flush()
        kept = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            yield lines
        finally:
            for number, copy in enumerate(kept, 1):
                os.dup2(copy, number)
                os.close(copy)
            file.seek(0)
            lines += text.getvalue().splitlines() + file.read().decode(errors="replace").splitlines()
