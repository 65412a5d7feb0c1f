"""Hooks of an optimizer: before and after a step, a `state_dict`, a `load_state_dict`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ox.core.changes import CHANGES
from ox.core.mode import MODE
from ox.core.node import Handle
from ox.profiler.collection import COLLECTOR, record_function

Hook = Callable[..., Any]


class Hooked:
    """Mixin of Optimizer. A subclass may override `step`: hooks run around that too."""

    _all_hooks: dict[str, list[Hook]] | None = None
    _stepping = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _between_hooks(cls.__dict__["step"])  # type: ignore[attr-defined]

    def _hooks(self, kind: str) -> list[Hook]:
        return (self._all_hooks or {}).get(kind, [])

    def _add(self, kind: str, hook: Hook, prepend: bool = False) -> Handle:
        CHANGES.count += 1
        if self._all_hooks is None:
            self._all_hooks = {}
        hooks = self._all_hooks.setdefault(kind, [])
        hooks.insert(0 if prepend else len(hooks), hook)
        return Handle(hooks, hook)

    def register_step_pre_hook(self, hook: Hook) -> Handle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; may return new (args, kwargs)."""
        return self._add("step_pre", hook)

    def register_step_post_hook(self, hook: Hook) -> Handle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return self._add("step_post", hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> Handle:
        """Call ``hook(optimizer)`` before a `state_dict`."""
        return self._add("state_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> Handle:
        """Call ``hook(optimizer, state_dict)`` after it; what it returns, if not None, replaces the dict."""
        return self._add("state_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> Handle:
        """Call ``hook(optimizer, state_dict)`` with a shallow copy; what it returns, if not None, is loaded."""
        return self._add("load_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> Handle:
        """Call ``hook(optimizer)`` after a `load_state_dict`."""
        return self._add("load_post", hook, prepend)


def _between_hooks(step: Hook) -> Hook:
    @wraps(step)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if COLLECTOR.get() is not None and not self._stepping:
            with record_function(f"Optimizer.step#{type(self).__name__}.step"):
                return between(self, *args, **kwargs)
        return between(self, *args, **kwargs)

    def between(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._all_hooks is None or self._stepping:  # a step may call the one above it
            return step(self, *args, **kwargs)
        recording = MODE.get().recording
        if recording is not None and (self._hooks("step_pre") or self._hooks("step_post")):
            recording.on_hook(self)
        self._stepping = True
        try:
            for hook in list(self._hooks("step_pre")):
                changed = hook(self, args, kwargs)
                if changed is not None:
                    args, kwargs = changed
            result = step(self, *args, **kwargs)
            for hook in list(self._hooks("step_post")):
                hook(self, args, kwargs)
        finally:
            self._stepping = False
        return result

    return hooked
