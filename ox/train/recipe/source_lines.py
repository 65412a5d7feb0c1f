"""Lines of a recipe file, for errors."""

from __future__ import annotations

import linecache
import os
import traceback
from pathlib import Path
from types import CodeType
from typing import Any


def compiled(text: str, path: Path) -> CodeType:
    """The code of a recipe. Errors show the lines of this text, also where Python has read another file of that name
    (in another working directory). Raises SyntaxError."""
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    return compile(text, str(path), "exec", dont_inherit=True)


def error_line(error: Exception, path: Path, function: Any = None) -> str:
    """The line of the recipe file that failed; the definition of a function that could not be called."""
    if isinstance(error, SyntaxError):
        return f"{path.name}:{error.lineno}   {(error.text or '').strip()}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in (str(path), os.path.abspath(path))]
    if frames:
        return f"{path.name}:{frames[-1].lineno}   {frames[-1].line}"
    return definition(function) or path.name


def definition(function: Any) -> str | None:
    """The line of a function definition; None for other objects."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    line = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}   {line}"
