"""Module: parameters, buffers, submodules, hooks, and the call, which records the module's path."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ox.core.argument_errors import add_missing_name_note, not_tensor_error
from ox.core.changes import CHANGES
from ox.core.explain import place
from ox.core.mode import MODE, MODULES
from ox.errors import ArgumentError, CallError, OxError, RegistrationError
from ox.nn.base.conversion import Moving
from ox.nn.base.factory_kwargs import with_factory_kwargs
from ox.nn.base.hooks import GLOBAL_HOOKS, NO_HOOKS
from ox.nn.base.state import Stateful
from ox.nn.parameter import Buffer, Parameter
from ox.sparse.tensor import SparseTensor
from ox.tensors.tensor import Tensor

__all__ = ["Module"]


class Module(Moving, Stateful):
    """The base of every layer and model; `torch.nn.Module`.

    Assigning a Parameter, Buffer or Module to an attribute registers it. Calling the module runs `forward` between
    its hooks and registers the running module, so errors and recorded nodes can name it.
    """

    training: bool = True
    _non_persistent_buffers_set: set[str]  # buffers that state_dict leaves out

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_call_impl" in vars(cls) and "__call__" not in vars(cls):
            cls.__call__ = cls._call_impl  # type: ignore[method-assign]
        if cls.__module__.startswith("ox.nn.") and "__init__" in vars(cls):
            cls.__init__ = with_factory_kwargs(cls.__init__)  # type: ignore[method-assign]

    def __init__(self) -> None:
        self.__dict__.update(_parameters={}, _buffers={}, _modules={}, training=True)
        self.__dict__["_non_persistent_buffers_set"] = set()

    # -- calling -----------------------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every subclass defines it."""
        raise ArgumentError(f"{type(self).__name__} has no forward", hint="def forward(self, x): ...")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        token = MODULES.set((*MODULES.get(), self))
        try:
            if self._hooks is None and not GLOBAL_HOOKS.count:
                parts = MODE.get().parts
                return self.forward(*args, **kwargs) if parts is None else parts.forward(self)(*args, **kwargs)
            return (self._hooks or NO_HOOKS).run(self, args, kwargs)
        except OxError as error:
            raise self._add_context(error, args) from error.__cause__
        except AttributeError as error:
            better = not_tensor_error(type(self).__name__, error)
            if better is None:
                add_missing_name_note(error)
                raise
            raise better from None
        finally:
            MODULES.reset(token)

    _call_impl = __call__  # what PyTorch's __call__ calls, for those who put something around it

    def _add_context(self, error: OxError, args: tuple[Any, ...]) -> OxError:
        """Adds the expected input to an error, from the innermost module that it passes through."""
        if not getattr(error, "_explained", False):
            error._explained = True  # type: ignore[attr-defined]
            error.where = error.where or place()
            # where the inputs are not even tensors, the operator's own words must do
            with suppress(TypeError, AttributeError, IndexError):
                self.explain(error, *args)
        return error

    def explain(self, error: OxError, *args: Any) -> None:
        """Overridden by layers: write `expected`, `got` and `hint` of an error that these inputs caused."""

    # -- attributes --------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        """Registers a Parameter, Module or Buffer in place of what has the name. As in PyTorch, the name of a parameter
        or module stays with its kind until `del`: of another value it takes None only."""
        CHANGES.count += 1
        fields = self.__dict__
        registered = next((k for k in _KINDS if name in fields.get(k, ())), None)
        kind = next((k for k, base in _KINDS.items() if isinstance(value, base)), None)
        if kind is not None and kind not in fields:
            raise ArgumentError(
                f"cannot assign '{name}' before Module.__init__ has run",
                hint="super().__init__() as the first line of __init__",
            )
        if kind == "_parameters" or (kind == "_modules" and registered != "_parameters"):
            fields.pop(name, None)
            self._forget(name, but=fields[kind])
            if kind == "_parameters":
                self.register_parameter(name, value)
            else:
                fields[kind][name] = value
        elif kind == "_buffers" and registered in (None, "_buffers"):
            self.register_buffer(name, value, value.persistent)
        elif registered is None:
            object.__setattr__(self, name, value)
        elif value is None or (registered == "_buffers" and isinstance(value, Tensor | SparseTensor)):
            fields[registered][name] = value
        else:
            expected = {"_parameters": "a Parameter", "_modules": "a Module", "_buffers": "a Tensor"}[registered]
            raise CallError(
                f"cannot assign {type(value).__name__} to '{name}', which is registered",
                expected=f"{expected} or None",
                got=type(value).__name__,
                hint=f"del module.{name} first, to make it something else",
            )

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__
        for kind in ("_parameters", "_buffers", "_modules"):
            held = fields.get(kind)
            if held is not None and name in held:
                return held[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        CHANGES.count += 1
        if not self._forget(name):
            object.__delattr__(self, name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes that `copy` or `pickle` kept."""
        self.__dict__.update(state)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def _forget(self, name: str, but: dict[str, Any] | None = None) -> bool:
        """Whether something was registered under the name; it is gone, but for one kind, where what comes next takes
        its place in the order."""
        CHANGES.count += 1
        held = [d for d in (self._parameters, self._buffers, self._modules) if name in d]
        for d in held:
            if d is not but:
                del d[name]
        self._non_persistent_buffers_set.discard(name)
        return bool(held)

    def _check_name(self, name: str, kind: str) -> None:
        """Raises RegistrationError for a name that is not free."""
        if not isinstance(name, str):
            raise CallError("the name of a parameter, buffer or module is a string", got=type(name).__name__)
        if not name or "." in name:
            raise RegistrationError(
                f"'{name}' cannot name a parameter, buffer or module", expected="a name without dots"
            )
        if name not in self.__dict__[kind] and hasattr(self, name):
            raise RegistrationError(
                f"attribute '{name}' already exists in {type(self).__name__}",
                hint=f"another name, or del module.{name} first",
            )

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under a name; None reserves it.

        Raises:
            RegistrationError: (a KeyError) another attribute has the name, or it contains a dot.
            CallError: (a TypeError) `param` is something else.
        """
        self._check_name(name, "_parameters")
        _check_type(name, param, Parameter)
        CHANGES.count += 1
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not trained; `persistent` puts it into `state_dict`. Raises as
        `register_parameter` does."""
        self._check_name(name, "_buffers")
        _check_type(name, tensor, Tensor, SparseTensor)
        CHANGES.count += 1
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under a name. Raises as `register_parameter` does."""
        _check_type(name, module, Module)
        self._check_name(name, "_modules")
        CHANGES.count += 1
        self._modules[name] = module

    register_module = add_module

    # -- showing -----------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What stands in the brackets of the repr."""
        return ""

    def _get_name(self) -> str:
        """The name in its repr, PyTorch's for those who write another one."""
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        children = [f"({name}): " + repr(m).replace("\n", "\n  ") for name, m in self._modules.items()]
        if not children:
            return f"{self._get_name()}({extra})"
        lines = [*(extra.split("\n") if extra else []), *children]
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


def _check_type(name: str, value: Any, *types: type) -> None:
    """Raises CallError for what is neither None nor of one of these types."""
    if value is not None and not isinstance(value, types):
        raise CallError(
            f"cannot register {type(value).__name__} as '{name}'",
            expected=f"{types[0].__name__} or None",
            got=type(value).__name__,
        )


# where a module registers a value of each type; a name is looked up in this order
_KINDS: dict[str, type] = {"_parameters": Parameter, "_modules": Module, "_buffers": Buffer}
