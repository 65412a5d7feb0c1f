"""Numbers, bytes, ranges, dates and paths in a pickle, and the classes that may stand in one without being called."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

from ox.serialization.torch_checkpoint.errors import Budget, UnreadableError


def _encoded(budget: Budget, text: Any, encoding: Any) -> bytes:
    """How protocol 2 writes bytes."""
    if type(text) is not str or encoding != "latin1":
        raise UnreadableError("bytes in an encoding that pickles do not use")
    budget.take(60 + len(text))
    return text.encode("latin1")


def _no_bytes(budget: Budget) -> bytes:
    """How protocol 2 writes bytes of length 0."""
    return b""


def _bytearray(budget: Budget, content: Any = b"") -> bytearray:
    if type(content) is not bytes:
        raise UnreadableError("a bytearray of something else than bytes")
    budget.take(len(content))
    return bytearray(content)


def _complex(budget: Budget, real: Any, imaginary: Any) -> complex:
    if type(real) is not float or type(imaginary) is not float:
        raise UnreadableError("a complex number of something else than floats")
    return complex(real, imaginary)


def _range(budget: Budget, *ends: Any) -> range:
    if len(ends) != 3 or not all(type(n) is int for n in ends) or ends[2] == 0:
        raise UnreadableError("a range of something else than three whole numbers")
    return range(*ends)


def _slice(budget: Budget, *ends: Any) -> slice:
    if len(ends) != 3 or not all(n is None or type(n) is int for n in ends):
        raise UnreadableError("a slice of something else than whole numbers")
    return slice(*ends)


def _version(budget: Budget, text: Any) -> str:
    """`torch.__version__`, as a string."""
    if type(text) is not str:
        raise UnreadableError("a version of PyTorch that is no string")
    return text


def _path_of(kind: type[PurePath]) -> Callable[..., PurePath]:
    def made(budget: Budget, *parts: Any) -> PurePath:
        if not all(type(part) is str for part in parts):
            raise UnreadableError("a path of something else than strings")
        budget.take(200 + sum(map(len, parts)))
        return kind(*parts)

    return made


def _moment(kind: Any, length: int) -> Callable[..., Any]:
    def made(budget: Budget, state: Any) -> Any:
        if type(state) is not bytes or len(state) != length:
            raise UnreadableError(
                f"a {kind.__name__} that is none", hint="where it was saved: a string, by isoformat()"
            )
        return kind(state)

    return made


def _duration(budget: Budget, *parts: Any) -> timedelta:
    if len(parts) != 3 or not all(type(n) is int for n in parts):
        raise UnreadableError("a timedelta of something else than three whole numbers")
    return timedelta(*parts)


_WINDOWS = os.name == "nt"
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_codecs.encode": _encoded,
    "builtins.bytes": _no_bytes,
    "builtins.bytearray": _bytearray,
    "builtins.complex": _complex,
    "builtins.range": _range,
    "builtins.xrange": _range,
    "builtins.slice": _slice,
    "torch.torch_version.TorchVersion": _version,
    "pathlib.PosixPath": _path_of(PurePosixPath if _WINDOWS else Path),
    "pathlib.WindowsPath": _path_of(Path if _WINDOWS else PureWindowsPath),
    "pathlib.PurePosixPath": _path_of(PurePosixPath),
    "pathlib.PureWindowsPath": _path_of(PureWindowsPath),
    "datetime.datetime": _moment(datetime, 10),
    "datetime.date": _moment(date, 4),
    "datetime.timedelta": _duration,
}

# values of their own, and what a defaultdict fills itself with; never called while reading
TYPES: dict[str, Any] = {
    "builtins.list": list,
    "builtins.dict": dict,
    "builtins.tuple": tuple,
    "builtins.int": int,
    "builtins.long": int,
    "builtins.float": float,
    "builtins.bool": bool,
    "builtins.str": str,
    "builtins.unicode": str,
    "builtins.Ellipsis": ...,
}
