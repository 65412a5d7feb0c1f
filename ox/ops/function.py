"""A function-operator: what is not an `ai.onnx` operator, with a body written in operators that are.

    @function("Y", T=FLOATS)
    def Square(X: T) -> T:                    # the body: tensors, operators; also what a file holds of it
        return Mul(X, X)

    @Square.fast
    def _(xp: XP, X: T) -> T:                 # optional: a kernel that computes the same, faster
        return xp.square(X)

It is called, checked and recorded as one operator of the domain ``ox`` (`OPS["ox.Square"]`), and a file holds the body
as a model-local function. A gradient comes from the body: where one is followed and no rule is declared, the call runs
the body's operators in place of itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ox.dtypes import DType
from ox.ops import operator
from ox.ops.mode import MODE, switched
from ox.ops.operator import OPS, Operator


class Function(Operator):
    """A callable operator of the domain ``ox``. Returns all its outputs unless ``outputs=n`` asks for fewer.

    The body must not return an input itself, and must not look at values or plain sizes: its one recording stands for
    every call with inputs of these types and ranks.
    """

    domain = "ox"

    def __init__(
        self, body: Callable[..., Any], outputs: str, types: dict[str, tuple[DType, ...]], fused: bool = False
    ) -> None:
        self.body, self.fused = body, fused
        self.large: Callable[..., Any] | None = None  # a kernel like `fast`, for large float32 arrays on the CPU alone
        super().__init__(_as_kernel(body), outputs, types, view=False)

    def fast(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """Declare a kernel `(xp, *arrays, **attributes)` that gives what the body gives; a test holds them equal."""
        self.kernel = kernel
        return kernel

    def __repr__(self) -> str:
        return f"ox.ops.{self.name}{self.__signature__} of the domain ox"

    def __call__(self, *inputs: Any, outputs: int | None = None, **attributes: Any) -> Any:
        wanted = len(self.schema.outputs) if outputs is None else outputs
        mode = MODE.get()
        if mode.autocast is not None:
            inputs = mode.autocast(self, inputs)
            if not self.fused or mode.recording is None:  # the policy is for the whole, not for what it is made of
                with switched(autocast=None):
                    return self(*inputs, outputs=wanted, **attributes)
        if self._unfolds(inputs):
            result = self.body(*(x if x is None else operator.as_input(x) for x in inputs), **attributes)
            if isinstance(result, tuple):
                return result[0] if wanted == 1 else result[:wanted]
            return result
        return super().__call__(*inputs, outputs=wanted, **attributes)

    def _unfolds(self, inputs: tuple[Any, ...]) -> bool:
        """Whether this call runs the body's operators: for a gradient, or on an executor that has only operators."""
        mode = MODE.get()
        if self.fused and mode.recording is not None:
            return True
        if mode.grad and not self.rules and self._tracks and any(getattr(x, "node", None) is not None for x in inputs):
            return True
        if mode.executor is not None and mode.recording is None:
            from ox.devices.executors import on_numpy

            return mode.executor is not on_numpy
        return False


def _as_kernel(body: Callable[..., Any]) -> Callable[..., Any]:
    """The body as a kernel: arrays in, arrays out, unrecorded."""

    def kernel(xp: Any, *arrays: Any, **attributes: Any) -> Any:
        with switched(recording=None, grad=False, autocast=None):
            result = body(*(a if a is None else operator.make_tensor(a) for a in arrays), **attributes)
        return tuple(t.array for t in result) if isinstance(result, tuple) else result.array

    signature = inspect.signature(body)
    xp = inspect.Parameter("xp", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    kernel.__signature__ = signature.replace(parameters=[xp, *signature.parameters.values()])  # type: ignore[attr-defined]
    kernel.__name__, kernel.__doc__, kernel.__module__ = body.__name__, body.__doc__, body.__module__
    return kernel


def function(
    outputs: str, *, fused: bool = False, **types: tuple[DType, ...]
) -> Callable[[Callable[..., Any]], Function]:
    """Define a function-operator from its body.

    Args:
        outputs: the names of its outputs, separated by spaces.
        fused: for speed only: eager calls on large float32 arrays run the body as one session (`ox.graph.fused`),
            and a recording sees the body's operators.
        types: the element types of each type variable.
    """

    def define(body: Callable[..., Any]) -> Function:
        made = OPS[f"{Function.domain}.{body.__name__}"] = Function(body, outputs, types, fused)
        return made

    return define
