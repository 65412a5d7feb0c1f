"""An operator: one definition, called through one choke point.

    @operator(T=FLOATS)
    def Tanh(xp: XP, input: T) -> T:            # the kernel: sees numpy or cupy, and arrays
        return xp.tanh(input)

    @Tanh.gradient("input")
    def _(g: Tensor, output: Tensor) -> Tensor: # the gradient: sees tensors, calls operators
        return g * (1 - output * output)

The kernel's signature is the ONNX schema of the newest opset; running, recording, exporting, importing and
differentiating are all read from this one place.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy import ndarray

from ox import devices
from ox.dtypes import FLOATING, DType, is_floating
from ox.errors import OxError
from ox.ops import explain, schema
from ox.ops.gradient import OUTPUT, Keep, Rule, make_rule
from ox.ops.mode import MODE
from ox.ops.node import Node, sequence

OPS: dict[str, Operator] = {}

# Infinities and NaN are values like others, as in PyTorch. A filter costs a call nothing, `np.errstate` 0.7 µs: that
# stands only around kernels that meet them in the ordinary course (`quiet`).
warnings.filterwarnings(
    "ignore", "(overflow|underflow|invalid value|divide by zero)", RuntimeWarning, module=r"ox\.ops\."
)

if TYPE_CHECKING:
    from ox.tensor import Tensor

    tensor_class: type[Tensor]

    def make_tensor(array: Any) -> Tensor: ...
    def as_input(x: Any) -> Tensor: ...

else:  # ox.tensor, one floor up, registers its class, its constructor and its conversion here
    tensor_class = make_tensor = as_input = None
new = object.__new__
UNKNOWN: Any = object()
NOTHING: list[Any] = []


class Operator:
    """A callable ONNX operator: inputs positional in schema order (None leaves an optional one out), attributes by
    keyword with the schema's defaults. Returns one tensor, or a tuple when ``outputs=n`` asks for more."""

    domain = ""
    expanded: Callable[..., Any] | None = None  # what it is in older operators, for files of opsets that lack it

    def __init__(
        self, kernel: Callable[..., Any], outputs: str, types: dict[str, tuple[DType, ...]], view: bool
    ) -> None:
        self.kernel = kernel
        self.name = kernel.__name__
        self.schema = schema.read(kernel, outputs, types)
        self.rules: list[Rule] = []
        self.view = view
        self.several = view and "*" in outputs  # views of one input that share their history
        self.single_output = len(self.schema.outputs) == 1 and not self.schema.variadic_output
        self._counts_outputs = "outputs" in inspect.signature(kernel).parameters
        self._plans: dict[Any, devices.Accelerated | None] = {}
        self._keeps: dict[Any, Keep] = {}
        self._conditional = False
        self._tracks = any(is_floating(d) for t in self.schema.output_types for d in self.schema.allowed(t))
        self._hidden = 1
        parameters = list(inspect.signature(kernel).parameters.values())[1:]
        self.__signature__ = inspect.Signature([p for p in parameters if p.name != "outputs"])
        self.__doc__ = kernel.__doc__
        self.__name__ = self.__qualname__ = self.name
        self.__module__ = kernel.__module__

    def __repr__(self) -> str:
        return f"ox.ops.{self.name}{self.__signature__}"

    def __reduce__(self) -> str:
        return self.name

    def gradient(
        self, *names: str, when: Callable[[dict[str, Any]], bool] | None = None
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare the gradient rule of the named inputs; see `ox.ops.gradient` for what its parameters mean.

        With `when` the rule serves only calls whose attributes (defaults filled in) it accepts, so that one with
        modest needs does not keep what another one would.
        """

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            rule = make_rule(self.schema, function, names, when)
            self.rules.append(rule)
            self._hidden = max([self._hidden, *(i + 1 for kind, i in rule.arguments if kind == OUTPUT)])
            self._conditional = self._conditional or when is not None
            self._keeps.clear()
            return function

        return declare

    def expansion(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """Declare what the operator is in older ones: tensors, with every output. A file of an opset that lacks the
        operator holds the body's recording as a model-local function; like that of `ox.ops.function`, it may not look
        at values or plain sizes, except at values of host inputs, which then are numbers of the graph."""
        self.expanded = body
        return body

    @overload
    def __call__(self, *inputs: Any, outputs: int, **attributes: Any) -> Any: ...
    @overload
    def __call__(self, *inputs: Any, **attributes: Any) -> Tensor: ...

    def __call__(self, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """The one choke point: cast, check, pick the executor, run, remember for backward, tell the recording."""
        mode = MODE.get()
        if mode.autocast is not None:
            inputs = mode.autocast(self, inputs)
        arrays: list[Any] = []
        tracked, bit = 0, 1  # which inputs have a history, as a bit mask
        dtype: Any = None
        mixed = False
        try:
            for x in inputs:
                if x is None:
                    arrays.append(None)
                    mixed = True
                else:
                    array = x.array
                    arrays.append(array)
                    if array.dtype is not dtype:
                        mixed = mixed or dtype is not None
                        dtype = array.dtype
                    if x.node is not None:
                        tracked |= bit
                bit += bit
        except (AttributeError, ValueError):  # an array, not a tensor
            return self(*[x if x is None else as_input(x) for x in inputs], outputs=outputs, **attributes)
        if tracked and not (mode.grad and self._tracks):
            tracked = 0
        if self._counts_outputs:
            attributes["outputs"] = max(outputs, self._hidden) if tracked else outputs
        try:
            key = tuple([None if a is None else a.dtype for a in arrays]) if mixed else dtype
            accelerated = self._plans.get(key, UNKNOWN)
            if accelerated is UNKNOWN:
                accelerated = self._plan(key, arrays)
            if mode.executor is not None:
                result = mode.executor(self, arrays, attributes)
            elif devices.cuda_in_use and (xp := devices.namespace(self, arrays)) is not np:
                result = self.kernel(xp, *arrays, **attributes)
            elif accelerated is not None and accelerated.worth(arrays):
                result = accelerated.run(self, arrays, attributes)
            else:
                result = self.kernel(np, *arrays, **attributes)
        except Exception as error:
            raise explain.call(self, inputs, attributes, error) from (None if isinstance(error, OxError) else error)
        if self._counts_outputs:
            del attributes["outputs"]
        if type(result) is ndarray:
            y = new(tensor_class)
            y.array = result
            made: tuple[Tensor, ...] = (y,)
        else:
            made = tuple([make_tensor(array) for array in result]) if type(result) is tuple else (make_tensor(result),)
        if self.view:
            for y in made:
                y.alias_of(inputs[0])
            if self.several or not mode.grad:
                for y in made:
                    y._origin = y._origin or ("several" if mode.grad else "no_grad")
        if mode.recording is not None:
            mode.recording.add(self, inputs, attributes, made)
        if tracked:
            node = self._remember(inputs, attributes, made, tracked)
            if mode.watch is not None:
                mode.watch.made(node)
        if self.schema.variadic_output:
            return made
        return made[0] if outputs == 1 else made[:outputs]

    def _plan(self, key: Any, arrays: list[Any]) -> devices.Accelerated | None:
        """For element types not met before: check them, and find the faster executor if there is one."""
        self.schema.check_types(arrays)
        plan = self._plans[key] = devices.accelerated(self, arrays)
        return plan

    def _remember(self, inputs: Any, attributes: dict[str, Any], made: tuple[Tensor, ...], tracked: int) -> Node:
        key: Any = tracked
        if self._conditional:
            filled = {**self.schema.attributes, **attributes}
            key = (tracked, *[rule.when is None or rule.when(filled) for rule in self.rules])
        keep = self._keeps.get(key)
        if keep is None:
            positions = tuple(i for i in range(len(inputs)) if tracked >> i & 1)
            rules = [rule for i, rule in enumerate(self.rules) if key is tracked or key[i + 1]]
            keep = self._keeps[key] = Keep(self.schema, rules, positions)
        nodes, ports = [], []
        for i in keep.tracked:
            x = inputs[i]
            nodes.append(x.node)
            ports.append(x.port)
        node = new(Node)
        node.op, node.keep, node.attributes, node.inputs, node.ports = self, keep, attributes, nodes, ports
        node.saved = keep.save(inputs, made) if keep.entries else NOTHING
        node.sequence = next(sequence)
        if self.schema.variadic_output:
            node.outputs = len(made)
        for port, y in enumerate(made):
            if y.array.dtype in FLOATING:
                y.node = node
                if port:
                    y.port = port
        return node


def operator(
    outputs: str,
    *,
    view: bool = False,
    quiet: bool = False,
    kind: type[Operator] = Operator,
    **types: tuple[DType, ...],
) -> Callable[[Callable[..., Any]], Operator]:
    """Define an operator from its kernel.

    Args:
        outputs: the schema's output names, separated by spaces; ``*outputs`` for a variadic output.
        view: the NumPy kernel may return a view of its first input.
        quiet: the kernel meets infinities and NaN in the ordinary course; NumPy should not warn of them.
        kind: the class of the operator.
        types: the element types of each type variable (those ox computes with; the schema may list more).
    """

    def define(kernel: Callable[..., Any]) -> Operator:
        if quiet:
            loud = kernel

            @wraps(loud)
            def kernel(*args: Any, **kwargs: Any) -> Any:
                with np.errstate(all="ignore"):
                    return loud(*args, **kwargs)

        op = kind(kernel, outputs, types, view)
        OPS[op.name] = op
        return op

    return define


__all__ = ["OPS", "Operator", "ndarray", "operator"]
