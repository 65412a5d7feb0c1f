"""Functions with a gradient of one's own. `torch.autograd.Function`.

    class Square(ox.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    y = Square.apply(x)

Both are written in tensors, so a recording sees their operators, and a backward that is made of operators can be
differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType, SimpleNamespace
from typing import Any

from ox.call_site import line_of
from ox.core import operator, views
from ox.core.broadcast import sum_to
from ox.core.constants import zeros
from ox.core.gradient import unpack_saved
from ox.core.mode import MODE, switch_mode
from ox.core.node import CustomNode
from ox.core.promotion import cast
from ox.core.tensor import TensorBase, is_tensor
from ox.dtypes import is_floating
from ox.errors import ArgumentError, DTypeError, GradientError, ShapeError


class FunctionCtx(CustomNode):
    """What `forward` leaves for `backward`; it is the node of the call too (`grad_fn`). Attributes may be added.

    `needs_input_grad` has, for each argument of forward, whether its gradient is needed.
    """

    function: type[Function]
    needs_input_grad: tuple[bool, ...] = ()
    _to_save: tuple[Any, ...] = ()
    _non_differentiable: tuple[Any, ...] = ()
    _dirty: tuple[Any, ...] = ()
    _sparse: Mapping[int, Any] = MappingProxyType({})  # the sparse tensors that are kept, by position
    _materialize = True

    def save_for_backward(self, *tensors: TensorBase | None) -> None:
        """Keep tensors for backward: inputs, outputs or others, of sparse ones their values. Backward raises when one
        was written meanwhile.

        Raises:
            ArgumentError: what is neither a tensor nor None; that can be kept as an attribute of `ctx`.
        """
        self._sparse = {i: t for i, t in enumerate(tensors) if getattr(t, "is_sparse", False)}
        tensors = tuple(t._values() if i in self._sparse else t for i, t in enumerate(tensors))  # type: ignore[union-attr]
        for i, t in enumerate(tensors):
            if t is not None and not is_tensor(t):
                raise ArgumentError(
                    f"save_for_backward's argument {i} is no tensor",
                    got=type(t).__name__,
                    hint="ctx.name = value for anything else",
                )
        self._to_save = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept. Raises GradientError when it was freed or written in place."""
        if self.saved is None:
            raise self.released_error()
        found = []
        for i, (kept, port) in enumerate(self.saved):
            tensor = unpack_saved(self, kept)
            if port is not None and MODE.get().grad:
                tensor = tensor.with_history(self, port)
            found.append(self._sparse[i]._with(tensor) if i in self._sparse else tensor)
        return tuple(found)

    def mark_non_differentiable(self, *outputs: TensorBase) -> None:
        """No gradient goes through these outputs; backward is still given zeros for them."""
        self._non_differentiable = outputs

    def mark_dirty(self, *inputs: TensorBase) -> None:
        """Forward wrote these inputs in place, and returns them."""
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward is given zeros (the default) or None for an output that nothing used."""
        self._materialize = value

    def name(self) -> str:
        return f"{self.function.__name__}Backward"

    def rule(self, *cotangents: Any) -> list[Any]:
        given = []
        for g, form in zip(cotangents, self._forms, strict=True):
            given.append(zeros(form[0], form[1]) if g is None and form is not None and self._materialize else g)
        result = self.function.backward(self, *given)
        return self._checked(result if isinstance(result, tuple) else (result,))

    def _connect(self, args: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Take the place of the newest node, between the tracked arguments and the outputs."""
        self._positions = [i for i, wanted in enumerate(self.needs_input_grad) if wanted]
        self._arguments = [(a.shape, a.array.dtype) if is_tensor(a) else None for a in args]
        # the type of zeros for an output is that of a tensor of no elements, for the output itself would be a cycle
        self._forms = [(y.shape, _empty(y)) if is_tensor(y) else None for y in outputs]
        self.saved = []
        for t in self._to_save:
            port = next((k for k, y in enumerate(outputs) if y is t), None) if t is not None else None
            kept = t if port is None or t is None else t.shallow_copy()
            self.saved.append((None if kept is None else (kept, kept.version), port))
        self._to_save = ()
        self.connect([args[i] for i in self._positions], len(outputs))

    def _checked(self, grads: tuple[Any, ...]) -> list[Any]:
        """The gradients of the tracked arguments. Raises GradientError, ShapeError or DTypeError for wrong ones."""
        count = len(self._arguments)
        if len(grads) < count or any(g is not None for g in grads[count:]):
            raise GradientError(
                f"{self.function.__name__}.backward returned another number of gradients than forward has arguments",
                where=line_of(self.function.backward),
                expected=f"{count}, one for each argument after ctx, None where there is none",
                got=str(len(grads)),
            )
        for i, (g, argument) in enumerate(zip(grads, self._arguments, strict=False)):
            if g is None:
                continue
            if argument is None:
                raise GradientError(
                    f"{self.function.__name__}.backward returned a gradient for argument {i}, which was no tensor",
                    where=line_of(self.function.backward),
                    expected="None",
                )
            if not is_tensor(g):
                raise DTypeError(
                    f"{self.function.__name__}.backward returned what is no tensor as gradient {i}",
                    where=line_of(self.function.backward),
                    expected="a tensor or None",
                    got=type(g).__name__,
                )
        return [self._fitted(i, grads[i]) for i in self._positions]

    def _fitted(self, i: int, g: Any) -> Any:
        if g is None:
            return None
        shape, dtype = self._arguments[i]  # type: ignore[misc]
        own = g.static_shape
        if own != tuple(shape):
            extra = len(own) - len(shape)
            if extra < 0 or any(want not in (1, have) for have, want in zip(own[extra:], shape, strict=True)):
                raise ShapeError(
                    f"{self.function.__name__}.backward returned a gradient of the wrong shape for argument {i}",
                    where=line_of(self.function.backward),
                    expected=str(list(shape)),
                    got=str(list(own)),
                )
            g = sum_to(g, shape)
        return cast(g, dtype)


