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
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy import ndarray

from ox import devices
from ox.dtypes import DType, is_floating
from ox.errors import OxError
from ox.ops import explain, schema
from ox.ops.gradient import OUTPUT, Keep, Rule, make_rule
from ox.ops.mode import MODE
from ox.ops.node import Node

if TYPE_CHECKING:
    from ox.tensor import Tensor

OPS: dict[str, Operator] = {}

make_tensor: Callable[[Any], Tensor]  # ox.tensor, one floor up, registers its constructor and its conversion here
as_input: Callable[[Any], Tensor]


class Operator:
    """A callable ONNX operator: inputs positional in schema order (None leaves an optional one out), attributes by
    keyword with the schema's defaults. Returns one tensor, or a tuple when ``outputs=n`` asks for more."""

    domain = ""

    def __init__(
        self, kernel: Callable[..., Any], outputs: str, types: dict[str, tuple[DType, ...]], view: bool
    ) -> None:
        self.kernel = kernel
        self.name = kernel.__name__
        self.schema = schema.read(kernel, outputs, types)
        self.rules: list[Rule] = []
        self.view = view
        self._counts_outputs = "outputs" in inspect.signature(kernel).parameters
        # one type variable for all inputs: the first input's type decides, the others are compared with it
        self._uniform = len({p.type for p in self.schema.inputs}) == 1
        self._single = len(self.schema.inputs) == 1 and not self.schema.inputs[0].variadic
        self._plans: dict[Any, devices.Accelerated | None] = {}
        self._keeps: dict[tuple[int, ...], Keep] = {}
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

    def gradient(self, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare the gradient rule of the named inputs; see `ox.ops.gradient` for what its parameters mean."""

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            rule = make_rule(self.schema, function, names)
            self.rules.append(rule)
            self._hidden = max([self._hidden, *(i + 1 for kind, i in rule.arguments if kind == OUTPUT)])
            self._keeps.clear()
            return function

        return declare

    @overload
    def __call__(self, *inputs: Any, **attributes: Any) -> Tensor: ...
    @overload
    def __call__(self, *inputs: Any, outputs: int, **attributes: Any) -> Any: ...

    def __call__(self, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """The one choke point: check, pick the executor, run, remember for backward, tell the recording."""
        mode = MODE.get()
        arrays: list[Any] = []
        tracked: tuple[int, ...] = ()
        try:
            for x in inputs:
                if x is None:
                    arrays.append(None)
                else:
                    if x.node is not None:
                        tracked += (len(arrays),)
                    arrays.append(x.data)
        except AttributeError:
            return self(*[x if x is None else as_input(x) for x in inputs], outputs=outputs, **attributes)
        wanted = outputs
        if tracked:
            if not (mode.grad and self._tracks):
                tracked = ()
            elif self._hidden > outputs:
                wanted = self._hidden
        try:
            accelerated = self._plan(arrays)
            if self._counts_outputs:
                attributes["outputs"] = wanted
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
        if type(result) is tuple:
            made = tuple([make_tensor(array) for array in result])
        else:
            made = (make_tensor(result),)
        if self.view:
            made[0].alias_of(inputs[0])
        if attributes and self._counts_outputs:
            del attributes["outputs"]
        if mode.recording is not None:
            mode.recording.add(self, inputs, attributes, made)
        if tracked:
            self._remember(inputs, attributes, made, tracked)
        if outputs == 1 and not self.schema.variadic_output:
            return made[0]
        return made[:outputs] if not self.schema.variadic_output else made

    def _plan(self, arrays: list[Any]) -> devices.Accelerated | None:
        """Check the element types, and the faster executor for them if there is one; looked up after the first time."""
        if self._single:
            key: Any = arrays[0].dtype
        elif self._uniform:
            key = first = arrays[0].dtype
            for a in arrays:
                if a is not None and a.dtype is not first:
                    key = None
        else:
            key = None
        if key is None:
            key = tuple([None if a is None else a.dtype for a in arrays])
        try:
            return self._plans[key]
        except KeyError:
            self.schema.check_types(arrays)
            plan = self._plans[key] = devices.accelerated(self, arrays)
            return plan

    def _remember(
        self, inputs: Any, attributes: dict[str, Any], made: tuple[Tensor, ...], tracked: tuple[int, ...]
    ) -> None:
        keep = self._keeps.get(tracked)
        if keep is None:
            keep = self._keeps[tracked] = Keep(self.schema, self.rules, tracked)
        nodes, ports = [], []
        for i in tracked:
            x = inputs[i]
            nodes.append(x.node)
            ports.append(x.port)
        node = Node(self, attributes, keep, nodes, ports, keep.save(self.schema, inputs, made) if keep.entries else [])
        for port, y in enumerate(made):
            if is_floating(y.data.dtype):
                y.node = node
                if port:
                    y.port = port


def operator(
    outputs: str, *, view: bool = False, quiet: bool = False, **types: tuple[DType, ...]
) -> Callable[[Callable[..., Any]], Operator]:
    """Define an operator from its kernel.

    Args:
        outputs: the schema's output names, separated by spaces; ``*outputs`` for a variadic output.
        view: the NumPy kernel may return a view of its first input.
        quiet: the kernel meets infinities and NaN in the ordinary course; NumPy should not warn of them.
        types: the element types of each type variable (those ox computes with; the schema may list more).
    """

    def define(kernel: Callable[..., Any]) -> Operator:
        if quiet:
            loud = kernel

            @wraps(loud)
            def kernel(*args: Any, **kwargs: Any) -> Any:
                with np.errstate(all="ignore"):
                    return loud(*args, **kwargs)

        op = Operator(kernel, outputs, types, view)
        OPS[op.name] = op
        return op

    return define


__all__ = ["OPS", "Operator", "ndarray", "operator"]
