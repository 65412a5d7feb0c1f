"""Sessions of ONNX Runtime for files before and after, and how long a run takes in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import onnx

from ox.devices.onnxruntime.runtime import onnxruntime
from ox.errors import ExportError
from ox.graph.ir import Array

ROUNDS = 21  # of the timing; an odd number has a median
MAX_SECONDS = 3.0


def open_session(model: onnx.ModelProto, what: str) -> Any:
    """A session with default options, as a user's.

    Args:
        what: the model in an error message.

    Raises:
        ExportError: the runtime lacks a kernel, or refuses the model.
        DeviceError: ONNX Runtime is not installed.
    """
    runtime = onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

    try:
        return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        lacks = "has no kernel for" if isinstance(error, NoKernel) else "refuses"
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise ExportError(
            f"ONNX Runtime {runtime.__version__} {lacks} {what}",
            got=lines[0] if lines else type(error).__name__,
            hint="another scheme, or another version of ONNX Runtime",
        ) from error


def run(session: Any, feed: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name.

    Raises:
        ExportError: the runtime cannot run the model, or not with this feed.
    """
    names = [info.name for info in session.get_outputs()]
    try:
        results = session.run(names, dict(feed))
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise ExportError(
            f"ONNX Runtime {onnxruntime().__version__} cannot run the model",
            got=lines[0] if lines else type(error).__name__,
            hint="another scheme, or inputs that the model takes",
        ) from error
    return dict(zip(names, results, strict=True))


def runs(session: Any, feed: Mapping[str, Array]) -> bool:
    """Whether a session takes a feed: some models do not run with one row."""
    try:
        run(session, feed)
    except ExportError:
        return False
    return True


def seconds(sessions: Sequence[Any], feed: Mapping[str, Array]) -> list[float]:
    """The median time of a run in each session; they take turns, so that a busy moment meets all of them."""
    times: list[list[float]] = [[] for _ in sessions]
    for session in sessions:
        session.run(None, dict(feed))
    begun = perf_counter()
    while len(times[0]) < ROUNDS and perf_counter() - begun < MAX_SECONDS:
        for session, taken in zip(sessions, times, strict=True):
            start = perf_counter()
            session.run(None, dict(feed))
            taken.append(perf_counter() - start)
    return [sorted(taken)[len(taken) // 2] for taken in times]
