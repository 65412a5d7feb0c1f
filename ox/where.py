"""Which line of the user's code made a call: for errors, for recorded nodes, for in-place writes."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from itertools import pairwise
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY = ("<frozen ", f"{os.sep}contextlib.py", f"{os.sep}functools.py", f"{os.sep}multiprocessing{os.sep}")


def _between() -> tuple[str, ...]:
    """The folders of what lies between the user's line and ox, or the shell and that line, as far as it is loaded."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in ("ox_cli", "typer", "click", "einops"))
    return (_HERE, *(os.path.dirname(os.path.abspath(file)) + os.sep for file in files if file))


def _is_ours(name: str, folders: tuple[str, ...]) -> bool:
    if name.startswith(folders) or any(mark in name for mark in _LIBRARY):
        return True
    return os.path.basename(name) in ("ox", "ox.exe") and name == sys.argv[0]  # the installed command


_ours: dict[str, bool] = {}  # by file: judged once, when its code runs, for writes in place ask at every call


def users_place(depth: int = 1) -> tuple[str, int] | None:
    """File and line of the innermost frame outside ox; None when there is none."""
    frame: Any = sys._getframe(depth)
    while frame is not None:
        name = frame.f_code.co_filename
        ours = _ours.get(name)
        if ours is None:
            ours = _ours[name] = _is_ours(name, _between())
        if not ours:
            return name, frame.f_lineno
        frame = frame.f_back
    return None


def line_at(place: tuple[str, int] | None) -> str:
    """``train.py:31   x = self.fc1(x)`` for what `users_place` gave; empty for None."""
    if place is None:
        return ""
    name, line = place
    return f"{os.path.basename(name)}:{line}   {linecache.getline(name, line).strip()}".rstrip()


def users_line(depth: int = 1) -> str:
    """``train.py:31   x = self.fc1(x)``: the innermost frame outside ox, or an empty string when there is none."""
    return line_at(users_place(depth + 1))


def line_of(function: Any) -> str:
    """``train.py:12   def backward(ctx, g):``: where a function was written."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return getattr(function, "__qualname__", str(function))
    line = code.co_firstlineno
    while linecache.getline(code.co_filename, line).lstrip().startswith("@"):
        line += 1
    text = linecache.getline(code.co_filename, line).strip()
    return f"{os.path.basename(code.co_filename)}:{line}   {text}".rstrip()


def module_path(modules: tuple[Any, ...]) -> str:
    """``LeNet.head.fc1 (Linear)`` for the modules that are running, outermost first; empty when there are none."""
    if not modules:
        return ""
    parts = [type(modules[0]).__name__]
    for parent, child in pairwise(modules):
        name = next((n for n, m in parent.named_modules() if m is child and n), None)
        if name is not None:
            parts.append(name)
    last = type(modules[-1]).__name__
    return ".".join(parts) + (f" ({last})" if len(modules) > 1 else "")
