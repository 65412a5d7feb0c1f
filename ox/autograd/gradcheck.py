"""Gradients against finite differences, of first and second order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ox.autograd.backward_pass import grad
from ox.core import operator
from ox.core.mode import switch_mode
from ox.core.tensor import TensorBase, is_tensor
from ox.devices import cpu, cuda, cuda_state
from ox.dtypes import float64
from ox.errors import ArgumentError, GradientError


def gradcheck(
    function: Callable[..., Any],
    inputs: TensorBase | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    order: int = 1,
    elements: int | None = None,
    seed: int = 0,
) -> bool:
    """Compare backward with central differences. `torch.autograd.gradcheck`.

    The outputs are multiplied with random cotangents and summed, so one backward stands against every element of the
    inputs; a wrong entry of the Jacobian shows with probability one.

    Args:
        function: takes `inputs`, returns a tensor or several; must give the same for the same inputs. Outputs that
            are not float64 are left out: their differences would be rounding errors.
        inputs: those that require a gradient are checked, and must be float64.
        eps: how far an element is moved to either side.
        atol, rtol: the gradient may be off by ``atol + rtol * |numerical|``.
        order: 2 checks the gradient of the gradient too (`gradgradcheck`).
        elements: check that many elements of each input, drawn at random; None checks all.
        seed: of the cotangents and the draw.

    Returns:
        True.

    Raises:
        GradientError: names the worst element, the gradient there and the numerical one.
        ArgumentError: nothing requires a gradient, or an input that does is not float64.
    """
    given: list[Any] = [inputs] if is_tensor(inputs) else list(inputs)
    chosen = [i for i, x in enumerate(given) if getattr(x, "requires_grad", False)]
    if not chosen:
        raise ArgumentError("gradcheck needs an input that requires a gradient")
    for i in chosen:
        if given[i].array.dtype != float64:
            raise ArgumentError(
                "gradcheck compares in float64, where differences of a millionth mean something",
                expected="float64",
                got=f"{given[i].array.dtype} for input {i}",
                hint="x.double().requires_grad_()",
            )
    random = np.random.default_rng(seed)
    _check(function, given, chosen, eps, atol, rtol, elements, random, "gradient")
    if order > 1:
        gradgradcheck(function, given, eps=eps, atol=atol, rtol=rtol, elements=elements, seed=seed + 1)
    return True


def gradgradcheck(
    function: Callable[..., Any],
    inputs: TensorBase | Sequence[Any],
    grad_outputs: Sequence[TensorBase] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    elements: int | None = None,
    seed: int = 0,
) -> bool:
    """The gradient of the gradient, with respect to the inputs and the cotangents. `torch.autograd.gradgradcheck`.

    Args and errors as for `gradcheck`; `grad_outputs` are the cotangents (default: random), one for each
    differentiable output.
    """
    given: list[Any] = [inputs] if is_tensor(inputs) else list(inputs)
    chosen = [i for i, x in enumerate(given) if getattr(x, "requires_grad", False)]
    random = np.random.default_rng(seed)
    if grad_outputs is None:
        outputs = _outputs(function, _leaves(given, chosen))
        grad_outputs = [operator.make_tensor(_like(_numbers(random, y.static_shape), y)) for y in outputs]
    count = len(given)

    def first(*both: Any) -> list[TensorBase]:
        own = list(both[:count])
        with switch_mode(grad=True):
            # leaves may be untracked (a numerical evaluation); the inner gradient needs them tracked
            own = [_tracked(x) if i in chosen else x for i, x in enumerate(own)]
            found = grad(
                _outputs(function, own),
                [own[i] for i in chosen],
                list(both[count:]),
                create_graph=True,
                allow_unused=True,
            )
        return [g for g in found if g is not None]

    every = [*given, *grad_outputs]
    both = [*chosen, *range(count, len(every))]
    if first(*_leaves(every, both)):
        _check(first, every, both, eps, atol, rtol, elements, random, "second gradient")
    return True


def _tracked(x: TensorBase) -> TensorBase:
    return x if x.requires_grad else operator.make_tensor(x.array).requires_grad_()


def _leaves(given: Sequence[Any], chosen: Sequence[int]) -> list[Any]:
    """The inputs as new leaves over copies, so that nothing of the caller's is touched."""
    return [
        operator.make_tensor(cuda_state.copy(x.array)).requires_grad_(i in chosen) if is_tensor(x) else x
        for i, x in enumerate(given)
    ]


