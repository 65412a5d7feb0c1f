"""Modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ox.errors import ArgumentError
from ox.functions import stack

if TYPE_CHECKING:
    from ox.nn.base.module import Module
    from ox.tensors.tensor import Tensor


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with other tensors in place of parameters and buffers. `torch.func.functional_call`.

    Args:
        parameter_and_buffer_dicts: tensors by dotted name, in one dict or several.
        args: a tuple, or a single argument.
        tie_weights: a tensor that the module holds under several names is replaced under all of them.
        strict: there must be one for every parameter and buffer.

    Raises:
        ArgumentError: a name that the module does not have, or twice, or with `strict` one that is missing; two tensors
            for one that is held under several names.
    """
    dicts = (
        [parameter_and_buffer_dicts] if isinstance(parameter_and_buffer_dicts, Mapping) else parameter_and_buffer_dicts
    )
    given: dict[str, Any] = {}
    for each in dicts:
        twice = sorted(given.keys() & each.keys())
        if twice:
            raise ArgumentError(f"functional_call is given {', '.join(twice)} twice")
        given.update(each)
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, given, tie_weights, strict):
        return module(*arguments, **(kwargs or {}))


def _tensor_slots(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """For each dotted name the dict that holds the tensor, and its name there."""
    found = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for holder in (part._parameters, part._buffers):
            for name in holder:
                found[f"{path}.{name}" if path else name] = (holder, name)
    return found


@contextmanager
def _replaced(module: Module, given: dict[str, Any], tie: bool, strict: bool) -> Iterator[None]:
    held = _tensor_slots(module)
    unknown = sorted(set(given) - set(held))
    missing = sorted(n for n in set(held) - set(given) if held[n][0][held[n][1]] is not None) if strict else []
    if unknown or missing:
        raise ArgumentError(
            "functional_call is given other names than the module has",
            expected=f"also {missing}" if missing else f"some of {sorted(held)}",
            got=str(unknown) if unknown else None,
        )
    before = {name: holder[key] for name, (holder, key) in held.items()}
    by_tensor: dict[int, Any] = {}
    for name, tensor in given.items():
        old = before[name]
        if tie and old is not None and by_tensor.setdefault(id(old), tensor) is not tensor:
            raise ArgumentError(
                f"functional_call is given two tensors for '{name}' and another name of the same",
                hint="tie_weights=False",
            )
    try:
        for name, (holder, key) in held.items():
            if name in given:
                holder[key] = given[name]
            elif tie and before[name] is not None and id(before[name]) in by_tensor:
                holder[key] = by_tensor[id(before[name])]
        yield
    finally:
        for name, (holder, key) in held.items():
            holder[key] = before[name]


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and buffers of several modules of one kind, each stacked along a new first dimension, for `vmap`
    over `functional_call`. Parameters are new leaves that require gradients as theirs do.
    `torch.func.stack_module_state`.

    Raises:
        ArgumentError: no modules, modules of several classes, or some that train and some that do not.
    """
    if not models:
        raise ArgumentError("stack_module_state needs a module")
    if len({type(m) for m in models}) > 1 or len({m.training for m in models}) > 1:
        raise ArgumentError(
            "stack_module_state needs modules of one class, all in training or all not",
            got=", ".join(sorted({type(m).__name__ for m in models})),
        )

    def stacked(named: Sequence[dict[str, Any]]) -> dict[str, Any]:
        made = {}
        for name in named[0]:
            tensors = [each[name] for each in named]
            one = stack([t.detach() for t in tensors])
            made[name] = one.requires_grad_() if tensors[0].requires_grad else one
        return made

    return (
        stacked([dict(m.named_parameters()) for m in models]),
        stacked([dict(m.named_buffers()) for m in models]),
    )


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let every BatchNorm below do without running statistics, which `vmap` cannot write.
    `torch.func.replace_all_batch_norm_modules_`."""
    for module in root.modules():
        if hasattr(module, "track_running_stats"):
            object.__setattr__(module, "track_running_stats", False)
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                if name in module._buffers:
                    module._buffers[name] = None
    return root
