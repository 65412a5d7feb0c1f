"""Parameters that are computed from others: ``layer.weight`` becomes a property, a function of what is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from typing import Any

from ox.core.mode import switch_mode
from ox.errors import ArgumentError, ShapeError
from ox.nn.base.module import Module
from ox.nn.layers.containers import ModuleDict, ModuleList
from ox.nn.parameter import Buffer, Parameter
from ox.tensors.tensor import Tensor

_cache: ContextVar[dict[Any, Tensor] | None] = ContextVar("ox_parametrizations", default=None)


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor once in this block, however often it is read.
    `torch.nn.utils.parametrize.cached`."""
    token = _cache.set({} if _cache.get() is None else _cache.get())
    try:
        yield
    finally:
        _cache.reset(token)


class ParametrizationList(ModuleList):
    """What is trained, `original` (or `original0`, `original1`, ...), and the modules that make the tensor of it.
    `torch.nn.utils.parametrize.ParametrizationList`."""

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ArgumentError("a parametrization needs a module")
        super().__init__(modules)
        self.unsafe, self.is_tensor, self.ntensors = unsafe, True, 1
        with switch_mode(grad=False):
            made: Any = original
            for module in reversed(modules):
                made = _inverse(module, made, missing=made)
        if isinstance(made, Tensor):
            if not unsafe:
                _alike(original, made, "right_inverse")
            _set(original, made)
            self._store("original", original, original)
        elif isinstance(made, list | tuple):
            self.is_tensor, self.ntensors = False, len(made)
            for i, each in enumerate(made):
                self._store(f"original{i}", each, original)
        else:
            raise ArgumentError("right_inverse returns tensors", got=type(made).__name__)
        if not unsafe:
            _alike(original, self(), "the parametrization")

    def _store(self, name: str, value: Tensor, like: Tensor) -> None:
        if isinstance(like, Parameter):
            kept = value if isinstance(value, Parameter) else Parameter(value, like.requires_grad)
            self.register_parameter(name, kept)
        else:
            self.register_buffer(name, value)

    def originals(self) -> list[Tensor]:
        """What is trained."""
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def forward(self) -> Tensor:
        first, *others = self._children()
        x: Any = first(*self.originals())
        for module in others:
            x = module(x)
        return x

    def right_inverse(self, value: Tensor) -> None:
        """Set what is trained so that the tensor becomes `value`.

        Raises:
            ArgumentError: a module has no `right_inverse`.
        """
        with switch_mode(grad=False):
            made: Any = value
            for module in reversed(self._children()):
                made = _inverse(module, made, missing=None)
                if made is None:
                    raise ArgumentError(
                        f"{type(module).__name__} has no right_inverse, so its tensor cannot be assigned",
                        hint="def right_inverse(self, value): ...",
                    )
            given = [made] if self.is_tensor else list(made)
            if len(given) != self.ntensors:
                raise ArgumentError(
                    "right_inverse gives another number of tensors", expected=str(self.ntensors), got=str(len(given))
                )
            for own, new in zip(self.originals(), given, strict=True):
                if own.static_shape != new.static_shape and not self.unsafe:
                    _alike(own, new, "right_inverse")
                _set(own, new)


def _inverse(module: Module, value: Any, missing: Any) -> Any:
    inverse = getattr(module, "right_inverse", None)
    if inverse is None:
        return missing
    try:
        return inverse(value)
    except NotImplementedError:
        return missing


def _set(own: Tensor, new: Tensor) -> None:
    """Give a tensor, which stays the same object, the value of another, whatever its shape."""
    if own is new:
        return
    own._shared_version()[0] += 1
    own.array = new.detach().clone().array if new.array is own.array or new.node is not None else new.array


def _alike(own: Tensor, made: Any, what: str) -> None:
    if not isinstance(made, Tensor):
        raise ArgumentError(f"{what} does not return a tensor", got=type(made).__name__)
    if made.static_shape != own.static_shape or made.array.dtype != own.array.dtype:
        raise ShapeError(
            f"{what} changes the tensor's shape or type",
            expected=f"{own.array.dtype} {list(own.static_shape)}",
            got=f"{made.array.dtype} {list(made.static_shape)}",
            hint="unsafe=True allows that",
        )


def _property(name: str) -> property:
    def get(self: Any) -> Tensor:
        held = _cache.get()
        if held is None:
            return self.parametrizations[name]()
        key = (self, name)
        if key not in held:
            held[key] = self.parametrizations[name]()
        return held[key]

    def put(self: Any, value: Tensor) -> None:
        held = _cache.get()
        if held is not None:
            held.pop((self, name), None)
        self.parametrizations[name].right_inverse(value)

    return property(get, put)


