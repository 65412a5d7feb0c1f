"""The engine OpenVINO: a task compiled for the CPU, in float32 or with products in bfloat16."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np

from ox.devices.machine import threads
from ox.dtypes import bfloat16, int64
from ox.engines.drawn_ahead import DrawnAhead, split
from ox.engines.engine import Array, Executable, Task
from ox.engines.known_defects import OPENVINO, OPENVINO_GENERAL, refuse
from ox.engines.onnx_task import OnnxTask, bits
from ox.errors import ArgumentError, BoundsError, DeviceError
from ox.graph.writer.functions import inlined
from ox.graph.writer.scan_captures import carry_captures
from ox.installation import install_command

TELEMETRY = "openvino_telemetry"  # the package by which OpenVINO sends usage data
PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}


class OpenVino:
    """Runs tasks on the CPU in OpenVINO, which has to be installed (the extra ``openvino``).

    Args:
        precision: in which type float32 graphs are computed: ``"float32"``, or ``"bfloat16"``, which is faster on
            processors with AMX or AVX-512 BF16. Inputs, results and state stay float32.

    Raises:
        ArgumentError: another precision.
    """

    name = "openvino"
    writes_last = True

    def __init__(self, precision: str = "float32") -> None:
        if precision not in PRECISIONS:
            raise ArgumentError(
                f"OpenVINO has no precision '{precision}'", expected=" or ".join(PRECISIONS), got=repr(precision)
            )
        self.precision = precision

    def build(self, task: Task) -> Executable:
        """Compile the task. No file is written: OpenVINO's cache of models is off.

        Random numbers, as those of dropout, are drawn ahead of each run by ox's own kernels: eager code's bits.

        Raises:
            DeviceError: OpenVINO is not installed, or refuses the graph.
            ExportError: the graph has what no file of ONNX can say.
        """
        module = openvino()
        rest, ahead = split(task)
        compiled = Compiled(module, OnnxTask(rest), self.precision)
        return compiled if ahead is None else DrawnAhead(ahead, compiled, len(task.graph.outputs))


def openvino() -> ModuleType:
    """The module `openvino`, which sends no telemetry. Raises DeviceError where it is not installed.

    Its import sends an event to Google Analytics if the package `openvino_telemetry` can be imported (SECURITY.md).
    """
    hidden = TELEMETRY not in sys.modules
    if hidden:
        sys.modules[TELEMETRY] = None  # type: ignore[assignment]  # its import fails
    try:
        import openvino as module
    except ImportError as error:
        raise DeviceError("OpenVINO is not installed", got=str(error), hint=install_command("openvino")) from error
    finally:
        if hidden:
            del sys.modules[TELEMETRY]
    return module  # type: ignore[no-any-return]


_cores: dict[int, Any] = {}  # by process: a forked child has none of the threads


def core() -> Any:
    """The `Core` of this process. It is never destroyed: OpenVINO gives the thread that loads its CPU plugin another
    stack for signals, and frees that stack with the last Core. If this happens in another thread, which the garbage
    collector decides, the next signal ends the process with a segmentation fault.

    Raises:
        DeviceError: OpenVINO is not installed.
    """
    made = _cores.get(os.getpid())
    if made is None:
        made = _cores[os.getpid()] = openvino().Core()
    return made


class Compiled:
    """A task that is ready to run. Calls from several threads run one after another."""

    def __init__(self, module: ModuleType, task: OnnxTask, precision: str) -> None:
        self.task, self._module = task, module
        self._version = module.__version__.split("-")[0]
        settings = {
            "INFERENCE_PRECISION_HINT": PRECISIONS[precision],
            "INFERENCE_NUM_THREADS": threads(),
            "PERFORMANCE_HINT": "LATENCY",
            "CACHE_DIR": "",
        }
        refuse(task.graph, "OpenVINO", OPENVINO, OPENVINO_GENERAL)
        try:
            model = core().read_model(carry_captures(inlined(task.model)).SerializeToString())
            self._compiled = core().compile_model(model, "CPU", settings)
            self._request = self._compiled.create_infer_request()
        except Exception as error:  # RuntimeError and others
            raise task.error(f"OpenVINO {self._version} does not take the graph", error) from error
        ports = {name: port for port in self._compiled.inputs for name in port.names}
        self._inputs = [ports.get(v.name) for v in task.graph.inputs]  # None: an input that nothing reads
        results = {name: port for port in self._compiled.outputs for name in port.names}
        self._outputs = [results[v.name] for v in task.graph.outputs]
        self._precision, self._lock = precision, Lock()

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs, in order.

        Raises:
            DTypeError, ShapeError: an array that the task was not built for.
            BoundsError: an index outside of a dimension, or an integer of more than 32 bits.
            DeviceError: the call failed.
        """
        self.task.check(arrays, [None] * len(arrays))
        self._check_width(arrays)
        with self._lock:
            request = self._request
            held = [self._tensor(array) for array in arrays]
            for port, tensor in zip(self._inputs, held, strict=True):
                if port is not None:
                    request.set_tensor(port, tensor)
            try:
                request.infer()
            except Exception as error:
                raise self.task.failure(f"OpenVINO {self._version} cannot run the graph", error, arrays) from error
            made = [self._array(i) for i in range(len(self.task.state))]
            return self.task.write_back(arrays, made)

    def _check_width(self, arrays: Sequence[Array]) -> None:
        for v, array in zip(self.task.graph.inputs, arrays, strict=True):
            if v.dtype == int64 and array.size and not -(1 << 31) <= array.min() <= array.max() < 1 << 31:
                raise BoundsError(
                    f"input '{v.name}' has integers of more than 32 bits, which OpenVINO does not keep",
                    where="",
                    hint="the engine 'onnxruntime'",
                )

    def _tensor(self, array: Array) -> Any:
        memory = bits(array)
        kind = self._module.Type.bf16 if array.dtype == bfloat16 else None
        if kind is None:
            return self._module.Tensor(memory, shared_memory=True)
        return self._module.Tensor(memory, list(array.shape), kind)

    def _array(self, i: int) -> Array:
        """A result: a copy, as the next call writes over it; of the next state, which is copied anyway, a view."""
        dtype = self.task.graph.outputs[i].dtype
        data = self._request.get_tensor(self._outputs[i]).data
        if dtype == bfloat16:
            data = data.view(bfloat16)
        sizes = self.task.sizes[i]
        if sizes is not None and data.shape != sizes:
            data = self._of_sizes(data, sizes, self.task.graph.outputs[i].name)
        return data if self.task.state[i] is not None else np.array(data, dtype)

    def _of_sizes(self, data: Array, sizes: tuple[int, ...], name: str) -> Array:
        """A result in its own sizes: OpenVINO gives some numbers one axis."""
        if data.size == 1 and all(size == 1 for size in sizes):
            return data.reshape(sizes)
        raise DeviceError(
            f"OpenVINO {self._version} gives result '{name}' another shape",
            where="",
            expected=str(list(sizes)),
            got=str(list(data.shape)),
        )

    def explain(self) -> list[str]:
        """What runs, and in which precision."""
        count = len(self._compiled.get_runtime_model().get_ops())
        return [
            f"OpenVINO {self._version}: {len(self.task.graph.nodes)} operators as {count} of its own, "
            f"in {self._precision}, {threads()} threads"
        ]


def open_file(path: Path) -> tuple[str, Callable[[dict[str, Array]], dict[str, Array]]]:
    """What OpenVINO is called with its version, and a function that runs an ONNX file in float32 on its CPU.

    Raises:
        DeviceError: OpenVINO is not installed, or does not take the file.
    """
    module = openvino()
    version = f"OpenVINO {module.__version__.split('-')[0]}"
    try:
        compiled = core().compile_model(
            core().read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": PRECISIONS["float32"]}
        )
    except Exception as error:  # RuntimeError and others
        raise DeviceError(
            f"{version} does not take {path}", got=(str(error).strip() or type(error).__name__).splitlines()[-1]
        ) from error

    def run(feed: dict[str, Array]) -> dict[str, Array]:
        taken = {name for port in compiled.inputs for name in port.names}  # what nothing reads is no input
        results = compiled({name: array for name, array in feed.items() if name in taken})
        return {name: np.array(results[port]) for port in compiled.outputs for name in port.names}

    return version, run
