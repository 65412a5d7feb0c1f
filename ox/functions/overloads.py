"""Which functions take PyTorch's other keywords by `ox.functions.keyword_arguments`, and which have `out=`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.functions.keyword_arguments import keywords

# Calls of one operator, to which the wrapper of `keywords` would add more than 2 %: what they take besides their own
# names, they take themselves.
SINGLE = frozenset(
    (
        "abs", "absolute", "acos", "acosh", "add", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh",
        "asin", "asinh", "atan", "atanh", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil",
        "clone", "conj", "cos", "cosh", "div", "divide", "eq", "erf", "exp", "expm1", "floor", "ge",
        "greater", "greater_equal", "gt", "is_complex", "is_floating_point", "is_tensor", "isfinite", "isinf",
        "isnan", "le", "less", "less_equal", "log", "log1p", "logical_and", "logical_not", "logical_or",
        "logical_xor", "lt", "masked_fill", "matmul", "maximum", "minimum", "mul", "multiply", "ne", "neg",
        "negative", "not_equal", "numel", "permute", "positive", "pow", "real", "reciprocal", "relu", "reshape",
        "resolve_conj", "resolve_neg", "round", "sigmoid", "sign", "sin", "sinh", "sqrt", "square",
        "sub", "subtract", "t", "tan", "tanh", "transpose", "true_divide",
        "where",
    )
)  # fmt: skip
# PyTorch's have no out=: views, tuples of views, Python's values, and a few more.
WITHOUT_OUT = frozenset(
    (
        "allclose", "argwhere", "as_strided", "as_strided_scatter", "atleast_1d", "atleast_2d", "atleast_3d",
        "bincount", "block_diag", "broadcast_shapes", "broadcast_tensors", "broadcast_to", "can_cast",
        "cartesian_prod", "cdist", "chunk", "combinations", "cond", "corrcoef", "cosine_similarity",
        "count_nonzero", "cov", "cumulative_trapezoid", "diag_embed", "diagflat", "diagonal", "diagonal_scatter",
        "dist", "dsplit", "einsum", "empty_like", "equal", "fill", "flatten", "flip", "fliplr", "flipud",
        "full_like", "gradient", "hsplit", "index_fill", "index_put", "is_nonzero", "isclose", "isreal",
        "masked_scatter", "meshgrid", "moveaxis", "movedim", "narrow", "ones_like", "pairwise_distance", "pdist",
        "prelu", "promote_types", "put", "ravel", "repeat", "repeat_interleave", "result_type", "roll", "rot90",
        "rsub", "scan", "select", "select_scatter", "split", "split_with_sizes", "std_mean", "tensor_split",
        "tile", "trace", "trapezoid", "trapz", "tril_indices", "triu_indices", "unbind", "unflatten", "unique",
        "unique_consecutive", "unravel_index", "unsafe_chunk", "unsafe_split", "unsqueeze", "vander", "var_mean",
        "vsplit", "while_loop", "zeros_like",
    )
)  # fmt: skip


def with_keywords(
    namespace: dict[str, Any],
    names: Iterable[str],
    without_out: frozenset[str] = WITHOUT_OUT,
    plain: frozenset[str] = SINGLE,
) -> None:
    """Put the functions of a namespace under their names again, with PyTorch's other keywords; one for each function,
    whatever its names."""
    made: dict[int, Any] = {}
    for name in names:
        function = namespace[name]
        if name in plain or isinstance(function, type) or hasattr(function, "call_form"):
            continue
        of_another = name.endswith(("_like", "_indices", "freq"))
        if id(function) not in made:
            new = keywords(function, out=name not in without_out, without_effect=of_another)
            new.__module__, new.__qualname__ = namespace["__name__"], name  # where pickle finds it
            made[id(function)] = new
        namespace[name] = made[id(function)]