def _assign(self: Any, name: str, value: Any) -> None:
    """``module.weight = tensor`` goes through the property, whatever kind of tensor it is."""
    if name in self.__dict__["_modules"].get("parametrizations", ()):
        object.__setattr__(self, name, value)
    else:
        Module.__setattr__(self, name, value)


def _copy(self: Any, memo: dict[int, Any]) -> Any:
    """A copy gets its own class, because parametrizations can be removed from either module alone."""
    kind: Any = type(self)
    made: Any = object.__new__(type(kind.__name__, (kind.__base__,), dict(kind.__dict__)))
    memo[id(self)] = made
    made.__dict__.update(deepcopy(self.__dict__, memo))
    return made


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Make a parameter or buffer of a module the output of `parametrization`, which takes what is trained instead.
    Several stack. `torch.nn.utils.parametrize.register_parametrization`.

    Args:
        parametrization: a module; its `right_inverse(value)`, if there is one, returns what to train: one tensor or
            several, and allows ``module.weight = value``.
        unsafe: shape and type may change; nothing is checked.

    Raises:
        ArgumentError, ShapeError: no such tensor; the outcome does not fit in its place.
    """
    if is_parametrized(module, tensor_name):
        held: Any = module.parametrizations[tensor_name]
        if not unsafe:
            with switch_mode(grad=False):
                now = getattr(module, tensor_name)
                _alike(now, parametrization(now), "the parametrization")
        held.append(parametrization)
        held.unsafe = held.unsafe or unsafe
        return module
    original = module._parameters.get(tensor_name)
    original = module._buffers.get(tensor_name) if original is None else original  # type: ignore[assignment]
    if original is None:
        raise ArgumentError(f"{type(module).__name__} has no parameter or buffer '{tensor_name}' to parametrize")
    held = ParametrizationList([parametrization], original, unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        kind = type(module)
        own = {"__setattr__": _assign, "__deepcopy__": _copy, "__module__": kind.__module__}
        module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), own)
        module._modules["parametrizations"] = ModuleDict()
    setattr(type(module), tensor_name, _property(tensor_name))
    module._modules["parametrizations"][tensor_name] = held  # type: ignore[index]
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a tensor of the module, or this one, is parametrized. `torch.nn.utils.parametrize.is_parametrized`."""
    held = module._modules.get("parametrizations")
    if not isinstance(held, ModuleDict):
        return False
    return len(held) > 0 if tensor_name is None else tensor_name in held


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a tensor an ordinary one again: its present value, or with `leave_parametrized=False` what was trained.
    `torch.nn.utils.parametrize.remove_parametrizations`.

    Raises:
        ArgumentError: it is not parametrized, or what was trained were several tensors.
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"{type(module).__name__}.{tensor_name} is not parametrized")
    held: Any = module.parametrizations[tensor_name]
    if not held.is_tensor and not leave_parametrized:
        raise ArgumentError(
            f"{tensor_name} is made of {held.ntensors} tensors, so there is none to go back to",
            hint="leave_parametrized=True",
        )
    original = held.originals()[0]
    if leave_parametrized:
        with switch_mode(grad=False):
            value = getattr(module, tensor_name).detach().clone()
        if held.is_tensor:
            _set(original, value)
        else:
            original = Parameter(value) if isinstance(original, Parameter) else Buffer(value)
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        del module._modules["parametrizations"]
        module.__class__ = type(module).__base__  # type: ignore[assignment]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, original)
    else:
        module.register_buffer(tensor_name, original)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had. `torch.nn.utils.parametrize.type_before_parametrizations`."""
    return type(module).__base__ if is_parametrized(module) else type(module)  # type: ignore[return-value]


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give `to_module` the parametrizations of `from_module`, and their values.
    `torch.nn.utils.parametrize.transfer_parametrizations_and_params`."""
    if not is_parametrized(from_module):
        return to_module
    lists: Any = from_module.parametrizations
    for name in list(lists) if tensor_name is None else [tensor_name]:
        for parametrization in lists[name]:
            register_parametrization(to_module, name, deepcopy(parametrization), unsafe=lists[name].unsafe)
        there: Any = to_module.parametrizations[name]
        for own, new in zip(there.originals(), lists[name].originals(), strict=True):
            _set(own, new.detach().clone())
    return to_module
