"""One operator call as one ONNX Runtime session: the fast path of large float32 work on the CPU.

All sessions share one thread pool and one memory arena. With a pool each, a transformer's step takes ten times as long;
with an arena each, every session keeps the memory of its largest output. Sessions are made without optimization
(0.1 ms, tens of kB), take inputs of any rank, and live in one cache of the least recently used.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, lru_cache, wraps
from importlib.util import find_spec
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np

from ox.devices.machine import threads
from ox.devices.onnxruntime import node_model
from ox.devices.onnxruntime.arena import USE_ARENA, current_arena, shared_arena
from ox.devices.onnxruntime.runtime import onnxruntime
from ox.devices.operator import Operator
from ox.dtypes import FROM_ONNX, NARROW, DType, bfloat16, float32, onnx_type
from ox.errors import DeviceError, first_line

forked = False  # set in a forked child, where the pool's threads are gone; ox.devices.onnxruntime.dispatch_table
SESSIONS = 4096  # kept; the least recently used goes
LEVELS = ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")  # of ONNX Runtime's own optimizations
LOW_LIMIT = 1 << 30  # bytes of an arena


class NoKernelError(DeviceError):
    """ONNX Runtime has no kernel for this operator, these element types or these attributes."""


class Runtime:
    """ONNX Runtime with what all sessions share. Made once, by the first call that needs it."""

    def __init__(self) -> None:
        ort = onnxruntime()
        from onnxruntime.capi import onnxruntime_pybind11_state as binding

        self.module, self.binding = ort, binding
        # Pool and allocator belong to the process: a program that made its own before us keeps them.
        with suppress(Exception):
            ort.set_global_thread_pool_sizes(threads(), 1)
        with suppress(Exception):  # an ONNX Runtime that has no shared arenas
            shared_arena(ort)
        # by how much the graph is optimized, and whether the shared arena is free for all
        self.options = {(level, free): _options(ort, level, free) for level in LEVELS for free in (False, True)}
        kinds = ("NotImplemented", "InvalidGraph", "Fail", "InvalidArgument")
        self.refusals = tuple(getattr(binding, kind) for kind in kinds)
        try:
            self.session(node_model.write("Identity", (float32,), {}, 1, node_model.USUAL))
        except Exception:  # an ONNX Runtime that takes a shared pool only before its first session, and it was not ours
            for each in self.options.values():
                each.use_per_session_threads, each.intra_op_num_threads = True, 1
        else:
            share_pool(ort)

    def session(self, file: bytes, level: str = "DISABLE_ALL") -> Any:
        """A session for a file: of one node, or with another of `LEVELS` of several, which may become other ones.

        An arena with a limit is that of a server in this process: a session leaves it alone where the limit is low. It
        does so only there, because large results of many sessions fragment the memory outside of an arena.
        """
        arena = current_arena()
        options = self.options[level, arena is None or not 0 < arena.limit < LOW_LIMIT]
        return self.module.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def _options(ort: ModuleType, level: str, arena: bool) -> Any:
    """Session options: with the shared pool, and with the shared arena or none."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{level}")
    options.use_per_session_threads = False
    options.log_severity_level = 4  # errors come back as exceptions; do not print them too
    if arena:
        options.add_session_config_entry(*USE_ARENA)
    else:
        options.enable_cpu_mem_arena = False
    return options


def share_pool(ort: ModuleType) -> None:
    """Let the program's own sessions join the shared pool.

    Once a process has a shared pool, ONNX Runtime refuses every session that requests its own pool, which is
    the default of a session. Without this, `onnxruntime.InferenceSession("model.onnx")` would fail from the
    first large call of an operator on.
    """
    create = ort.InferenceSession.__init__
    if getattr(create, "shares_pool", False):
        return

    @wraps(create)
    def shared(self: Any, path_or_bytes: Any, sess_options: Any = None, *args: Any, **kwargs: Any) -> None:
        sess_options = ort.SessionOptions() if sess_options is None else sess_options
        sess_options.use_per_session_threads = False
        counts = sess_options.intra_op_num_threads, sess_options.inter_op_num_threads
        sess_options.intra_op_num_threads = sess_options.inter_op_num_threads = 0  # ignored, with a warning if set
        try:
            create(self, path_or_bytes, sess_options, *args, **kwargs)
        finally:
            sess_options.intra_op_num_threads, sess_options.inter_op_num_threads = counts

    shared.shares_pool = True  # type: ignore[attr-defined]
    ort.InferenceSession.__init__ = shared


_making = Lock()
_runtime: list[Runtime] = []


def runtime() -> Runtime:
    """The one `Runtime`. Raises DeviceError where ONNX Runtime is not installed."""
    if not _runtime:
        with _making:
            if not _runtime:
                _runtime.append(Runtime())
    return _runtime[0]


