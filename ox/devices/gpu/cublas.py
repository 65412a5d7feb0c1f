"""Matrix products by cuBLAS, called without CuPy: CuPy's own products cannot be captured into a CUDA graph."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ox.devices.gpu import matmul_precision
from ox.devices.gpu.cupy_device import check_bfloat16, cupy
from ox.devices.gpu.kernels import are_on, kernel
from ox.devices.gpu.rowwise import launch
from ox.devices.gpu.thread_handles import ThreadHandles
from ox.dtypes import DType, bfloat16, float16, float32, float64
from ox.errors import DeviceError, DTypeError, ShapeError

# cudaDataType, cublasComputeType_t and the type of the factors, by element type
FLOAT32, FLOAT64, FAST_TF32 = 68, 70, 77  # CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F_FAST_TF32
KINDS: dict[DType, tuple[int, int, Any]] = {
    float32: (0, FLOAT32, ctypes.c_float),
    float64: (1, FLOAT64, ctypes.c_double),
    float16: (2, FLOAT32, ctypes.c_float),
    bfloat16: (14, FLOAT32, ctypes.c_float),
}
ROWS = (float32, float16, bfloat16)  # types of device_rows.cu
WORKSPACE = 32 << 20  # bytes, as cuBLAS advises for Hopper
MOST_STREAMS = 8  # whose memory is kept
MOST = 2**31 - 1  # rows, columns, elements between them, and products of a batch: cuBLAS takes them as int
DEFAULT_ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT
DISALLOW_REDUCED_PRECISION_REDUCTION = 16  # cublasMath_t: else the sums of parts of a long product may be halves


def cublas(xp: Any) -> Cublas:
    """The handle for a namespace of arrays: that of a CUDA graph, or one for this thread on the current device."""
    module = cupy()
    if xp is not module and isinstance(own := getattr(xp, "cublas", None), Cublas):
        return own
    return _handles.of_thread()[module.cuda.runtime.getDevice()]


class _Operand(NamedTuple):
    """How cuBLAS reads a matrix, or a stack of them."""

    turned: int  # 1 where columns lie one after the other in memory
    memory: tuple[int, int, Any]  # the element type; the elements between rows, and between matrices
    copied: tuple[int, ...] | None  # the shape to copy it to before; None where it is read as it lies


class _Plan(NamedTuple):
    """How cuBLAS multiplies arrays of one element type that lie like two it has seen."""

    shape: tuple[int, ...]  # of the product
    sizes: tuple[int, int, int]  # columns, rows, depth
    a: _Operand
    b: _Operand
    memory: tuple[int, int, Any]  # that of the product, as of an operand
    batch: int


# An array without its elements: its shape and strides, and whether its last two axes are exchanged
_Layout = tuple[tuple[int, ...], tuple[int, ...], bool]


@lru_cache(maxsize=4096)
def _plan(dtype: DType, a: _Layout, b: _Layout) -> _Plan:
    (left, left_strides), (right, right_strides), size = _matrices(a, row=True), _matrices(b, row=False), dtype.itemsize
    if left[-1] != right[-2]:
        raise ShapeError(f"cuBLAS cannot multiply {list(left)} by {list(right)}")
    shape = (*np.broadcast_shapes(left[:-2], right[:-2]), *left[-2 : -1 if len(a[0]) > 1 else -2])
    shape = shape if len(b[0]) == 1 else (*shape, right[-1])
    count = prod(left[:-1])
    if len(left) > 2 and len(b[0]) == 2 and count <= MOST and _is_packed(left, left_strides, size):
        # one product of all rows
        left, left_strides = (count, left[-1]), (left[-1] * size, size)
    batch, (rows, depth), columns = np.broadcast_shapes(left[:-2], right[:-2]), left[-2:], right[-1]
    x, y = _operand(dtype, left, left_strides, batch), _operand(dtype, right, right_strides, batch)
    if max(rows, columns, depth, prod(batch), x.memory[1], y.memory[1]) > MOST:
        raise ShapeError(f"cuBLAS cannot multiply {list(left)} by {list(right)}", expected=f"sizes up to {MOST}")
    return _Plan(shape, (columns, rows, depth), x, y, _memory(dtype, columns, rows * columns), prod(batch))


def _matrices(layout: _Layout, row: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and strides of an operand as matrices; a vector is a row or a column."""
    shape, strides, turned = layout
    if len(shape) == 1:
        return ((1, *shape), (0, *strides)) if row else ((*shape, 1), (*strides, 0))
    if turned:
        return (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])
    return shape, strides


def _is_packed(shape: tuple[int, ...], strides: tuple[int, ...], step: int) -> bool:
    """Whether the elements lie one after the other, the last of them `step` bytes apart."""
    return all(n == 1 or strides[i] == step * prod(shape[i + 1 :]) for i, n in enumerate(shape))


def _memory(dtype: DType, stride: int, step: int) -> tuple[int, int, Any]:
    return KINDS[dtype][0], stride, ctypes.c_longlong(step)


