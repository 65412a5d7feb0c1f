"""Bodies of operators of `com.microsoft` that ONNX Runtime's optimizer and quantizer write into files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ox.graph.reader.attention_bodies import attention, embeddings
from ox.graph.reader.body_writer import BodyWriter
from ox.graph.reader.decoder_bodies import (
    grouped_query,
    multi_head,
    rotary,
    simplified_normalization,
    skip_simplified_normalization,
)


def _with_bias(w: BodyWriter) -> str:
    return w.add("Add", w.input(0), w.input(1)) if w.input(1) else w.input(0)


def _gelu(w: BodyWriter) -> list[str]:
    return [w.add("Gelu", _with_bias(w))]


def _fast_gelu(w: BodyWriter) -> list[str]:
    return [w.add("Gelu", _with_bias(w), approximate="tanh")]


def _quick_gelu(w: BodyWriter) -> list[str]:
    x = w.input(0)
    scaled = w.add("Mul", x, w.add("CastLike", w.constant(w.attribute("alpha", 1.702)), x))
    return [w.add("Mul", x, w.add("Sigmoid", scaled))]


def _fused_product(w: BodyWriter) -> list[str]:
    sides = []
    for place, side in enumerate("AB"):
        x, turned = w.input(place), bool(w.attribute(f"trans{side}", 0)) and w.rank(place) != 1
        if w.attribute(f"transBatch{side}", 0):  # the first dimension goes before the last
            x = w.add("Einsum", x, equation=f"i...j->...{'ji' if turned else 'ij'}")
        elif turned:  # the last two dimensions of any number
            x = w.add("Einsum", x, equation="...ij->...ji")
        sides.append(x)
    product = w.add("MatMul", *sides)
    alpha = w.attribute("alpha", 1.0)
    return [product if alpha == 1 else w.add("Mul", product, w.add("CastLike", w.constant(alpha), product))]


def _skip_normalization(w: BodyWriter) -> list[str]:
    """Y, mean, deviation, sum; the two in the middle belong to training and are not made."""
    if any(name for name in w.node.output[1:3]):
        raise w.refuse("with the mean and the deviation as outputs")
    x, skip, scale, shift, bias = (w.input(place) for place in range(5))
    total = w.add("Add", x, skip)
    total = w.add("Add", total, bias) if bias else total
    inputs = [name for name in (total, scale, shift) if name]
    made = w.add("LayerNormalization", *inputs, axis=-1, epsilon=w.attribute("epsilon", 1e-12))
    return [made, "", "", total][: len(w.node.output)]


def _product_of_bits(w: BodyWriter) -> list[str]:
    """A [..., K] times weights of 4 bits, in blocks along K, each with a scale, and a zero of 4 bits or a float."""
    bits, size = int(w.attribute("bits", 4)), w.count("block_size")
    rows, length = w.count("N"), w.count("K")
    if bits != 4:
        raise w.refuse(f"of {bits} bits", expected="4")
    if w.input(4):
        raise w.refuse("with an order of its groups (g_idx)")
    a, packed, scales, zeros = (w.input(place) for place in range(4))
    blocks = -(-length // size)

    def numbers(name: str, shape: tuple[int, ...]) -> str:
        """Pairs of 4 bits as floats; the lower ones come first."""
        low = w.add("BitwiseAnd", name, w.constant(15, np.uint8))
        high = w.add("BitShift", name, w.constant(4, np.uint8), direction="RIGHT")
        both = w.add("Concat", *(w.add("Unsqueeze", each, w.ints(-1)) for each in (low, high)), axis=-1)
        return w.add("CastLike", w.add("Reshape", both, w.ints(*shape)), a)

    wide = numbers(packed, (rows, blocks, size))
    if zeros and w.is_float(3):
        middle = w.add("Reshape", zeros, w.ints(rows, blocks, 1))
    elif zeros:
        known = w.add("Slice", numbers(zeros, (rows, -1)), w.ints(0), w.ints(blocks), w.ints(1))
        middle = w.add("Unsqueeze", known, w.ints(-1))
    else:
        middle = w.add("CastLike", w.constant(8.0), a)
    scaled = w.add("Mul", w.add("Sub", wide, middle), w.add("Reshape", scales, w.ints(rows, blocks, 1)))
    whole = w.add("Slice", w.add("Reshape", scaled, w.ints(rows, -1)), w.ints(0), w.ints(length), w.ints(1))
    product = w.add("MatMul", a, w.add("Transpose", whole))
    return [w.add("Add", product, w.input(5)) if w.input(5) else product]


def _activated(w: BodyWriter, x: str, name: str, numbers: Mapping[str, float]) -> str:
    """An activation with its attributes; those of Clip are inputs."""
    known = ACTIVATIONS.get(name)
    if known is None:
        raise w.refuse(f"with the activation {name}", expected=", ".join(ACTIVATIONS))
    if more := sorted(set(numbers) - set(known)):
        raise w.refuse(f"with {', '.join(more)} for {name}", expected=", ".join(known) or "no numbers")
    if name == "Clip":
        limits = (w.add("CastLike", w.constant(numbers.get(key, end)), x) for key, end in _LIMITS.items())
        return w.add("Clip", x, *limits)
    return w.add(name, x, **numbers)


ACTIVATIONS: dict[str, tuple[str, ...]] = {  # and their numbers, in the order of `activation_params`
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
    "Elu": ("alpha",),
    "Celu": ("alpha",),
    "Selu": ("alpha", "gamma"),
    "Softplus": (),
    "Softsign": (),
    "ThresholdedRelu": ("alpha",),
    "Clip": ("min", "max"),
}
_LIMITS = {"min": -3.4028234663852886e38, "max": 3.4028234663852886e38}


def _fused_conv(w: BodyWriter) -> list[str]:
    """Conv, a tensor that is added, and an activation."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    attributes = {name: value for name in names if (value := w.attribute(name)) is not None}
    y = w.add("Conv", *(name for name in (w.input(0), w.input(1), w.input(2)) if name), **attributes)
    y = w.add("Add", y, w.input(3)) if w.input(3) else y
    name, numbers = w.attribute("activation", ""), w.attribute("activation_params", ())
    known = (*ACTIVATIONS.get(name, ()), *(f"number {i}" for i in range(1, len(numbers) + 1)))
    return [_activated(w, y, name, dict(zip(known, numbers, strict=False))) if name else y]


