"""Functions of functions: gradients, and products with Jacobians from the left and the right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from ox.autograd.backward_pass import grad as gradients
from ox.autograd.nested_grad import (
    depends_on_others,
    detach_outside_results,
    differentiable_input,
    needs_higher_order,
    vjp_or_zeros,
)
from ox.autograd.pytree import flatten, leaves_of
from ox.core.constants import zeros
from ox.core.mode import MODE, switch_mode
from ox.core.tensor import is_tensor
from ox.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

Argnums = int | tuple[int, ...]


def argument_positions(args: Sequence[Any], argnums: Argnums, what: str) -> list[int]:
    """The positions that `argnums` names. Raises ArgumentError for one that is not there."""
    several = [argnums] if isinstance(argnums, int) else list(argnums)
    for n in several:
        if not -len(args) <= n < len(args):
            raise ArgumentError(
                f"{what} has no argument {n} to differentiate by",
                expected=f"0 to {len(args) - 1}",
                hint="arguments by position; keyword arguments are taken as they are",
            )
    return [n % len(args) for n in several]


class DifferentiableInputs:
    """Arguments of which some are tracked: `args` to call the function with, `inputs` the tensors among them."""

    def __init__(self, args: Sequence[Any], positions: Sequence[int], what: str) -> None:
        self.args = list(args)
        self.inputs: list[Tensor] = []
        self.rebuilds = []
        for n in positions:
            leaves, rebuild = flatten(args[n])
            tracked = [differentiable_input(x, what) for x in leaves]
            self.args[n] = rebuild(tracked)
            self.inputs += tracked
            self.rebuilds.append((rebuild, len(tracked)))

    def shaped(self, found: list[Any], argnums: Argnums) -> Any:
        """One entry a tensor, in the structure of the arguments."""
        trees, place = [], 0
        for rebuild, count in self.rebuilds:
            trees.append(rebuild(found[place : place + count]))
            place += count
        return trees[0] if isinstance(argnums, int) else tuple(trees)


def split_aux(result: Any, has_aux: bool, what: str) -> tuple[Any, Any]:
    """The result and what comes along with it. Raises ArgumentError if `has_aux` promised a pair."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(
            f"{what} with has_aux=True needs a function that returns a pair",
            expected="(output, aux)",
            got=type(result).__name__,
        )
    return result


