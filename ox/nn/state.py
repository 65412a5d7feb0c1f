"""What a module's state_dict holds, and how it comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ox.errors import ArgumentError, LoadError
from ox.nn.hooks import HookRegistry
from ox.nn.parameter import Parameter
from ox.nn.tree import Tree
from ox.nn.uninitialized import is_lazy
from ox.ops.mode import switched
from ox.ops.operator import as_input
from ox.tensor import Tensor
from ox.where import users_line

if TYPE_CHECKING:
    pass

EXTRA = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """The names that `load_state_dict(strict=False)` did not find, and those it had no place for."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        missing, unexpected = self
        if not missing and not unexpected:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={missing}, unexpected_keys={unexpected})"


class Stateful(Tree, HookRegistry):
    """Mixed into Module."""

    _transient: set[str]

    def get_extra_state(self) -> Any:
        """What else belongs into `state_dict`; a module that defines this defines `set_extra_state` too."""
        raise ArgumentError(f"{type(self).__name__} has no get_extra_state", hint="def get_extra_state(self): ...")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise ArgumentError(f"{type(self).__name__} has no set_extra_state", hint="def set_extra_state(self, state)")

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not Stateful.get_extra_state

    def state_dict(
        self, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Every parameter and persistent buffer by dotted name, sharing memory; `keep_vars` keeps them attached.
        `destination` is a dict to add them to."""
        given: dict[str, Any] = {} if destination is None else destination
        for hook in self._hooks_of("state_pre"):
            hook(self, prefix, keep_vars)
        for name, held in [*self._parameters.items(), *self._buffers.items()]:
            if held is not None and name not in self._transient:
                given[prefix + name] = held if keep_vars or is_lazy(held) else held.detach()
        if self._has_extra_state():
            given[prefix + EXTRA] = self.get_extra_state()
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=given, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._hooks_of("state_post"):
            changed = hook(self, given, prefix, {})
            given = given if changed is None else changed
        return given

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy tensors or arrays into parameters and buffers of the same names.

        Args:
            strict: names must match exactly. Shapes must match either way.
            assign: take the tensors themselves in place of the module's own.

        Returns:
            (missing_keys, unexpected_keys).

        Raises:
            LoadError: names or shapes do not fit; nothing was changed (but where post hooks have a say in the names).
        """
        given = dict(state_dict)
        refused: list[str] = []
        modules = [(f"{path}." if path else "", m) for path, m in self.named_modules(remove_duplicate=False)]
        keys = IncompatibleKeys([], [])
        for prefix, module in modules:
            for hook in module._hooks_of("load_pre"):
                hook(module, given, prefix, {}, strict, *keys, refused)
        slots = {prefix + name: (module, kind, name) for prefix, module in modules for kind, name in _slots(module)}
        keys.missing_keys.extend(name for name in slots if name not in given)
        keys.unexpected_keys.extend(name for name in given if name not in slots)
        wrong = list(_misfits(slots, given))
        listening = any(module._hooks_of("load_post") for _, module in modules)
        if wrong or refused or (strict and not listening and any(keys)):
            raise _unfit(self, keys if strict else None, wrong, refused, len(slots), len(given))
        with switched(grad=False):
            for name in [name for name in slots if name in given]:
                _put(*slots[name], given[name], assign)
        for _, module in reversed(modules):
            for hook in module._hooks_of("load_post"):
                if hook(module, keys) is not None:
                    raise ArgumentError("a hook after load_state_dict returns nothing", hint="change keys in place")
        if strict and any(keys):
            raise _unfit(self, keys, [], [], len(slots), len(given))
        return keys


def _slots(module: Any) -> Iterator[tuple[str, str]]:
    """The kind and the name of everything that a module's own state has."""
    for kind in ("_parameters", "_buffers"):
        for name, held in getattr(module, kind).items():
            if held is not None and name not in module._transient:
                yield kind, name
    if module._has_extra_state():
        yield EXTRA, EXTRA


def _misfits(slots: Mapping[str, tuple[Any, str, str]], given: Mapping[str, Any]) -> Iterator[str]:
    for full, (module, kind, name) in slots.items():
        if full not in given or kind == EXTRA:
            continue
        own, value = getattr(module, kind)[name], given[full]
        if is_lazy(own):
            continue
        if is_lazy(value) or not hasattr(value, "shape"):
            yield f"{full} {list(own.shape)} (given {value if is_lazy(value) else type(value).__name__})"
        elif tuple(own.array.shape) != tuple(value.shape):
            yield f"{full} {list(own.shape)} (given {list(value.shape)})"


def _put(module: Any, kind: str, name: str, value: Any, assign: bool) -> None:
    if kind == EXTRA:
        module.set_extra_state(value)
        return
    own = getattr(module, kind)[name]
    if is_lazy(value):
        return
    tensor = as_input(value.array if isinstance(value, Tensor) else value)
    if assign:
        if kind == "_parameters" and not isinstance(value, Parameter):
            value = Parameter(tensor, own.requires_grad)
        getattr(module, kind)[name] = value if isinstance(value, Tensor) else tensor
        return
    if is_lazy(own):
        own.materialize(tensor.array.shape)
    own.assign(tensor, "load_state_dict")


def _unfit(
    module: Any, keys: IncompatibleKeys | None, wrong: list[str], refused: list[str], own: int, given: int
) -> LoadError:
    found = {} if keys is None else {"missing": keys.missing_keys, "unexpected": keys.unexpected_keys}
    return LoadError(
        f"the state does not fit {type(module).__name__}",
        where=users_line(3) or None,
        expected=f"the {own} names and shapes of {type(module).__name__}.state_dict()",
        got=f"{given} names",
        hint="the model that the state was saved from"
        + (", or strict=False to load what fits by name" if keys is not None and not wrong else ""),
        extra={k: _listed(v) for k, v in {**found, "shapes": wrong, "hooks": refused}.items() if v},
    )


def _listed(names: list[str], most: int = 12) -> str:
    return "\n".join(names[:most] + ([f"and {len(names) - most} more"] if len(names) > most else []))