class Function:
    """The base of functions with a gradient of their own; see the module's text.

    Instead of ``forward(ctx, *args)`` a class may have ``forward(*args)`` and ``setup_context(ctx, inputs, output)``.
    """

    _node: type[FunctionCtx]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        op = SimpleNamespace(name=cls.__name__, single_output=False)
        cls._node = type(f"{cls.__name__}Backward", (FunctionCtx,), {"function": cls, "op": op})

    def __init__(self, *_: Any, **__: Any) -> None:
        raise ArgumentError(f"{type(self).__name__} is called as {type(self).__name__}.apply(...)")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """What the function computes, from `ctx` (unless there is a `setup_context`) and the arguments of `apply`."""
        raise ArgumentError("a Function has no forward", hint="@staticmethod\ndef forward(ctx, x): ...")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what backward needs, for a forward without `ctx`."""

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """A gradient, or None, for each argument of `apply`, from one for each output."""
        raise GradientError(
            f"{ctx.function.__name__} has no backward, and a gradient reaches it",
            hint="@staticmethod\ndef backward(ctx, g): ...",
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the function: run `forward` without gradients, and remember how to come back.

        Raises:
            GradientError: a leaf that requires a gradient was written, or what was marked as written is not returned.
        """
        ctx = cls._node()
        ctx.needs_input_grad = tuple(getattr(a, "node", None) is not None for a in args)
        followed = MODE.get().grad and any(ctx.needs_input_grad)
        with switch_mode(grad=False):
            if cls.setup_context is Function.setup_context:
                result = cls.forward(ctx, *args)
            else:
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
        single = not isinstance(result, (tuple, list))
        outputs = [result] if single else list(result)
        for t in ctx._dirty:
            if not any(t is y for y in outputs):
                raise GradientError(
                    f"{cls.__name__}.forward does not return a tensor that it marked as written",
                    where=line_of(cls.forward),
                )
        if not followed:
            return result
        recording = MODE.get().recording
        if recording is not None:
            recording.on_custom_gradient()
        made = _attach_outputs(ctx, args, outputs)
        return made[0] if single else tuple(made)


def _attach_outputs(ctx: FunctionCtx, args: Sequence[Any], outputs: list[Any]) -> list[Any]:
    """The outputs with their history; an input that is returned unchanged becomes a new tensor."""
    for t in ctx._dirty:
        t._refuse_write(f"{ctx.function.__name__}.forward")
    ctx._connect(args, outputs)
    made: list[Any] = []
    for port, y in enumerate(outputs):
        if not is_tensor(y):
            made.append(y)
            continue
        fixed = any(y is t for t in ctx._non_differentiable) or not is_floating(y.array.dtype)
        dirty = any(y is t for t in ctx._dirty)
        if dirty:
            if not fixed:
                views.update_history(y, SimpleNamespace(node=ctx, port=port, shape=y.shape, _stored_shape=y.shape))
        elif fixed:
            y = y.shallow_copy() if y.node is not None else y
        elif any(y is a for a in args) or y.node is not None or any(y is m for m in made):
            y = views.pass_through(y, ctx, port)
        else:
            y.node, y.port = ctx, port
            if y._base is not None:
                y._origin = "function"
        made.append(y)
    return made


def _empty(y: TensorBase) -> TensorBase:
    return operator.make_tensor(y.array.ravel()[:0].copy())


class _Once(CustomNode):
    """The end of what can be differentiated: the gradients of a function that is differentiable once."""

    op = SimpleNamespace(name="once_differentiable", single_output=False)

    def rule(self, *_: Any) -> Any:
        raise GradientError(
            "a function that is marked with once_differentiable is differentiated a second time",
            hint="a backward that is written in tensors needs no @once_differentiable",
        )


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a `backward` that is not made of operators: it runs without gradients, and differentiating what it
    returned is an error. `torch.autograd.function.once_differentiable`."""

    @wraps(backward)
    def once(ctx: Any, *grads: Any) -> Any:
        with switch_mode(grad=False):
            result = backward(ctx, *grads)
        sources = [g for g in grads if getattr(g, "node", None) is not None]
        if not sources or not MODE.get().grad:
            return result
        several = list(result) if isinstance(result, tuple) else [result]
        end = _Once()
        end.connect(sources, len(several))
        guarded = [g.with_history(end, k) if is_tensor(g) else g for k, g in enumerate(several)]
        return tuple(guarded) if isinstance(result, tuple) else guarded[0]

    return once


__all__ = ["Function", "FunctionCtx", "once_differentiable"]