def _outputs(function: Callable[..., Any], inputs: Sequence[Any]) -> list[TensorBase]:
    """The float64 outputs that a gradient can reach."""
    result = function(*inputs)
    several = list(result) if isinstance(result, (tuple, list)) else [result]
    return [y for y in several if y is not None and y.array.dtype == float64 and y.requires_grad]


def _check(
    function: Callable[..., Any],
    given: Sequence[Any],
    chosen: Sequence[int],
    eps: float,
    atol: float,
    rtol: float,
    elements: int | None,
    random: np.random.Generator,
    what: str,
) -> None:
    leaves = _leaves(given, chosen)
    result = function(*leaves)
    several = list(result) if isinstance(result, (tuple, list)) else [result]
    floating = [i for i, y in enumerate(several) if y is not None and y.array.dtype == float64]
    weights = {i: _numbers(random, several[i].static_shape) for i in floating}
    reached = [i for i in floating if several[i].requires_grad]
    found: Sequence[TensorBase | None] = [None] * len(chosen)
    if reached:
        found = grad(
            [several[i] for i in reached],
            [leaves[i] for i in chosen],
            [operator.make_tensor(_like(weights[i], several[i])) for i in reached],
            allow_unused=True,
        )
    worst: tuple[float, str] = (0.0, "")
    for i, g in zip(chosen, found, strict=True):
        analytic = np.zeros(given[i].static_shape) if g is None else cpu(g.array)
        if analytic.shape != given[i].static_shape:
            raise GradientError(
                f"the {what} of input {i} has another shape than the input",
                expected=str(list(given[i].static_shape)),
                got=str(list(analytic.shape)),
            )
        places = list(np.ndindex(given[i].static_shape))
        if elements is not None and len(places) > elements:
            places = [places[k] for k in random.choice(len(places), elements, replace=False)]
        for place in places:
            ahead, behind = (_perturbed(function, given, i, place, step) for step in (eps, -eps))
            # differences of outputs first: the sum of all outputs may be too large for a difference of sums
            numeric = sum(
                float(((cpu(ahead[k].array) - cpu(behind[k].array)) * weights[k]).sum()) / (2 * eps) for k in floating
            )
            off = abs(float(analytic[place]) - numeric)
            excess = off / (atol + rtol * abs(numeric)) if np.isfinite(off) else np.inf
            if excess > worst[0]:
                worst = excess, f"{float(analytic[place]):.8g} at input {i}{list(place)}|{numeric:.8g}"
    if worst[0] > 1:
        got, _, numeric_text = worst[1].partition("|")
        raise GradientError(
            f"the {what} does not agree with finite differences",
            expected=f"{numeric_text} (numerical; off by {worst[0]:.3g} times what is allowed)",
            got=got,
        )


def _perturbed(
    function: Callable[..., Any], given: Sequence[Any], i: int, place: tuple[int, ...], step: float
) -> list[Any]:
    """The outputs with one element moved."""
    inputs = [operator.make_tensor(x.array) if is_tensor(x) else x for x in given]
    array = cuda_state.copy(given[i].array)
    with cuda_state.at(array):
        array[place] += step
    inputs[i] = operator.make_tensor(array)
    result = function(*inputs)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _like(array: np.ndarray[Any, Any], y: TensorBase) -> Any:
    """The array on the device of y."""
    return array if isinstance(y.array, np.ndarray) else cuda.to_device(array, y.device)


def _numbers(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Cotangents away from zero, of both signs."""
    return np.asarray(random.uniform(0.5, 1.5, shape) * random.choice([-1.0, 1.0], shape))
