"""The kind of an operator, which its definition says, and what follows from it.

Passes, engines and checks ask these questions of a definition in place of lists of names.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal[
    # movement: the result has values of the input, and computes none
    "identity",  # the same values, in the same sizes
    "reshape",  # the same values in the same order, in other sizes
    "permutation",  # each value once, in another order
    "repetition",  # copies of all values
    "selection",  # some of the values, perhaps several times; a second input may say which
    "concatenation",  # the values of several inputs
    "padding",  # values of the first input, and others that fill up
    # element by element
    "pointwise",  # with broadcasting
    "conversion",  # to another element type
    "quantization",  # to integers with a scale, or back
    # along axes
    "reduction", "cumulative", "normalization", "pooling", "sorting",
    # sums of products
    "product", "convolution", "integer_product", "attention", "recurrent",
    "factorization", "image", "signal", "loss", "scatter", "index", "statistics", "gradient",
    "size",  # reads the sizes of its input alone
    "creation",  # reads no values of tensors
    "random", "check", "control", "sequence",
]  # fmt: skip

Batching = Literal[
    "pointwise", "axis", "reduction", "arg_reduction", "cumulative",
    "elements", "reshape", "images", "shared", "own", "each",
]  # fmt: skip

# How `vmap` calls an operator of a kind, where the definition does not say otherwise.
BATCHING: dict[Kind, Batching] = {
    "identity": "pointwise", "pointwise": "pointwise", "conversion": "pointwise", "reshape": "reshape",
    "reduction": "reduction", "cumulative": "cumulative", "size": "shared",
}  # fmt: skip
WHOLE: frozenset[Kind | None] = frozenset(("identity", "reshape", "permutation", "repetition"))
MOVEMENT = WHOLE | {"selection", "concatenation"}
# Integers with a scale: no gradient comes past these.
QUANTIZED: frozenset[Kind | None] = frozenset(("quantization", "integer_product"))
