"""Gradient rules, and what a call saves for backward.

A rule is a function written in operators. The names of its parameters select what it gets:

    an output or input of the operator   the tensor itself, saved and version-checked (of a variadic one, a list)
    ``<input>_shape``                    only its shape (a tuple; under a recording of `ox.Dim`)
    ``<input>_dtype``                    only its element type
    an attribute                         its value
    ``needs``                            for a rule that serves several inputs: which of them are wanted
    anything else                        a cotangent, one an output in order, None where an output was not used;
                                         ``*name`` takes those of a variadic output
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ox.core.tensor import TensorBase, TensorType
from ox.dtypes import is_floating
from ox.errors import GradientError

if TYPE_CHECKING:
    from ox.core.node import Node
    from ox.core.schema import Schema

INPUT, OUTPUT, SHAPE, DTYPE, ATTRIBUTE, NEEDS, COTANGENT, COTANGENTS = range(8)


@dataclass(frozen=True)
class Rule:
    """The gradient of one or several inputs."""

    function: Callable[..., Any]
    positions: tuple[int, ...]
    variadic: bool
    arguments: tuple[tuple[int, Any], ...]  # kind and position or name, in the order of the function's parameters
    when: Callable[[dict[str, Any]], bool] | None = None  # which calls it serves, by their attributes
    together: bool = False  # it serves the calls in which a gradient follows exactly these inputs


def with_name(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A copy of a function under another name, which tracebacks and profilers show: a definition writes ``def _``."""
    if not isinstance(function, FunctionType):
        return function
    code = function.__code__.replace(co_name=name, co_qualname=name)
    made = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    made.__dict__.update(function.__dict__)
    made.__kwdefaults__, made.__annotations__ = function.__kwdefaults__, function.__annotations__
    made.__doc__, made.__module__, made.__qualname__ = function.__doc__, function.__module__, name
    return made


def make_rule(
    schema: Schema,
    function: Callable[..., Any],
    names: tuple[str, ...],
    when: Callable[[dict[str, Any]], bool] | None = None,
    together: bool = False,
) -> Rule:
    """Read a rule's parameters against the schema; a name that is no input is a mistake of the author.

    The rule's function is called ``Tanh_backward``, or ``Mul_backward_A`` where it serves one of several inputs.
    """
    inputs = {given.name: i for i, given in enumerate(schema.inputs)}
    positions = tuple(inputs[name] for name in names)
    arguments: list[tuple[int, Any]] = []
    cotangents = 0
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments.append((COTANGENTS, cotangents))
        elif name in inputs:
            arguments.append((INPUT, inputs[name]))
        elif name in schema.outputs:
            arguments.append((OUTPUT, schema.outputs.index(name)))
        elif name in schema.attributes:
            arguments.append((ATTRIBUTE, name))
        elif name.endswith("_shape") and name[:-6] in inputs:
            arguments.append((SHAPE, inputs[name[:-6]]))
        elif name.endswith("_dtype") and name[:-6] in inputs:
            arguments.append((DTYPE, inputs[name[:-6]]))
        elif name == "needs":
            arguments.append((NEEDS, None))
        else:
            arguments.append((COTANGENT, cotangents))
            cotangents += 1
    one_of_several = f"_{names[0]}" if len(names) == 1 and sum(not given.host for given in schema.inputs) > 1 else ""
    function = with_name(function, f"{schema.name}_backward{one_of_several}")
    return Rule(function, positions, schema.inputs[positions[0]].variadic, tuple(arguments), when, together)


