"""Convolutions, pooling, resizing: the first axis is the batch, each of it for itself."""

from __future__ import annotations

from collections.abc import Sequence

from ox.serve.runtime.row_independence.matrix import single
from ox.serve.runtime.row_independence.node import MIXED, Node, axis_of, batched, rule, same_rows
from ox.serve.runtime.row_independence.size import Size, has_batch
from ox.serve.runtime.row_independence.state import Mixes, State, Tensor


@rule("Conv", "ConvInteger")
def conv(node: Node) -> Tensor:
    node.fixed(2, 3)
    if node.op == "ConvInteger" and node[0].axis is not None:
        single(node, 2)
    return _windowed(node, node[1])


@rule("QLinearConv")
def qlinear_conv(node: Node) -> Tensor:
    node.fixed(1, 2, 4, 5, 6, 7, 8)
    single(node, 1, 2, 6, 7)
    return _windowed(node, node[3])


def _windowed(node: Node, weight: Tensor | None) -> Tensor:
    """What a window makes that goes over the axes behind the second."""
    x = node[0]
    if weight is not None and weight.varies:
        raise Mixes("has weights that depend on the rows")
    if x.axis not in (None, 0):
        raise Mixes("the rows lie on an axis over which it works")
    channels = x.sizes[1] if weight is None else weight.sizes[0]
    window: Sequence[Size] = node.ints("kernel_shape") or (() if weight is None else weight.sizes[2:])
    spatial = x.sizes[2:]
    if len(window) != len(spatial):
        raise Mixes("its window has another number of axes")
    strides, dilations = node.ints("strides") or [1] * len(spatial), node.ints("dilations") or [1] * len(spatial)
    pads, auto = node.ints("pads") or [0] * 2 * len(spatial), node.text("auto_pad", "NOTSET")
    sizes: list[Size] = []
    for axis, (size, kernel) in enumerate(zip(spatial, window, strict=True)):
        stride, reach = strides[axis], dilations[axis]
        if not isinstance(size, int) or not isinstance(kernel, int) or stride < 1:
            sizes.append(node.symbols.fresh())
        elif auto in ("SAME_UPPER", "SAME_LOWER"):
            sizes.append(-(-size // stride))
        else:
            wide = size + (0 if auto == "VALID" else pads[axis] + pads[axis + len(spatial)]) - reach * (kernel - 1) - 1
            # A last window that only just begins: runtimes differ, so its size is left open.
            sizes.append(node.symbols.fresh() if node.integer("ceil_mode", 0) and wide % stride else wide // stride + 1)
    return x.with_dims([x.sizes[0], channels, *sizes])


@rule("AveragePool", "LpPool", "MaxPool")
def pool(node: Node) -> Sequence[State]:
    pooled = _windowed(node, None)
    return [pooled] if node.count < 2 else [pooled, MIXED]  # indices count from the first row


@rule("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def global_pool(node: Node) -> Tensor:
    x = node[0]
    if x.axis not in (None, 0):
        raise Mixes("the rows lie on an axis over which it works")
    return x.with_dims([*x.sizes[:2], *[1] * (x.rank - 2)])


@rule("ConvTranspose")
def conv_transpose(node: Node) -> Tensor:
    node.fixed(1, 2)
    x, weight = node[0], node[1]
    if x.axis not in (None, 0):
        raise Mixes("the rows lie on an axis over which it works")
    sizes: list[Size] = []
    for axis, size in enumerate(x.sizes[2:]):
        plain = node.ints("output_shape") is None and node.text("auto_pad", "NOTSET") == "NOTSET"
        kernel = weight.sizes[2 + axis]
        if plain and isinstance(size, int) and isinstance(kernel, int):
            pads, many = node.ints("pads"), x.rank - 2
            defaults = (("strides", 1), ("dilations", 1), ("output_padding", 0))
            stride, reach, more = ((node.ints(name) or [default] * many)[axis] for name, default in defaults)
            cut = 0 if pads is None else pads[axis] + pads[axis + many]
            sizes.append(stride * (size - 1) + more + (kernel - 1) * reach + 1 - cut)
        else:
            sizes.append(node.symbols.fresh())
    return x.with_dims([x.sizes[0], weight.sizes[1] * node.integer("group", 1), *sizes])


@rule("DeformConv")
def deform_conv(node: Node) -> Tensor:
    node.fixed(1, 3)
    return batched(node, None, 0, 2, 4)


@rule("Col2Im")
def col2im(node: Node) -> Tensor:
    shape = node.elements(1)
    return batched(node, None if shape is None else 2 + len(shape), 0)


@rule("GridSample")
def grid_sample(node: Node) -> Tensor:
    return batched(node, None, 0, 1)


@rule("AffineGrid", counts=True)
def affine_grid(node: Node) -> Tensor:
    theta, sizes = node[0], node.elements(1)
    if theta.axis is None:
        if sizes is None or any(map(has_batch, sizes)):
            raise Mixes("makes grids for a number of rows")
        return Tensor(None)
    if theta.axis != 0 or sizes is None or sizes[0] != theta.sizes[0] or any(map(has_batch, sizes[1:])):
        raise Mixes("makes grids for another number of rows")
    return Tensor((theta.sizes[0], *[node.symbols.fresh() for _ in sizes[2:]], len(sizes) - 2), 0, theta.outer)


@rule("Resize", counts=True)
def resize(node: Node) -> Tensor:
    """Along the axes that it resizes; the others stay as they are."""
    x = node[0]
    if x.axis is None:
        node.fixed(1, 2, 3)
        return Tensor(x.dims and tuple(node.symbols.fresh() for _ in x.dims))
    node.fixed(1)
    first = 1 if node.version > 10 else 0
    sizes = node.elements(2 + first) if node.has(2 + first) else None
    axes = [axis_of(axis, x.rank) for axis in node.ints("axes") or range(x.rank)]
    if x.axis in axes:
        place = axes.index(x.axis)
        if sizes:
            same = len(sizes) == len(axes) and sizes[place] == x.sizes[x.axis]
        else:
            same = _is_one(node.get(1 + first), place, len(axes))
        if not same or node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise Mixes("resizes the batch axis")
        if node.text("coordinate_transformation_mode") == "tf_crop_and_resize":
            raise Mixes("crops the batch axis, perhaps")
    dims = list(x.sizes)
    for place, axis in enumerate(axes):
        if axis != x.axis:
            wanted = sizes[place] if sizes and place < len(sizes) else None
            if wanted is not None and has_batch(wanted):
                raise Mixes("resizes by the number of rows")
            known = isinstance(wanted, int) and wanted > 0
            dims[axis] = wanted if known and wanted is not None else node.symbols.fresh()
    return x.with_dims(dims)


def _is_one(scales: Tensor | None, place: int, count: int) -> bool:
    """Whether one of so many scales is 1."""
    return (
        scales is not None and scales.floats is not None and len(scales.floats) == count and scales.floats[place] == 1
    )


@rule("Upsample", counts=True)
def upsample(node: Node) -> Tensor:
    x = node[0]
    node.fixed(1)
    if x.axis is None:
        return Tensor(x.dims and tuple(node.symbols.fresh() for _ in x.dims))
    attribute = node.attribute("scales")
    if attribute is not None:
        same = list(attribute.floats)[x.axis : x.axis + 1] == [1.0]
    else:
        same = _is_one(node.get(1), x.axis, x.rank)
    if not same:
        raise Mixes("resizes the batch axis")
    return x.with_dims([size if axis == x.axis else node.symbols.fresh() for axis, size in enumerate(x.sizes)])


@rule("RoiAlign", "MaxRoiPool")
def regions(node: Node) -> Tensor:
    """Regions name the image that they lie in by its number."""
    if not any(tensor.varies for tensor in node.given):
        return Tensor(None)
    raise Mixes("names images of the batch by their number")


@rule("STFT")
def stft(node: Node) -> Tensor:
    node.fixed(1, 2, 3)
    return batched(node, 4, 0)


@rule("TfIdfVectorizer")
def tf_idf(node: Node) -> Tensor:
    x = node[0]
    if x.axis is not None and x.rank != 2:
        raise Mixes("counts words of the whole batch")
    return batched(node, x.rank, 0)


@rule("StringSplit")
def string_split(node: Node) -> Sequence[State]:
    """As many parts as the row with the most has: other rows are filled up to it."""
    if node[0].varies:
        raise Mixes("fills rows up to the longest of the batch")
    return [Tensor(None), Tensor(node[0].dims)]


@rule("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(node: Node) -> Sequence[State]:
    x, target = node[0], node[1]
    if not x.varies and not target.varies:
        return [Tensor(None)] * node.count
    node.fixed(2)
    if node.text("reduction", "mean") != "none":
        raise Mixes("reduces over the batch axis")
    same_rows(node, 0, 1)
    return [target.with_dims(target.sizes), x.with_dims(x.sizes)]
