"""Modules whose parameters take their shapes from the first input."""

from __future__ import annotations

from typing import Any

from ox.core.mode import switch_mode
from ox.errors import ArgumentError
from ox.nn.base.module import Module
from ox.nn.base.uninitialized import is_lazy


class LazyModuleMixin:
    """Mixed in before a Module: its first call sees the inputs, materializes the parameters, and then the object is of
    the class `cls_to_become`. `torch.nn.modules.lazy.LazyModuleMixin`.

    A subclass makes `UninitializedParameter`s in `__init__` and defines `initialize_parameters(*inputs)`; its
    `reset_parameters` does nothing while `has_uninitialized_params()`.
    """

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting = self.register_forward_pre_hook(  # type: ignore[attr-defined]
            _first_call, with_kwargs=True
        )

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give parameters their shapes from the inputs of the first call."""
        raise ArgumentError(
            f"{type(self).__name__} has no initialize_parameters", hint="def initialize_parameters(self, input): ..."
        )

    def has_uninitialized_params(self: Any) -> bool:
        """Whether a parameter or buffer of this module (not below) waits for its shape."""
        return any(is_lazy(x) for x in [*self._parameters.values(), *self._buffers.values()])


def _first_call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with switch_mode(grad=False):
        module.initialize_parameters(*args, **kwargs)
    waiting = [name for name, x in [*module._parameters.items(), *module._buffers.items()] if is_lazy(x)]
    if waiting:
        raise ArgumentError(
            f"{type(module).__name__}.initialize_parameters left {', '.join(waiting)} without a shape",
            hint="self.weight.materialize(shape)",
        )
    module.__dict__.pop("_waiting").remove()
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become
