"""Values and gradients (of first and second order) where functions have corners: ties, zeros, infinities, NaN, bounds,
one element, none. The expressions stand in special_points.toml, and so does each that differs, with a reason; nothing
else may differ."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ox

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

from sides import split  # noqa: E402

TABLE = tomllib.loads((Path(__file__).parent / "special_points.toml").read_text())
NAN, INF = float("nan"), float("inf")
NUMBERS = [-7, -6.5, -3, -2, -1.5, -1, -0.5, -0.0, 0, 0.5, 1, 1.5, 2, 2.5, 3, 6, 6.5, 20, 25]
SAMPLES = {
    "numbers": np.array(NUMBERS, float),
    "ties": np.array([[1.0, 2, 2], [2, 1, 2], [0, 0, 0], [-1, -1, 3]]),
    "zeros": np.array([[0.0, 0, 0], [1, 0, 2], [0, 3, 0], [2, 1, 3]]),
    "infinities": np.array([[-INF, -INF], [INF, INF], [INF, -INF], [1, -INF]]),
    "nan": np.array([[1, NAN, 2], [NAN, NAN, NAN], [0, 0, NAN]]),
    "one": np.array([2.0]),
    "single": np.array(0.0),
    "none": np.zeros((0, 3)),
    "empty": np.zeros((2, 0)),
}
ORDERS = ("value", "first", "second")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Names(dict[str, Any]):
    """x, and all functions of one side."""

    def __init__(self, side: Any, x: Any) -> None:
        super().__init__(x=x, T=side, F=side.nn.functional, nn=side.nn, inf=INF)
        self.side = side

    def __missing__(self, name: str) -> Any:
        return getattr(self.side, name)


def orders(side: Any, expression: str, array: np.ndarray[Any, Any]) -> Iterator[list[Any]]:
    """The values, then what cotangents of different sizes become at x, then what others become of that."""
    x = side.tensor(array, requires_grad=True)
    result = eval(expression, {"__builtins__": {"range": range}}, Names(side, x))
    results = result if isinstance(result, (tuple, list)) else [result]
    yield [y.detach().numpy(force=True) for y in results]
    followed = [y for y in results if y.requires_grad]
    for wave in (np.cos, np.sin):
        seeds = [side.tensor(1 + wave(np.arange(y.numel())).reshape(tuple(y.shape)) / 2).to(y.dtype) for y in followed]
        g = side.autograd.grad(followed, [x], seeds, create_graph=True, allow_unused=True)[0] if followed else None
        yield [np.zeros_like(array) if g is None else g.detach().numpy(force=True)]
        followed = [g] if g is not None and g.requires_grad else []


def different(got: list[Any], expected: list[Any], array: np.ndarray[Any, Any]) -> str | None:
    for a, b in zip(got, expected, strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"{a.dtype} {a.shape} in place of {b.dtype} {b.shape}"
        wrong = ~np.isclose(a.astype(float), b.astype(float), rtol=1e-9, atol=1e-9, equal_nan=True)
        if wrong.any():
            at = array[wrong].tolist() if wrong.shape == array.shape else np.argwhere(wrong).tolist()
            return f"{a[wrong].tolist()} in place of {b[wrong].tolist()} at {at}"
    return None


def differences(expression: str) -> dict[str, str]:
    """What is different, by order and sample, of each sample the lowest order; what PyTorch refuses says nothing."""
    found = {}
    for sample, array in SAMPLES.items():
        if "pdist" in expression and sample == "none":  # PyTorch's gradient of no rows ends the process
            continue
        sides = [orders(side, expression, array) for side in (torch, ox)]
        for order in ORDERS:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                told = next_different(*sides, array)
            if told:
                found[f"{order} {sample}"] = told
                break
    return found


def next_different(theirs: Iterator[list[Any]], ours: Iterator[list[Any]], array: Any) -> str | None:
    try:
        expected = next(theirs)
    except Exception:  # whatever PyTorch raises; after it nothing follows
        return None
    try:
        got = next(ours)
    except ox.OxError as error:
        return f"refused: {error}"
    return different(got, expected, array)


def exceptions(expression: str) -> list[str]:
    """Patterns of the samples that may differ."""
    found = []
    for entry in TABLE["exceptions"]:
        for line in entry["names"].strip().splitlines():
            pattern, _, checks = line.rpartition(": ")
            if expression == pattern:
                found += [check.strip() for check in checks.split(",")]
    return found


@pytest.mark.parametrize("expression", split(TABLE["expressions"]))
def test_value_and_gradients(expression: str) -> None:
    found, known = differences(expression), exceptions(expression)
    new = [f"{check}: {told}" for check, told in found.items() if not any(fnmatchcase(check, k) for k in known)]
    assert not new, "\n".join(new)


def test_every_exception_has_a_reason_and_an_expression() -> None:
    every = split(TABLE["expressions"])
    for entry in TABLE["exceptions"]:
        assert entry["why"]
        for line in entry["names"].strip().splitlines():
            assert line.rpartition(": ")[0] in every, line
