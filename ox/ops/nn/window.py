"""What Conv, ConvTranspose and the pools share: where a window of taps stands, in every spatial dimension."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from ox.core.constants import axes_tensor
from ox.core.operator import OPS
from ox.core.symbolic import Dim
from ox.core.tensor import TensorBase, TensorType
from ox.errors import ArgumentError
from ox.ops.shape.pad import pad_axes

Ints = Sequence[int]
Slices = tuple[slice, ...]
_END = 2**62


class Window:
    """Kernel sizes, strides, dilations and pads, with the schema's defaults filled in.

    Sizes given to its methods may be `ox.Dim`, and then so are those that come back.
    """

    __slots__ = ("auto_pad", "ceil", "dilations", "extents", "kernel", "pads", "strides")

    def __init__(
        self,
        kernel: Ints,
        strides: Ints | None,
        dilations: Ints | None,
        pads: Ints | None,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
    ) -> None:
        rank = len(kernel)
        self.kernel = tuple(int(k) for k in kernel)
        self.strides = tuple(strides) if strides else (1,) * rank
        self.dilations = tuple(dilations) if dilations else (1,) * rank
        self.pads = tuple(pads) if pads and auto_pad == "NOTSET" else (0,) * (2 * rank)
        self.auto_pad, self.ceil = auto_pad, ceil_mode
        for name, given, wanted in (
            ("strides", self.strides, rank),
            ("dilations", self.dilations, rank),
            ("pads", self.pads, 2 * rank),
        ):
            if len(given) != wanted:
                raise ArgumentError(f"{name} {list(given)} for {rank} spatial dimensions", expected=f"{wanted} numbers")
        for name, given in (("kernel_shape", self.kernel), ("strides", self.strides), ("dilations", self.dilations)):
            if any(n < 1 for n in given):
                raise ArgumentError(f"{name} {list(given)} of a window", expected="1 or more in each dimension")
        if auto_pad not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
            raise ArgumentError(f"no auto_pad {auto_pad!r}", expected="NOTSET, VALID, SAME_UPPER or SAME_LOWER")
        self.extents = tuple(d * (k - 1) + 1 for d, k in zip(self.dilations, self.kernel, strict=True))

    @property
    def same(self) -> bool:
        return self.auto_pad.startswith("SAME")

    def padding(self, sizes: Ints) -> list[tuple[Any, Any]]:
        """(pads before, pads behind) of each dimension."""
        rank = len(self.kernel)
        if not self.same:
            return [(self.pads[i], self.pads[rank + i]) for i in range(rank)]
        found = []
        for n, s, extent in zip(sizes, self.strides, self.extents, strict=True):
            total = positive(((n + s - 1) // s - 1) * s + extent - n) if s > 1 else extent - 1
            half = total // 2
            found.append((half, total - half) if self.auto_pad == "SAME_UPPER" else (total - half, half))
        return found

    def outputs(self, sizes: Ints) -> list[int]:
        """How many places the window takes in each dimension."""
        found = []
        for n, s, extent, (before, behind) in zip(sizes, self.strides, self.extents, self.padding(sizes), strict=True):
            room = n + before + behind - extent
            count = room // s + 1
            if self.ceil and not self.same and room % s and count * s < n + before:
                count += 1  # one more, unless it would begin behind the data
            if count < 1:
                raise ValueError(f"a window of {extent} is larger than the padded size {n + before + behind}")
            found.append(count)
        return found

    def taps(self, places: Ints) -> Iterator[tuple[tuple[int, ...], Slices]]:
        """Each tap of the kernel, with the slices of the padded data that it meets at all `places` of the window."""
        for tap in product(*map(range, self.kernel)):
            yield tap, _steps(tap, self.dilations, places, self.strides)

    def positions(self, places: Ints) -> Iterator[tuple[tuple[int, ...], Slices]]:
        """Each place of the window, with the slices of the padded data that its taps meet there."""
        for place in product(*map(range, places)):
            yield place, _steps(place, self.strides, self.kernel, self.dilations)


def _steps(first: Ints, scale: Ints, counts: Ints, steps: Ints) -> Slices:
    along = zip(first, scale, counts, steps, strict=True)
    return tuple([slice(i * m, i * m + (n - 1) * s + 1, s) for i, m, n, s in along])


def positive(size: int) -> int:
    """max(size, 0), for a size that may be an `ox.Dim`."""
    if isinstance(size, Dim):
        return Dim(max(int(size), 0), lambda: OPS["Max"](size.tensor, axes_tensor([0])))
    return max(size, 0)


def padded(xp: Any, x: Any, amounts: Sequence[tuple[int, int]], value: Any = 0) -> Any:
    """Kernel side: the array with its last dimensions padded (or, where negative, cropped)."""
    if not any(before or behind for before, behind in amounts):
        return x
    lead = x.ndim - len(amounts)
    inner = x[(..., *[slice(max(-b, 0), n + min(e, 0)) for n, (b, e) in zip(x.shape[lead:], amounts, strict=True)])]
    shape = (*x.shape[:lead], *[n + b + e for n, (b, e) in zip(x.shape[lead:], amounts, strict=True)])
    if inner.shape == shape:
        return inner
    out = xp.zeros(shape, x.dtype) if value == 0 else xp.full(shape, value, x.dtype)
    begins = [max(b, 0) for b, _ in amounts]
    out[(..., *[slice(b, b + n) for b, n in zip(begins, inner.shape[lead:], strict=True)])] = inner
    return out


def pad_to(g: TensorType, before: Ints, sizes: Ints) -> TensorType:
    """Gradient side: the last dimensions padded or cropped, by `before` in front and to `sizes` in all."""
    rank = len(sizes)
    lead = g.ndim - rank
    return pad_axes(g, {lead + i: (before[i], sizes[i] - before[i] - g.shape[lead + i]) for i in range(rank)})


def tap_slices(x: TensorBase, window: Window) -> list[TensorBase]:
    """Gradient side: what each tap of the kernel meets in padded data, in the order of `Window.taps`."""
    rank = len(window.kernel)
    spatial, steps = axes_tensor(range(2, 2 + rank)), axes_tensor(window.strides)
    met = []
    for tap in product(*map(range, window.kernel)):
        first = [i * d for i, d in zip(tap, window.dilations, strict=True)]
        # up to this many from the end, for every size
        end = [f + 1 - extent or _END for f, extent in zip(first, window.extents, strict=True)]
        met.append(OPS["Slice"](x, axes_tensor(first), axes_tensor(end), spatial, steps))
    return met
