"""Bodies of operators on quantized tensors that ONNX Runtime's quantizer writes: numbers of 8 bits become floats, the
operator works on these, and its result becomes 8 bits again. And operators that quantize their own input."""

from __future__ import annotations

from collections.abc import Callable

from ox.graph.reader.body_writer import BodyWriter

FLOAT = 1


def _floats(w: BodyWriter, place: int) -> str:
    """A tensor, its scale and its zero, from this input on, as floats."""
    return w.add("DequantizeLinear", *(name for name in map(w.input, range(place, place + 3)) if name))


def _bits(w: BodyWriter, x: str, place: int, like: int) -> str:
    """Floats by the scale and the zero from this input on; without a zero, of the type of input `like`."""
    zero = w.input(place + 1) or w.add("CastLike", w.constant(0.0), w.input(like))
    return w.add("QuantizeLinear", x, w.input(place), zero)


def _pair(op: str) -> Callable[[BodyWriter], list[str]]:
    return lambda w: [_bits(w, w.add(op, _floats(w, 0), _floats(w, 3)), 6, 0)]


def _single(op: str, *names: str, **defaults: float) -> Callable[[BodyWriter], list[str]]:
    """An operator on one tensor, with the attributes that the call gives it."""

    def body(w: BodyWriter) -> list[str]:
        if w.attribute("channels_last", 0):
            raise w.refuse("with the channels last")
        attributes = defaults | {name: value for name in names if (value := w.attribute(name)) is not None}
        return [_bits(w, w.add(op, _floats(w, 0), **attributes), 3, 0)]

    return body


def _softmax(w: BodyWriter) -> list[str]:
    """Before opset 13 everything from the axis on was normalized together."""
    x, old = _floats(w, 0), int(w.needed("opset")) < 13
    axis = int(w.attribute("axis", -1))
    if not old or axis == -1:
        return [_bits(w, w.add("Softmax", x, axis=axis), 3, 0)]
    flat = w.add("Softmax", w.add("Flatten", x, axis=axis), axis=-1)
    return [_bits(w, w.add("Reshape", flat, w.add("Shape", x), allowzero=1), 3, 0)]


def _concat(w: BodyWriter) -> list[str]:
    every = [_floats(w, place) for place in range(2, len(w.inputs), 3)]
    return [_bits(w, w.add("Concat", *every, axis=int(w.attribute("axis"))), 0, 2)]


def _mean(w: BodyWriter) -> list[str]:
    axes = w.attribute("axes")
    inputs = [] if axes is None else [w.ints(*axes)]
    return [_bits(w, w.add("ReduceMean", _floats(w, 0), *inputs, keepdims=w.attribute("keepdims", 1)), 3, 0)]


def _scaled(w: BodyWriter, product: str, scales: tuple[str, str], bias: str) -> list[str]:
    """Whole numbers times both scales, and a bias."""
    scale = w.add("Mul", *scales)
    floats = w.add("Mul", w.add("CastLike", product, scale), scale)
    return [w.add("Add", floats, bias) if bias else floats]


def _product(w: BodyWriter) -> list[str]:
    """MatMulIntegerToFloat: two tensors, their scales, their zeros, a bias."""
    if w.input(4) or w.input(5):
        zero = w.input(4) or w.add("CastLike", w.constant(0.0), w.input(0))
        product = w.add("MatMulInteger", w.input(0), w.input(1), zero, w.input(5))
    else:
        product = w.add("MatMulInteger", w.input(0), w.input(1))
    return _scaled(w, product, (w.input(2), w.input(3)), w.input(6))


def _dynamic_product(w: BodyWriter) -> list[str]:
    """DynamicQuantizeMatMul: floats, which are quantized as they are, and a matrix of 8 bits."""
    a, scale, zero = w.several("DynamicQuantizeLinear", 3, w.input(0))
    product = w.add("MatMulInteger", a, w.input(1), zero, w.input(3))
    return _scaled(w, product, (scale, w.input(2)), w.input(4))


def _gemm(w: BodyWriter) -> list[str]:
    """QGemm: C is of 32 bits, by both scales; without a scale of Y the result are floats."""
    sides = []
    for place, name in ((0, "transA"), (3, "transB")):
        numbers, zero = (w.add("Cast", w.input(i), to=FLOAT) for i in (place, place + 2))
        turned = w.add("Transpose", numbers) if w.attribute(name, 0) else numbers
        sides.append(w.add("Sub", turned, zero))  # a zero for each column
    product = w.add("MatMul", *sides)
    if w.input(6):
        product = w.add("Add", product, w.add("Cast", w.input(6), to=FLOAT))
    scale = w.add("Mul", w.add("Mul", w.input(1), w.input(4)), w.constant(w.attribute("alpha", 1.0)))
    floats = w.add("Mul", product, scale)
    return [_bits(w, floats, 7, 0) if w.input(7) else floats]


def _lstm(w: BodyWriter) -> list[str]:
    """DynamicQuantizeLSTM with weights of 8 bits [directions, inputs, 4·hidden]; X and the state stay floats, which
    ONNX Runtime quantizes at each step."""
    weights = []
    for place, scale in ((1, 8), (2, 10)):
        numbers = w.add("Cast", w.input(place), to=FLOAT)
        zero, factor = (_for_each(w, i) for i in (scale + 1, scale))
        floats = w.add("Mul", w.add("Sub", numbers, w.add("Cast", zero, to=FLOAT)), factor)
        weights.append(w.add("Transpose", floats, perm=[0, 2, 1]))
    names = ("activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget")
    attributes = {name: value for name in names if (value := w.attribute(name)) is not None}
    more = [w.input(place) for place in range(3, 8)]
    return w.several("LSTM", 3, w.input(0), *weights, *more, **attributes)[: len(w.node.output)]


def _for_each(w: BodyWriter, place: int) -> str:
    """A scale or a zero of each direction, or of each of its columns, beside [directions, inputs, columns]."""
    shape = w.add("Concat", w.ints(-1, 1), w.last_sizes(w.input(place), 1), axis=0)
    return w.add("Reshape", w.input(place), shape)


POOLING = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
BODIES: dict[str, Callable[[BodyWriter], list[str]]] = {
    "DynamicQuantizeLSTM": _lstm,
    "DynamicQuantizeMatMul": _dynamic_product,
    "MatMulIntegerToFloat": _product,
    "QGemm": _gemm,
    "QLinearAdd": _pair("Add"),
    "QLinearAveragePool": _single("AveragePool", *POOLING),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _single("GlobalAveragePool"),
    "QLinearLeakyRelu": _single("LeakyRelu", "alpha", alpha=0.01),
    "QLinearMul": _pair("Mul"),
    "QLinearReduceMean": _mean,
    "QLinearSigmoid": _single("Sigmoid"),
    "QLinearSoftmax": _softmax,
}
