"""Sums of products in Einstein's notation: Einsum."""

from collections.abc import Sequence
from math import prod
from string import ascii_letters
from typing import Any

from ox.core.broadcast import expand_to, sum_to
from ox.core.constants import axes_tensor, zeros
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Array, T
from ox.core.upcast import downcast
from ox.devices.summation import sum_over
from ox.dtypes import HALF_TYPES, NUMERIC, float32
from ox.errors import ArgumentError, ShapeError

__all__ = ["Einsum"]


def letters_of(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """A letter for each dimension of each input, and those of the output: with an ellipsis spelled out, and the output
    that ONNX implies where none is given (letters that come once, in alphabetical order, behind the ellipsis).

    Raises:
        ArgumentError: no such equation.
        ShapeError: its dimensions differ from those of the inputs.
    """
    text = equation.replace(" ", "")
    given, arrow, wanted = text.partition("->")
    terms = given.split(",")
    bare = given.replace("...", "").replace(",", "")
    if not all(c in ascii_letters for c in bare + wanted.replace("...", "", 1)):
        raise ArgumentError(f"Einsum does not understand {equation!r}", expected="letters, commas, '...' and one '->'")
    if len(terms) != len(ranks):
        raise ArgumentError(f"Einsum {equation!r} of {len(ranks)} inputs", expected=f"{len(terms)} inputs")
    widths = []
    for term, rank in zip(terms, ranks, strict=True):
        named = len(term.replace("...", ""))
        if term.count("...") > 1 or (rank != named if "..." not in term else rank < named):
            raise ShapeError(
                f"Einsum {equation!r}: '{term}' for an input of {rank} dimensions",
                expected=f"{named} dimensions" + (" or more" if "..." in term else ""),
            )
        widths.append(rank - named if "..." in term else 0)
    free = [c for c in ascii_letters if c not in bare]
    common = "".join(free[: max(widths)])
    spelled = [t.replace("...", common[len(common) - w :]) for t, w in zip(terms, widths, strict=True)]
    if not arrow:
        wanted = "..." + "".join(sorted(c for c in set(bare) if bare.count(c) == 1))
    output = wanted.replace("...", common)
    if len(set(output)) != len(output) or set(output) - set("".join(spelled)):
        raise ArgumentError(
            f"Einsum {equation!r}: the output names a letter twice, or one that no input has", got=wanted
        )
    return spelled, output


def _sizes(equation: str, terms: list[str], shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """The size of each letter; 1 broadcasts."""
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            have = sizes.get(letter, 1)
            if have != 1 and size not in (1, have):
                raise ShapeError(
                    f"Einsum {equation!r}: '{letter}' has two sizes",
                    expected=str(int(have)),
                    got=f"{int(size)} in {[list(map(int, s)) for s in shapes]}",
                )
            if have == 1:
                sizes[letter] = size
    return sizes


@operator("Output", kind="product", view=True, T=NUMERIC, amp="lower", batching="each", weights="Inputs")
def Einsum(xp: XP, *Inputs: T, equation: str) -> T:
    """Products of elements of the inputs, summed over the letters that the output does not name; inputs meet from left
    to right, each time in a MatMul. ONNX Einsum, `torch.einsum`."""
    terms, output = letters_of(equation, [x.ndim for x in Inputs])
    sizes = _sizes(equation, terms, [x.shape for x in Inputs])
    dtype = Inputs[0].dtype
    left = list(Inputs) if dtype not in HALF_TYPES else [x.astype(float32) for x in Inputs]
    result, letters = left[0], terms[0]
    for i, (x, term) in enumerate(zip(left[1:], terms[1:], strict=True), start=2):
        keep = set(output).union(*terms[i:])
        result, letters = _pair(xp, *_single(xp, result, letters, keep | set(term)), *_single(xp, x, term), keep)
    result, letters = _single(xp, result, letters, set(output))
    result = result.transpose([letters.index(c) for c in output])
    wide = tuple([sizes[c] for c in output])
    if result.shape != wide:
        result = xp.broadcast_to(result, wide)
    return result if result.dtype == dtype else downcast(result, dtype)


def _single(xp: XP, x: Array, letters: str, keep: set[str] | None = None) -> tuple[Array, str]:
    """One input with the diagonal of repeated letters, summed over letters that are not used later."""
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            i = letters.index(letter)
            j = letters.index(letter, i + 1)
            if x.shape[i] != x.shape[j]:
                raise ShapeError(
                    f"Einsum: '{letter}' twice in one input of sizes {list(x.shape)}", expected="equal ones"
                )
            x = xp.diagonal(x, axis1=i, axis2=j)
            letters = "".join(c for k, c in enumerate(letters) if k not in (i, j)) + letter
    if keep is not None and (gone := [i for i, c in enumerate(letters) if c not in keep]):
        x = sum_over(xp, x, tuple(gone))
        letters = "".join(c for c in letters if c in keep)
    return x, letters


def _pair(xp: XP, a: Array, la: str, b: Array, lb: str, keep: set[str]) -> tuple[Array, str]:
    """Two inputs as one: a batched matrix product over the common letters that are not used later."""
    for letter in set(la) & set(lb):  # a size of 1 next to a larger one broadcasts
        n, m = a.shape[la.index(letter)], b.shape[lb.index(letter)]
        if n != m and n == 1:
            a, la = a.squeeze(la.index(letter)), la.replace(letter, "")
        elif n != m:
            b, lb = b.squeeze(lb.index(letter)), lb.replace(letter, "")
    b, lb = _single(xp, b, lb, keep | set(la))
    a, la = _single(xp, a, la, keep | set(lb))
    both = [c for c in la if c in lb]
    batch, inner = [c for c in both if c in keep], [c for c in both if c not in keep]
    rows, columns = [c for c in la if c not in both], [c for c in lb if c not in both]
    if not inner:
        a = a.transpose([la.index(c) for c in (*batch, *rows)])
        b = b.transpose([lb.index(c) for c in (*batch, *columns)])
        a = a.reshape(a.shape + (1,) * len(columns))
        b = b.reshape((*b.shape[: len(batch)], *[1] * len(rows), *b.shape[len(batch) :]))
        return a * b, "".join((*batch, *rows, *columns))
    first, n, _ = _matrices(a, la, batch, rows, inner)
    second, _, m = _matrices(b, lb, batch, inner, columns)
    sizes = [a.shape[la.index(c)] for c in batch]
    product = xp.matmul(first, second)
    return product.reshape((*sizes, *n, *m)), "".join((*batch, *rows, *columns))


def _matrices(x: Array, letters: str, batch: Any, rows: Any, columns: Any) -> tuple[Array, Any, Any]:
    """`x` as a stack of matrices, and the sizes of which rows and columns are made."""
    x = x.transpose([letters.index(c) for c in (*batch, *rows, *columns)])
    b, r = len(batch), len(batch) + len(rows)
    count, height, width = prod(x.shape[:b]), prod(x.shape[b:r]), prod(x.shape[r:])
    matrices = x.reshape((count, height, width) if b else (height, width))
    return matrices, x.shape[b:r], x.shape[r:]


@Einsum.gradient("Inputs")
def _(g: TensorBase, Inputs: list[TensorBase], equation: str) -> list[TensorBase]:
    terms, output = letters_of(equation, [x.ndim for x in Inputs])
    return [_cotangent(g, output, list(Inputs), terms, k) for k in range(len(terms))]


def _cotangent(g: TensorType, output: str, inputs: list[TensorBase], terms: list[str], k: int) -> TensorType:
    """Of input k: the other inputs and the cotangent of the output, summed over what input k does not have."""
    own, shape = terms[k], inputs[k].shape
    operands = [g, *[x for i, x in enumerate(inputs) if i != k]]
    given = [output, *[t for i, t in enumerate(terms) if i != k]]
    there = set("".join(given))
    wanted = ""
    for i, letter in enumerate(own):
        if letter in own[:i]:
            # elements off a diagonal were not used: multiply by an identity matrix with a new letter
            other = next(c for c in ascii_letters if c not in "".join([*given, *terms]))
            n = shape[i]
            operands.append(OPS["EyeLike"](zeros([n, n], g)))
            given.append(letter + other)
            there.update((letter, other))
            letter = other
        wanted += letter
    result = OPS["Einsum"](*operands, equation=",".join(given) + "->" + "".join(c for c in wanted if c in there))
    missing = [i for i, c in enumerate(wanted) if c not in there]
    if missing:
        result = OPS["Unsqueeze"](result, axes_tensor(missing))
    result = sum_to(result, shape)
    return result if not missing and tuple(result.shape) == tuple(shape) else expand_to(result, shape)
