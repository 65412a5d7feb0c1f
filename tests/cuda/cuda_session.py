"""Sessions of ONNX Runtime on a GPU that note what they are asked, and fail where a test wants it; and sessions of the
CPU provider in their place, on the stand-in for the CUDA runtime, where device memory is memory of the host.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from ml_dtypes import bfloat16
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented

from ox.graph.bfloat16_file import widen
from ox.serve.runtime import providers
from ox.serve.runtime.capture_gate import GATE

CUDA, CPU, TENSORRT = "CUDAExecutionProvider", "CPUExecutionProvider", "TensorrtExecutionProvider"
SHRINK = "memory.enable_memory_arena_shrinkage"
BFLOAT16 = onnx.TensorProto.BFLOAT16
TOTAL = "ox.total_sequence_length"  # GroupQueryAttention reads it on the host
InferenceSession = onnxruntime.InferenceSession
from_dlpack = onnxruntime.OrtValue.from_dlpack


def device_value(array: Any) -> Any:
    """An OrtValue over an array of CuPy, which is its `array`."""
    value = from_dlpack(array)
    value.array = array
    return value


def host_value(array: Any) -> Any:
    """An OrtValue of the host over the memory of an array of CuPy, where the real one says it is the device's."""
    value = onnxruntime.OrtValue.ortvalue_from_numpy(numbers_at(array.data.ptr, array.shape, array.dtype))
    value.array = array
    return value


def entry(options: Any, name: str) -> str:
    """An entry of RunOptions, "" where it was not added."""
    try:
        return str(options.get_run_config_entry(name))
    except RuntimeError:
        return ""


