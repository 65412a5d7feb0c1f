"""Gradient rules, and what a call must keep for them.

A rule is a function written in operators. Its parameters say what it needs, by name:

    an output or input of the operator   the tensor itself, kept and version-checked (of a variadic one, a list)
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
from typing import TYPE_CHECKING, Any

from ox.dtypes import is_floating
from ox.errors import GradientError
from ox.where import users_line

if TYPE_CHECKING:
    from ox.ops.node import Node
    from ox.ops.schema import Schema
    from ox.tensor import Tensor

INPUT, OUTPUT, SHAPE, DTYPE, ATTRIBUTE, NEEDS, COTANGENT, COTANGENTS = range(8)


@dataclass(frozen=True)
class Rule:
    """The gradient of one or several inputs."""

    function: Callable[..., Any]
    positions: tuple[int, ...]
    variadic: bool
    arguments: tuple[tuple[int, Any], ...]  # kind and position or name, in the order of the function's parameters
    when: Callable[[dict[str, Any]], bool] | None = None  # which calls it serves, by their attributes


def make_rule(
    schema: Schema,
    function: Callable[..., Any],
    names: tuple[str, ...],
    when: Callable[[dict[str, Any]], bool] | None = None,
) -> Rule:
    """Read a rule's parameters against the schema; a name that is no input is a mistake of the author."""
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
    return Rule(function, positions, schema.inputs[positions[0]].variadic, tuple(arguments), when)


class Keep:
    """For one operator and one set of tracked inputs: which rules will run and which values they need kept."""

    __slots__ = ("entries", "missing", "plain", "steps", "tracked")

    def __init__(self, schema: Schema, rules: list[Rule], tracked: tuple[int, ...]) -> None:
        self.tracked = tracked
        serving = [r for r in rules if any(p in r.positions or (r.variadic and p >= r.positions[0]) for p in tracked)]
        serving.sort(key=lambda rule: rule.positions)
        covered = {p for rule in serving for p in rule.positions}
        if any(rule.variadic for rule in serving):
            covered.update(tracked)
        self.missing = [schema.input_at(p).name for p in tracked if p not in covered]
        last = len(schema.inputs) - 1
        wanted = dict.fromkeys(a for rule in serving for a in rule.arguments if a[0] in (INPUT, OUTPUT, SHAPE, DTYPE))
        # kind, position, and whether the position stands for all the rest of the inputs
        rest = last if schema.inputs[last].variadic else None
        self.entries = tuple((kind, i, schema.variadic_output if kind == OUTPUT else i == rest) for kind, i in wanted)
        place = {entry: k for k, entry in enumerate(wanted)}
        # each rule with its arguments, what was kept now named by its place in `saved`
        self.steps = [
            (rule, tuple((kind, place.get((kind, key), key), key) for kind, key in rule.arguments)) for rule in serving
        ]
        self.plain = all(len(rule.positions) == 1 and not rule.variadic for rule in serving)

    def save(self, inputs: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> list[Any]:
        """The kept values in the order of `entries`; tensors as pairs with their version now."""
        saved: list[Any] = []
        for kind, i, rest in self.entries:
            if kind == OUTPUT and rest:
                saved.append([(twin, twin.version) for twin in [y.twin() for y in outputs[i:]]])
            elif kind == OUTPUT:
                twin = outputs[i].twin()
                saved.append((twin, twin._version[0]))
            elif rest:
                saved.append([_kept(kind, x) for x in inputs[i:]])
            elif i >= len(inputs) or (x := inputs[i]) is None:
                saved.append(None)
            elif kind == INPUT:
                saved.append((x, 0 if x._version is None else x._version[0]))
            elif kind == SHAPE:
                saved.append(x.array.shape if x._recorded is None else x.shape)
            else:
                saved.append(x.array.dtype)
        return saved


def _kept(kind: int, x: Any) -> Any:
    return (x, x.version) if kind == INPUT else x.shape if kind == SHAPE else x.array.dtype


def gradients(node: Node, cotangents: list[Tensor | None], differentiable: bool) -> list[Tensor | None]:
    """The cotangents of a node's tracked inputs, in the order of `node.inputs`.

    With `differentiable` (create_graph) saved outputs come back attached to the graph.

    Raises:
        GradientError: the graph was freed, a kept tensor was written in place, or the operator has no such gradient.
    """
    keep, saved = node.keep, node.saved
    if saved is None:
        raise node.released_error()
    if keep.missing:
        raise GradientError(
            f"{node.op.name} has no gradient for input '{keep.missing[0]}', and a differentiated value reaches it",
            where=users_line() or None,
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
                given.append(unpack(node, saved[place]))
            elif kind == OUTPUT:
                kept = unpack(node, saved[place])
                if not differentiable:
                    given.append(kept)
                elif type(kept) is list:
                    given.append([_attached(y, node, key + i) for i, y in enumerate(kept)])
                else:
                    given.append(_attached(kept, node, key))
            elif kind == ATTRIBUTE:
                given.append(node.attributes.get(place, node.op.schema.attributes[place]))
            elif kind == NEEDS:
                given.append(tuple([p in keep.tracked for p in rule.positions]))
            else:
                given.append(saved[place])
        found.append(rule.function(*given))
    if keep.plain:
        return found
    by_position: dict[int, Tensor | None] = {}
    for (rule, _), grads in zip(keep.steps, found, strict=True):
        if rule.variadic:
            by_position.update(enumerate(grads, start=rule.positions[0]))
        else:
            several = grads if len(rule.positions) > 1 else (grads,)
            by_position.update(zip(rule.positions, several, strict=True))
    return [by_position[p] for p in keep.tracked]


def _attached(output: Tensor, node: Node, port: int) -> Tensor:
    """A kept output with its history, for a gradient that is to be differentiated itself."""
    return output.attached(node, port) if is_floating(output.array.dtype) else output


def unpack(node: Node, kept: Any) -> Any:
    """A kept tensor, if nobody wrote to it since."""
    if kept is None:
        return None
    if type(kept) is list:
        return [unpack(node, pair) for pair in kept]
    tensor, version = kept
    if tensor._version is None or tensor._version[0] == version:
        return tensor
    if hasattr(tensor, "unpacked"):  # by the hooks of ox.autograd.graph
        return tensor.unpacked()
    raise GradientError(
        f"a tensor that {node.op.name} needs for its gradient was modified by an in-place operation",
        where=users_line() or None,
        expected=f"version {version} of the {list(tensor.array.shape)} tensor",
        got=f"version {tensor.version}, written by {tensor.last_write()}",
        hint="the out-of-place form of that operation, or a .clone() before it",
    )
