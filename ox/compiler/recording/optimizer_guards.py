"""The places of an optimizer that a later call looks at."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any

from ox.compiler.recording.guard_source import SIMPLE, Place, getter, step_hooks

if TYPE_CHECKING:
    from ox.compiler.recording.guards import PythonState


def visit_optimizer(state: PythonState, value: Any, path: str, depth: int) -> None:
    """Note an optimizer's settings, the parameters that it has, and its state."""
    inner = path or type(value).__name__
    state.note_names(vars(value), inner)
    for i, group in enumerate(value.param_groups):
        tensors = getattr(group, "tensors", None)
        if tensors is None:  # of a class of one's own: nothing in it is a tensor that is read at each call
            groups = value.param_groups
            state.visit(group, (groups.__getitem__, i, f"{inner}.param_groups[{i}]", "", False), depth + 1)
            continue
        group.settle()
        state.settings.append((group, f"{inner}.param_groups[{i}]"))
        for name in tensors:
            state.visit(tensors[name], (tensors.__getitem__, name, f"{inner}.{name}", "", False))
        params = group["params"]
        state.visit(params, (group.__getitem__, "params", f"{inner}.params", "", False), depth + 1)
    known = [*value.param_groups]

    def groups_now(_: Any) -> list[Any]:
        now = value.param_groups
        return known if len(now) == len(known) and all(map(is_, now, known)) else [*now]

    state.add(Place(groups_now, None, f"a group of {inner}", "", False, known))
    if hasattr(value, "_hooks"):
        hooks = step_hooks(value)
        state.add(Place(lambda _: step_hooks(value), None, f"the hooks of {inner}", "", True, hooks))
    for name, default in getattr(value, "defaults", {}).items():
        if isinstance(default, (*SIMPLE, tuple)):
            get = value.defaults.get
            state.add(Place(get, name, f"{inner}.defaults[{name!r}]", "defaults", False, default))
    held = vars(value)
    for name in held.keys() - {"param_groups", "state", "defaults"}:
        state.visit(held[name], (held.__getitem__, name, f"{inner}.{name}", name, False), depth + 1)
    states = value.state
    state.optimizers.append((states, set(states)))
    state.add(Place(lambda _: len(value.state), None, f"the state of {inner}", "", False, len(states)))
    state.add(Place(getter(value), "state", f"the state of {inner}", "", False, states))
    for p in list(states):
        own = states[p]
        state.add(Place(states.get, p, f"the state of {inner}", "", False, own))
        if isinstance(own, dict):
            for name in list(own):
                state.visit(own[name], (own.__getitem__, name, f"{inner}.state[{name!r}]", "", False), depth + 1)
