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
from typing import TYPE_CHECKING, Any

from ox.core import operator
from ox.core.gradient import with_name
from ox.core.kind import BATCHING, Batching, Kind
from ox.core.mode import switch_mode
from ox.core.operator import OPS, Amp, Operator
from ox.devices import cuda_state
from ox.dtypes import DType


class Function(Operator):
    """A callable operator of the domain ``ox``. Returns all its outputs, or the first n with ``outputs=n``. What a
    call does is in `Operator.__call__`.

    The body must not return an input itself, and must not look at values or plain sizes: its one recording is used for
    every call with inputs of these types and ranks.
    """

    domain = "ox"

    def __init__(
        self, body: Callable[..., Any], outputs: str, types: dict[str, tuple[DType, ...]], fused: bool = False
    ) -> None:
        self.body, self.fused, self._fast = body, fused, False
        self.large: Callable[..., Any] | None = None  # a kernel like `fast`, for large float32 arrays on the CPU alone
        super().__init__(_as_kernel(body), outputs, types, view=False)
        self.composite = True

    @property
    def has_body_alone(self) -> bool:
        """Whether there is no kernel besides the body's operators."""
        return not self._fast

    def fast(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """Declare a kernel `(xp, *arrays, **attributes)` that gives what the body gives; a test holds them equal."""
        self.kernel = with_name(kernel, f"{self.name}_fast")
        self._fast = True
        return kernel

    if TYPE_CHECKING:  # one tensor, or a tuple where it has several outputs

        def __call__(self, *inputs: Any, outputs: int = 0, **attributes: Any) -> Any: ...

    def __repr__(self) -> str:
        return f"ox.ops.{self.name}{self.__signature__} of the domain ox"


def _as_kernel(body: Callable[..., Any]) -> Callable[..., Any]:
    """The body as a kernel: arrays in, arrays out, unrecorded."""

    def kernel(xp: Any, *arrays: Any, **attributes: Any) -> Any:
        with switch_mode(recording=None, grad=False, autocast=None), cuda_state.taking_host_arrays_along():
            result = body(*(a if a is None else operator.make_tensor(a) for a in arrays), **attributes)
        return tuple(t.array for t in result) if isinstance(result, tuple) else result.array

    signature = inspect.signature(body)
    xp = inspect.Parameter("xp", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    kernel.__signature__ = signature.replace(parameters=[xp, *signature.parameters.values()])  # type: ignore[attr-defined]
    kernel.__name__, kernel.__doc__, kernel.__module__ = body.__name__, body.__doc__, body.__module__
    return kernel


def function(
    outputs: str,
    *,
    fused: bool = False,
    kind: Kind | None = None,
    amp: Amp | None = None,
    batching: Batching | None = None,
    nondifferentiable: str = "",
    **types: tuple[DType, ...],
) -> Callable[[Callable[..., Any]], Function]:
    """Define a function-operator from its body.

    Args:
        outputs: the names of its outputs, separated by spaces.
        fused: for speed only: eager calls on large float32 arrays run the body as one session
            (`ox.graph.fused_session`), and a recording sees the body's operators.
        kind, amp, batching, nondifferentiable: as for `ox.core.operator.operator`; `batching` of a fused one
            is never used.
        types: the element types of each type variable.
    """

    def define(body: Callable[..., Any]) -> Function:
        made = OPS[f"{Function.domain}.{body.__name__}"] = Function(body, outputs, types, fused)
        made.kind, made.amp = kind, amp
        made.batching = batching or (BATCHING.get(kind) if kind is not None and not fused else None)
        made.exclude_from_gradient(nondifferentiable)
        return made

    return define
