"""Tensor's methods that rearrange, combine and count elements, and the products of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import functions as F
from ox.core.promotion import cast
from ox.dtypes import int64, is_floating
from ox.functions.keyword_arguments import factory_without_out, method
from ox.tensors.methods.binding import function, in_place

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


class ShapeMethods:
    """Mixed into `ox.Tensor`."""

    # moving
    roll, fliplr, flipud, rot90, unfold = map(function, ("roll", "fliplr", "flipud", "rot90", "unfold"))
    movedim, moveaxis, swapaxes, swapdims = map(function, ("movedim", "moveaxis", "swapaxes", "swapdims"))
    tile, repeat_interleave, as_strided, ravel = map(function, ("tile", "repeat_interleave", "as_strided", "ravel"))
    as_strided_scatter = function("as_strided_scatter")
    # cutting
    tensor_split, hsplit, vsplit, dsplit = map(function, ("tensor_split", "hsplit", "vsplit", "dsplit"))
    unsafe_split, unsafe_chunk = map(function, ("unsafe_split", "unsafe_chunk"))
    split_with_sizes = unsafe_split_with_sizes = function("split_with_sizes")
    # diagonals
    diag, diagonal, diag_embed, diagflat = map(function, ("diag", "diagonal", "diag_embed", "diagflat"))
    diagonal_scatter, tril, triu, trace = map(function, ("diagonal_scatter", "tril", "triu", "trace"))
    # products
    mm, bmm, mv, dot, vdot = map(function, ("mm", "bmm", "mv", "dot", "vdot"))
    outer, ger, inner, kron, cross = map(function, ("outer", "ger", "inner", "kron", "cross"))
    addmm, addmv, addbmm, baddbmm, addr = map(function, ("addmm", "addmv", "addbmm", "baddbmm", "addr"))
    addmm_, addmv_, addbmm_, baddbmm_, addr_ = map(in_place, ("addmm", "addmv", "addbmm", "baddbmm", "addr"))
    tril_, triu_, fill_diagonal_ = map(in_place, ("tril", "triu", "fill_diagonal"))
    fill_diagonal = function("fill_diagonal")
    # counting
    unique, unique_consecutive, bincount = map(function, ("unique", "unique_consecutive", "bincount"))
    histc, histogram, diff, cov, corrcoef = map(function, ("histc", "histogram", "diff", "cov", "corrcoef"))

    def view_as(self: Any, other: Any) -> Tensor:
        """`view` in the shape of another."""
        return self.view(other.shape)

    def reshape_as(self: Any, other: Any) -> Tensor:
        """`reshape` in the shape of another."""
        return F.reshape(self, other.shape)

    def expand_as(self: Any, other: Any) -> Tensor:
        """`expand` to the shape of another."""
        return F.expand(self, other.shape)

    @method
    def sum_to_size(self: Any, *size: Any) -> Tensor:
        """Summed over what was broadcast, so that this shape is left. `torch.Tensor.sum_to_size`."""
        from ox.core.broadcast import sum_to
        from ox.errors import ShapeError
        from ox.functions.dimension_arguments import sizes_of

        sizes, own = sizes_of(size), self.shape
        pairs = zip(reversed(sizes), reversed(own), strict=False)
        if len(sizes) > len(own) or any(a not in (1, b) for a, b in pairs):
            raise ShapeError(
                f"{list(map(int, own))} was not broadcast from {sizes}", expected="equal sizes, or 1", got=str(sizes)
            )
        if not is_floating(self.array.dtype) and (not sizes or list(sizes) != list(own)):
            return sum_to(cast(self, int64), sizes)  # as `sum` does
        return sum_to(self, sizes)

    @factory_without_out
    def new_tensor(
        self: Any, data: Any, *, dtype: Any = None, device: str | None = None, requires_grad: bool = False
    ) -> Tensor:
        """A copy of `data` in the type and on the device of this tensor. `torch.Tensor.new_tensor`."""
        from ox.functions.creation import tensor

        dtype = self.array.dtype if dtype is None else dtype
        return tensor(data, dtype=dtype, device=device or self.device, requires_grad=requires_grad)

    @factory_without_out
    def new_empty(
        self: Any, *size: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False
    ) -> Tensor:
        """A shape whose values are not to be relied on, in the type and on the device of this tensor."""
        return F.full_like_shape(self, size, 0, dtype, device, requires_grad)

    @factory_without_out
    def new_zeros(
        self: Any, *size: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False
    ) -> Tensor:
        """Zeros in the type and on the device of this tensor."""
        return F.full_like_shape(self, size, 0, dtype, device, requires_grad)

    @factory_without_out
    def new_ones(
        self: Any, *size: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False
    ) -> Tensor:
        """Ones in the type and on the device of this tensor."""
        return F.full_like_shape(self, size, 1, dtype, device, requires_grad)

    @factory_without_out
    def new_full(
        self: Any, size: Any, fill_value: Any, *, dtype: Any = None, device: str | None = None,
        requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        """A shape full of one number in the type and on the device of this tensor."""
        return F.full_like_shape(self, (size,), fill_value, dtype, device, requires_grad)
