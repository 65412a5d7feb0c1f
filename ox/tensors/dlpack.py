"""DLPack: tensors that share memory with other libraries, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox.core import operator
from ox.devices import cuda
from ox.dtypes import ALL
from ox.errors import ArgumentError, DTypeError, GradientError

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

CPU, CUDA = 1, 2  # of DLDeviceType


class Exchange:
    """Mixed into `ox.Tensor`: what `numpy.from_dlpack`, `torch.from_dlpack` and the like call."""

    array: Any

    def __dlpack_device__(self) -> tuple[int, int]:
        """(kind, number): (1, 0) is the CPU, 2 is CUDA."""
        if isinstance(self.array, np.ndarray):
            return CPU, 0
        return CUDA, int(self.array.device.id)

    def __dlpack__(self: Any, **options: Any) -> Any:
        """The memory as a DLPack capsule; `stream`, `max_version`, `dl_device` and `copy` as the protocol has them.

        Raises:
            GradientError: it requires a gradient. BufferError: the element type has no counterpart (bfloat16), or the
            memory is read-only and the other side asks for an old version.
        """
        if self.requires_grad:
            raise GradientError("a tensor that requires a gradient is not handed to other libraries", hint="x.detach()")
        self._refuse_under_recording("__dlpack__")
        if isinstance(self.array, np.ndarray) and options.get("stream") is None:
            options.pop("stream", None)
        return self.array.__dlpack__(**options)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of an object with DLPack: arrays and tensors of NumPy, PyTorch, CuPy, JAX.
    `torch.from_dlpack`.

    Args:
        ext_tensor: the other library's tensor.
        device: where the result lives; a copy if that is elsewhere.
        copy: True makes one in any case, False never does.

    Raises:
        ArgumentError: it does not speak DLPack, or a copy was needed that `copy=False` forbids.
        DTypeError: an element type that ox does not have.
    """
    if not hasattr(ext_tensor, "__dlpack__") or not hasattr(ext_tensor, "__dlpack_device__"):
        raise ArgumentError("from_dlpack takes what has __dlpack__", got=type(ext_tensor).__name__)
    kind, _ = ext_tensor.__dlpack_device__()
    try:
        array = cuda.cupy().from_dlpack(ext_tensor) if int(kind) == CUDA else np.from_dlpack(ext_tensor)
    except (BufferError, RuntimeError, ValueError) as error:  # NumPy has no bfloat16 here
        raise ArgumentError(
            "this memory cannot be shared", got=str(error), hint="another element type, or a copy"
        ) from error
    if array.dtype not in ALL:
        raise DTypeError("from_dlpack got an element type that ox does not have", got=str(array.dtype))
    if copy:
        array = array.copy()
    made = operator.make_tensor(array)
    if device is None or str(device) == made.device:
        return made
    moved: Tensor = made.to(device=device)
    if copy is False and moved.device != made.device:
        raise ArgumentError("another device means a copy", hint="copy=None")
    return moved
