"""Products of tensors: einsum, tensordot, outer, kron, cross, addmm, ..."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from string import ascii_letters
from typing import TYPE_CHECKING, Any

from ox import ops
from ox.amp.policy import by_policy
from ox.core import operator
from ox.core.argument_errors import check_tensor_arguments
from ox.core.constants import on_device_of, positions, scalar
from ox.core.mode import MODE, switch_mode
from ox.core.promotion import cast, promote_operands, upcast_half
from ox.core.symbolic import Dim
from ox.core.tensor import is_tensor
from ox.dtypes import bool_, int64, is_floating, promote
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.functions.dimension_arguments import one_dim
from ox.functions.index_arguments import broadcast_all
from ox.functions.out_argument import write
from ox.functions.pointwise import matmul, mul, sparse_product
from ox.functions.reductions import sum
from ox.functions.shapes import flip, permute, reshape, unsqueeze
from ox.functions.zero_gradients import with_zero_gradient
from ox.ops.linalg.einsum import letters_of

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = [
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "cross", "dot", "einsum", "ger", "inner",
    "kron", "mm", "mv", "outer", "tensordot", "vander", "vdot",
]  # fmt: skip


def _ranks(what: str, tensors: Sequence[Any], ranks: Sequence[int]) -> None:
    """Raise ShapeError unless each tensor has so many dimensions, and DTypeError unless they share a type."""
    for x, rank in zip(tensors, ranks, strict=True):
        if x.array.ndim != rank:
            raise ShapeError(
                f"{what} takes tensors of {' and '.join(map(str, ranks))} dimensions",
                got=", ".join(str(list(t.static_shape)) for t in tensors),
            )
    if len({x.array.dtype for x in tensors}) > 1:
        raise DTypeError(f"{what} needs one element type", got=", ".join(str(t.array.dtype) for t in tensors))


def _product(what: str, *ranks: int) -> Any:
    def function(input: Any, other: Any) -> Tensor:
        try:
            _ranks(what, (input, other), ranks)
        except AttributeError as error:
            return sparse_product(input, other, error)
        if what == "bmm" and input.static_shape[0] != other.static_shape[0]:
            raise ShapeError(
                "bmm needs batches of one size", got=f"{list(input.static_shape)} and {list(other.static_shape)}"
            )
        return matmul(input, other)

    shapes = {1: "a vector", 2: "a matrix", 3: "a batch of matrices"}
    function.__name__ = function.__qualname__ = what
    function.__doc__ = f"The product of {shapes[ranks[0]]} and {shapes[ranks[1]]}. `torch.{what}`, ONNX MatMul."
    return by_policy(function)


mm, bmm, mv, dot = _product("mm", 2, 2), _product("bmm", 3, 3), _product("mv", 2, 1), _product("dot", 1, 1)
vdot = dot


@check_tensor_arguments
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Products of elements, summed over the letters that the output does not name. `torch.einsum`, ONNX Einsum.

    Also ``einsum(a, [0, 1], b, [1, 2], [0, 2])`` with numbers for letters.

    Raises:
        ArgumentError: no such equation, or not as many tensors as it has terms.
        ShapeError: other dimensions than it names, or two sizes for one letter.
        DTypeError: several element types, where no autocast makes them one.
    """
    if not isinstance(equation, str):
        equation, operands = _from_numbers(equation, operands)
    elif len(operands) == 1 and not is_tensor(operands[0]):
        operands = tuple(operands[0])
    if not operands:
        raise ArgumentError("einsum needs a tensor")
    ranks = [x.array.ndim for x in operands]
    if "..." in equation:
        # ONNX Runtime wants an ellipsis to mean the same in every term, so the letters are spelled out
        terms, output = letters_of(equation, ranks)
        equation = f"{','.join(terms)}->{output}"
    if not is_floating(operands[0].array.dtype) and _sums(equation):
        operands = tuple(x if is_floating(x.array.dtype) else cast(x, int64) for x in operands)  # as `sum` does
    if MODE.get().autocast is not None and not _contracts(equation):  # no product of matrices: as `mul` and `sum` do
        dtype = reduce(promote, [x.array.dtype for x in operands])
        with switch_mode(autocast=None):
            return ops.Einsum(*[cast(x, dtype) for x in operands], equation=equation)
    return ops.Einsum(*operands, equation=equation)


