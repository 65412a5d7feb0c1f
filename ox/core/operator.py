"""An operator: one definition, and one function through which every call goes.

    @operator("output", T=FLOATS)
    def Tanh(xp: XP, input: T) -> T:          # the kernel: sees numpy or cupy, and arrays
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
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy import ndarray

from ox import devices
from ox.core import explain, schema
from ox.core.gradient import OUTPUT, Rule, SavePlan, make_rule, with_name
from ox.core.kind import BATCHING, MOVEMENT, Batching, Kind
from ox.core.mode import MODE, Mode, switch_mode
from ox.core.node import Node, sequence
from ox.core.tensor import TensorBase, TensorType
from ox.devices import cuda_state
from ox.devices.executors import dispatch, on_numpy
from ox.dtypes import FLOATING, DType, is_floating
from ox.errors import OxError

OPS: dict[str, Operator] = {}

# Infinities and NaN are values like others, as in PyTorch. A filter costs a call nothing, `np.errstate` 0.7 µs: that
# stands only around kernels that meet them in the ordinary course (`ignore_fp_warnings`).
warnings.filterwarnings(
    "ignore", "(overflow|underflow|invalid value|divide by zero)", RuntimeWarning, module=r"ox\.(core|devices|ops)\."
)

if TYPE_CHECKING:
    tensor_class: type[Any]

    def make_tensor(array: Any) -> Any: ...
    def as_input(x: Any) -> Any: ...

else:  # `ox.tensors`, on a higher floor, registers its class, its constructor and its conversion here
    tensor_class = make_tensor = as_input = None
new = object.__new__
NOTHING: list[Any] = []


Amp = Literal["lower", "float32", "widest", "keep"]


class Operator:
    """A callable ONNX operator: inputs positional in schema order (None leaves an optional one out), attributes by
    keyword with the schema's defaults. Returns one tensor, or a tuple with ``outputs=n`` above 1."""

    domain = ""
    body: Callable[..., Any]  # of a Function: its definition in operators
    fused = False  # a Function for speed only
    # facts that other packages read; see `operator`
    kind: Kind | None = None
    amp: Amp | None = None
    batching: Batching | None = None
    weights: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    sized_by: tuple[str, ...] = ()
    nondifferentiable: tuple[str, ...] = ()
    commutative = False
    contraction = False
    random = False
    data_dependent_shape = False
    expanded: Callable[..., Any] | None = None  # its definition in older operators, for files of opsets that lack it

    def __init__(
        self, kernel: Callable[..., Any], outputs: str, types: dict[str, tuple[DType, ...]], view: bool
    ) -> None:
        self.kernel = kernel
        self.name = kernel.__name__
        self.schema = schema.read(kernel, outputs, types)
        self.rules: list[Rule] = []
        self.view = view
        self.multi_view = view and "*" in outputs  # several views of one input, which share one history
        self.single_output = len(self.schema.outputs) == 1 and not self.schema.variadic_output
        self.composite = False  # a Function: some calls run its body
        self.takes_output_count = "outputs" in inspect.signature(kernel).parameters
        self._variadic = self.schema.variadic_output
        self._plans: dict[Any, devices.Accelerated | None] = {}
        self._save_plans: dict[Any, SavePlan] = {}
        self._conditional = False
        self._tracked_mask = -1  # the inputs that can have a gradient
        self._differentiable = any(is_floating(d) for t in self.schema.output_types for d in self.schema.allowed(t))
        self._outputs_for_backward = 1
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
        self, *names: str, when: Callable[[dict[str, Any]], bool] | None = None, together: bool = False
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare the gradient rule of the named inputs; see `ox.core.gradient` for what its parameters mean.

        With `when` the rule is used only for calls whose attributes (defaults filled in) it accepts, so that a rule
        that needs fewer tensors saves fewer tensors for backward. With `together` it is used, in place of the rules
        of single inputs, for calls in which a gradient follows all the named inputs and no other.
        """

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            rule = make_rule(self.schema, function, names, when, together)
            self.rules.append(rule)
            self._outputs_for_backward = max(
                [self._outputs_for_backward, *(i + 1 for kind, i in rule.arguments if kind == OUTPUT)]
            )
            self._conditional = self._conditional or when is not None
            self._save_plans.clear()
            return function

        return declare

    @property
    def moves(self) -> bool:
        """Whether it computes no values: its results have those of the first input, or of all of a concatenation."""
        return self.kind in MOVEMENT

    def exclude_from_gradient(self, names: str) -> None:
        """Declare inputs, separated by spaces, that never get a gradient."""
        self.nondifferentiable = tuple(names.split())
        positions = {parameter.name: i for i, parameter in enumerate(self.schema.inputs)}
        for name in self.nondifferentiable:
            self._tracked_mask &= ~(1 << positions[name])

    def expansion(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the operator as a composition of older ones, with every output. A file of an opset that lacks the
        operator holds the body's recording as a model-local function; like that of `ox.core.function`, it may not look
        at values or plain sizes, except at values of host inputs, which then are numbers of the graph."""
        self.expanded = with_name(body, f"{self.name}_expansion")
        return body

    @overload
    def __call__(self, *inputs: Any, outputs: int, **attributes: Any) -> Any: ...
    @overload
    def __call__(self, x: TensorType, /, *inputs: Any, **attributes: Any) -> TensorType: ...
    @overload
    def __call__(self, *inputs: Any, **attributes: Any) -> Any: ...

    def __call__(self, *inputs: Any, outputs: int = 0, **attributes: Any) -> Any:
        """Every operator call runs here: cast, check, choose the executor, run, save for backward, record.

        Without `outputs` an operator returns the first one, a Function all.
        """
        mode = MODE.get()
        if mode.recording is not None and mode.recording.watched and (self.fused or not self.composite):
            with mode.recording.unwatched():
                return self(*inputs, outputs=outputs, **attributes)
        if mode.autocast is not None:
            inputs = mode.autocast(self, inputs)
            if self.composite and not (self.fused and _expands(mode.recording)):
                with switch_mode(autocast=None):  # the policy applies to the Function, not to the operators of its body
                    return self(*inputs, outputs=outputs, **attributes)
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
        if tracked:
            tracked = tracked & self._tracked_mask if mode.grad and self._differentiable else 0
        if self.composite:
            outputs = outputs or len(self.schema.outputs)
            if self._runs_body(mode, tracked):
                return self._run_body(inputs, attributes, outputs)
        if self.takes_output_count:
            attributes["outputs"] = max(outputs, self._outputs_for_backward) if tracked else outputs or 1
        try:
            key = tuple([None if a is None else a.dtype for a in arrays]) if mixed else dtype
            try:
                accelerated = self._plans[key]
            except KeyError:
                accelerated = self._plan(key, arrays)
            run = mode.executor or dispatch
            if mode.watch is None:
                result = run(self, arrays, attributes, accelerated)
            else:
                with switch_mode(watch=None):  # calls that a kernel makes are part of it
                    result = mode.watch(run, self, arrays, attributes, accelerated)
        except Exception as error:
            raise explain.call(self, inputs, attributes, error) from (None if isinstance(error, OxError) else error)
        if self.takes_output_count:
            del attributes["outputs"]
        if type(result) is ndarray:
            y = new(tensor_class)
            y.array = result
            made: tuple[TensorBase, ...] = (y,)
        else:
            made = tuple([make_tensor(array) for array in result]) if type(result) is tuple else (make_tensor(result),)
        if self.view:
            for y in made:
                y.alias_of(inputs[0])
            if self.multi_view or not mode.grad:
                for y in made:
                    y._origin = y._origin or ("several" if mode.grad else "no_grad")
        if mode.recording is not None:
            mode.recording.add(self, inputs, attributes, made)
        if tracked:
            node = self._add_node(inputs, attributes, made, tracked)
            if mode.observer is not None:
                mode.observer.on_node(node)
        if self._variadic:
            return made
        return made[0] if outputs < 2 else made[:outputs]

    def _runs_body(self, mode: Mode, tracked: int) -> bool:
        """Whether a call of a Function runs its body's operators: in a recording of a fused one, for a gradient that
        only they have, or on an executor that has only operators."""
        if self.fused and _expands(mode.recording):
            return True
        if tracked and not self.rules:
            return True
        return mode.executor is not None and mode.recording is None and mode.executor is not on_numpy

    def _run_body(self, inputs: tuple[Any, ...], attributes: dict[str, Any], outputs: int) -> Any:
        with cuda_state.taking_host_arrays_along():
            result = self.body(*inputs, **attributes)
        if isinstance(result, tuple):
            return result[0] if outputs == 1 else result[:outputs]
        return result

    def _plan(self, key: Any, arrays: list[Any]) -> devices.Accelerated | None:
        """For new element types: check them, and find the faster executor if there is one."""
        self.schema.check_types(arrays)
        plan = self._plans[key] = devices.accelerated(self, arrays)
        return plan

    def _add_node(self, inputs: Any, attributes: dict[str, Any], made: tuple[TensorBase, ...], tracked: int) -> Node:
        key: Any = tracked
        if self._conditional:
            filled = {**self.schema.attributes, **attributes}
            key = (tracked, *[rule.when is None or rule.when(filled) for rule in self.rules])
        keep = self._save_plans.get(key)
        if keep is None:
            positions = tuple(i for i in range(len(inputs)) if tracked >> i & 1)
            rules = [rule for i, rule in enumerate(self.rules) if key is tracked or key[i + 1]]
            keep = self._save_plans[key] = SavePlan(self.schema, rules, positions)
        nodes, ports = [], []
        for i in keep.tracked:
            x = inputs[i]
            nodes.append(x.node)
            ports.append(x.port)
        node = new(Node)
        node.op, node.save_plan, node.attributes, node.inputs, node.ports = self, keep, attributes, nodes, ports
        node.saved = keep.save(inputs, made) if keep.entries else NOTHING
        node.sequence = next(sequence)
        if self._variadic:
            node.outputs = len(made)
        for port, y in enumerate(made):
            if y.array.dtype in FLOATING:
                y.node = node
                if port:
                    y.port = port
        return node