def grad_and_value(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of `func` and its value. `torch.func.grad_and_value`.

    Args:
        func: gives a tensor of one element (with `has_aux` a pair of that and anything).
        argnums: by which arguments, each a tensor or a structure of tensors.

    Returns:
        ``(grad, value)``, or ``(grad, (value, aux))``.
    """

    @wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        inside = DifferentiableInputs(args, argument_positions(args, argnums, "grad"), "grad")
        with switch_mode(grad=True, inference=False):
            value, aux = split_aux(func(*inside.args, **kwargs), has_aux, "grad")
        if not is_tensor(value) or value.array.ndim:
            raise ShapeError(
                "grad needs a function that returns a tensor of no dimensions",
                got=str(list(value.static_shape)) if is_tensor(value) else type(value).__name__,
                hint=".sum() or .mean(), or ox.func.jacrev",
            )
        create = needs_higher_order([value], inside.inputs)
        found = detach_outside_results(
            vjp_or_zeros([value], inside.inputs, None, create=create, retain=False), inside.inputs
        )
        leaves, rebuild = flatten((value, aux))
        value, aux = rebuild(detach_outside_results(leaves, inside.inputs))
        return inside.shaped(found, argnums), (value, aux) if has_aux else value

    return wrapper


def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of `func`; with `has_aux` a pair of that and `aux`. `torch.func.grad`."""
    both = grad_and_value(func, argnums, has_aux)

    @wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return wrapper


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """``(output, vjp_fn)``: `vjp_fn(cotangent)` is a tuple of the cotangent times the Jacobian by each primal. With
    `has_aux` ``(output, vjp_fn, aux)``. `torch.func.vjp`."""
    inside = DifferentiableInputs(primals, range(len(primals)), "vjp")
    with switch_mode(grad=True, inference=False):
        output, aux = split_aux(func(*inside.args), has_aux, "vjp")
    outputs = tensors_of(output, "vjp")
    around = needs_higher_order(outputs, inside.inputs)

    def vjp_fn(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given = leaves_of(cotangents[0] if len(cotangents) == 1 else cotangents)
        if len(given) != len(outputs):
            raise ArgumentError(
                "another number of cotangents than of outputs", expected=str(len(outputs)), got=str(len(given))
            )
        create = create_graph
        if create is None:
            create = around or (MODE.get().grad and any(getattr(g, "node", None) is not None for g in given))
        found = vjp_or_zeros(outputs, inside.inputs, given, create=create, retain=retain_graph)
        return inside.shaped(detach_outside_results(found, inside.inputs), tuple(range(len(primals))))

    leaves, rebuild = flatten((output, aux))
    output, aux = rebuild(detach_outside_results(leaves, inside.inputs))
    return (output, vjp_fn, aux) if has_aux else (output, vjp_fn)


def tensors_of(tree: Any, what: str) -> list[Any]:
    leaves = leaves_of(tree)
    for y in leaves:
        if not is_tensor(y):
            raise ArgumentError(f"{what} needs a function that returns tensors", got=type(y).__name__)
    return leaves


def jvp_of(outputs: list[Any], inputs: list[Any]) -> Callable[[list[Any]], list[Any]]:
    """The product of the Jacobian with tangents: the gradient, by the cotangents, of a product from the left.

    Args:
        outputs: tensors computed from the inputs.
        inputs: as `entered` gave them.

    Returns:
        A function of one tangent an input that gives one an output.
    """
    reached = [k for k, y in enumerate(outputs) if y.node is not None]
    with switch_mode(grad=True, inference=False):
        weights = [zeros(outputs[k].shape, outputs[k]).detach().requires_grad_() for k in reached]
        rows = gradients([outputs[k] for k in reached], inputs, weights, create_graph=True, allow_unused=True)
    used = [k for k, row in enumerate(rows) if row is not None and row.node is not None]

    def product(tangents: list[Any]) -> list[Any]:
        found: list[Any] = [None] * len(weights)
        if used:
            create = MODE.get().grad and (
                depends_on_others([row for row in rows if row is not None], [*inputs, *weights])
                or any(getattr(t, "node", None) is not None for t in tangents)
            )
            found = list(
                gradients(
                    [rows[k] for k in used],
                    weights,
                    [tangents[k] for k in used],
                    retain_graph=True,
                    create_graph=create,
                    allow_unused=True,
                )
            )
        by_output = dict(zip(reached, found, strict=True))
        made = [by_output.get(k) for k in range(len(outputs))]
        made = [zeros(y.shape, y) if t is None else t for y, t in zip(outputs, made, strict=True)]
        return detach_outside_results(made, [*inputs, *weights])

    return product


def jvp(
    func: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """``(output, jvp)``: the Jacobian times the tangents, by differentiating a vjp. With `has_aux`
    ``(output, jvp, aux)``. `torch.func.jvp`.

    Raises:
        ArgumentError: primals and tangents are no tuples of the same structure.
        ShapeError: a tangent has another shape than its primal.
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple) or not primals:
        raise ArgumentError("jvp takes primals and tangents as tuples", hint="jvp(f, (x,), (t,))")
    inside = DifferentiableInputs(primals, range(len(primals)), "jvp")
    given = leaves_of(tangents)
    check_tangents(inside.inputs, given)
    with switch_mode(grad=True, inference=False):
        output, aux = split_aux(func(*inside.args), has_aux, "jvp")
    outputs = tensors_of(output, "jvp")
    if strict and any(y.node is None for y in outputs):
        raise ArgumentError("an output of jvp's function does not depend on the primals")
    product = jvp_of(outputs, inside.inputs)(given)
    leaves, rebuild = flatten((output, aux))
    pushed = flatten(output)[1](product)
    output, aux = rebuild(detach_outside_results(leaves, inside.inputs))
    return (output, pushed, aux) if has_aux else (output, pushed)


def check_tangents(inputs: Sequence[Any], tangents: Sequence[Any]) -> None:
    """Raise an error unless there is a tangent of the same shape for each input."""
    if len(inputs) != len(tangents):
        raise ArgumentError(
            "another number of tangents than of primals", expected=str(len(inputs)), got=str(len(tangents))
        )
    for x, t in zip(inputs, tangents, strict=True):
        if not is_tensor(t) or t.static_shape != x.static_shape:
            raise ShapeError(
                "a tangent has another shape than its primal",
                expected=str(list(x.static_shape)),
                got=str(list(t.static_shape)) if is_tensor(t) else type(t).__name__,
            )
