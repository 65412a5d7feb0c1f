"""Elements by place on a GPU, with a look at the places; sums by place in a fixed order."""

from __future__ import annotations

from math import prod
from typing import Any

from ox.devices import cuda_state
from ox.devices.gpu import device_checks
from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.elementwise import launch
from ox.devices.gpu.kernels import MOST_BLOCKS, THREADS, WORDS, kernel, together
from ox.devices.gpu.multi_tensor import kind_of
from ox.devices.gpu.sort import INDEX, position_bits, sorted_places
from ox.dtypes import DType, float32, float64, int64
from ox.errors import BoundsError, OxError, ShapeError

SORTED_FROM = 2048  # places; fewer are compared with each other, which sorts nothing
SHORTEST_PART = 64  # rows of one place that are added one after the other


def _kernel(name: str, index: Any, element: int = 4, number: DType = float32, vector: int = 1) -> Any:
    lines = f"#define INDEX {INDEX[index]}\n#define ELEMENT {WORDS[element]}\n#define VECTOR {vector}\n"
    return kernel(name, "device_index.cu", number, lines)


def _outside(name: str, n: int) -> int:
    return device_checks.check(BoundsError, f"an index of {name} is out of range", -n, n - 1)


def check_range(
    values: Any, low: int, high: int, what: str, error: type[OxError] = BoundsError, ignored: int | None = None
) -> None:
    """Look at integers on a GPU, without waiting: from `low` to `high`, or `ignored`. The error says `what`."""
    if not values.size or values.dtype not in INDEX:
        return
    number = device_checks.check(error, what, low, high)
    with cuda_state.at(values):  # layers call it, too
        values = cupy().ascontiguousarray(values)
        launch(
            _kernel("ox_device_check_range", values.dtype), values.size, values, low, high,
            low if ignored is None else ignored, device_checks.address(), number,
        )  # fmt: skip
        device_checks.after_launch()


def in_range(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Looks at the values of InRange, which CuPy copies."""
    error = ShapeError if attributes.get("classes") else BoundsError
    low, high, what = attributes["low"], attributes["high"], attributes["what"]
    check_range(arrays[0], low, high, what, error, attributes.get("ignored"))


def gather_nd(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Looks at the coordinates of GatherND, which CuPy gathers."""
    data, indices = arrays
    _check_coordinates("GatherND", data.shape[attributes.get("batch_dims", 0) :], indices)


def scatter_nd(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Looks at the coordinates of ScatterND, which CuPy scatters."""
    data, indices, _ = arrays
    _check_coordinates("ScatterND", data.shape, indices)


def _check_coordinates(name: str, sizes: tuple[int, ...], indices: Any) -> None:
    columns = indices.shape[-1] if indices.ndim else 0
    if columns > len(sizes):  # an error of the operator
        return
    if columns and len(set(sizes[:columns])) == 1:
        check_range(indices, -sizes[0], sizes[0] - 1, f"an index of {name} is out of range")
        return
    for axis in range(columns):
        what = f"an index of {name} for axis {axis} is out of range"
        check_range(indices[..., axis], -sizes[axis], sizes[axis] - 1, what)


def gather(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Gather."""
    data, indices = arrays
    if not data.ndim or indices.dtype not in INDEX or data.itemsize not in WORDS or not indices.size:
        return None
    axis = attributes.get("axis", 0) % data.ndim
    n, inner = data.shape[axis], prod(data.shape[axis + 1 :])
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    if not prod(shape) or not n:
        return None
    data, indices, made = (
        cupy().ascontiguousarray(data),
        cupy().ascontiguousarray(indices),
        cupy().empty(shape, data.dtype),
    )
    size = together(inner * data.itemsize, data)
    count, inner = made.nbytes // size, inner * data.itemsize // size
    launch(
        _kernel("ox_device_gather", indices.dtype, size), count, data, indices, made, indices.size, n, inner,
        device_checks.address(), _outside("Gather", n),
    )  # fmt: skip
    device_checks.after_launch()
    return made


def gather_elements(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Looks at the places of GatherElements, which CuPy gathers."""
    data, indices = arrays
    _check_axis("GatherElements", data, indices, attributes)


def scatter_elements(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """ScatterElements with the reduction add; of the others it looks at the places only."""
    data, indices, updates = arrays
    _check_axis("ScatterElements", data, indices, attributes)
    if attributes.get("reduction") != "add" or kind_of(data) is None or data.dtype != updates.dtype:
        return None
    if not data.ndim or indices.shape != updates.shape or not indices.size or indices.dtype not in INDEX:
        return None
    axis, n = attributes.get("axis", 0) % data.ndim, data.shape[attributes.get("axis", 0)]
    places = cupy().where(indices < 0, indices + n, indices).astype(int64)
    outside = (places < 0) | (places >= n)
    step = prod(data.shape[axis + 1 :])
    flat = places * step
    for i, size in enumerate(indices.shape):
        if i != axis:
            line = cupy().arange(size, dtype=int64) * prod(data.shape[i + 1 :])
            flat += line.reshape([-1 if k == i else 1 for k in range(data.ndim)])
    flat = cupy().where(outside, data.size, flat)  # beyond the end: left out
    made = cupy().array(data, order="C")
    return _added(updates.reshape(-1, 1), flat.reshape(-1), made.reshape(-1, 1), made)


def _check_axis(name: str, data: Any, indices: Any, attributes: dict[str, Any]) -> None:
    if data.ndim:
        n = data.shape[attributes.get("axis", 0)]
        check_range(indices, -n, n - 1, f"an index of {name} is out of range")


def index_add(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """IndexAdd: rows of one place are added in the order in which they come."""
    g, indices = arrays
    if kind_of(g) is None or g.ndim < 1 or indices.dtype not in INDEX or indices.shape != g.shape[:1]:
        return None
    n, width = attributes["size"], prod(g.shape[1:])
    sums = cupy().zeros((n, *g.shape[1:]), g.dtype)
    if not g.size or not n:
        return sums
    return _added(g.reshape(-1, width), indices, sums.reshape(n, width), sums)


def _added(rows: Any, places: Any, sums: Any, result: Any) -> Any:
    """Add rows [k, width] to those of `sums` at their places. Many places are sorted first; long runs of equal ones are
    added in parts."""
    rows, places = cupy().ascontiguousarray(rows), cupy().ascontiguousarray(places)
    (k, width), n = rows.shape, sums.shape[0]
    grid = (min(k, MOST_BLOCKS),)
    if k < SORTED_FROM:
        function = _kernel("ox_device_index_add", places.dtype, number=rows.dtype)
        function(grid, (THREADS,), (k, rows, places, sums, width, n))
        return result
    if n.bit_length() + position_bits(k) > 63:  # left to CuPy
        return None
    keys, bits = sorted_places(places, n)
    vector = together(width * rows.itemsize, rows, sums) // rows.itemsize
    columns, length = width // vector, part_length(k)
    parts = cupy().empty((-(-k // length), width), float64 if rows.dtype == float64 else float32)
    for name, threads, *arrays in (
        ("ox_device_segment_parts", parts.size // vector, parts),
        ("ox_device_segment_add", k * columns, parts, sums),
    ):
        function = _kernel(name, int64, number=rows.dtype, vector=vector)
        launch(function, threads, rows, keys, k, bits, length, *arrays, columns, n)
    return result


def part_length(count: int) -> int:
    """How many of `count` rows one place may have before their sum is made of parts: then as many rows of a part as
    parts, about."""
    return max(SHORTEST_PART, 1 << count.bit_length() // 2)
