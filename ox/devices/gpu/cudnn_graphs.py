"""Graphs of cuDNN: what is to be computed, as a key for its plan, and the operations of cuDNN that compute it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, Protocol

from ox.dtypes import DType, bfloat16, float16, float32

Ints = tuple[int, ...]
DATA_TYPES: dict[DType, str] = {float32: "FLOAT", float16: "HALF", bfloat16: "BFLOAT16"}


class Layout(NamedTuple):
    """Sizes, steps between elements, and element type of an array."""

    shape: Ints
    steps: Ints
    dtype: DType


def row_major(shape: Ints, dtype: DType) -> Layout:
    """The layout of a new array."""
    return Layout(shape, tuple(prod(shape[i + 1 :]) for i in range(len(shape))), dtype)


class Graph(Protocol):
    """What has a plan. Equal ones share it."""

    @property
    def dtype(self) -> DType:
        """The element type of what is multiplied."""

    def build(self, cudnn: Any, graph: Any) -> list[Any]:
        """Add the operations to a `cudnn.pygraph`; the tensors whose memory a run is given."""


def data_type(cudnn: Any, dtype: DType) -> Any:
    """cuDNN's name of an element type of `DATA_TYPES`."""
    return getattr(cudnn.data_type, DATA_TYPES[dtype])


def _input(cudnn: Any, graph: Any, name: str, layout: Layout) -> Any:
    return graph.tensor(
        name=name, dim=list(layout.shape), stride=list(layout.steps), data_type=data_type(cudnn, layout.dtype)
    )


def _output(cudnn: Any, tensor: Any, layout: Layout) -> Any:
    tensor.set_output(True).set_data_type(data_type(cudnn, layout.dtype))
    return tensor.set_dim(list(layout.shape)).set_stride(list(layout.steps))


@dataclass(frozen=True)
class Convolution:
    """One of the three products of a convolution of data [N, C, ...] with weights [M, C / group, ...]; cuDNN finds the
    groups in these sizes.

    Args:
        kind: "forward" makes the places from data and weights (and, with `bias`, from the layout of a [1, M, 1, ...]),
            "data" makes data from places and weights, "weights" makes weights from data and places.
    """

    kind: str
    data: Layout
    weights: Layout
    places: Layout
    befores: Ints
    behinds: Ints
    strides: Ints
    dilations: Ints
    bias: Layout | None = None

    @property
    def dtype(self) -> DType:
        return self.data.dtype

    def build(self, cudnn: Any, graph: Any) -> list[Any]:
        window = {
            "pre_padding": list(self.befores), "post_padding": list(self.behinds), "stride": list(self.strides),
            "dilation": list(self.dilations), "compute_data_type": cudnn.data_type.FLOAT,
        }  # fmt: skip
        if self.kind == "data":
            places = _input(cudnn, graph, "places", self.places)
            weights = _input(cudnn, graph, "weights", self.weights)
            made = graph.conv_dgrad(loss=places, filter=weights, **window)
            return [places, weights, _output(cudnn, made, self.data)]
        data = _input(cudnn, graph, "data", self.data)
        if self.kind == "weights":
            places = _input(cudnn, graph, "places", self.places)
            made = graph.conv_wgrad(image=data, loss=places, **window)
            return [data, places, _output(cudnn, made, self.weights)]
        weights = _input(cudnn, graph, "weights", self.weights)
        made = graph.conv_fprop(image=data, weight=weights, **window)
        if self.bias is None:
            return [data, weights, _output(cudnn, made, self.places)]
        made.set_data_type(cudnn.data_type.FLOAT)  # rounded once, after the bias
        bias = _input(cudnn, graph, "bias", self.bias)
        made = graph.bias(input=made, bias=bias, compute_data_type=cudnn.data_type.FLOAT)
        return [data, weights, bias, _output(cudnn, made, self.places)]


