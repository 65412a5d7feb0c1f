"""One copy of a model's weights on a GPU, which all of its sessions there read."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from onnx import TensorProto, helper, numpy_helper

from ox.devices.gpu.cupy_device import cupy
from ox.graph.contract import Array
from ox.graph.reader.model_file import parse
from ox.serve.runtime.capture_gate import GATE

LEAST = 4096  # bytes; smaller ones each session has for itself
OPTIMIZED, DATA = "optimized.onnx", "optimized.data"

Adjust = Callable[[Any], None]  # of ONNX Runtime's SessionOptions


class SharedWeights:
    """Those weights of a file that its sessions can share.

    ONNX Runtime takes an initializer from outside (`SessionOptions.add_initializer`) after it has optimized the graph.
    Its optimizer may have transposed the one in the file under the same name, and does not look at what replaces it:
    the results would be wrong. So a session is made first that writes its optimized graph, and what is not the same
    there is not shared. What the optimizer computed from weights, each session has for itself.

    Args:
        path: the file.
        survey: makes such a session, given what adjusts its options.
    """

    def __init__(self, path: Path, survey: Callable[[Adjust], object]) -> None:
        self.path = path
        with TemporaryDirectory(prefix="ox-weights-") as folder:
            session = survey(lambda options: _write_optimized(options, Path(folder)))
            with GATE.using():
                del session  # which frees memory of the GPU
            unchanged = _unchanged(path, Path(folder) / OPTIMIZED)
        self.names, self.nbytes = frozenset(unchanged), sum(unchanged.values())
        self._values: dict[int, dict[str, Any]] = {}  # by the number of the GPU

    @property
    def numbers(self) -> tuple[int, ...]:
        """The GPUs that they lie on."""
        return tuple(self._values)

    def add_to(self, options: Any, number: int, runtime: Any) -> None:
        """Has a session of a GPU take them; this object must be kept as long as the session."""
        if number not in self._values:
            with GATE.using():
                self._values[number] = self._copied(number, runtime)
        for name, value in self._values[number].items():
            options.add_initializer(name, value)

    def _copied(self, number: int, runtime: Any) -> dict[str, Any]:
        # ONNX Runtime refuses memory of its own (`ortvalue_from_numpy`) as an initializer, so it is CuPy's.
        xp, made = cupy(), {}
        with xp.cuda.Device(number) as device:
            for tensor in parse(self.path).graph.initializer:
                if tensor.name in self.names:
                    stored = _array(self.path, tensor)
                    array = xp.empty(stored.shape, stored.dtype)
                    array.set(stored)  # `asarray` would keep as much pinned memory
                    made[tensor.name] = runtime.OrtValue.from_dlpack(array)
            device.synchronize()  # sessions have streams of their own
        return made


def _write_optimized(options: Any, folder: Path) -> None:
    options.optimized_model_filepath = str(folder / OPTIMIZED)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", DATA)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", str(LEAST))


def _unchanged(path: Path, optimized: Path) -> dict[str, int]:
    """The large initializers that are the same in both files, and their bytes."""
    model = parse(path)
    given = {info.name for info in model.graph.input}  # a request may replace these
    stored = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name not in given}
    unchanged = {}
    for tensor in parse(optimized).graph.initializer:
        original = stored.get(tensor.name)
        if original is None or (tensor.data_type, *tensor.dims) != (original.data_type, *original.dims):
            continue
        if _is_large(tensor) and (data := _array(path, original).tobytes()) == _array(optimized, tensor).tobytes():
            unchanged[tensor.name] = len(data)
    return unchanged


def _is_large(tensor: TensorProto) -> bool:
    """Whether it is worth it, and of a type that CuPy has."""
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return dtype.isbuiltin == 1 and dtype.kind in "biuf" and math.prod(tensor.dims) * dtype.itemsize >= LEAST


def _array(path: Path, tensor: TensorProto) -> Array:
    """The values of a tensor of a file that has been checked."""
    alone = TensorProto()
    alone.CopyFrom(tensor)  # which the values are read into
    return numpy_helper.to_array(alone, str(path.parent))
