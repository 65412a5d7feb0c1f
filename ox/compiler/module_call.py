"""A module's call, and its forward alone, as functions."""

from __future__ import annotations

from typing import Any

from ox.nn.base.module import Module


class ModuleCall:
    """What a compiled module records; unlike a lambda it can be pickled."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.__name__ = self.__qualname__ = type(module).__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hooks = self.module._hooks
        if hooks is not None and hooks.compiled is not None:  # Module.compile: this is behind the module's own call
            return hooks.run_eagerly(self.module, args, kwargs)
        return self.module(*args, **kwargs)


class ForwardCall(ModuleCall):
    """What a module's call runs between the module's hooks, which are no part of it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.forward(*args, **kwargs)
