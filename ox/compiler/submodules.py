"""The modules that run compiled inside a call which stays eager."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any

from ox.call_site import module_path
from ox.compiler.recording.capture import Capture
from ox.compiler.recording.guard_source import hooks_of
from ox.core.mode import MODE, MODULES, switch_mode
from ox.nn.base.module import Module


class Parts:
    """In `Mode.parts` while the Python code of such a call runs. Each module, from the outside in, runs compiled
    between its own hooks; one that cannot be recorded runs its Python code, and those inside have their turn.

    Args:
        make: compiles the forward of a module, under a name.
        root: the module whose call it is, if it is one: that its forward cannot be recorded is known.
    """

    def __init__(self, make: Callable[[Module, str], Any], root: Module | None) -> None:
        self.made: dict[int, Any] = {}  # by the id of the module, which each of them holds
        self._make, self._root = make, root
        self._met: dict[int, weakref.ref[Module]] = {}  # once so far
        self._lock = Lock()

    def forward(self, module: Module) -> Callable[..., Any]:
        """What the call of a module runs between its hooks: its forward, as it is or compiled."""
        recording = MODE.get().recording
        if recording is not None:
            # a module between whose hooks the recording began, and which calls itself
            if isinstance(recording, Capture) and hooks_of(module):
                recording.on_hooked_module()
            return module.forward
        hooks = module._hooks
        if hooks is not None and hooks.last_operator:
            return partial(_as_it_is, module)
        part = self.made.get(id(module))
        if part is None and _is_worth_it(module) and (module is not self._root or hooks_of(module)):
            part = self._part_of(module)
        return module.forward if part is None else part

    def _part_of(self, module: Module) -> Any:
        """None for a module that is new: the next call may have another one in its place."""
        number = id(module)
        with self._lock:
            if number in self.made:  # another thread was faster
                return self.made[number]
            known = self._met.pop(number, None)
            if known is None or known() is not module:
                self._met = {i: each for i, each in self._met.items() if each() is not None}
                self._met[number] = weakref.ref(module)
                return None
            part = self.made[number] = self._make(module, module_path(MODULES.get()))
            return part

    def forget(self) -> None:
        """Forget the recordings of all modules."""
        with self._lock:
            self.made.clear()
            self._met.clear()


def _as_it_is(module: Module, *args: Any, **kwargs: Any) -> Any:
    """The forward of a module whose hooks are given what its last operator is given in the backward."""
    with switch_mode(parts=None):
        return module.forward(*args, **kwargs)


def _is_worth_it(module: Module) -> bool:
    """A layer of ox is one kernel in eager code as well, and a compiled call costs more than it: only what holds
    modules, and classes of the user's own, may get faster."""
    return bool(module._modules) or not type(module).__module__.startswith(("ox.nn.", "ox.compiler."))
