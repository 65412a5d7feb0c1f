"""Gradient rules, and what a call must keep for them.

A rule is a function written in operators. Its parameters say what it needs, by name:

    an output or input of the operator   the tensor itself, kept and version-checked
    ``<input>_shape``                    only its shape (a tuple; under a recording of `ox.Dim`)
    ``<input>_dtype``                    only its element type
    an attribute                         its value
    ``needs``                            for a rule that serves several inputs: which of them are wanted
    anything else                        a cotangent, one an output in order, None where an output was not used
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ox.errors import GradientError

if TYPE_CHECKING:
    from ox.ops.node import Node
    from ox.ops.schema import Schema
    from ox.tensor import Tensor

INPUT, OUTPUT, SHAPE, DTYPE, ATTRIBUTE, NEEDS, COTANGENT = range(7)


@dataclass(frozen=True)
class Rule:
    """The gradient of one or several inputs."""

    function: Callable[..., Any]
    positions: tuple[int, ...]
    variadic: bool
    arguments: tuple[tuple[int, Any], ...]  # kind and position or name, in the order of the function's parameters


def make_rule(schema: Schema, function: Callable[..., Any], names: tuple[str, ...]) -> Rule:
    """Read a rule's parameters against the schema; a name that is no input is a mistake of the author."""
    inputs = {parameter.name: i for i, parameter in enumerate(schema.inputs)}
    positions = tuple(inputs[name] for name in names)
    arguments: list[tuple[int, Any]] = []
    cotangents = 0
    for name in inspect.signature(function).parameters:
        if name in inputs:
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
    return Rule(function, positions, schema.inputs[positions[0]].variadic, tuple(arguments))


class Keep:
    """For one operator and one set of tracked inputs: which rules will run and which values they need kept."""

    __slots__ = ("entries", "missing", "rules", "tracked")

    def __init__(self, schema: Schema, rules: list[Rule], tracked: tuple[int, ...]) -> None:
        self.tracked = tracked
        self.rules = [
            rule
            for rule in rules
            if any(p in rule.positions or (rule.variadic and p >= rule.positions[0]) for p in tracked)
        ]
        covered = {p for rule in self.rules for p in rule.positions}
        if any(rule.variadic for rule in self.rules):
            covered.update(tracked)
        self.missing = [schema.input_at(p).name for p in tracked if p not in covered]
        entries = (a for rule in self.rules for a in rule.arguments if a[0] in (INPUT, OUTPUT, SHAPE, DTYPE))
        self.entries: tuple[tuple[int, int], ...] = tuple(dict.fromkeys(entries))

    def save(self, schema: Schema, inputs: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> list[Any]:
        """The kept values in the order of `entries`; tensors as pairs with their version now."""
        saved: list[Any] = []
        last = len(schema.inputs) - 1
        variadic = schema.inputs[last].variadic
        for kind, i in self.entries:
            if kind == OUTPUT:
                saved.append((outputs[i].twin(), outputs[i].version))
                continue
            chosen = inputs[i:] if variadic and i == last else None
            if kind == INPUT:
                if chosen is not None:
                    saved.append([(x, x.version) for x in chosen])
                else:
                    x = inputs[i] if i < len(inputs) else None
                    saved.append(None if x is None else (x, x.version))
            elif kind == SHAPE:
                saved.append([x.shape for x in chosen] if chosen is not None else _field(inputs, i, "shape"))
            else:
                saved.append(_field(inputs, i, "dtype"))
        return saved


def _field(inputs: tuple[Any, ...], i: int, name: str) -> Any:
    return getattr(inputs[i], name) if i < len(inputs) and inputs[i] is not None else None


def gradients(node: Node, cotangents: list[Tensor | None], differentiable: bool) -> list[Tensor | None]:
    """The cotangents of a node's tracked inputs, in the order of `node.inputs`.

    With `differentiable` (create_graph) saved outputs come back attached to the graph.
    """
    node.check_not_released()
    keep = node.keep
    if keep.missing:
        raise GradientError(
            f"{node.op.name} has no gradient for input '{keep.missing[0]}', and a differentiated value reaches it",
            where=node.where or None,
            hint="x.detach() before it, if no gradient should flow there",
        )
    values = {
        entry: _unpack(node, entry, kept, differentiable) for entry, kept in zip(keep.entries, node.saved, strict=True)
    }
    result: dict[int, Tensor | None] = {}
    for rule in keep.rules:
        wanted = tuple(p in keep.tracked for p in rule.positions)
        arguments = []
        for kind, key in rule.arguments:
            if kind == COTANGENT:
                arguments.append(cotangents[key] if key < len(cotangents) else None)
            elif kind == ATTRIBUTE:
                arguments.append(node.attributes.get(key, node.op.schema.attributes[key]))
            elif kind == NEEDS:
                arguments.append(wanted)
            else:
                arguments.append(values[kind, key])
        grads = rule.function(*arguments)
        if rule.variadic:
            result.update(enumerate(grads, start=rule.positions[0]))
        elif len(rule.positions) == 1:
            result[rule.positions[0]] = grads
        else:
            result.update(zip(rule.positions, grads, strict=True))
    return [result[p] for p in keep.tracked]


def _unpack(node: Node, entry: tuple[int, int], kept: Any, differentiable: bool) -> Any:
    kind, i = entry
    if kept is None or kind in (SHAPE, DTYPE):
        return kept
    if isinstance(kept, list):
        return [_checked(node, *pair) for pair in kept]
    tensor = _checked(node, *kept)
    return tensor.attached(node, i) if kind == OUTPUT and differentiable else tensor


def _checked(node: Node, tensor: Tensor, version: int) -> Tensor:
    if tensor.version != version:
        writer = tensor.last_write()
        raise GradientError(
            f"a tensor that {node.op.name} needs for its gradient was modified by an in-place operation",
            where=node.where or None,
            expected=f"version {version} of the {list(tensor.data.shape)} tensor",
            got=f"version {tensor.version}, written by {writer}",
            hint="the out-of-place form of that operation, or a .clone() before it",
        )
    return tensor
