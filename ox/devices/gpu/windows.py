"""Where a window of taps stands, for the kernels of a GPU: one to three spatial dimensions, as in device_windows.h."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from ox.devices.gpu.kernels import divisor, kernel
from ox.dtypes import DType

Ints = Sequence[int]
MOST_INT = 1 << 31  # elements of arrays whose places are int


class Window(NamedTuple):
    """A window in three dimensions; fewer have sizes of 1 in front."""

    sizes: tuple[int, ...]
    places: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    befores: tuple[int, ...]  # pads before
    behinds: tuple[int, ...]  # and behind, which kernels are not given

    def numbers(self, divisor: Callable[[int], int]) -> tuple[int, ...]:
        """WINDOW_NUMBERS of device_windows.h, for a kernel that divides by `divisor` (`window_kernel`)."""
        return _numbers(self, divisor)

    def reaching(self) -> Window:
        """The same with kernels as large as they reach, without dilation."""
        extents = tuple(d * (k - 1) + 1 for d, k in zip(self.dilations, self.kernel, strict=True))
        return self._replace(kernel=extents, dilations=(1, 1, 1))


def _three(numbers: Ints, filler: int) -> tuple[int, ...]:
    return (*[filler] * (3 - len(numbers)), *numbers)


def window(sizes: Ints, kernel: Ints, attributes: dict[str, Any]) -> Window | None:
    """The window of a convolution or pool with the attributes of ONNX; None where it is not one, or has a dimension
    more."""
    given = [attributes.get(name) for name in ("strides", "dilations", "pads")]
    # plain numbers: a size of a recording would keep the recording alive in the cache
    plain = [tuple(map(int, each or ())) for each in (sizes, kernel, *given)]
    return _window(*plain, attributes.get("auto_pad", "NOTSET"), int(attributes.get("ceil_mode", 0)))


@lru_cache(maxsize=1024)
def _window(
    sizes: Ints, kernel: Ints, strides: Ints, dilations: Ints, pads: Ints, auto_pad: str, ceil: int
) -> Window | None:
    rank = len(kernel)
    if not 1 <= rank <= 3 or len(sizes) != rank or auto_pad not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        return None
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads = pads if pads and auto_pad == "NOTSET" else (0,) * 2 * rank
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank or min(*strides, *dilations) < 1:
        return None
    places, befores, behinds = [], [], []
    for n, k, s, d, b, e in zip(sizes, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True):
        extent = d * (k - 1) + 1
        if auto_pad.startswith("SAME"):
            total = max((-(-n // s) - 1) * s + extent - n, 0) if s > 1 else extent - 1
            b = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            e = total - b
        room = n + b + e - extent
        count = room // s + 1
        if ceil and not auto_pad.startswith("SAME") and room % s and count * s < n + b:
            count += 1  # one more, unless it would begin behind the data
        if count < 1:
            return None
        places.append(count)
        befores.append(b)
        behinds.append(e)
    return Window(
        _three(sizes, 1), _three(places, 1), _three(kernel, 1), _three(strides, 1), _three(dilations, 1),
        _three(befores, 0), _three(behinds, 0),
    )  # fmt: skip


def transposed(places: Ints, kernel: Ints, attributes: dict[str, Any]) -> Window | None:
    """The window of a ConvTranspose, which stands at `places` of an output; None for sizes that are asked for."""
    rank = len(kernel)
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or attributes.get("output_shape"):
        return None
    strides, dilations = ([*(attributes.get(name) or [1] * rank)] for name in ("strides", "dilations"))
    more = attributes.get("output_padding") or [0] * rank
    pads = attributes.get("pads") if attributes.get("auto_pad", "NOTSET") == "NOTSET" else None
    pads = pads or [0] * 2 * rank
    if len(places) != rank or not len(strides) == len(dilations) == len(more) == rank or len(pads) != 2 * rank:
        return None
    along = zip(places, strides, dilations, kernel, more, pads[:rank], pads[rank:], strict=True)
    sizes = [int((p - 1) * s + d * (k - 1) + 1 + o - b - e) for p, s, d, k, o, b, e in along]
    if not 1 <= rank <= 3 or min(sizes) < 1 or min(*strides, *dilations) < 1:
        return None
    given = ((sizes, 1), (places, 1), (kernel, 1), (strides, 1), (dilations, 1), (pads[:rank], 0), (pads[rank:], 0))
    return Window(*(_three(tuple(map(int, numbers)), filler) for numbers, filler in given))


@lru_cache(maxsize=1024)
def _numbers(window: Window, divisor: Callable[[int], int]) -> tuple[int, ...]:
    divisors = (*window.sizes, *window.places, *window.kernel, *window.strides)
    return (*map(divisor, divisors), *window.dilations, *window.befores)


def window_kernel(
    name: str, file: str, dtype: DType, *arrays: Any, vector: int = 1
) -> tuple[Any, Callable[[int], int]]:
    """A kernel of a source that includes device_windows.h, and what turns a number by which it divides into its
    argument. The largest of the arrays decides how it counts."""
    small = max(a.size for a in arrays) < MOST_INT
    lines = f"#define PLACE {'int' if small else 'long long'}\n#define VECTOR {vector}\n"
    return kernel(name, file, dtype, lines), divisor if small else int


def at_rank(numbers: Ints, rank: int) -> tuple[int, ...]:
    """The last `rank` of three."""
    return tuple(numbers[3 - rank :])


def elements(window: Window) -> tuple[int, int, int]:
    """How many sizes, places and taps there are."""
    return prod(window.sizes), prod(window.places), prod(window.kernel)
