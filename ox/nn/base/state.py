"""`state_dict` and `load_state_dict`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ox.core.mode import switch_mode
from ox.core.operator import as_input
from ox.errors import ArgumentError, LoadError
from ox.nn.base.hooks import HookRegistry
from ox.nn.base.module_tree import Tree
from ox.nn.base.uninitialized import is_lazy
from ox.nn.parameter import Parameter
from ox.serialization.files import StateDict
from ox.sparse.tensor import SparseTensor
from ox.tensors.tensor import Tensor

EXTRA = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """The names that `load_state_dict(strict=False)` did not find, and those it had no place for."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        missing, unexpected = self
        if not missing and not unexpected:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={missing}, unexpected_keys={unexpected})"


class Stateful(Tree, HookRegistry):
    """Mixed into Module."""

    _version: int = 1  # of the layout of its state; `_load_from_state_dict` gets the version of the state that it loads
    _non_persistent_buffers_set: set[str]

    def get_extra_state(self) -> Any:
        """What else belongs into `state_dict`; a module that defines this defines `set_extra_state` too."""
        raise ArgumentError(f"{type(self).__name__} has no get_extra_state", hint="def get_extra_state(self): ...")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise ArgumentError(f"{type(self).__name__} has no set_extra_state", hint="def set_extra_state(self, state)")

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not Stateful.get_extra_state

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Put this module's own parameters, persistent buffers and extra state into the dict, not those below."""
        for name, held in [*self._parameters.items(), *self._buffers.items()]:
            if held is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = held if keep_vars or is_lazy(held) else held.detach()
        if self._has_extra_state():
            destination[prefix + EXTRA] = self.get_extra_state()

    def state_dict(
        self, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Every parameter and persistent buffer by dotted name, sharing memory; `keep_vars` keeps them attached.
        `destination` is a dict to add them to. Its `_metadata` has the `_version` of each module's class."""
        given = StateDict() if destination is None else destination
        metadata = {"version": self._version}
        if hasattr(given, "_metadata"):
            given._metadata[prefix[:-1]] = metadata
        for hook in self._hooks_of("state_pre"):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(given, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=given, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._hooks_of("state_post"):
            changed = hook(self, given, prefix, metadata)
            given = given if changed is None else changed
        return given

    def _optional_keys(self, version: int | None) -> tuple[str, ...]:
        """Names that may be absent from a state written by this version of the class (None: unknown version)."""
        return ()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take this module's own state, not that below, out of the dict.

        Args:
            state_dict: a copy of the part that belongs to this module and those below, which may be changed.
            prefix: of the module's names in it.
            local_metadata: what `state_dict` wrote about this module: its `version`.
            strict: whether names go into `missing_keys` and `unexpected_keys`.
            error_msgs: what keeps the state from being loaded.
        """
        for hook in self._hooks_of("load_pre"):
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        slots = {prefix + name: (self, kind, name) for kind, name in _entries(self)}
        wrong = {line.split(" ")[0]: line for line in _shape_mismatches(slots, state_dict)}
        error_msgs.extend(wrong.values())
        with switch_mode(grad=False):
            for name in [name for name in slots if name in state_dict and name not in wrong]:
                _assign(*slots[name], state_dict[name], bool(local_metadata.get("assign_to_params_buffers")))
        if strict:
            below = tuple(f"{prefix}{name}." for name in self._modules)
            lacking = [prefix + name for name in self._optional_keys(local_metadata.get("version"))]
            missing_keys.extend(name for name in slots if name not in state_dict and name not in lacking)
            unexpected_keys.extend(
                name
                for name in state_dict
                if name not in slots and name.startswith(prefix) and not name.startswith(below)
            )

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
            LoadError: names or shapes do not fit; nothing was changed, but where hooks or a module's own
                `_load_from_state_dict` have a say.
        """
        keys, errors = IncompatibleKeys([], []), list[str]()
        metadata, slots, lacking = getattr(state_dict, "_metadata", {}), {}, set[str]()
        for path, module in self.named_modules(remove_duplicate=False):
            prefix = f"{path}." if path else ""
            slots.update({prefix + name: (module, kind, name) for kind, name in _entries(module)})
            lacking.update(prefix + name for name in module._optional_keys(metadata.get(path, {}).get("version")))
        if all(_loads_as_all_do(module) for module in self.modules()):  # then all names and shapes can be checked first
            missing = [name for name in slots if name not in state_dict and name not in lacking]
            unexpected = [name for name in state_dict if name not in slots]
            wrong = list(_shape_mismatches(slots, state_dict))
            if wrong or (strict and (missing or unexpected)):
                found = IncompatibleKeys(missing, unexpected) if strict else None
                raise _mismatch_error(self, found, wrong, [], len(slots), len(state_dict))
        _load(self, dict(state_dict), "", {"assign_to_params_buffers": True} if assign else {}, metadata, keys, errors)
        if errors or (strict and any(keys)):
            raise _mismatch_error(self, keys if strict else None, [], errors, len(slots), len(state_dict))
        return keys


def _load(
    module: Any,
    state_dict: dict[str, Any],
    prefix: str,
    options: dict[str, Any],
    metadata: Mapping[str, Any],
    keys: IncompatibleKeys,
    errors: list[str],
) -> None:
    """A module's state and that of those below, each by its own `_load_from_state_dict`."""
    about = {**metadata.get(prefix[:-1], {}), **options}
    module._load_from_state_dict(state_dict, prefix, about, True, *keys, errors)
    for name, child in module._modules.items():
        if child is not None:
            below = f"{prefix}{name}."
            part = {key: value for key, value in state_dict.items() if key.startswith(below)}
            _load(child, part, below, options, metadata, keys, errors)
    for hook in module._hooks_of("load_post"):
        if hook(module, keys) is not None:
            raise ArgumentError("a hook after load_state_dict returns nothing", hint="change keys in place")


def _loads_as_all_do(module: Any) -> bool:
    """Whether a module loads its state in the default way: no hooks, no overridden methods."""
    return (
        getattr(module._load_from_state_dict, "__func__", None) is Stateful._load_from_state_dict
        and not module._hooks_of("load_pre")
        and not module._hooks_of("load_post")
    )


def _entries(module: Any) -> Iterator[tuple[str, str]]:
    """The kind and the name of everything that a module's own state has."""
    for kind in ("_parameters", "_buffers"):
        for name, held in getattr(module, kind).items():
            if held is not None and name not in module._non_persistent_buffers_set:
                yield kind, name
    if module._has_extra_state():
        yield EXTRA, EXTRA


def _shape_mismatches(slots: Mapping[str, tuple[Any, str, str]], given: Mapping[str, Any]) -> Iterator[str]:
    for full, (module, kind, name) in slots.items():
        if full not in given or kind == EXTRA:
            continue
        own, value = getattr(module, kind)[name], given[full]
        if is_lazy(own):
            continue
        if is_lazy(value) or not hasattr(value, "shape"):
            yield f"{full} {list(own.shape)} (given {value if is_lazy(value) else type(value).__name__})"
        elif isinstance(own, SparseTensor) != isinstance(value, SparseTensor):
            yield f"{full} {_layout(own)} (given {_layout(value)})"
        elif tuple(own.shape) != tuple(value.shape):
            yield f"{full} {list(own.shape)} (given {list(value.shape)})"


def _layout(value: Any) -> str:
    return "a sparse tensor" if isinstance(value, SparseTensor) else "a dense tensor"


def _assign(module: Any, kind: str, name: str, value: Any, assign: bool) -> None:
    if kind == EXTRA:
        module.set_extra_state(value)
        return
    own = getattr(module, kind)[name]
    if is_lazy(value):
        return
    if isinstance(own, SparseTensor):
        copy = value if assign else value.clone().detach().to(dtype=own.dtype, device=own.device)
        getattr(module, kind)[name] = copy
        return
    tensor = as_input(value.array if isinstance(value, Tensor) else value)
    if assign:
        if kind == "_parameters" and not isinstance(value, Parameter):
            value = Parameter(tensor, own.requires_grad)
        getattr(module, kind)[name] = value if isinstance(value, Tensor) else tensor
        return
    if is_lazy(own):
        own.materialize(tensor.static_shape)
    own.assign(tensor, "load_state_dict")


def _mismatch_error(
    module: Any, keys: IncompatibleKeys | None, wrong: list[str], refused: list[str], own: int, given: int
) -> LoadError:
    found = {} if keys is None else {"missing": keys.missing_keys, "unexpected": keys.unexpected_keys}
    return LoadError(
        f"the state does not fit {type(module).__name__}",
        expected=f"the {own} names and shapes of {type(module).__name__}.state_dict()",
        got=f"{given} names",
        hint="the model that the state was saved from"
        + (", or strict=False to load what fits by name" if keys is not None and not wrong else ""),
        extra={k: _shorten_list(v) for k, v in {**found, "shapes": wrong, "hooks": refused}.items() if v},
    )


def _shorten_list(names: list[str], most: int = 12) -> str:
    return "\n".join(names[:most] + ([f"and {len(names) - most} more"] if len(names) > most else []))