class SavePlan:
    """For one operator and one set of tracked inputs: the rules that backward runs, and the values to save for them."""

    __slots__ = ("entries", "missing", "one_for_all", "one_input_per_rule", "steps", "tracked")

    def __init__(self, schema: Schema, rules: list[Rule], tracked: tuple[int, ...]) -> None:
        self.tracked = tracked
        serving = [rule for rule in rules if rule.together and rule.positions == tracked] or [
            r
            for r in rules
            if not r.together and any(p in r.positions or (r.variadic and p >= r.positions[0]) for p in tracked)
        ]
        serving.sort(key=lambda rule: rule.positions)
        covered = {p for rule in serving for p in rule.positions}
        if any(rule.variadic for rule in serving):
            covered.update(tracked)
        self.missing = [schema.input_at(p).name for p in tracked if p not in covered]
        last = len(schema.inputs) - 1
        wanted = dict.fromkeys(a for rule in serving for a in rule.arguments if a[0] in (INPUT, OUTPUT, SHAPE, DTYPE))
        # kind, position, and whether it includes all further inputs
        rest = last if schema.inputs[last].variadic else None
        self.entries = tuple((kind, i, schema.variadic_output if kind == OUTPUT else i == rest) for kind, i in wanted)
        place = {entry: k for k, entry in enumerate(wanted)}
        # each rule with its arguments, what is saved named by its position in `saved`
        self.steps = [
            (rule, tuple((kind, place.get((kind, key), key), key) for kind, key in rule.arguments)) for rule in serving
        ]
        self.one_for_all = len(serving) == 1 and serving[0].positions == tracked and not serving[0].variadic
        self.one_input_per_rule = all(len(rule.positions) == 1 and not rule.variadic for rule in serving)

    def save(self, inputs: tuple[Any, ...], outputs: tuple[TensorBase, ...]) -> list[Any]:
        """The saved values in the order of `entries`; a tensor as a pair (tensor, its version now)."""
        saved: list[Any] = []
        for kind, i, rest in self.entries:
            if kind == OUTPUT and rest:
                saved.append([(copy, copy.version) for copy in [y.shallow_copy() for y in outputs[i:]]])
            elif kind == OUTPUT:
                copy = outputs[i].shallow_copy()
                saved.append((copy, copy._writes[0]))
            elif rest:
                saved.append([_saved_input(kind, x) for x in inputs[i:]])
            elif i >= len(inputs) or (x := inputs[i]) is None:
                saved.append(None)
            elif kind == INPUT:
                saved.append((x, 0 if x._writes is None else x._writes[0]))
            elif kind == SHAPE:
                # on every call's path: static_shape takes longer
                saved.append(x.array.shape if x._recorded is None else x.shape)
            else:
                saved.append(x.array.dtype)
        return saved


def _saved_input(kind: int, x: Any) -> Any:
    return (x, x.version) if kind == INPUT else x.shape if kind == SHAPE else x.array.dtype


def gradients(node: Node, cotangents: list[TensorBase | None], differentiable: bool) -> list[TensorBase | None]:
    """The cotangents of a node's tracked inputs, in the order of `node.inputs`.

    With `differentiable` (create_graph) saved outputs come back attached to the graph.

    Raises:
        GradientError: the graph was freed, a saved tensor was written in place, or the operator has no such gradient.
    """
    keep, saved = node.save_plan, node.saved
    if saved is None:
        raise node.released_error()
    if keep.missing:
        raise GradientError(
            f"{node.op.name} has no gradient for input '{keep.missing[0]}', and a differentiated value reaches it",
            hint="x.detach() before it, if no gradient should flow there",
        )
    found: list[Any] = []
    for rule, arguments in keep.steps:
        given: list[Any] = []
        for kind, place, key in arguments:
            if kind == COTANGENT:
                given.append(cotangents[place] if place < len(cotangents) else None)
            elif kind == COTANGENTS:
                given.extend(cotangents[place:])
            elif kind == INPUT:
                given.append(unpack_saved(node, saved[place]))
            elif kind == OUTPUT:
                kept = unpack_saved(node, saved[place])
                if not differentiable:
                    given.append(kept)
                elif type(kept) is list:
                    given.append([_with_history(y, node, key + i) for i, y in enumerate(kept)])
                else:
                    given.append(_with_history(kept, node, key))
            elif kind == ATTRIBUTE:
                given.append(node.attributes.get(place, node.op.schema.attributes[place]))
            elif kind == NEEDS:
                given.append(tuple([p in keep.tracked for p in rule.positions]))
            else:
                given.append(saved[place])
        found.append(rule.function(*given))
    if keep.one_input_per_rule:
        return found
    if keep.one_for_all:
        return list(found[0])
    by_position: dict[int, TensorBase | None] = {}
    for (rule, _), grads in zip(keep.steps, found, strict=True):
        if rule.variadic:
            by_position.update(enumerate(grads, start=rule.positions[0]))
        else:
            several = grads if len(rule.positions) > 1 else (grads,)
            by_position.update(zip(rule.positions, several, strict=True))
    return [by_position[p] for p in keep.tracked]


def _with_history(output: TensorType, node: Node, port: int) -> TensorType:
    """A saved output with its history, for create_graph."""
    return output.with_history(node, port) if is_floating(output.array.dtype) else output


def unpack_saved(node: Node, kept: Any) -> Any:
    """A saved tensor. Raises GradientError if it was written in place since."""
    if kept is None:
        return None
    if type(kept) is list:
        return [unpack_saved(node, pair) for pair in kept]
    tensor, version = kept
    if tensor._writes is None or tensor._writes[0] == version:
        return tensor
    if hasattr(tensor, "restore"):  # by the hooks of ox.autograd.graph
        return tensor.restore()
    raise GradientError(
        f"a tensor that {node.op.name} needs for its gradient was modified by an in-place operation",
        expected=f"version {version} of the {list(tensor.static_shape)} tensor",
        got=f"version {tensor.version}, written by {tensor.last_write()}",
        hint="the out-of-place form of that operation, or a .clone() before it",
    )
