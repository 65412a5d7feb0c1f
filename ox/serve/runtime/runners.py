"""What runs a session of ONNX Runtime with arrays: by NumPy's types, or with OrtValues where there is bfloat16."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from ox.devices.onnxruntime.arena import memory_error
from ox.graph.contract import DTYPES, Array
from ox.serve.runtime.device_memory import DeviceMemory
from ox.serve.runtime.instance import ControlledRun, Feed
from ox.serve.runtime.memory import RunMemory
from ox.serve.runtime.runtime_error import run_failure

Refusing: TypeAlias = RunMemory | DeviceMemory

BFLOAT16 = 16  # TensorProto.BFLOAT16


def runner(runtime: ModuleType, session: Any, names: list[str], memory: Refusing) -> ControlledRun:
    def run(feed: Feed, control: Any) -> list[Array]:
        try:
            return session.run(names, feed, control)  # type: ignore[no-any-return]
        except Exception as error:
            return _again(partial(session.run, names, feed, control), error, memory)

    return run


def _entering(runtime: ModuleType) -> Callable[[Array], Any]:
    """ONNX Runtime takes bfloat16 only as an OrtValue over its bits."""
    make = runtime.OrtValue.ortvalue_from_numpy_with_onnx_type
    bfloat16 = DTYPES["BF16"]
    return lambda array: (
        make(np.ascontiguousarray(array).view(np.uint16), BFLOAT16) if array.dtype == bfloat16 else array
    )


def text_and_bfloat16_runner(runtime: ModuleType, session: Any, names: list[str], memory: Refusing) -> ControlledRun:
    """Text cannot be an OrtValue, so it goes the plain way, which OrtValues may go, too."""
    enter, plain = _entering(runtime), runner(runtime, session, names, memory)
    return lambda feed, control: plain({name: enter(array) for name, array in feed.items()}, control)


def bfloat16_runner(runtime: ModuleType, session: Any, names: list[str], memory: Refusing) -> ControlledRun:
    """The plain way cannot give bfloat16 back as an array."""
    value, enter = runtime.OrtValue, _entering(runtime)
    bfloat16 = DTYPES["BF16"]

    def whole(array: Array) -> Any:
        entered = enter(array)
        return value.ortvalue_from_numpy(array) if entered is array else entered

    def leave(result: Any) -> Array:
        if result.element_type() != BFLOAT16:
            return result.numpy()  # type: ignore[no-any-return]
        shape = tuple(result.shape())
        return np.frombuffer(ctypes.string_at(result.data_ptr(), 2 * math.prod(shape)), bfloat16).reshape(shape)

    def once(feed: Feed, control: Any) -> list[Array]:
        results = session.run_with_ort_values(names, {name: whole(array) for name, array in feed.items()}, control)
        return [leave(result) for result in results]

    def run(feed: Feed, control: Any) -> list[Array]:
        try:
            return once(feed, control)
        except Exception as error:
            return _again(partial(once, feed, control), error, memory)

    return run


def _again(run: Callable[[], list[Array]], error: Exception, memory: Refusing) -> list[Array]:
    """Once more, if memory was missing: in pieces that other runs have left, there may be enough of it."""
    refusal = memory.refusal(error)
    if refusal is None:
        raise run_failure(error) from error
    if memory_error(error) is not None:
        try:
            return run()
        except Exception as second:
            refusal = memory.refusal(second) or run_failure(second)
    raise refusal from error