def _fused_gemm(w: BodyWriter) -> list[str]:
    attributes = {name: w.attribute(name, 0) for name in ("transA", "transB")}
    attributes |= {name: w.attribute(name, 1.0) for name in ("alpha", "beta")}
    y = w.add("Gemm", *(name for name in (w.input(0), w.input(1), w.input(2)) if name), **attributes)
    given = {name: w.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma")}
    name = w.attribute("activation", "")
    return [_activated(w, y, name, {key: n for key, n in given.items() if n is not None}) if name else y]


# what ONNX Runtime's optimizer writes into the domain of ONNX itself
STANDARD: dict[str, Callable[[BodyWriter], list[str]]] = {"SimplifiedLayerNormalization": simplified_normalization}
BODIES: dict[str, Callable[[BodyWriter], list[str]]] = {
    "Attention": attention,
    "BiasGelu": _gelu,
    "EmbedLayerNormalization": embeddings,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_product,
    "Gelu": _gelu,
    "GroupQueryAttention": grouped_query,
    "MatMulNBits": _product_of_bits,
    "MultiHeadAttention": multi_head,
    "QuickGelu": _quick_gelu,
    "RotaryEmbedding": rotary,
    "SimplifiedLayerNormalization": simplified_normalization,
    "SkipLayerNormalization": _skip_normalization,
    "SkipSimplifiedLayerNormalization": skip_simplified_normalization,
}
