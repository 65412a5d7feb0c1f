"""Which line of the user's code made a call: for errors, for recorded nodes, for in-place writes."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import sysconfig
from itertools import chain, pairwise
from typing import Any

_OX = os.path.join(os.path.dirname(os.path.abspath(sys.modules["ox"].__file__ or "")), "")
_PYTHON = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")})
_EVENT_LOOP = f"{os.sep}asyncio{os.sep}"
_SERVER = os.path.join(_OX, "serve", "transport", "event_loop.py")  # runs uvloop, which has no Python frames


def _libraries() -> tuple[str, ...]:
    """The folders of what lies between the user's line and ox, or the shell and that line, as far as it is loaded."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in ("ox_cli", "typer", "click", "einops"))
    return (_OX, *(os.path.dirname(os.path.abspath(file)) + os.sep for file in files if file))


def _is_users(name: str) -> bool | None:
    """Whether the code of this file is the user's; None for an event loop, whose callbacks no line of theirs called."""
    if name == _SERVER:
        return None
    if name.startswith(("<frozen ", *_libraries())):
        return False
    if name.startswith(_PYTHON) and not {"site-packages", "dist-packages"} & set(name.split(os.sep)):
        return None if _EVENT_LOOP in name else False
    return os.path.basename(name) not in ("ox", "ox.exe") or name != os.path.abspath(sys.argv[0])  # the command


_judged: dict[str, bool | None] = {}  # by file: once, when its code runs, for writes in place ask at every call


def is_users_file(file: str) -> bool:
    """Whether the code of this file is neither ox's nor of Python's library."""
    try:
        return bool(_judged[file])
    except KeyError:
        users = _judged[file] = _is_users(file)
        return bool(users)


def is_ox(file: str) -> bool:
    """Whether it is a file of ox."""
    return file.startswith(_OX)


def _is_generated(code: Any) -> bool:
    """Whether code without a file is nobody's text: a method that `dataclass` or `namedtuple` made, or the line that
    starts a process of `multiprocessing`."""
    if code.co_name != "<module>":
        return bool(code.co_name.startswith("__") and code.co_name.endswith("__"))
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and bool(processes.parent_process())


def users_place() -> tuple[str, int] | None:
    """File and line of the innermost frame outside ox and Python's library; None when there is none, or an event loop
    lies between."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        try:
            users = _judged[name]
        except KeyError:
            users = _judged[name] = _is_users(name)
        if users and not (name == "<string>" and _is_generated(frame.f_code)):
            return name, frame.f_lineno
        if users is None:
            return None
        frame = frame.f_back
    return None


def line_at(place: tuple[str, int] | None) -> str:
    """``train.py:31   x = self.fc1(x)`` for what `users_place` gave; empty for None."""
    if place is None:
        return ""
    name, line = place
    return f"{os.path.basename(name)}:{line}   {linecache.getline(name, line).strip()}".rstrip()


def users_line() -> str:
    """``train.py:31   x = self.fc1(x)``: the innermost frame outside ox, or an empty string when there is none."""
    return line_at(users_place())


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
        below = chain(parent.named_children(), parent.named_modules())  # most call a child, which is found at once
        name = next((n for n, m in below if m is child and n), None)
        if name is not None:
            parts.append(name)
    last = type(modules[-1]).__name__
    return ".".join(parts) + (f" ({last})" if len(modules) > 1 else "")