def numbers_at(address: int, shape: Any, dtype: Any) -> Any:
    """The array that lies there, in memory of the host."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_byte * count).from_address(address), dtype).reshape(shape)


class Binding:
    """Notes what is bound, all of it in memory of one GPU."""

    def __init__(self, real: Any, number: int) -> None:
        self.real, self.number, self.rows = real, number, 0
        self.on_host: list[Any] = []  # memory that a run reads on the host

    def bind_input(self, name: str, device: str, number: int, dtype: Any, shape: Any, address: int) -> None:
        self.rows = shape[0] if shape else 0
        if name == TOTAL:
            assert device == "cpu"
            self.on_host.append((ctypes.c_byte * np.dtype(dtype).itemsize).from_address(address))
        else:
            self._check(device, number, address)
        self._bind(self.real.bind_input, name, device, number, dtype, shape, address)

    def bind_output(self, name: str, device: str, number: int, dtype: Any, shape: Any, address: int) -> None:
        self._check(device, number, address)
        self._bind(self.real.bind_output, name, device, number, dtype, shape, address)

    def _bind(self, bind: Any, *place: Any) -> None:
        bind(*place)

    def _check(self, device: str, number: int, address: int) -> None:
        import cupy

        assert (device, number) == ("cuda", self.number)
        assert cupy.cuda.runtime.pointerGetAttributes(address).device == number


class HostBinding(Binding):
    """Takes addresses of the device for addresses of the host, which they are. What is bfloat16 there is float32 in the
    session of the CPU."""

    def __init__(self, real: Any, number: int, narrow: set[str]) -> None:
        super().__init__(real, number)
        self._narrow = narrow  # names of what is bfloat16
        self._arrays: dict[int, tuple[Any, Any]] = {}  # by address: of the device, and float32
        self._outputs: set[int] = set()

    def _bind(self, bind: Any, *place: Any) -> None:
        name, _, _, dtype, shape, address = place
        if bind == self.real.bind_output:
            self._outputs.add(address)
        is_bfloat16 = isinstance(dtype, int) and dtype == BFLOAT16
        assert is_bfloat16 == (name in self._narrow), f"'{name}' is bound as {dtype}"
        if is_bfloat16:
            if address not in self._arrays:
                self._arrays[address] = numbers_at(address, shape, bfloat16), np.zeros(shape, np.float32)
            dtype, address = np.float32, self._arrays[address][1].ctypes.data
        bind(name, "cpu", 0, dtype, shape, address)

    def widen(self) -> None:
        for device, wide in self._arrays.values():
            wide[...] = device

    def narrow(self) -> None:
        for address in self._outputs & self._arrays.keys():
            device, wide = self._arrays[address]
            device[...] = wide


class CudaSession(InferenceSession):  # type: ignore[misc]
    """A session on a GPU that notes what it is asked."""

    made: list[CudaSession]
    surveys: int  # sessions that only write their optimized graph
    failures: int  # of the next runs with buffers
    failure: str
    broken: str  # the error of every run, if any
    missing: tuple[str, ...]  # providers that no session gets, which ONNX Runtime leaves out without an error

    def __init__(self, path: str | bytes, options: Any, providers: list[Any], enable_fallback: int) -> None:
        assert not enable_fallback
        *first, (name, self.options), last = providers
        self.tensorrt = dict(first).get(TENSORRT)  # its options
        assert (name, last) == (CUDA, CPU)
        self.graphs: list[str] = []
        self.threads: dict[str, set[int]] = {}  # by graph
        self.captured: dict[str, list[bytes]] = {}  # by graph: what it read on the host
        self.waited: list[bool] = []
        self.shrunk: list[str] = []  # whose arenas
        self._begin(path, options, providers)
        if options.optimized_model_filepath:
            CudaSession.surveys += 1
        else:
            CudaSession.made.append(self)

    def _begin(self, path: str | bytes, options: Any, providers: list[Any]) -> None:
        super().__init__(path, options, providers=providers, enable_fallback=0)

    def get_providers(self) -> list[str]:
        return [name for name in self._real_providers() if name not in CudaSession.missing]

    def _real_providers(self) -> list[str]:
        return super().get_providers()  # type: ignore[no-any-return]

    def io_binding(self) -> Binding:
        return Binding(super().io_binding(), int(self.options["device_id"]))

    def names_in(self, kind: str) -> set[str]:
        """The inputs and outputs of a type."""
        return {info.name for info in (*self.get_inputs(), *self.get_outputs()) if info.type == kind}

    def run(self, names: Any, feed: Any, options: Any = None) -> Any:
        if CudaSession.broken:
            raise RuntimeError(CudaSession.broken)
        if shrinks := options is not None and entry(options, SHRINK):
            self.shrunk.append(shrinks)
        return self._run(names, feed, options)

    def _run(self, names: Any, feed: Any, options: Any) -> Any:
        return super().run(names, feed, options)

    def run_with_iobinding(self, binding: Binding, options: Any) -> None:
        self.graphs.append(entry(options, "gpu_graph_id"))
        self.threads.setdefault(self.graphs[-1], set()).add(threading.get_ident())
        self.waited.append(entry(options, "disable_synchronize_execution_providers") != "1")
        if CudaSession.broken:
            raise RuntimeError(CudaSession.broken)
        if CudaSession.failures:
            CudaSession.failures -= 1
            raise RuntimeError(CudaSession.failure)
        self._run_bound(binding, options)
        if (graph := self.graphs[-1]) not in ("", "-1"):
            on_host = [bytes(memory) for memory in binding.on_host]
            assert graph in self.captured or GATE._capturing, "another thread may allocate during a capture"
            assert self.captured.setdefault(graph, on_host) == on_host, "a graph keeps what it read on the host"

    def _run_bound(self, binding: Any, options: Any) -> None:
        super().run_with_iobinding(binding.real, options)


class HostSession(CudaSession):
    """A session of the CPU that says it is one of CUDA."""

    def _begin(self, path: str | bytes, options: Any, providers: list[Any]) -> None:
        self._types: dict[str, str] = {}  # of inputs and outputs in bfloat16
        model = onnx.load_from_string(path) if isinstance(path, bytes) else None
        if model is not None:
            ends = (*model.graph.input, *model.graph.output)
            narrow = [info.name for info in ends if info.type.tensor_type.elem_type == BFLOAT16]
            self._types = dict.fromkeys(narrow, "tensor(bfloat16)")
            if narrow:
                with suppress(NotImplemented):  # kernels of the CPU: types are looked at before
                    InferenceSession(path, options, providers=[CPU])
                widen(model)
                path = model.SerializeToString()
        InferenceSession.__init__(self, path, options, providers=[CPU])

    def _real_providers(self) -> list[str]:
        return [TENSORRT, CUDA, CPU] if self.tensorrt is not None else [CUDA, CPU]

    def get_inputs(self) -> list[Any]:
        return [self._as_in_file(info) for info in super().get_inputs()]

    def get_outputs(self) -> list[Any]:
        return [self._as_in_file(info) for info in super().get_outputs()]

    def _as_in_file(self, info: Any) -> Any:
        return SimpleNamespace(name=info.name, shape=info.shape, type=self._types.get(info.name, info.type))

    def io_binding(self) -> Binding:
        return HostBinding(InferenceSession.io_binding(self), int(self.options["device_id"]), {*self._types})

    def _run(self, names: Any, feed: Any, options: Any) -> Any:
        has_arena = options is None or not entry(options, SHRINK)  # of a GPU, which the CPU's session has not
        return super()._run(names, feed, options if has_arena else None)

    def _run_bound(self, binding: Any, options: Any) -> None:
        binding.widen()
        super()._run_bound(binding, options)
        binding.narrow()


class Choosing(type):
    """A class whose calls make sessions of another kind where they are for a GPU. What is set on it, is set on ONNX
    Runtime's own: eager code gives all sessions of the process one pool of threads by another `__init__`."""

    session: type[CudaSession]

    def __call__(cls, *args: Any, **more: Any) -> Any:
        return (cls.session if "enable_fallback" in more else InferenceSession)(*args, **more)

    def __setattr__(cls, name: str, value: Any) -> None:
        setattr(InferenceSession, name, value)


Replace = Callable[[Any, str, Any], object]


def note(replace: Replace = setattr, session: type[CudaSession] = CudaSession, value: Any = device_value) -> None:
    """Let models that are loaded from now on for a GPU run in sessions of a kind that notes what it is asked."""
    replace(onnxruntime.OrtValue, "from_dlpack", value)
    replace(onnxruntime, "InferenceSession", Choosing("InferenceSession", (InferenceSession,), {"session": session}))
    CudaSession.made, CudaSession.surveys, CudaSession.failures, CudaSession.missing = [], 0, 0, ()
    CudaSession.broken, CudaSession.failure = "", "CUDA failure 700: an illegal memory access was encountered"


def install(replace: Replace = setattr) -> None:
    """The same with sessions of the CPU, on the stand-in for the CUDA runtime."""
    chosen = {"cpu": [CPU], "tensorrt": [TENSORRT, CUDA, CPU]}
    replace(providers, "choose", lambda _, device: chosen.get(device, [CUDA, CPU]))
    note(replace, HostSession, host_value)