@dataclass(frozen=True)
class Attention:
    """Attention of queries [B, H, T, E] to keys [B, K, S, E] and values [B, K, S, F], where H is a multiple of K, and
    the logarithms of the softmax's sums [B, H, T, 1] in float32; or the gradients of the three, row-major.

    Args:
        causal: position t sees the positions up to t only.
        gradient: the layout of the result's gradient, where the gradients are asked for; `deterministic` is for them.
    """

    query: Layout
    key: Layout
    value: Layout
    result: Layout
    logs: Layout
    scale: float
    causal: bool
    gradient: Layout | None = None
    deterministic: bool = True

    @property
    def dtype(self) -> DType:
        return self.query.dtype

    def build(self, cudnn: Any, graph: Any) -> list[Any]:
        query = _input(cudnn, graph, "query", self.query)
        key = _input(cudnn, graph, "key", self.key)
        value = _input(cudnn, graph, "value", self.value)
        given = {"attn_scale": self.scale, "use_causal_mask": self.causal, "compute_data_type": cudnn.data_type.FLOAT}
        if self.gradient is None:
            made, logs = graph.sdpa(q=query, k=key, v=value, generate_stats=True, **given)
            return [query, key, value, _output(cudnn, made, self.result), _output(cudnn, logs, self.logs)]
        result = _input(cudnn, graph, "result", self.result)
        gradient = _input(cudnn, graph, "gradient", self.gradient)
        logs = _input(cudnn, graph, "logs", self.logs)
        found = graph.sdpa_backward(
            q=query, k=key, v=value, o=result, dO=gradient, stats=logs,
            use_deterministic_algorithm=self.deterministic, **given,
        )  # fmt: skip
        layouts = [row_major(x.shape, x.dtype) for x in (self.query, self.key, self.value)]
        outputs = [_output(cudnn, made, layout) for made, layout in zip(found, layouts, strict=True)]
        return [query, key, value, result, gradient, logs, *outputs]


@dataclass(frozen=True)
class Normalization:
    """Layer or RMS normalization of rows [N, C], row-major, with weights [1, C] of the same type; or its gradients. The
    statistics, a mean and an inverse deviation of each row, are of float32; those of "rms" are the inverse alone.

    Args:
        kind: "layer" and "rms" make rows and, with `statistics`, these; "layer gradient" and "rms gradient" make the
            gradients of the rows, of the scale and (of "layer") of the bias.
        epsilon: added to the variance, or to the mean square.
    """

    kind: str
    rows: int
    columns: int
    dtype: DType
    epsilon: float = 0.0
    statistics: bool = False

    def build(self, cudnn: Any, graph: Any) -> list[Any]:
        rows, weights = (row_major((n, self.columns), self.dtype) for n in (self.rows, 1))
        one_a_row = row_major((self.rows, 1), float32)
        is_layer = self.kind.startswith("layer")
        x, scale = _input(cudnn, graph, "x", rows), _input(cudnn, graph, "scale", weights)
        given: dict[str, Any] = {"input": x, "scale": scale, "compute_data_type": cudnn.data_type.FLOAT}
        if self.kind.endswith("gradient"):
            g = _input(cudnn, graph, "gradient", rows)
            names = ["mean", "inv_variance"] if is_layer else ["inv_variance"]
            kept = {name: _input(cudnn, graph, name, one_a_row) for name in names}
            if is_layer:
                made = graph.layernorm_backward(grad=g, **kept, **given)
            else:
                made = graph.rmsnorm_backward(grad=g, has_dbias=False, **kept, **given)[:2]
            layouts = [rows, weights, weights][: len(made)]
            outputs = [_output(cudnn, each, layout) for each, layout in zip(made, layouts, strict=True)]
            return [g, x, scale, *kept.values(), *outputs]
        phase = cudnn.norm_forward_phase.TRAINING if self.statistics else cudnn.norm_forward_phase.INFERENCE
        epsilon = graph.tensor_scalar(self.epsilon, cudnn.scalar_type.RUNTIME_PARAM)
        bias = _input(cudnn, graph, "bias", weights) if is_layer else None
        method = graph.layernorm if is_layer else graph.rmsnorm
        y, *statistics = method(norm_forward_phase=phase, bias=bias, epsilon=epsilon, **given)
        outputs = [_output(cudnn, y, rows)]
        if self.statistics:
            outputs += [_output(cudnn, each, one_a_row) for each in statistics]
        return [x, scale, *([bias] if is_layer else []), *outputs]