def _contracts(equation: str) -> bool:
    """Whether an equation sums over a letter that several terms have."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    shared = {c for i, term in enumerate(terms) for c in term if any(c in other for other in terms[:i])}
    return bool(shared.difference(output) if arrow else shared)


def _sums(equation: str) -> bool:
    """Whether an equation sums over a letter of just one term."""
    terms, arrow, output = equation.replace(" ", "").partition("->")
    return bool(arrow) and any(
        c not in output and c not in "".join(terms.split(",")[:i] + terms.split(",")[i + 1 :])
        for i, term in enumerate(terms.split(","))
        for c in term
    )


def _from_numbers(first: Any, rest: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    given = (first, *rest)
    pairs, output = list(zip(given[::2], given[1::2], strict=False)), given[-1] if len(given) % 2 else None

    def spelled(numbers: Any) -> str:
        return "".join("..." if n is Ellipsis else ascii_letters[n] for n in numbers)

    equation = ",".join(spelled(numbers) for _, numbers in pairs)
    return equation + ("" if output is None else "->" + spelled(output)), tuple(x for x, _ in pairs)


def tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Tensor:
    """Summed over the last `dims` dimensions of `a` and the first of `b`, or over two lists of dimensions.
    `torch.tensordot`."""
    if out is not None:
        return write(tensordot(a, b, dims), out, "tensordot")
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.array.ndim, b.array.ndim):
            raise ArgumentError("tensordot has no such count of dimensions", got=str(dims))
        left, right = list(range(a.array.ndim - dims, a.array.ndim)), list(range(dims))
    else:
        left = [one_dim(d, a.array.ndim) for d in dims[0]]
        right = [one_dim(d, b.array.ndim) for d in dims[1]]
    for i, j in zip(left, right, strict=False):  # a size of 1 goes with any, as in PyTorch
        one, other = a.static_shape[i], b.static_shape[j]
        if one == 1 != other:
            b = sum(b, j, True, dtype=b.array.dtype)
        elif other == 1 != one:
            a = sum(a, i, True, dtype=a.array.dtype)
    if [a.static_shape[d] for d in left] != [b.static_shape[d] for d in right]:
        raise ShapeError(
            "tensordot sums over dimensions of one size",
            got=f"dimensions {left} of {list(a.static_shape)}, {right} of {list(b.static_shape)}",
        )
    if len(left) == a.array.ndim == b.array.ndim > 0:  # a number: as `dot`, which autocast leaves in float32
        order = [right[left.index(d)] for d in range(len(left))]
        return dot(reshape(a, -1), reshape(permute(b, order), -1))
    names = ascii_letters[: a.array.ndim]
    others = list(ascii_letters[a.array.ndim : a.array.ndim + b.array.ndim])
    for i, j in zip(left, right, strict=True):
        others[j] = names[i]
    kept = [c for i, c in enumerate(names) if i not in left] + [c for j, c in enumerate(others) if j not in right]
    return ops.Einsum(a, b, equation=f"{names},{''.join(others)}->{''.join(kept)}")


def inner(input: Any, other: Any) -> Tensor:
    """Summed over the last dimension of both; a number multiplies. `torch.inner`."""
    if not input.array.ndim or not other.array.ndim:
        return mul(input, other)
    return tensordot(input, other, ([-1], [-1]))


def outer(input: Any, vec2: Any) -> Tensor:
    """Each element of a vector times each of another. `torch.outer`."""
    if input.array.ndim != 1 or vec2.array.ndim != 1:
        raise ShapeError("outer takes two vectors", got=f"{list(input.static_shape)}, {list(vec2.static_shape)}")
    return mul(unsqueeze(input, 1), vec2)


ger = outer


def kron(input: Any, other: Any) -> Tensor:
    """Each element of `input` replaced by itself times `other`. `torch.kron`."""
    rank = max(input.array.ndim, other.array.ndim)
    first, second = ([1] * (rank - x.array.ndim) + list(x.shape) for x in (input, other))
    wide = reshape(input, [n for size in first for n in (size, 1)])
    tall = reshape(other, [n for size in second for n in (1, size)])
    return reshape(mul(wide, tall), [n * m for n, m in zip(first, second, strict=True)])


@upcast_half
def cross(input: Any, other: Any, dim: int | None = None) -> Tensor:
    """The cross product along a dimension of size 3, by default the first such one of `input`; other dimensions
    broadcast. `torch.cross`.

    Raises:
        ShapeError: another size there in one of the two, or other counts of dimensions.
    """
    input, other = promote_operands(input, other)
    first, second = input.static_shape, other.static_shape
    if len(first) != len(second):
        raise ShapeError(
            "cross takes tensors of as many dimensions", got=f"{list(first)} and {list(second)}", hint="x.expand_as(y)"
        )
    if dim is None:
        if 3 not in first:
            raise ShapeError("cross needs a dimension of size 3", got=str(list(first)))
        dim = first.index(3)
    dim = one_dim(dim, len(first))
    if first[dim] != 3 or second[dim] != 3:
        raise ShapeError(f"cross needs size 3 in dimension {dim}", got=f"{list(first)} and {list(second)}")
    input, other = broadcast_all(input, other)
    on, further = (on_device_of(operator.as_input(order), input) for order in ([1, 2, 0], [2, 0, 1]))

    def at(x: Any, places: Any) -> Tensor:
        return ops.Gather(x, places, axis=dim)

    return ops.Sub(ops.Mul(at(input, on), at(other, further)), ops.Mul(at(input, further), at(other, on)))


def chain_matmul(*matrices: Any) -> Tensor:
    """The product of several matrices, from left to right. `torch.chain_matmul`."""
    if not matrices:
        raise ArgumentError("chain_matmul needs a matrix")
    return reduce(mm, matrices)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of each element of a vector, [n, N]. `torch.vander`."""
    if x.array.ndim != 1 or (N is not None and N < 0):
        raise ArgumentError("vander takes a vector and a count of powers")
    count = int(x.static_shape[0]) if N is None else N
    x = x if is_floating(x.array.dtype) else cast(x, int64)
    if N is None and isinstance(x.shape[0], Dim):
        exponents = cast(positions(x.shape[0]), x.array.dtype)
        return ops.Pow(unsqueeze(x, 1), on_device_of(exponents if increasing else flip(exponents, 0), x))
    powers = [ops.Sub(x, x) + 1]
    for _ in range(count - 1):
        powers.append(ops.Mul(powers[-1], x))
    chosen = powers[:count] if increasing else powers[:count][::-1]
    if not chosen:
        return reshape(x[:0], x.shape[0], 0)
    return ops.Concat(*[unsqueeze(p, 1) for p in chosen], axis=1)