def _expands(recording: Any) -> bool:
    """Whether a recording has the operators of a fused Function's body in its place."""
    return recording is not None and not recording.keeps_fused


def operator(
    outputs: str,
    *,
    view: bool = False,
    ignore_fp_warnings: bool = False,
    cls: type[Operator] = Operator,
    kind: Kind | None = None,
    amp: Amp | None = None,
    batching: Batching | None = None,
    weights: str = "",
    settings: str = "",
    sized_by: str = "",
    nondifferentiable: str = "",
    commutative: bool = False,
    contraction: bool = False,
    data_dependent_shape: bool = False,
    **types: tuple[DType, ...],
) -> Callable[[Callable[..., Any]], Operator]:
    """Define an operator from its kernel.

    `kind` and `amp` have no default, and `batching` has one for some kinds alone: tests/ops/test_facts.py wants them of
    every operator that they concern.

    Args:
        outputs: the schema's output names, separated by spaces; ``*outputs`` for a variadic output.
        view: the NumPy kernel may return a view of its first input.
        ignore_fp_warnings: the kernel meets infinities and NaN in the ordinary course; NumPy should not warn of them.
        cls: the class of the operator.
        kind: what it does with its inputs; see `ox.core.kind`. One that is random draws new numbers in each call, so
            that calls with equal inputs cannot be merged.
        amp: in which element type it runs under autocast; see `ox.amp.policy`.
        batching: how `vmap` calls it once for all examples, where that does not follow from the kind; see
            `ox.func.batching_rules`.
        weights: the inputs that are weights of a layer when a file holds them as constants.
        settings: the inputs that are no weights when a file holds them as constants, although they have a gradient.
        sized_by: the inputs whose values make the output as large as they say.
        nondifferentiable: the inputs that never get a gradient, because the output does not change with them, or only
            in steps: those read for their type or shape alone, edges that are rounded.
        commutative: of two inputs, bit for bit the same in either order. Max and Min are not: their order decides
            between 0.0 and -0.0.
        contraction: no two results are further apart than the inputs, by their largest difference.
        data_dependent_shape: its output's sizes depend on values, so they may change though those of its inputs do not.
        types: the element types of each type variable (those ox computes with; the schema may list more).
    """

    def define(kernel: Callable[..., Any]) -> Operator:
        if ignore_fp_warnings:
            loud = kernel

            @wraps(loud)
            def kernel(*args: Any, **kwargs: Any) -> Any:
                with np.errstate(all="ignore"):
                    return loud(*args, **kwargs)

        op = cls(kernel, outputs, types, view)
        op.kind, op.amp, op.commutative, op.contraction = kind, amp, commutative, contraction
        op.batching = batching or (BATCHING.get(kind) if kind is not None else None)
        op.weights, op.settings, op.sized_by = (tuple(each.split()) for each in (weights, settings, sized_by))
        op.random, op.data_dependent_shape = kind == "random", data_dependent_shape
        op.exclude_from_gradient(nondifferentiable)
        OPS[op.name] = op
        return op

    return define


def kind_of(key: str) -> Kind | None:
    """The kind of an operator by its name, with its domain where that is ``ox``; None for one that ox does not have."""
    op = OPS.get(key)
    return None if op is None else op.kind


def moves(key: str) -> bool:
    """`Operator.moves` of an operator by its name; False for one that ox does not have."""
    op = OPS.get(key)
    return op is not None and op.moves


__all__ = ["OPS", "Operator", "kind_of", "moves", "ndarray", "operator"]
