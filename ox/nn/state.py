"""What a module's state_dict holds, and how it comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ox.errors import LoadError
from ox.ops.mode import switched
from ox.ops.operator import as_input
from ox.tensor import Tensor
from ox.where import users_line

if TYPE_CHECKING:
    from ox.nn.module import Module


class IncompatibleKeys(NamedTuple):
    """The names that `load_state_dict(strict=False)` did not find, and those it had no place for."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def named_state(module: Module, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Parameters and persistent buffers with dotted names; what is shared comes under each of its names."""
    for name, held in [*module._parameters.items(), *module._buffers.items()]:
        if held is not None and name not in module._transient:
            yield prefix + name, held
    for name, child in module._modules.items():
        if child is not None:
            yield from named_state(child, f"{prefix}{name}.")


def state_dict(module: Module, prefix: str, keep_vars: bool) -> dict[str, Tensor]:
    return {name: x if keep_vars else x.detach() for name, x in named_state(module, prefix)}


def load_state_dict(module: Module, given: Mapping[str, Any], strict: bool) -> IncompatibleKeys:
    own = dict(named_state(module))
    missing = [name for name in own if name not in given]
    unexpected = [name for name in given if name not in own]
    tensors = {name: given[name] for name in own if name in given}
    wrong = [
        f"{name} {list(x.shape)} (given {list(tensors[name].shape)})"
        for name, x in own.items()
        if name in tensors and tuple(x.data.shape) != tuple(tensors[name].shape)
    ]
    if wrong or (strict and (missing or unexpected)):
        found = {"missing": missing, "unexpected": unexpected} if strict else {}
        raise LoadError(
            f"the state does not fit {type(module).__name__}",
            where=users_line(3) or None,
            expected=f"the {len(own)} names and shapes of {type(module).__name__}.state_dict()",
            got=f"{len(given)} names",
            hint="the model that the state was saved from"
            + (", or strict=False to load what fits by name" if strict and not wrong else ""),
            extra={k: _listed(v) for k, v in {**found, "shapes": wrong}.items() if v},
        )
    with switched(grad=False):
        for name, value in tensors.items():
            own[name].assign(as_input(value.data if isinstance(value, Tensor) else value), "load_state_dict")
    return IncompatibleKeys(missing, unexpected)


def _listed(names: list[str], most: int = 12) -> str:
    return "\n".join(names[:most] + ([f"and {len(names) - most} more"] if len(names) > most else []))
