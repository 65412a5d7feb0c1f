"""`torch.types`: names for annotations."""

from __future__ import annotations

import builtins
import os
from typing import IO, TypeAlias

from ox.core.device import device as _device
from ox.core.size import Size
from ox.core.symbolic import Dim as SymInt
from ox.dtypes import DType as _dtype  # noqa: F401
from ox.tensors.tensor import Tensor

__all__ = ["Device", "FileLike", "Number", "Size", "SymInt"]

_int, _float, _bool = builtins.int, builtins.float, builtins.bool
_size: TypeAlias = Size | list[int] | tuple[int, ...]
Number: TypeAlias = int | float | bool
Device: TypeAlias = _device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
_TensorOrTensors: TypeAlias = Tensor | tuple[Tensor, ...]
