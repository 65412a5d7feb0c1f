"""Matrix products by cuBLAS, called without CuPy: CuPy's own products cannot be captured into a CUDA graph."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from ox.devices import matmul_precision
from ox.devices.cuda import check_bfloat16, cupy
from ox.errors import DeviceError, DTypeError

# cudaDataType, cublasComputeType_t and the type of the factors, by element type
FLOAT32, FLOAT64, FAST_TF32 = 68, 70, 77  # CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F_FAST_TF32
KINDS: dict[str, tuple[int, int, Any]] = {
    "float32": (0, FLOAT32, ctypes.c_float),
    "float64": (1, FLOAT64, ctypes.c_double),
    "float16": (2, FLOAT32, ctypes.c_float),
    "bfloat16": (14, FLOAT32, ctypes.c_float),
}
WORKSPACE = 32 << 20  # bytes, as cuBLAS advises for Hopper
MOST_STREAMS = 8  # whose memory is kept
DEFAULT_ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT
DISALLOW_REDUCED_PRECISION_REDUCTION = 16  # cublasMath_t: else the sums of parts of a long product may be halves


class _Held(dict[int, "Cublas"]):
    """The handles of a thread by device. When it ends, other threads take them: to destroy one waits for the device."""

    def __del__(self) -> None:
        for device, handle in self.items():
            _left.setdefault(device, []).append(handle)


_handles = threading.local()
_left: dict[int, list[Cublas]] = {}  # handles of threads that have ended


def cublas(xp: Any) -> Cublas:
    """The handle for a namespace of arrays: that of a CUDA graph, or one for this thread on the current device."""
    own = getattr(xp, "cublas", None)
    if isinstance(own, Cublas):
        return own
    held: _Held | None = _handles.__dict__.get("by_device")
    if held is None:
        held = _handles.by_device = _Held()
    device = cupy().cuda.Device().id
    if device not in held:
        try:
            held[device] = _left[device].pop()
        except (KeyError, IndexError):
            held[device] = Cublas()
    return held[device]


class Cublas:
    """A cuBLAS handle of its own, on the current device; products run on the current stream. Each stream has memory of
    its own that cuBLAS works in: products of two streams may run at once.

    Raises:
        DeviceError: the library does not load, or a call of it fails.
    """

    def __init__(self) -> None:
        self._cupy = cupy()
        self._cupy.cuda.device.get_cublas_handle()  # which loads the library
        major = self._cupy.cuda.runtime.runtimeGetVersion() // 1000
        try:
            self._library = ctypes.CDLL(f"libcublas.so.{major}")
        except OSError as error:
            raise DeviceError("cuBLAS does not load", got=str(error)) from error
        self._handle = ctypes.c_void_p()
        self._do("cublasCreate_v2", ctypes.byref(self._handle))
        self._do("cublasSetMathMode", self._handle, DISALLOW_REDUCED_PRECISION_REDUCTION)
        self._workspaces: OrderedDict[int, Any] = OrderedDict()
        self._of_graphs: dict[int, Any] = {}  # CUDA graphs have the addresses of these
        self._check_bfloat16 = cache(partial(check_bfloat16, "a product of bfloat16"))

    def matmul(
        self, a: Any, b: Any, out: Any = None, alpha: float = 1.0, added: Any = None, allow_tf32: bool | None = None
    ) -> Any:
        """The product of the last two dimensions, the others broadcast; a vector is a row or a column. `numpy.matmul`.

        Sums of float16 and bfloat16 are those of float32, rounded once; those of float32 too, unless
        `ox.devices.matmul_precision` allows TF32.

        Args:
            alpha: multiplies the product.
            added: is broadcast to the product and added, before it is rounded.
            allow_tf32: whether factors of float32 may be rounded to TF32, where `matmul_precision` is not to say so.

        Raises:
            DTypeError: an element type that cuBLAS does not multiply, or two.
        """
        kind = KINDS.get(str(a.dtype))
        if kind is None or a.dtype != b.dtype:
            raise DTypeError(
                "cuBLAS does not multiply these", got=f"{a.dtype} and {b.dtype}", expected=", ".join(KINDS)
            )
        if kind is KINDS["bfloat16"]:
            self._check_bfloat16()
        left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
        rows, depth, columns = left.shape[-2], left.shape[-1], right.shape[-1]
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        made = self._cupy.empty((*batch, rows, columns), a.dtype)
        if added is not None:
            made[...] = added
        if not depth and added is None:
            made.fill(0)
        elif depth and made.size:
            tf32 = matmul_precision.allows_tf32() if allow_tf32 is None else allow_tf32
            self._multiply(left, right, made, kind, alpha, 0.0 if added is None else 1.0, tf32)
        shape = (*batch, *made.shape[-2 if a.ndim > 1 else -1 :][: None if b.ndim > 1 else -1])
        made = made.reshape(shape)
        if out is None:
            return made
        out[...] = made
        return out

    def _multiply(
        self, a: Any, b: Any, made: Any, kind: tuple[int, int, Any], alpha: float, beta: float, tf32: bool
    ) -> None:
        batch, (rows, columns) = made.shape[:-2], made.shape[-2:]
        type_, compute, number = kind
        if tf32 and compute == FLOAT32 and type_ == KINDS["float32"][0]:
            compute = FAST_TF32
        (x, turned_a, stride_a, step_a), (y, turned_b, stride_b, step_b) = (
            self._operand(each, batch) for each in (a, b)
        )
        by, of_made = number(alpha), number(beta)
        stream = self._cupy.cuda.get_current_stream().ptr
        workspace = self._workspace(stream).data.ptr
        self._do("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream))  # which forgets the workspace
        self._do("cublasSetWorkspace_v2", self._handle, ctypes.c_void_p(workspace), ctypes.c_size_t(WORKSPACE))
        # to cuBLAS, which counts columns first, matrices lie transposed: it multiplies B' by A'
        self._do(
            "cublasGemmStridedBatchedEx", self._handle, turned_b, turned_a, columns, rows, a.shape[-1],
            ctypes.byref(by), ctypes.c_void_p(y.data.ptr), type_, stride_b, ctypes.c_longlong(step_b),
            ctypes.c_void_p(x.data.ptr), type_, stride_a, ctypes.c_longlong(step_a),
            ctypes.byref(of_made), ctypes.c_void_p(made.data.ptr), type_, columns, ctypes.c_longlong(rows * columns),
            prod(batch), compute, DEFAULT_ALGORITHM,
        )  # fmt: skip

    def _workspace(self, stream: int) -> Any:
        """The memory for the current stream. It belongs to that stream in CuPy's pool, so that it is not used again
        before the products that still work in it."""
        if (found := self._of_graphs.get(stream)) is not None:
            return found
        found = self._workspaces.pop(stream, None)
        if found is None:
            found = self._cupy.empty(WORKSPACE, np.uint8)
            if self._cupy.cuda.get_current_stream().is_capturing():
                self._of_graphs[stream] = found
                return found
            if len(self._workspaces) >= MOST_STREAMS:
                self._workspaces.popitem(last=False)
        self._workspaces[stream] = found
        return found

    def _operand(self, x: Any, batch: tuple[int, ...]) -> tuple[Any, int, int, int]:
        """Memory that cuBLAS can read, whether it lies turned, and the elements between rows and between matrices."""
        rows, columns = x.shape[-2:]
        if prod(x.shape[:-2]) == 1:
            x = x.reshape(rows, columns)
        elif x.shape[:-2] != batch:
            x = self._cupy.broadcast_to(x, (*batch, rows, columns))
        size, outer = x.itemsize, x.shape[:-2]
        step = x.strides[-3] if outer else 0
        packed = all(x.strides[i] == step * prod(outer[i + 1 :]) for i in range(len(outer)))
        packed = packed and step >= 0 and step % size == 0
        down, across = x.strides[-2:]
        if packed and (across == size or columns == 1) and _is_stride(down, size, columns, rows):
            return x, 0, max(down // size, columns) if rows > 1 else columns, step // size
        if packed and (down == size or rows == 1) and _is_stride(across, size, rows, columns):
            return x, 1, max(across // size, rows) if columns > 1 else rows, step // size
        x = self._cupy.ascontiguousarray(x)
        return x, 0, columns, rows * columns if outer else 0

    def _do(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise DeviceError(f"{name} failed", got=f"status {status}")


def _is_stride(stride: int, size: int, least: int, count: int) -> bool:
    """Whether lines lie a whole number of elements apart, at least their own length."""
    return count == 1 or (stride % size == 0 and stride >= least * size)
