"""A compiled Module: a Module around another one, with the same parameters and attributes."""

from __future__ import annotations

from typing import Any

from ox.compiler.compiled import Compiled
from ox.compiler.explanation import Explanation
from ox.compiler.module_call import ModuleCall
from ox.nn.base.module import Module


class OptimizedModule(Module):
    """What `ox.compile(module)` returns. `torch._dynamo.OptimizedModule`.

    It has the module as `_orig_mod`, and its attributes and state under the same names; keys of `state_dict` begin with
    ``_orig_mod.``, as PyTorch's do. Calls go through the module's own hooks, recordings begin behind them.
    """

    def __init__(self, module: Module, **options: Any) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["_options"] = options
        self.__dict__["_compiled"] = Compiled(ModuleCall(module), **options)
        self.__dict__["training"] = module.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooks is not None:
            return super().__call__(*args, **kwargs)
        return self._compiled(*args, **kwargs)

    def explain(self, *args: Any) -> Any:
        """What was recorded; see `Compiled.explain`. With an error and inputs: what the module's `explain` does."""
        if args:
            return self._orig_mod.explain(*args)
        explanation: Explanation = self._compiled.explain()
        return explanation

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = self.__dict__.get("_modules", {}).get("_orig_mod")
            if module is None:
                raise
            return getattr(module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__.get("_modules", {})
        if name in ("training", "_orig_mod", "_hooks") or "_orig_mod" not in own:
            super().__setattr__(name, value)
        else:
            setattr(own["_orig_mod"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __reduce__(self) -> Any:
        return _compiled_again, (self._orig_mod, self._options), self._own()

    def _own(self) -> dict[str, Any]:
        """What a copy takes over besides the module."""
        return {name: self.__dict__[name] for name in ("_hooks", "training") if name in self.__dict__}

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModule:
        from copy import deepcopy

        made = memo[id(self)] = OptimizedModule(deepcopy(self._orig_mod, memo), **self._options)
        made.__dict__.update(deepcopy(self._own(), memo))
        return made

    def __repr__(self) -> str:
        return "OptimizedModule(\n  (_orig_mod): " + repr(self._orig_mod).replace("\n", "\n  ") + "\n)"

    def __len__(self) -> int:
        inner: Any = self._orig_mod
        return len(inner)

    def __iter__(self) -> Any:
        inner: Any = self._orig_mod
        return iter(inner)

    def __getitem__(self, key: Any) -> Any:
        inner: Any = self._orig_mod
        return inner[key]


def _compiled_again(module: Module, options: dict[str, Any]) -> OptimizedModule:
    return OptimizedModule(module, **options)