def started() -> bool:
    """Whether the shared pool exists, whose number of threads stays."""
    return bool(_runtime)


@cache
def installed() -> bool:
    """Whether ONNX Runtime could be imported; looks without importing."""
    return find_spec("onnxruntime") is not None


class Session:
    """A one-node session, called with arrays."""

    __slots__ = ("_run", "_session", "inputs", "outputs")

    def __init__(self, session: Any, inputs: tuple[str, ...], outputs: int) -> None:
        self._session = session
        self._run = session._sess.run  # past the Python wrapper, which costs as much as the call
        self.inputs, self.outputs = inputs, [f"y{i}" for i in range(outputs)]

    def __call__(self, arrays: list[Any]) -> Any:
        """Outputs as arrays in the shared arena (not copied); one, or a tuple of several."""
        if len(self.inputs) == len(arrays):
            feeds = dict(zip(self.inputs, arrays, strict=True))
        else:
            feeds = dict(zip(self.inputs, [a for a in arrays if a is not None], strict=True))
        result = self._run(self.outputs, feeds, None)
        return result[0] if len(result) == 1 else tuple(result)

    def any_type(self, arrays: list[Any]) -> Any:
        """The same for element types that NumPy does not share with ONNX Runtime: bfloat16 passes as its bits."""
        make = runtime().module.OrtValue.ortvalue_from_numpy_with_onnx_type
        given = [a for a in arrays if a is not None]
        feeds = {n: make(_bits(a), onnx_type(a.dtype)) for n, a in zip(self.inputs, given, strict=True)}
        result = tuple(array_of(v) for v in self._session.run_with_ort_values(self.outputs, feeds))
        return result[0] if len(result) == 1 else result


def _bits(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    a = a if a.flags.c_contiguous else a.copy(order="C")
    return a.view(np.uint16) if a.dtype == bfloat16 else a


def array_of(value: Any) -> np.ndarray[Any, Any]:
    """A copy of an output: OrtValue.numpy() refuses bfloat16, so its bytes are read."""
    dtype = FROM_ONNX[value.element_type()]
    if dtype != bfloat16:
        return value.numpy()  # type: ignore[no-any-return]
    import ctypes

    count = int(np.prod(value.shape()))
    raw = ctypes.string_at(value.data_ptr(), count * dtype.itemsize) if count else b""
    return np.frombuffer(raw, dtype).reshape(value.shape()).copy()


@lru_cache(maxsize=SESSIONS)
def session(op: Operator, types: tuple[DType | None, ...], outputs: int, key: node_model.Key) -> Session | str:
    """The session for a call, or why ONNX Runtime cannot have one."""
    attributes = node_model.thaw(key)
    results = (FROM_ONNX.get(attributes.get(name) or 0) for name in ("to", "output_dtype"))
    if narrow := next((dtype for dtype in (*types, *results) if dtype in NARROW), None):
        return f"ONNX Runtime's Python interface takes no arrays of {narrow}"
    names = tuple(f"x{i}" for i, dtype in enumerate(types) if dtype is not None)
    while types and types[-1] is None:
        types = types[:-1]
    reason = "its signature fits no opset of ONNX Runtime"
    for opset in node_model.opsets(op.name, attributes, op.schema.attributes, len(types), outputs):
        try:
            made = runtime().session(node_model.write(op.name, types, attributes, outputs, opset))
        except runtime().refusals as error:
            reason = first_line(error)
        else:
            return Session(made, names, outputs)
    return reason


@lru_cache(maxsize=SESSIONS)
def vendor_session(name: str, types: tuple[DType, ...], key: node_model.Key) -> Session:
    """A session of one of ONNX Runtime's own operators: a faster way to the same result, for this machine only."""
    file = node_model.write(name, types, node_model.thaw(key), 1, node_model.USUAL, node_model.VENDOR)
    return Session(runtime().session(file), tuple(f"x{i}" for i in range(len(types))), 1)


@lru_cache(maxsize=64)
def cast_session(dtype: DType, to: DType) -> Session:
    """The session that converts float16 to float32 or back."""
    file = node_model.write("Cast", (dtype,), {"to": onnx_type(to)}, 1, node_model.USUAL)
    return Session(runtime().session(file), ("x0",), 1)


def call(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Session | str:
    """The session that runs this call, or the reason why there is none."""
    outputs = node_model.output_count(op, attributes, arrays)
    if "outputs" in attributes:
        attributes = {k: v for k, v in attributes.items() if k != "outputs"}
    types = tuple([None if a is None else a.dtype for a in arrays])
    return session(op, types, outputs, node_model.freeze(attributes))
