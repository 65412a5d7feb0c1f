"""Operators in others, where a runtime lacks them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.core.constants import axes_tensor, constant
from ox.core.operator import OPS, make_tensor
from ox.dtypes import float32, float64, int64
from ox.graph.ir import Graph, Node
from ox.graph.passes.shape_inference import Dims
from ox.graph.targets.expand import Body
from ox.ops.recurrent.arguments import call
from ox.ops.recurrent.decomposition import forward

LARGEST_FRAME = 4096  # of an STFT; its matrix has the square of that in elements


def recurrent_in_steps(node: Node, graph: Graph, dims: Dims) -> Body:
    """RNN, GRU and LSTM as a Scan of their equations, by the definition of ONNX."""
    kind = node.op_type

    def body(*inputs: Any, hidden_size: int | None = None, **attributes: Any) -> Any:
        names = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
        given = dict.fromkeys(names) | dict(zip(names, inputs, strict=False))
        return forward(call(kind, attributes), given)

    return body


def stft_as_convolution(node: Node, graph: Graph, dims: Dims) -> Body | None:
    """STFT as a Conv with the windowed sines and cosines of each frequency (Cheuk et al., "nnAudio", 2020).

    The sums are those of the transform's definition; they cost the length of a frame for each frequency, where a fast
    transform costs its logarithm. Left as it is: complex signals, computed windows, long frames.
    """
    signal, step, window, length = [*node.inputs, None, None][:4]
    numbers = [None if v is None else graph.constants.get(v) for v in (step, window, length)]
    if signal is None or signal.dtype not in (float32, float64) or signal.shape is None or signal.shape[-1] != 1:
        return None
    if any(v is not None and array is None for v, array in zip((step, window, length), numbers, strict=True)):
        return None
    hop, shape, count = numbers
    size = int(count.ravel()[0]) if count is not None else len(shape) if shape is not None else 0
    if hop is None or not 1 <= size <= LARGEST_FRAME:
        return None
    bins = size // 2 + 1 if node.attributes.get("onesided", 1) else size
    angles = 2 * np.pi * np.outer(np.arange(bins), np.arange(size)) / size
    wave = np.concatenate([np.cos(angles), -np.sin(angles)]) * (1.0 if shape is None else shape.astype(np.float64))
    kernel = wave[:, None].astype(signal.dtype)

    def body(x: Any, *_: Any, **__: Any) -> Any:
        frames = OPS["Conv"](
            OPS["Transpose"](x, perm=[0, 2, 1]), make_tensor(kernel), kernel_shape=[size], strides=[int(hop.ravel()[0])]
        )
        parts = OPS["Reshape"](frames, axes_tensor([0, 2, bins, -1]))
        return OPS["Transpose"](parts, perm=[0, 3, 2, 1])

    return body


def scatter_add_as_product(node: Node, graph: Graph, dims: Dims) -> Body | None:
    """ScatterElements that adds, by comparing each index with each place: their product in comparisons. It is for
    graphs of some hundred nodes, in runtimes that take no more indices than places."""
    data, indices, _ = node.inputs
    if node.attributes.get("reduction") != "add" or data is None or indices is None or data.dtype != float32:
        return None
    if not data.shape or not indices.shape:
        return None
    axis = node.attributes.get("axis", 0) % len(data.shape)
    others = [shape[:axis] + shape[axis + 1 :] for shape in (data.shape, indices.shape)]
    if others[0] != others[1]:  # rows without an index
        return None

    def body(x: Any, at: Any, updates: Any, **_: Any) -> Any:
        count = OPS["Shape"](x, start=axis, end=axis + 1)
        zero, one = (make_tensor(np.array(n, np.int64)) for n in (0, 1))
        places = OPS["Range"](zero, OPS["Squeeze"](count, axes_tensor([0])), one)
        behind = x.ndim - axis - 1
        if behind:
            places = OPS["Unsqueeze"](places, axes_tensor(list(range(1, behind + 1))))
        at, updates = (OPS["Unsqueeze"](y, axes_tensor([axis + 1])) for y in (at, updates))
        hits = OPS["Where"](OPS["Equal"](at, places), updates, constant(0, x))
        return OPS["Add"](x, OPS["ReduceSum"](hits, axes_tensor([axis]), keepdims=0))

    return body


def range_as_running_sum(node: Node, graph: Graph, dims: Dims) -> Body | None:
    """Range from 0 to a computed size as the running sum of ones, whose size is that of its input."""
    start, limit, delta = node.inputs
    numbers = [None if v is None else graph.constants.get(v) for v in (start, delta)]
    first, step = numbers
    if first is None or step is None or limit is None or limit in graph.constants or limit.dtype != int64:
        return None
    if int(first) != 0 or int(step) != 1:
        return None

    def body(_: Any, n: Any, __: Any, **___: Any) -> Any:
        ones = OPS["ConstantOfShape"](OPS["Unsqueeze"](n, axes_tensor([0])), value=np.ones(1, np.int64))
        return OPS["CumSum"](ones, make_tensor(np.array(0, np.int64)), exclusive=1)

    return body


def split_with_sizes(node: Node, graph: Graph, dims: Dims) -> Body | None:
    """Split into a number of equal parts, with the sizes of the parts as an input."""
    source = node.inputs[0]
    known = None if source is None or len(node.inputs) > 1 else dims.get(source.name)
    if known is None:
        return None
    axis = node.attributes.get("axis", 0)
    whole, count = known[axis], len(node.outputs)
    if not isinstance(whole, int):
        return None
    each = -(-whole // count)
    sizes = np.array([each] * (count - 1) + [whole - each * (count - 1)], np.int64)

    def body(x: Any, **_: Any) -> Any:
        return OPS["Split"](x, make_tensor(sizes), axis=axis, outputs=count)

    return body


def wrap_as_slices(node: Node, graph: Graph, dims: Dims) -> Body | None:
    """Pad that goes around, as copies of the ends beside the data: the mode came with opset 19. Left as it is: computed
    or negative pads, and pads wider than the data."""
    data, pads, _, axes = [*node.inputs, None, None, None][:4]
    if node.attributes.get("mode") != "wrap" or data is None or not data.shape:
        return None
    wide, places = (None if v is None else graph.constants.get(v) for v in (pads, axes))
    if wide is None or (axes is not None and places is None):
        return None
    along = range(len(data.shape)) if places is None else [int(axis) % len(data.shape) for axis in places]
    around = [(axis, *map(int, each)) for axis, each in zip(along, wide.reshape(2, -1).T, strict=True)]
    if any(not 0 <= pad <= data.shape[axis] for axis, *each in around for pad in each):
        return None

    def body(x: Any, *_: Any, **__: Any) -> Any:
        for axis, before, behind in around:
            place = axes_tensor([axis])
            parts = [OPS["Slice"](x, axes_tensor([-before]), axes_tensor([2**62]), place)] if before else []
            parts.append(x)
            if behind:
                parts.append(OPS["Slice"](x, axes_tensor([0]), axes_tensor([behind]), place))
            x = OPS["Concat"](*parts, axis=axis) if len(parts) > 1 else x
        return x

    return body
