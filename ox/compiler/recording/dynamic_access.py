"""Code that reads attributes by a name that stands in no instruction, and code that reaches objects in a way that the
walk of `PythonState` does not follow."""

from __future__ import annotations

import dis
import operator
from functools import cache
from itertools import pairwise
from types import BuiltinFunctionType, CodeType, MethodWrapperType, WrapperDescriptorType
from typing import Any

# functions whose second argument is the name, and how many they have; the methods, when a class is asked for them
BY_NAME = {
    "getattr": (2, 3),
    "hasattr": (2,),
    "setattr": (3,),
    "delattr": (2,),
    "__getattribute__": (2,),
    "__setattr__": (3,),
    "__delattr__": (2,),
}
EVERY = frozenset(
    (
        *("vars", "dir", "__dict__", "__dir__", "attrgetter", "methodcaller", "getattr_static", "getmembers"),
        *("__getstate__", "__reduce__", "__reduce_ex__", "__closure__", "cell_contents", "format_map"),
    )
)
UNSEEN = frozenset(
    (
        *("_getframe", "_current_frames", "currentframe", "f_locals", "f_globals", "f_back", "__globals__"),
        *("gi_frame", "cr_frame", "tb_frame", "get_objects", "get_referrers", "get_referents"),
        *("__subclasses__", "import_module", "__import__", "_from_address", "PyObj_FromPtr"),
    )
)
# modules of Python's library that read computed names of their own objects, or names that the caller states
LIBRARY = frozenset(
    (
        *("abc", "collections", "collections.abc", "_collections_abc", "contextlib", "enum", "functools", "threading"),
        *("typing", "warnings", "weakref", "_weakrefset", "random", "os", "re", "logging", "numbers", "types"),
    )
)
# C functions of these modules read no attribute by a name that they are given
PLAIN_MODULES = frozenset(
    (
        *("builtins", "math", "cmath", "time", "itertools", "sys", "numpy", "posix", "nt", "random", "re", "struct"),
        *("_operator", "_functools", "_collections", "_abc", "_thread", "_contextvars", "_random", "_struct", "_sre"),
        *("_bisect", "_heapq", "_io", "_weakref", "_json", "_statistics", "_stat", "_string", "_warnings"),
        *("_datetime", "_decimal", "_ctypes", "array", "binascii", "zlib", "_tracemalloc", "atexit", "faulthandler"),
        *("collections", "gc", "io"),
    )
)
ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR")
NAMING_TYPES = (operator.attrgetter, operator.methodcaller)


def _loads(i: dis.Instruction) -> bool:
    return i.opname.startswith(("LOAD_", "STORE_", "DELETE_", "IMPORT_")) and not i.opname.endswith(("FAST", "CONST"))


@cache
def dynamic_access(code: CodeType) -> str:
    """What in a function reads attributes by names that are no constants; empty where nothing does."""
    found = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "NOP", "EXTENDED_ARG")]
    for n, i in enumerate(found):
        if i.opname == "MATCH_CLASS":
            return "a class pattern of match"
        if _loads(i) and i.argval in EVERY:
            return f"{i.argval} is read"
        if _loads(i) and i.argval in BY_NAME and not _has_constant_name(found[n + 1 :], BY_NAME[i.argval]):
            return f"{i.argval}() is called with a computed name"
    return ""


def _has_constant_name(found: list[dis.Instruction], counts: tuple[int, ...]) -> bool:
    """Whether `getattr`, which the instruction before these has loaded, is called with a constant for the name.

    Args:
        counts: the numbers of arguments that it may have.
    """
    depth, name = 0, None  # how many of its arguments are on the stack
    positions = {i.offset: n for n, i in enumerate(found)}
    n = int(found[0].opname == "PUSH_NULL")
    while n < len(found):
        i = found[n]
        if i.opname in ("PRECALL", "CALL") and i.arg == depth:
            return name is not None and depth in counts
        argument = i.arg if i.opcode >= dis.HAVE_ARGUMENT else None
        before, depth = depth, depth + dis.stack_effect(i.opcode, argument, jump=False)
        n += 1
        if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs:  # a condition in an argument after the name
            if name is None or depth < 2 or "BACKWARD" in i.opname or (i.opname == "JUMP_FORWARD" and depth < 3):
                return False
            if i.opname == "JUMP_FORWARD":
                n = positions.get(i.argval, len(found))
        elif depth <= 0:
            return False
        elif before == 1 and depth == 2 and i.opname == "LOAD_CONST" and isinstance(i.argval, str):
            name = i.argval
        elif depth <= 2 and not (i.opname == "POP_TOP" and before > 2):
            name = None
    return False


@cache
def unseen_access(code: CodeType) -> str:
    """What in a function reaches objects that are not compared, as other frames; empty where nothing does."""
    before = None
    for i in dis.get_instructions(code):
        if _loads(i):
            if i.argval in UNSEEN or (i.argval == "modules" and before == "sys"):
                return f"{before}.modules" if i.argval == "modules" else str(i.argval)
            before = i.argval
    return ""


def calls_by_name(function: Any) -> bool:
    """Whether a value is a function or object of C that reads attributes by a name that it is given."""
    if isinstance(function, (BuiltinFunctionType, MethodWrapperType, WrapperDescriptorType)):
        return function.__name__ in BY_NAME or function.__name__ in EVERY
    return isinstance(function, NAMING_TYPES)


@cache
def used_whole(code: CodeType) -> frozenset[str]:
    """The names of values that a function uses otherwise than by an attribute that it names."""
    found = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "NOP", "EXTENDED_ARG", "PUSH_NULL")]
    names: set[Any] = set()
    for i, after in pairwise(found):
        named = after.opname in ATTRIBUTE and after.argval != "__dict__"
        if i.opname.startswith("LOAD_") and i.opname != "LOAD_CLOSURE" and not named:
            names.update(i.argval if isinstance(i.argval, tuple) else [i.argval])
    return frozenset(name for name in names if isinstance(name, str))


def may_call_by_name(function: Any) -> bool:
    """Whether a function of C that is called may do so: of those that are not known, any."""
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    if name in EVERY or (name == "format" and isinstance(owner, str)):
        return True
    module = getattr(function, "__module__", None)
    if module is None and owner is not None:  # a method of C: where its class comes from
        kind = owner if isinstance(owner, type) else type(owner)
        module = next((each for each in kind.__mro__ if name in vars(each)), kind).__module__
    return str(module).partition(".")[0] not in PLAIN_MODULES
