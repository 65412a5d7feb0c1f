"""A fingerprint of a run: optimizer, loss, data and other parts besides the options, as text in each checkpoint. A
resume compares it, so that a run is not resumed with another optimizer, loss or dataset unnoticed."""

from __future__ import annotations

import sys
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from ox.train.recipe.datasets import length

if TYPE_CHECKING:
    from ox.train.trainer import Trainer

Facts = dict[str, str]
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}:"
IRRELEVANT = ("length of the test data", "metrics")  # the training does not depend on them
RENAMED = {"length of the held back data": "length of the test data"}  # in checkpoints of older versions


def facts(trainer: Trainer) -> Facts:
    """The fingerprint of a trainer before its first step."""
    recipe, base = trainer.recipe, trainer.recipe.base
    found = {
        "recipe": recipe.sha256[:12],
        "optimizer": " and ".join(map(describe, trainer.update.optimizers)),
        "loss": describe(recipe.optional("loss")),
        "step": describe(recipe.optional("step")),
        "augment": describe(recipe.optional("augment")),
        "collate": describe(recipe.optional("collate")),
        "best": str(recipe.optional("best")),
        "metrics": ", ".join(metric.name for metric in trainer.metrics),
        "layers": "" if base is None else f"{base.layers} {base.classes or ''}".strip(),
    }
    parts = trainer.data.parts().items()
    return found | {f"length of the {name} data": str(length(part)) for name, part in parts}


def differences(then: Facts, now: Facts) -> list[tuple[str, str, str]]:
    """The facts that differ: name, then, now. For code compiled by another version of Python, only names are
    compared."""
    then = {RENAMED.get(name, name): fact for name, fact in then.items()}
    return [
        (name, then[name] or "none", now[name] or "none")
        for name in now
        if name in then and not _same(then[name], now[name])
    ]


def _same(then: str, now: str) -> bool:
    (one, _, compiled), (other, _, by_us) = then.partition(" code "), now.partition(" code ")
    if compiled and by_us and compiled.partition(":")[0] != by_us.partition(":")[0]:
        return one == other
    return then == now


def describe(what: Any) -> str:
    """Describes an object: a class with its settings, or a function with a checksum of its code; equal in all
    processes."""
    if what is None:
        return ""
    if hasattr(what, "param_groups"):
        groups = [{k: v for k, v in group.items() if k != "params"} for group in what.param_groups]
        settings = [
            _settings(group | {"tensors": len(own["params"])})
            for group, own in zip(groups, what.param_groups, strict=True)
        ]
        return f"{type(what).__name__}({'; '.join(dict.fromkeys(settings))})"
    if isinstance(what, partial):
        return f"{describe(what.func)} with {_settings({**what.keywords, **dict(enumerate(map(str, what.args)))})}"
    code = getattr(what, "__code__", None)
    if isinstance(code, CodeType):
        return f"{getattr(what, '__qualname__', 'function')} code {_PYTHON}{_sum(code):08x}"
    if isinstance(what, type) or not hasattr(what, "__dict__"):
        return str(getattr(what, "__qualname__", type(what).__name__))
    tensors = vars(what).get("_buffers") or {}
    plain = {k: v for k, v in vars(what).items() if not k.startswith("_") and k != "training"}
    return f"{type(what).__name__}({_settings({**plain, **tensors})})"


def _settings(values: dict[Any, Any]) -> str:
    return ", ".join(f"{name}={text}" for name, value in values.items() if (text := _text(value)))


def _text(value: Any) -> str:
    """A plain value as text, or a checksum of an array; empty for other values."""
    if isinstance(value, bool | int | float | str) or (
        isinstance(value, tuple | list) and all(isinstance(v, bool | int | float | str) for v in value)
    ):
        return repr(value)
    array = getattr(value, "array", value)
    if isinstance(array, np.ndarray) and array.dtype.kind in "biuf":
        return f"{array.dtype}{list(array.shape)}:{crc32(np.ascontiguousarray(array).tobytes()):08x}"
    return ""


def _sum(code: CodeType, value: int = 0) -> int:
    """A checksum of the code of a function, independent of its file and line."""
    value = crc32(code.co_code, value)
    value = crc32(repr(code.co_names).encode(), value)
    for constant in code.co_consts:
        value = _sum(constant, value) if isinstance(constant, CodeType) else crc32(_constant(constant).encode(), value)
    return value


def _constant(value: Any) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
