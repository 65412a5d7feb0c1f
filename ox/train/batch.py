"""The structure of a batch: tensors in tuples, dicts, named tuples and dataclasses, which may also contain strings and
None.

In a tuple the target is the last entry. In a dict, a named tuple or a dataclass it is the first entry whose name is in
`TARGETS`; a named tuple without such a name has it as its last entry.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

from ox.core.tensor import is_tensor
from ox.data.batch_map import mapping_like
from ox.errors import RecipeError

TARGETS = ("target", "targets", "label", "labels", "y")
STEP_HINT = "step(model, batch) in the recipe file, which unpacks the batch and returns (loss, outputs)"


def named_parts(batch: Any) -> dict[str, Any] | None:
    """The entries of a batch by name; None for tuples, lists and tensors."""
    if isinstance(batch, Mapping):
        return dict(batch)
    if hasattr(batch, "_fields"):
        return dict(zip(batch._fields, batch, strict=True))
    if is_dataclass(batch) and not isinstance(batch, type):
        return {field.name: getattr(batch, field.name) for field in fields(batch)}
    return None


def tensors(batch: Any, name: str = "") -> list[tuple[str, Any]]:
    """All tensors of a batch, each with its path: ``1``, ``image``, ``inputs.mask``."""
    if is_tensor(batch):
        return [(name, batch)]
    parts = named_parts(batch)
    if parts is None:
        parts = {str(i): x for i, x in enumerate(batch)} if isinstance(batch, (tuple, list)) else {}
    return [found for key, x in parts.items() for found in tensors(x, f"{name}.{key}" if name else str(key))]


def target_of(batch: Any) -> Any:
    """The target of a batch; None if it has none."""
    parts = named_parts(batch)
    if parts is not None:
        name = target_name(parts)
        if name is None and hasattr(batch, "_fields") and len(batch) > 1:
            name = batch._fields[-1]
        return None if name is None else parts[name]
    return batch[-1] if isinstance(batch, (tuple, list)) and len(batch) > 1 else None


def target_name(parts: Mapping[str, Any]) -> str | None:
    return next((name for name in TARGETS if parts.get(name) is not None), None)


def batch_size(batch: Any) -> int:
    """The number of samples in a batch: the length of its target, else of its first entry with a length."""
    count = _length(target_of(batch))
    if count is None:
        count = _length(batch, outermost=True)
    return 1 if count is None else count


def _length(x: Any, outermost: bool = False) -> int | None:
    if is_tensor(x):
        return int(x.static_shape[0]) if x.array.ndim else None
    parts = named_parts(x)
    if parts is not None:
        return next((n for n in map(_length, parts.values()) if n is not None), None)
    if not isinstance(x, (tuple, list)) or not x:
        return None
    lengths = [_length(part) if not isinstance(part, str | bytes) else None for part in x]
    columns = outermost or (all(map(is_tensor, x)) and len(set(lengths)) == 1)  # else one entry per sample
    return next((n for n in lengths if n is not None), len(x)) if columns else len(x)


def single_sample(batch: Any, index: int, count: int) -> Any:
    """A batch of one sample of this batch; None if a tensor has another length than `count`."""
    if any(not x.array.ndim or x.static_shape[0] != count for _, x in tensors(batch)) or not tensors(batch):
        return None
    return _single(batch, index, count)


def _single(x: Any, index: int, count: int) -> Any:
    if is_tensor(x):
        return x[index : index + 1]
    if isinstance(x, list) and len(x) == count and x and not tensors(x):
        return x[index : index + 1]  # strings, one per sample
    if isinstance(x, Mapping):
        return mapping_like(x, {key: _single(value, index, count) for key, value in x.items()})
    if isinstance(x, (tuple, list)):
        parts = [_single(value, index, count) for value in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if is_dataclass(x) and not isinstance(x, type):
        return replace(x, **{f.name: _single(getattr(x, f.name), index, count) for f in fields(x) if f.init})
    return x


# -- the arguments of a model --------------------------------------------------------------------------------------


def model_arguments(model: Any, batch: Any) -> tuple[list[Any], dict[str, Any]]:
    """The positional and keyword arguments of a model for a batch: all entries but the target. Entries of a tuple are
    positional; those of a dict, a named tuple or a dataclass are passed by name, if the model's forward has these
    names.

    Raises:
        RecipeError: the batch has no inputs, or their names do not match those of forward.
    """
    parts = named_parts(batch)
    if parts is None:
        if not isinstance(batch, (tuple, list)) or len(batch) < 2:
            raise RecipeError(
                "the batch has no target beside its inputs",
                expected="samples (input, target), or dicts of inputs and 'target'",
                got=describe(batch), hint=STEP_HINT,
            )  # fmt: skip
        return list(batch[:-1]), {}
    name = target_name(parts) or (batch._fields[-1] if hasattr(batch, "_fields") and len(batch) > 1 else None)
    if name is None:
        raise RecipeError(
            "the batch names no target", expected=f"an entry {' or '.join(map(repr, TARGETS))}",
            got=describe(batch), hint=STEP_HINT,
        )  # fmt: skip
    inputs = {key: value for key, value in parts.items() if key != name}
    file = _file_input_names(model)
    if file is not None and set(file) <= inputs.keys():
        return [inputs[key] for key in file], {}
    positional, taken, needed, rest = _parameters(model)
    if rest or taken & inputs.keys():
        chosen = {key: value for key, value in inputs.items() if rest or key in taken}
        if lacking := [key for key in needed if key not in chosen]:
            raise RecipeError(
                f"the model's forward wants '{lacking[0]}', which the batch has not",
                expected=", ".join(needed), got=describe(batch), hint=STEP_HINT,
            )  # fmt: skip
        return [], chosen
    held = [value for value in inputs.values() if tensors(value)]
    if len(held) == 1:
        return held, {}
    if positional == 1:
        return [inputs], {}
    raise RecipeError(
        "the batch's names are not those that the model's forward takes",
        expected=", ".join(needed or sorted(taken)) or "one input", got=describe(batch), hint=STEP_HINT,
    )  # fmt: skip


def _parameters(model: Any) -> tuple[int, set[str], list[str], bool]:
    """The parameters of a model's forward: the number of positional ones, all names, the names without a default, and
    whether it has ``**kwargs``."""
    bare = _unwrap(model)
    own = vars(bare).get("forward")
    if own is not None:
        return _signature(own)
    positional, taken, needed, rest = _signature(type(bare).forward)
    return positional - 1, taken - {"self"}, needed[1:], rest


@lru_cache(maxsize=64)
def _signature(function: Any) -> tuple[int, set[str], list[str], bool]:
    kinds = inspect.signature(function).parameters
    named = {n: p for n, p in kinds.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    positional = sum(p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY) for p in kinds.values())
    needed = [name for name, p in named.items() if p.default is p.empty]
    return positional, set(named), needed, any(p.kind is p.VAR_KEYWORD for p in kinds.values())


def _unwrap(model: Any) -> Any:
    """The model inside of `DistributedDataParallel`; otherwise the model itself."""
    from ox.nn.parallel import DistributedDataParallel

    return model.module if isinstance(model, DistributedDataParallel) else model


def _file_input_names(model: Any) -> list[str] | None:
    """The input names of a model that was loaded from a file, in order; None for other models."""
    net = getattr(_unwrap(model), "net", _unwrap(model))
    graph = getattr(net, "graph", None)
    return None if graph is None else [value.name for value in graph.inputs]


def ordered_inputs(model: Any, batch: Any) -> tuple[list[Any], list[str]]:
    """The inputs in the order of the model's arguments, and their names if the batch has names.

    Raises:
        RecipeError: the model does not accept these inputs, or accepts them as a dict.
    """
    positional, by_name = model_arguments(model, batch)
    if not by_name:
        if any(isinstance(x, Mapping) for x in positional):
            raise RecipeError(
                "the model's forward takes a dict, and a file's inputs have an order",
                hint="forward(self, a, b) with the names of the dict's entries",
            )
        return positional, []
    taken = [name for name in _parameter_order(model) if name in by_name]
    names = [*taken, *(name for name in by_name if name not in taken)]
    return [by_name[name] for name in names], names


def _parameter_order(model: Any) -> list[str]:
    return list(inspect.signature(_unwrap(model).forward).parameters)


def describe(batch: Any) -> str:
    """``{'image': float32 [8, 3], 'path': list}``."""
    if is_tensor(batch):
        return f"{batch.dtype} {list(batch.static_shape)}"
    if isinstance(batch, (tuple, list)) and not hasattr(batch, "_fields"):
        few = ", ".join(map(describe, batch[:6])) + (", ..." if len(batch) > 6 else "")
        return f"{'(' if isinstance(batch, tuple) else '['}{few}{')' if isinstance(batch, tuple) else ']'}"
    parts = named_parts(batch)
    if parts is not None:
        name = "" if isinstance(batch, Mapping) else type(batch).__name__
        return f"{name}{{{', '.join(f'{key!r}: {describe(value)}' for key, value in list(parts.items())[:8])}}}"
    return type(batch).__name__
