"""What a communication hook of DistributedDataParallel gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.errors import ShapeError
from ox.tensors.tensor import Tensor


class GradBucket:
    """The gradients of some parameters, which one collective averages. `torch.distributed.GradBucket`.

    Attributes:
        process_group: the ranks that train together.
    """

    def __init__(
        self,
        index: int,
        buffer: Tensor,
        gradients: Sequence[Tensor],
        parameters: Sequence[Tensor],
        is_last: bool,
        process_group: Any,
    ) -> None:
        self._index, self._buffer, self._gradients, self._parameters = index, buffer, gradients, parameters
        self._is_last, self.process_group = is_last, process_group

    def index(self) -> int:
        """The bucket's number, in the order in which buckets go out."""
        return self._index

    def buffer(self) -> Tensor:
        """Its gradients [n], flat, not yet divided by the number of ranks."""
        return self._buffer

    def gradients(self) -> list[Tensor]:
        """Views of the buffer, one a parameter."""
        return list(self._gradients)

    def parameters(self) -> list[Tensor]:
        """The parameters, in the order of `gradients`."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Whether no bucket follows in this backward."""
        return self._is_last

    def set_buffer(self, buffer: Tensor) -> None:
        """Replace what the buffer holds, by as many elements in any shape.

        Raises:
            ShapeError: another number of elements.
        """
        flat = self._buffer.array
        if buffer.array.size != flat.size:
            raise ShapeError(
                "a bucket's buffer keeps its size", expected=f"{flat.size} elements", got=f"{buffer.array.size}"
            )
        flat[...] = buffer.array.reshape(-1)


__all__ = ["GradBucket"]
