"""Watches a call while it is recorded: which functions it enters, and what it does that a recording cannot repeat."""

from __future__ import annotations

import dis
import gc
import io
import random as python_random
import re
import sys
import warnings
from array import array
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from functools import cache
from itertools import pairwise
from struct import Struct
from types import CodeType, MappingProxyType
from typing import Any

import numpy as np

from ox.call_site import is_ox, is_users_file, line_at, users_line
from ox.compiler.recording.capture import Capture
from ox.compiler.recording.dynamic_access import (
    BY_NAME,
    LIBRARY,
    calls_by_name,
    dynamic_access,
    may_call_by_name,
    unseen_access,
)
from ox.compiler.recording.guard_source import Place, is_library, is_own_code
from ox.compiler.recording.guards import PythonState
from ox.compiler.tensor_facts import NOT_COMPARED, QUESTIONS
from ox.core.tensor import is_tensor
from ox.errors import OxError
from ox.tensors.tensor import Tensor

# functions of C whose effect is lost, or whose result differs, when the call is not made again
EFFECTS = {
    "builtins": {"print", "input", "open", "exec", "eval", "breakpoint"},
    "io": {"open"},
    "_io": {"open"},
    "time": {
        *("time", "perf_counter", "monotonic", "process_time", "thread_time", "time_ns", "perf_counter_ns"),
        *("monotonic_ns", "process_time_ns", "clock_gettime", "localtime", "gmtime", "ctime", "strftime", "sleep"),
    },
    "posix": {
        *("urandom", "getrandom", "write", "system", "mkdir", "remove", "unlink", "rename", "putenv", "unsetenv"),
        *("stat", "lstat", "fstat", "statvfs", "access", "listdir", "scandir", "getcwd", "getcwdb", "readlink"),
        *("chdir", "rmdir", "replace", "link", "symlink", "chmod", "utime", "truncate"),
    },
    "_posixsubprocess": {"fork_exec"},
    "sys": {"getrecursionlimit", "setrecursionlimit", "getswitchinterval"},
    "decimal": {"getcontext", "setcontext", "localcontext"},
}
GRAD = Tensor.grad.fget.__code__  # type: ignore[attr-defined]
ERROR = OxError.__init__.__code__
SETTINGS = {  # of ox; which are set or read
    *("set_default_dtype", "set_default_device", "set_float32_matmul_precision", "set_printoptions"),
    *("get_float32_matmul_precision", "get_num_threads", "initial_seed"),
    *("get_state", "get_rng_state"),
}
STREAM = {"read", "readline", "readlines", "write", "writelines"}
CLOCK = {"now", "utcnow", "today"}
CHANGES = {  # of a deque or bytearray: the comparison of its contents would not know the line
    *("append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "remove", "rotate", "reverse"),
    "clear",
}
# C objects whose methods change nothing, or nothing that the comparison of their contents would not see
COMPARED = (
    *(list, tuple, dict, set, frozenset, deque, bytearray, array, memoryview, MappingProxyType, ContextVar),
    *(np.ndarray, np.generic, np.dtype, np.ufunc, np.random.Generator, np.random.RandomState, np.random.BitGenerator),
    *(type, CodeType, re.Pattern, re.Match, Struct, Decimal, date, time, timedelta, tzinfo),
    BaseException,
)
LOCK = {"__enter__", "__exit__"}  # of locks, which are afterwards as before
# whose sessions and kernels operators make when they first run
RUNTIMES = {"onnx", "onnxruntime", "openvino", "google", "cupy", "cupyx"}
LOGGING = {
    *("debug", "info", "warning", "error", "critical", "log", "exception", "isEnabledFor", "getEffectiveLevel"),
}


@cache
def globals_of(code: CodeType) -> tuple[str, ...]:
    """The names that a function reads or sets as globals."""
    wanted = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
    return tuple({str(i.argval) for i in dis.get_instructions(code) if i.opname in wanted})


def _texts(code: CodeType) -> Iterator[str]:
    """The constants that may name an attribute for `getattr`."""
    return (each for each in code.co_consts if isinstance(each, str))


@cache
def array_reads(code: CodeType) -> tuple[str, ...]:
    """Of what a function reads ``.array``, which no recording sees: names of globals, and "" for anything else. A
    global can be a module, as in ``numpy.array(...)``."""
    found = [""] if "getattr" in code.co_names and "array" in code.co_consts else []
    instructions = [*dis.get_instructions(code)]
    for before, i in pairwise(instructions):
        if i.opname == "LOAD_ATTR" and i.argval == "array":
            found.append(str(before.argval) if before.opname in ("LOAD_GLOBAL", "LOAD_NAME") else "")
    return tuple(found)


@cache
def handed_on(code: CodeType) -> tuple[str, ...]:
    """The functions with an effect that code gives to others, as in ``map(print, texts)``: C calls them unseen."""
    found = [*dis.get_instructions(code)]
    names = [*[i.opname for i in found], ""]
    beside = 1 if sys.version_info >= (3, 13) else -1  # where PUSH_NULL stands when what is loaded is called
    return tuple(
        str(i.argval)
        for n, i in enumerate(found)
        if i.opname == "LOAD_GLOBAL" and i.argval in EFFECTS["builtins"] and not (i.arg or 0) & 1
        if names[n + beside] != "PUSH_NULL"
    )  # fmt: skip


@cache
def catches_errors(code: CodeType) -> bool:
    """Whether a user's function may catch an error: by ``except`` or ``finally``, and not only by ``with``, whose
    context would have to; its ``__exit__`` is such a function."""
    if code.co_qualname == "suppress.__exit__":  # of contextlib
        return True
    if not is_own_code(code.co_filename):  # what operators call has handlers, too
        return False
    if code.co_name == "__exit__":
        return True
    names = [i.opname for i in dis.get_instructions(code)] if code.co_exceptiontable else []
    return any(one == "PUSH_EXC_INFO" and other != "WITH_EXCEPT_START" for one, other in pairwise(names))


class CallWatch:
    """``with CallWatch(state, capture):`` around the call. A profiler of Python that is set already is called as well.

    Attributes:
        names: every name in the code that ran.
        own_names: those in code that is neither ox's nor of Python's library.
        gradients_read: the ids of tensors whose `.grad` was read before the code set it.
        dynamic: what reads attributes by names that stand in no instruction, with its line; empty when nothing does.
        facts: what the code asks tensors besides their shape and type, as `is_leaf`.
        effect: the first thing that cannot be repeated, with its line; None when there was none.
        catches: whether code that ran may catch an error for the values of tensors.
    """

    def __init__(self, state: PythonState, capture: Capture) -> None:
        self.state, self.capture = state, capture
        self.names: set[str] = set()
        self.own_names: set[str] = set()
        self.gradients_read: set[int] = set()
        self.dynamic = ""
        self.facts: set[str] = set()
        self.effect: tuple[str, str] | None = None
        self.catches = False
        self._error: tuple[str, str] | None = None  # like `effect`, for an error that ox raised
        self._codes: set[CodeType] = set()
        self._before: Any = None
        self._random: Any = None
        self._start: Any = None  # the frame that the call is watched from
        self._collector: Any = None  # the frame of a callback of the garbage collector that runs
        self._warning: Any = None  # the function of C that shows a warning now

    def __enter__(self) -> CallWatch:
        self._collectors = {getattr(callback, "__code__", None) for callback in gc.callbacks}
        self._random = _random_states()
        self._before, self._start = sys.getprofile(), sys._getframe(1)
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()
        self._start = None
        if self.effect is None and _random_states() != self._random:
            self.effect = "random numbers of Python or NumPy were drawn", ""
        if self.effect is None and self.catches:
            self.effect = self._error

    def pause(self) -> None:
        """Look at nothing from now on."""
        if self._before is None or callable(self._before):
            sys.setprofile(self._before)
        else:  # of cProfile, an object that `sys.setprofile` does not take
            sys.setprofile(None)
            self._before.enable()

    def go_on(self) -> None:
        """Look at everything again."""
        sys.setprofile(self._event)

    def _event(self, frame: Any, event: str, argument: Any) -> None:
        if callable(self._before):
            self._before(frame, event, argument)
        if frame.f_code in self._collectors and event in ("call", "return"):
            self._collector = frame if event == "call" else None
        elif self._collector is not None:
            return  # the garbage collector may start at any moment: its callbacks are no part of the call
        elif self._warning is not None:  # to show it, Python reads a file and writes
            if event in ("c_return", "c_exception") and argument is self._warning:
                self._warning = None
        elif event == "call":
            code = frame.f_code
            first = code not in self._codes
            if first:
                self._codes.add(code)
                self.names.update(code.co_names, code.co_freevars)
                self.catches = self.catches or catches_errors(code)
            if code is ERROR and self._error is None:
                self._error = "an error is caught, which another call may not raise", users_line()
            if code is GRAD:
                number = id(frame.f_locals["self"])
                if number not in self.capture.grads:
                    self.gradients_read.add(number)
            if code in QUESTIONS and frame.f_back is not None and not is_ox(frame.f_back.f_code.co_filename):
                self.facts.add(QUESTIONS[code])
                if QUESTIONS[code] in NOT_COMPARED:
                    self._note(_caller(frame.f_back), f"{QUESTIONS[code]} of a tensor is read")
            if is_users_file(code.co_filename):
                library = is_library(code.co_filename)
                self.state.visit_self(frame, library)
                if first:
                    self.own_names.update(code.co_names, code.co_freevars, _texts(code))
                    self.names.update(_texts(code))
                if (first or library) and not self.dynamic and dynamic_access(code) and _is_for_user(frame):
                    self._note_dynamic(frame, dynamic_access(code))
                if first and not library:
                    if unseen := unseen_access(code):
                        self._note(frame, f"{unseen} is read, whose objects are not compared")
                    self.state.visit_function(frame, globals_of(code))
                    if any(not name or is_tensor(frame.f_globals.get(name)) for name in array_reads(code)):
                        self._note(frame, "`.array` is read, which a recording does not see")
                    for name in handed_on(code):
                        if name not in frame.f_globals:
                            self._note(frame, f"{name} is handed on, to be called unseen")
            elif code.co_name in SETTINGS and is_ox(code.co_filename):
                self._note(frame.f_back, f"{code.co_name}() is called")
            elif code.co_qualname.startswith("_Environ.") and frame.f_globals.get("__name__") == "os":
                caller = frame.f_back
                while caller is not None and caller.f_globals.get("__name__") in ("os", "collections.abc"):
                    caller = caller.f_back
                self._note(caller, "os.environ is read")
            elif first and code.co_name in LOGGING and frame.f_globals.get("__name__") == "logging":
                self._note(frame.f_back, f"logging.{code.co_name}() is called")
            elif not (self.dynamic or is_ox(code.co_filename)) and dynamic_access(code) and _is_for_user(frame):
                where = f"{frame.f_globals['__name__']}.{code.co_name}()"
                self._note_dynamic(_caller(frame), f"{dynamic_access(code)} in {where}")
        elif event == "c_call" and self.effect is None:
            name = getattr(argument, "__name__", "")
            module = getattr(argument, "__module__", None)
            if module == "_warnings" and name in ("warn", "warn_explicit"):
                self._on_warning(_caller(frame), argument)
            elif module == "builtins" and name in ("exec", "eval"):  # by which Python's library makes classes, too
                self._note(frame, f"{name}() is called")
            elif name in EFFECTS.get(str(module), ()) or self._has_effect(name, getattr(argument, "__self__", None)):
                self._note(_caller(frame), f"{name}() is called")
            elif not self.dynamic and _reads_by_name(frame, argument) and _is_for_user(frame):
                self._note_dynamic(_caller(frame), f"{name}() is called")

    def _has_effect(self, name: str, owner: Any) -> bool:
        """Whether this method of an object or class of C has an effect, or another result each time."""
        if isinstance(owner, python_random.Random):
            return True
        if name in STREAM and isinstance(owner, io.IOBase):
            return not isinstance(owner, (io.StringIO, io.BytesIO)) or owner in (sys.stdout, sys.stderr)
        if name in CHANGES and isinstance(owner, (deque, bytearray)):
            return self.state.knows(owner)
        if isinstance(owner, type):
            return name in CLOCK and issubclass(owner, date)
        if name in LOCK or not self.state.knows(owner):
            return False
        origin = next((kind for kind in type(owner).__mro__ if name in vars(kind)), object)
        return origin is not object and not issubclass(origin, COMPARED)

    def _is_import(self, frame: Any) -> bool:
        """Whether code runs because the call imports a module."""
        while frame is not None and frame is not self._start:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return True
            frame = frame.f_back
        return False

    def _on_warning(self, frame: Any, function: Any) -> None:
        """By Python's own filters, a warning is shown once for a line: the call that is recorded shows it, and later
        ones are as silent as eager code. By others it is an effect."""
        if warnings_repeat():
            self._note(frame, f"{function.__name__}() is called")
            return
        self._warning = function
        if frame is not None:
            self.state.places.append(Place(warnings_repeat, None, "the filter of warnings", "", False, False))

    def _note_dynamic(self, frame: Any, what: str) -> None:
        if what and frame is not None and not self.dynamic:
            self.dynamic = f"{what} ({line_at((frame.f_code.co_filename, frame.f_lineno))})"

    def _note(self, frame: Any, what: str) -> None:
        if self.effect is None and frame is not None and is_users_file(frame.f_code.co_filename):
            if _is_of_runtime(frame) or self._is_import(frame):  # eager calls do not make it again, either
                return
            self.effect = what, line_at((frame.f_code.co_filename, frame.f_lineno))


def _is_of_runtime(frame: Any) -> bool:
    """Whether it runs a runtime's code, or that of NVIDIA's packages, which find libraries; not a user's `cuda.py`."""
    name = str(frame.f_globals.get("__name__", ""))
    return _package(frame) in RUNTIMES or name.startswith(("cuda.", "cudnn."))


def _package(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def warnings_repeat(_: Any = None) -> bool:
    """Whether a filter can show a warning each time that it is given, or make it an error. That of NumPy for its own
    class of warnings, and others of this kind, do not count."""
    actions = {action for action, _, category, *_ in warnings.filters if category.__module__ == "builtins"}
    return not actions.isdisjoint(("always", "all", "error"))


def _caller(frame: Any) -> Any:
    """The user's frame that this one of Python's library runs for; None when it runs for ox, or for an import."""
    while frame is not None and not is_users_file(frame.f_code.co_filename):
        if is_ox(frame.f_code.co_filename) or frame.f_code.co_filename.startswith("<frozen importlib"):
            return None
        frame = frame.f_back
    return frame


def _is_for_user(frame: Any) -> bool:
    """Whether a frame is of the user's own code, or of a library and runs for it, and not for ox."""
    if frame.f_globals.get("__name__") in LIBRARY or _package(frame) in ("numpy", *RUNTIMES):
        return False
    while frame is not None and not is_own_code(frame.f_code.co_filename):
        if is_ox(frame.f_code.co_filename) or frame.f_code.co_filename.startswith("<frozen importlib"):
            return False
        frame = frame.f_back
    return frame is not None


def _reads_by_name(frame: Any, function: Any) -> bool:
    """Whether a function of C that is called may read attributes by a name of its own. Where `getattr` stands in the
    code under its name, `dynamic_access` has looked at it."""
    if is_ox(frame.f_code.co_filename):
        return False
    if getattr(function, "__name__", "") in BY_NAME and calls_by_name(function):
        return function.__name__ not in frame.f_code.co_names
    return may_call_by_name(function)


def _random_states() -> tuple[Any, ...]:
    numpy: Any = np.random.get_state()
    return hash(python_random.getstate()), numpy[1].tobytes(), numpy[2]