def _operand(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], batch: tuple[int, ...]) -> _Operand:
    """How cuBLAS reads an operand for each product of the batch."""
    (rows, columns), (down, across), size = shape[-2:], strides[-2:], dtype.itemsize
    alone = prod(shape[:-2]) == 1
    missing = len(batch) - len(shape) + 2
    steps = tuple(0 if k < missing or shape[k - missing] == 1 else strides[k - missing] for k in range(len(batch)))
    step = 0 if alone else next((step for n, step in zip(batch[::-1], steps[::-1], strict=True) if n != 1), 0)
    even = alone or (_is_packed(batch, steps, step) and step >= 0 and step % size == 0)
    if even and (across == size or columns == 1) and _is_stride(down, size, columns, rows):
        return _Operand(0, _memory(dtype, max(down // size, columns) if rows > 1 else columns, step // size), None)
    if even and (down == size or rows == 1) and _is_stride(across, size, rows, columns):
        return _Operand(1, _memory(dtype, max(across // size, rows) if columns > 1 else rows, step // size), None)
    copied = (rows, columns) if alone else (*batch, rows, columns)
    return _Operand(0, _memory(dtype, columns, 0 if alone else rows * columns), copied)


def _is_stride(stride: int, size: int, least: int, count: int) -> bool:
    """Whether lines lie a whole number of elements apart, at least their own length."""
    return count == 1 or (stride % size == 0 and stride >= least * size)


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
        self._array = self._cupy.ndarray
        self._multiply = self._library.cublasGemmStridedBatchedEx
        self._handle = ctypes.c_void_p()
        self._do("cublasCreate_v2", ctypes.byref(self._handle))
        self._do("cublasSetMathMode", self._handle, DISALLOW_REDUCED_PRECISION_REDUCTION)
        self._stream: Any = None  # what products run on
        self._workspaces: OrderedDict[int, Any] = OrderedDict()
        self._of_graphs: dict[int, Any] = {}  # CUDA graphs have the addresses of these
        self._check_bfloat16 = cache(partial(check_bfloat16, "a product of bfloat16"))

    def matmul(
        self,
        a: Any,
        b: Any,
        out: Any = None,
        alpha: float = 1.0,
        added: Any = None,
        allow_tf32: bool | None = None,
        turn_a: bool = False,
        turn_b: bool = False,
    ) -> Any:
        """The product of the last two dimensions, the others broadcast; a vector is a row or a column. `numpy.matmul`.

        Sums of float16 and bfloat16 are those of float32, rounded once; those of float32 too, unless
        `ox.devices.gpu.matmul_precision` allows TF32.

        Args:
            alpha: multiplies the product.
            added: is broadcast to the product and added, before it is rounded.
            allow_tf32: whether factors of float32 may be rounded to TF32, where `matmul_precision` is not to say so.
            turn_a, turn_b: exchange the last two axes of a factor, which is no vector.

        Raises:
            DTypeError: an element type that cuBLAS does not multiply, or two.
            ShapeError: the shapes do not fit, or are too large for cuBLAS.
        """
        dtype = self._type_of(a, b)
        shape, sizes, of_a, of_b, of_made, batch = _plan(
            dtype, (a.shape, a.strides, turn_a), (b.shape, b.strides, turn_b)
        )
        made = self._array(shape, dtype)
        if added is not None:
            _spread(added, made)
        if sizes[2] and made.size:
            compute, number = _computed(dtype, allow_tf32), KINDS[dtype][2]
            x = a if of_a.copied is None else self._copied(a, of_a.copied, turn_a)
            y = b if of_b.copied is None else self._copied(b, of_b.copied, turn_b)
            stream = self._cupy.cuda.get_current_stream()
            if stream is not self._stream:
                self._run_on(stream)
            # to cuBLAS, which counts columns first, matrices lie transposed: it multiplies B' by A'
            status = self._multiply(
                self._handle, of_b.turned, of_a.turned, *sizes, ctypes.byref(number(alpha)),
                ctypes.c_void_p(y.data.ptr), *of_b.memory, ctypes.c_void_p(x.data.ptr), *of_a.memory,
                ctypes.byref(number(0.0 if added is None else 1.0)), ctypes.c_void_p(made.data.ptr), *of_made,
                batch, compute, DEFAULT_ALGORITHM,
            )  # fmt: skip
            _check("cublasGemmStridedBatchedEx", status)
        elif not sizes[2] and added is None:
            made.fill(0)
        if out is None:
            return made
        out[...] = made
        return out

    def repeated(
        self, a: Any, b: Any, out: Any, turn_b: bool = False, added: bool = False, allow_tf32: bool | None = None
    ) -> Callable[[int], None]:
        """The product of two matrices into `out`, which is made again and again: a call with an address takes what lies
        there for `a`. It needs little of the host's time, and no memory. For use by this thread, on the current stream.

        Args:
            a: shape and strides of each first factor; a, b and `out` have one element type, and b rows without gaps.
            out: row-major, of the product's shape.
            added: adds to what is in `out`.
            turn_b, allow_tf32: as in `matmul`.

        Raises:
            DTypeError: an element type that cuBLAS does not multiply, or several.
            ShapeError: the shapes do not fit, or cuBLAS cannot read a matrix as it lies.
        """
        dtype = self._type_of(a, b, out)
        shape, sizes, of_a, of_b, of_made, batch = _plan(
            dtype, (a.shape, a.strides, False), (b.shape, b.strides, turn_b)
        )
        if out.shape != shape or not out.flags.c_contiguous or of_a.copied is not None or of_b.copied is not None:
            raise ShapeError(
                "cuBLAS cannot multiply these in place",
                expected=f"row-major arrays, the result {list(shape)}",
                got=f"{list(a.shape)} with strides {list(a.strides)}, {list(b.shape)} with {list(b.strides)}, "
                f"the result {list(out.shape)} with {list(out.strides)}",
            )
        stream = self._cupy.cuda.get_current_stream()
        if stream is not self._stream:
            self._run_on(stream)
        compute, number, multiply = _computed(dtype, allow_tf32), KINDS[dtype][2], self._multiply
        before = (
            self._handle, of_b.turned, of_a.turned, *sizes, ctypes.byref(number(1.0)), ctypes.c_void_p(b.data.ptr),
            *of_b.memory,
        )  # fmt: skip
        behind = (
            *of_a.memory, ctypes.byref(number(float(added))), ctypes.c_void_p(out.data.ptr), *of_made, batch, compute,
            DEFAULT_ALGORITHM,
        )  # fmt: skip

        def run(address: int) -> None:
            _check("cublasGemmStridedBatchedEx", multiply(*before, ctypes.c_void_p(address), *behind))

        return run

    def _type_of(self, *arrays: Any) -> DType:
        """The one element type of a product's arrays."""
        dtype: DType = arrays[0].dtype
        if dtype not in KINDS or any(a.dtype != dtype for a in arrays):
            got = " and ".join(str(a.dtype) for a in arrays)
            raise DTypeError("cuBLAS does not multiply these", got=got, expected=", ".join(map(str, KINDS)))
        if dtype == bfloat16:
            self._check_bfloat16()
        return dtype

    def _copied(self, x: Any, shape: tuple[int, ...], turn: bool) -> Any:
        """A copy of an operand that cuBLAS can read."""
        if turn:
            x = x.swapaxes(-1, -2)
        if prod(shape) == x.size:
            x = x.reshape(shape)  # of a vector, or of a stack of one
        return self._cupy.ascontiguousarray(self._cupy.broadcast_to(x, shape))

    def _run_on(self, stream: Any) -> None:
        """Let products run on a stream, from now on. It is kept until there is another one: a new stream could get the
        address of one that is gone."""
        self._stream = None
        self._do("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream.ptr))  # which forgets the workspace
        workspace = ctypes.c_void_p(self._workspace(stream).data.ptr)
        self._do("cublasSetWorkspace_v2", self._handle, workspace, ctypes.c_size_t(WORKSPACE))
        self._stream = stream

    def _workspace(self, stream: Any) -> Any:
        """The memory for the current stream. It belongs to that stream in CuPy's pool, so that it is not used again
        before the products that still work in it."""
        if (found := self._of_graphs.get(stream.ptr)) is not None:
            return found
        found = self._workspaces.pop(stream.ptr, None)
        if found is None:
            found = self._cupy.empty(WORKSPACE, np.uint8)
            if stream.is_capturing():
                self._of_graphs[stream.ptr] = found
                return found
            if len(self._workspaces) >= MOST_STREAMS:
                self._workspaces.popitem(last=False)
        self._workspaces[stream.ptr] = found
        return found

    def _do(self, name: str, *arguments: Any) -> None:
        _check(name, getattr(self._library, name)(*arguments))


_handles = ThreadHandles(Cublas)


def _computed(dtype: DType, allow_tf32: bool | None) -> int:
    """The cublasComputeType_t of a product."""
    if dtype == float32 and (matmul_precision.allows_tf32() if allow_tf32 is None else allow_tf32):
        return FAST_TF32
    return KINDS[dtype][1]


def _spread(added: Any, made: Any) -> None:
    """Write what is broadcast to an array. For a bias in each row CuPy takes three times the
    host's time of a kernel of ours."""
    is_bias = made.ndim == 2 and made.size and added.shape == made.shape[1:] and added.strides[0] == added.itemsize
    if is_bias and added.dtype in ROWS and are_on():
        launch(kernel("ox_device_repeat_row", "device_rows.cu", added.dtype), made.shape[0], added, made, added.size)
    else:
        made[...] = added


def _check(name: str, status: int) -> None:
    if status:
        raise DeviceError(f"{name} failed", got=f"status {status}")
