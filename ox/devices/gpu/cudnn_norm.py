"""Layer and RMS normalization by cuDNN, of float32 and halves, over long rows. Each function gives None for what is
left to other kernels: short rows, arrays that are not row-major or do not begin at a multiple of 16 bytes, weights of
another shape or type than the rows, and what cuDNN refuses."""

from __future__ import annotations

from math import prod
from typing import Any

from ox.devices.gpu import cudnn
from ox.devices.gpu.cudnn_graphs import DATA_TYPES, Normalization
from ox.devices.gpu.cupy_device import cupy
from ox.dtypes import float32

# Elements of a row, from which on cuDNN takes it. A block of ox's kernels reads a long row more than once; cuDNN builds
# a plan for each number of rows, which short ones do not pay for. No device has measured where one overtakes the other.
LONG_ROW = 4096


def _normalized(x: Any, attributes: dict[str, Any]) -> tuple[int, ...] | None:
    """The normalized shape, where its rows are cuDNN's."""
    inner = tuple(x.shape[attributes.get("axis", -1) % x.ndim :]) if x.ndim else ()
    takes = prod(inner) >= LONG_ROW and x.size and x.dtype in DATA_TYPES
    return inner if takes and cudnn.is_on() else None


def _graph(kind: str, x: Any, inner: tuple[int, ...], epsilon: float = 0.0, statistics: bool = False) -> Normalization:
    columns = prod(inner)
    return Normalization(kind, x.size // columns, columns, x.dtype, float(epsilon), statistics)


def _takes(rows: list[Any], weights: list[Any], inner: tuple[int, ...]) -> bool:
    """Whether cuDNN can read these arrays."""
    x = rows[0]
    if any(a.shape != x.shape for a in rows) or any(w.shape != inner for w in weights):
        return False
    return all(a.dtype == x.dtype and _readable(a) for a in (*rows, *weights))


def _readable(array: Any) -> bool:
    return bool(array.flags.c_contiguous) and not array.data.ptr % cudnn.ALIGNED


def layer_norm(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """LayerNormalization, with statistics of float32 where they are asked for."""
    x, scale, bias = [*arrays, None][:3]
    inner = _normalized(x, attributes)
    if inner is None or attributes.get("stash_type", 1) != 1:
        return None
    if not _takes([x], [scale] if bias is None else [scale, bias], inner):
        return None
    statistics = attributes.get("outputs", 1) > 1
    graph = _graph("layer", x, inner, attributes.get("epsilon", 1e-5), statistics)
    bias = cupy().zeros(inner, x.dtype) if bias is None else bias  # cuDNN wants one
    made = [cupy().empty(x.shape, x.dtype)]
    if statistics:
        shape = (*x.shape[: x.ndim - len(inner)], *[1] * len(inner))
        made += [cupy().empty(shape, float32) for _ in ("mean", "inverse")]
    if not cudnn.run(graph, [x, scale, bias, *made]):
        return None
    return tuple(made) if statistics else made[0]


def layer_norm_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """LayerNormalizationGradient, from statistics of float32."""
    g, x, scale, mean, inverse = arrays
    inner = _normalized(x, attributes)
    if inner is None or not _takes([x, g], [scale], inner):
        return None
    if any(a.dtype != float32 or a.size != x.size // prod(inner) or not _readable(a) for a in (mean, inverse)):
        return None
    made = [cupy().empty(a.shape, x.dtype) for a in (x, scale, scale)]
    return tuple(made) if cudnn.run(_graph("layer gradient", x, inner), [g, x, scale, mean, inverse, *made]) else None


def rms_norm(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """RMSNormalization."""
    x, scale = arrays
    inner = _normalized(x, attributes)
    if inner is None or attributes.get("stash_type", 1) != 1 or not _takes([x], [scale], inner):
        return None
    y = cupy().empty(x.shape, x.dtype)
    return y if cudnn.run(_graph("rms", x, inner, attributes.get("epsilon", 1e-5)), [x, scale, y]) else None


def rms_norm_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """RMSNormalizationGradient."""
    g, x, scale = arrays
    inner = _normalized(x, attributes)
    if inner is None or not _takes([x, g], [scale], inner):
        return None
    forward = _graph("rms", x, inner, attributes.get("epsilon", 1e-5), statistics=True)
    backward = _graph("rms gradient", x, inner)
    if not cudnn.takes(backward):
        return None
    to_x, to_scale = (cupy().empty(a.shape, x.dtype) for a in (x, scale))
    inverse = cupy().empty(x.size // prod(inner), float32)
    # ONNX's operator gives no statistics: they are taken again; the rows that come with them are overwritten
    if not cudnn.run(forward, [x, scale, to_x, inverse]):
        return None
    return (to_x, to_scale) if cudnn.run(backward, [g, x, scale, inverse, to_x, to_scale]) else None
