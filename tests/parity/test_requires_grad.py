"""Whether what a function gives requires a gradient, beside PyTorch: each operation of its OpInfo database, as a
function, as a method and in place, with a gradient for each floating input alone and for all."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("expecttest", reason="PyTorch's own test helpers want expecttest")

import opinfo
from opinfo_sides import Ours, OutsideError, Theirs, flat

torch = opinfo.torch
SAMPLES = 4

# where ox differs, and why
EXCEPTIONS = {
    "histogram": "PyTorch's flags are of all results together, and its backward raises",
    "linalg_lstsq": "an empty residual",
    "linalg_norm": "of a matrix without elements PyTorch has no gradient",
    "linalg_norm_subgradients_at_zero": "the same",
    "nn_functional_multi_head_attention_forward": "the weights are of one function with the result",
    "special_modified_bessel_i0": "has a gradient, which PyTorch has not",
    "special_modified_bessel_i1": "has a gradient, which PyTorch has not",
    "special_spherical_bessel_j0": "has a gradient, which PyTorch has not",
}


def floats(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from floats(part)


def flags(side: Any, sample: Any, function: Any, form: str) -> list[bool]:
    given, named = side([sample.input, *sample.args]), side(sample.kwargs)
    if form == "in place":
        given[0] = given[0] * 1  # no leaf
    result = flat(function(*given, **named))
    return [part.requires_grad for part in result if hasattr(part, "requires_grad")]


def cases(op: Any) -> Iterator[tuple[Any, str, Any, Any]]:
    forms = [("function", op.op, opinfo.counterpart(op)), *opinfo.other_forms(op, "float32")]
    for sample in opinfo.samples(op, "float32", False, SAMPLES):
        tensors = list({id(t): t for t in floats([sample.input, list(sample.args), sample.kwargs])}.values())
        for chosen in [[t] for t in tensors] + ([tensors] if len(tensors) > 1 else []):
            for t in tensors:
                t.requires_grad_(any(t is each for each in chosen))
            for form, theirs, own in forms:
                if own is not None and not (form == "in place" and sample.broadcasts_input):
                    yield sample, form, theirs, own


@pytest.mark.parametrize("name", sorted(opinfo.operations()))
def test_requires_grad(name: str) -> None:
    op = opinfo.operations()[name]
    if torch.float32 not in op.supported_dtypes("cpu"):
        pytest.skip("no floats")
    wrong = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for sample, form, theirs, own in itertools.islice(cases(op), 60):
            try:
                expected = flags(Theirs(), sample, theirs, form)
            except (RuntimeError, OutsideError):  # refused, or of complex numbers
                continue
            try:
                got = flags(Ours(), sample, own, form)
            except (opinfo.ox.errors.OxError, OutsideError, TypeError, AttributeError):  # test_opinfo.py says which
                continue
            if got != expected:
                wrong.append(f"{form}: {got} in place of {expected}")
    assert not wrong or name in EXCEPTIONS, wrong[:3]