def _scaled(x: Any, factor: Any) -> Any:
    """The product with a number in the type of `x`: of whole numbers with its whole part, of bools with whether it
    is 0."""
    if factor == 1:
        return x
    dtype = x.array.dtype
    return mul(x, factor if is_floating(dtype) else scalar(bool(factor) if dtype == bool_ else int(factor), dtype))


def _added(start: Any, product: Any, beta: Any, alpha: Any) -> Tensor:
    """beta·start + alpha·product; a beta of 0 leaves out even what is NaN."""
    product = _scaled(product, alpha)
    return with_zero_gradient(product, start) if beta == 0 else _scaled(start, beta) + product


def _fits(what: str, start: Any, shape: Sequence[int]) -> None:
    own = start.static_shape
    short = len(own) > len(shape)
    if short or any(a not in (1, b) for a, b in zip(own[::-1], list(shape)[::-1], strict=False)):
        raise ShapeError(
            f"{what}: what is added does not broadcast to the product",
            expected=str(list(map(int, shape))),
            got=str(list(own)),
        )


@by_policy
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta·x + alpha·(mat1 @ mat2). `torch.addmm`, ONNX Gemm."""
    try:
        _ranks("addmm", (mat1, mat2), (2, 2))
    except AttributeError as error:
        return _added(input, sparse_product(mat1, mat2, error), beta, alpha)
    _fits("addmm", input, [mat1.static_shape[0], mat2.static_shape[1]])
    if is_floating(mat1.array.dtype):
        made = ops.Gemm(mat1, mat2, input if beta else None, alpha=float(alpha), beta=float(beta))
        return made if beta else with_zero_gradient(made, input)
    return _added(input, matmul(mat1, mat2), beta, alpha)


@by_policy
def addmv(input: Any, mat: Any, vec: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta·x + alpha·(mat @ vec). `torch.addmv`."""
    _ranks("addmv", (mat, vec), (2, 1))
    _fits("addmv", input, mat.static_shape[:1])
    return _added(input, matmul(mat, vec), beta, alpha)


@by_policy
def addr(input: Any, vec1: Any, vec2: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta·x + alpha·(the outer product of two vectors). `torch.addr`."""
    _ranks("addr", (vec1, vec2), (1, 1))
    _fits("addr", input, [vec1.static_shape[0], vec2.static_shape[0]])
    return _added(input, outer(vec1, vec2), beta, alpha)


@by_policy
def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta·x + alpha·(batch1 @ batch2), matrix by matrix. `torch.baddbmm`."""
    product = bmm(batch1, batch2)
    _fits("baddbmm", input, product.static_shape)
    return _added(input, product, beta, alpha)


@by_policy
def addbmm(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta·x + alpha·(the sum of the products of the matrices of two batches). `torch.addbmm`."""
    _ranks("addbmm", (batch1, batch2), (3, 3))
    if batch1.static_shape[0] != batch2.static_shape[0]:
        raise ShapeError(
            "addbmm needs batches of one size", got=f"{list(batch1.static_shape)} and {list(batch2.static_shape)}"
        )
    b, n, k = batch1.shape
    rows = reshape(permute(batch1, 1, 0, 2), n, b * k)
    product = matmul(rows, reshape(batch2, b * k, batch2.shape[2]))
    _fits("addbmm", input, product.static_shape)
    return _added(input, product, beta, alpha)
