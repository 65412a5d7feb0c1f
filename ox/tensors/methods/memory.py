"""Tensor methods that speak of memory: views, copies, strides, addresses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ox import functions as F
from ox.core import views
from ox.core.memory_format import address, channels_format, copied_to, layout, lies_in, part_of, same_place
from ox.core.mode import MODE
from ox.core.operator import OPS
from ox.core.symbolic import Dim, note_lost_size
from ox.devices import cuda_state
from ox.devices.cpu_kernels.row_major import row_major
from ox.errors import ArgumentError, DeviceError, GradientError, ShapeError
from ox.functions.dimension_arguments import one_dim

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


class MemoryMethods:
    """Mixed into `ox.Tensor`."""

    def view(self: Any, *sizes: Any, size: Any = None) -> Tensor:
        """The same memory in another shape; one size may be -1. `torch.Tensor.view`.

        Raises:
            ShapeError: the sizes do not multiply to the number of elements, or the memory of this view (a transposed
                or cut tensor) does not allow that shape without a copy.
            ArgumentError: an element type instead of a shape.
        """
        if len(sizes) == 1 and isinstance(sizes[0], (np.dtype, type)):
            raise ArgumentError(
                "view gives another shape, not another element type",
                hint="x.to(dtype) converts; ox.from_numpy(x.numpy().view(dtype)) reads the same bits",
            )
        if not self.array.flags.c_contiguous and self._base is None and not views.living_views(self):
            # an operator's result has another memory order; this memory is not shared
            self.array = cuda_state.copy(self.array)
        made = F.reshape(self, *sizes) if size is None else F.reshape(self, *sizes, shape=size)
        if made._base is None and made.array.size:
            raise ShapeError(
                f"a view of shape {list(made.static_shape)} does not fit the memory of this tensor without a copy",
                got=f"shape {list(self.static_shape)} with strides {list(self.stride())}",
                hint="x.reshape(...), which copies",
            )
        return made

    def clone(self: Any, *, memory_format: Any = None) -> Tensor:
        """A copy in new memory; gradients pass.

        Args:
            memory_format: `ox.channels_last` or `ox.channels_last_3d` for a copy that lies so; else it is row-major.

        Raises:
            ShapeError: that format is for another number of dimensions.
        """
        wanted = channels_format(memory_format)
        copied = OPS["Identity"](self)
        if wanted or copied.array is self.array or copied.array.base is not None:
            copied.array = copied_to(self.array, self.ndim, wanted) if wanted else row_major(copied.array)
            copied._base, copied._origin, copied._writes = None, None, [self.version, ""]  # it is no view after all
        return copied

    def contiguous(self: Any, memory_format: Any = None) -> Tensor:
        """Itself when the array is in row-major order, or in that of `memory_format`; else a copy that is.

        Args:
            memory_format: `ox.channels_last` or `ox.channels_last_3d`.

        Raises:
            ShapeError: that format is for another number of dimensions.
        """
        wanted = channels_format(memory_format)
        if wanted is None:
            return self if self.array.flags.c_contiguous else self.clone()
        return self if lies_in(self.array, self.ndim, wanted) else self.clone(memory_format=wanted)

    def is_contiguous(self: Any, memory_format: Any = None) -> bool:
        """Whether the array is in row-major order, or in that of `ox.channels_last` or `ox.channels_last_3d`."""
        wanted = channels_format(memory_format)
        return bool(self.array.flags.c_contiguous) if wanted is None else lies_in(self.array, self.ndim, wanted)

    def stride(self: Any, dim: int | None = None) -> Any:
        """For each dimension (or one) how many elements of memory lie between neighbours."""
        strides = layout(self.array).strides
        sizes = self.shape
        if any(isinstance(size, Dim) for size in sizes):
            made = tuple(math.prod(sizes[axis + 1 :]) for axis in range(len(sizes)))
            if tuple(map(int.__int__, made)) == strides:
                strides = made
            else:  # of another memory order, which nobody knows at other sizes
                for size in sizes:
                    if isinstance(size, Dim):
                        note_lost_size(size)
        return strides if dim is None else strides[one_dim(dim, self.array.ndim)]

    def storage_offset(self: Any) -> int:
        """How many elements of memory lie before its first one in the tensor whose view it is."""
        part = None if self._base is None else part_of(self.array, self._base.array)
        return 0 if part is None else part.offset

    def data_ptr(self: Any) -> int:
        """The address of the first element."""
        return address(self.array)

    def is_set_to(self: Any, tensor: Tensor) -> bool:
        """Whether both are element by element the same memory."""
        return same_place(self.array, tensor.array)

    def _is_view(self: Any) -> bool:
        """Whether it shows the memory of another tensor, which is then `_base`."""
        return self._base is not None

    def detach_(self: Any) -> Tensor:
        """Leave the graph; `torch.Tensor.detach_`. Raises GradientError for a view."""
        if self._base is not None:
            raise GradientError("a view cannot be detached in place", hint="x.detach()")
        own: Any = self
        own.node, own.port = None, 0
        return own

    def t_(self: Any) -> Tensor:
        """`t` in place."""
        return _become(self, F.t(self), "t_")

    def transpose_(self: Any, dim0: int, dim1: int) -> Tensor:
        """`transpose` in place."""
        return _become(self, F.transpose(self, dim0, dim1), "transpose_")

    def squeeze_(self: Any, dim: Any = None) -> Tensor:
        """`squeeze` in place."""
        return _become(self, F.squeeze(self, dim), "squeeze_")

    def unsqueeze_(self: Any, dim: int) -> Tensor:
        """`unsqueeze` in place."""
        return _become(self, F.unsqueeze(self, dim), "unsqueeze_")

    swapdims_ = transpose_

    def swapaxes_(self: Any, axis0: int, axis1: int) -> Tensor:
        """`swapaxes` in place."""
        return _become(self, F.swapaxes(self, axis0, axis1), "swapaxes_")

    @property
    def is_cuda(self: Any) -> bool:
        """Whether it is on a GPU."""
        return not isinstance(self.array, np.ndarray)

    @property
    def is_cpu(self: Any) -> bool:
        """Whether it is in host memory."""
        return isinstance(self.array, np.ndarray)

    def pin_memory(self: Any, device: Any = None) -> Tensor:
        """A copy in pinned memory, from which ``x.to("cuda", non_blocking=True)`` copies while the host goes on; itself
        if it is there already, or without a GPU. `torch.Tensor.pin_memory`.

        Raises:
            DeviceError: it is on a GPU.
        """
        from ox.core.device_copy import pin
        from ox.devices import cuda

        return pin(self) if cuda.available() else self

    def is_pinned(self: Any, device: Any = None) -> bool:
        """Whether it is in pinned memory."""
        from ox.devices.gpu.pinned_memory import is_pinned

        return is_pinned(self.array)

    def record_stream(self: Any, s: Any) -> None:
        """When nothing uses the tensor's memory any more, it is not used again before the work has ended that the
        stream has then. `torch.Tensor.record_stream`.

        For a tensor that was made on one stream and is read or written on another: without it the first stream's next
        tensor may take the memory while the other still works. The memory is given back by a later call of this method,
        or by `ox.cuda.empty_cache`.

        Args:
            s: a stream of `ox.cuda.Stream`, or the current one of `ox.cuda.current_stream`.

        Raises:
            DeviceError: the tensor is not on a GPU, or the stream has been destroyed.
            ArgumentError: it is no stream.
        """
        from ox.devices.gpu.recorded_memory import record_stream

        if not self.is_cuda:
            raise DeviceError("streams have no work on tensors of the host", got="a tensor on cpu", hint="x.cuda()")
        if not hasattr(s, "ptr"):
            raise ArgumentError("this is no stream", expected="ox.cuda.Stream()", got=repr(s))
        record_stream(self.array, s)

    # what tensors of PyTorch can be besides
    is_ipu = is_maia = is_meta = is_mkldnn = is_mps = is_mtia = is_nested = False
    is_quantized = is_sparse_csr = is_vulkan = is_xla = is_xpu = False
    output_nr = 0


def _become(x: Any, view: Tensor, operation: str) -> Tensor:
    """`x` is from now on what a view of it is: another shape of the same memory.

    Raises:
        GradientError: as for a write in place.
    """
    if x is view:
        return x
    mode = MODE.get()
    if mode.grad and x.node is not None:
        x._refuse_write(operation)
    x.array = view.array
    x.count_write(operation)  # in a recording, views from before do not know the new shape
    if mode.recording is not None:
        mode.recording.alias(x, view)
    if mode.grad:
        x.node, x.port = view.node, view.port
    return x
