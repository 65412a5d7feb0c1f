"""Loads saved weights into a model."""

from __future__ import annotations

from typing import Any

from ox.dtypes import bfloat16
from ox.errors import LoadError


def best_weights(state: dict[str, Any]) -> dict[str, Any]:
    """The weights of a checkpoint that are evaluated and exported: the averaged weights, if the run has them."""
    averages = state.get("ema")
    return averages["model"] if averages is not None else state["model"]  # type: ignore[no-any-return]


def load_model(model: Any, state: dict[str, Any], where: str | None = None) -> None:
    """Loads saved weights into a model.

    Raises:
        LoadError: names or shapes differ; lists the first differences.
    """
    from ox.nn.base.uninitialized import is_lazy

    own = model.state_dict()
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    other = [
        f"{name} {_kind(state[name])} instead of {_kind(own[name])}"
        for name in own
        if name in state and not is_lazy(own[name]) and _kind(own[name]) != _kind(state[name])
    ]
    if missing or unexpected or other:
        named = {"missing": missing, "unknown": unexpected, "differ": other}
        raise LoadError(
            "the checkpoint is of another architecture",
            where=where,
            extra={label: _some(keys) for label, keys in named.items() if keys},
            hint="the recipe that the run was made with: ox train --resume uses the run's own copy",
        )
    model.load_state_dict(state)


def _kind(x: Any) -> str:
    return (
        f"{'bfloat16' if x.dtype == bfloat16 else x.dtype} {list(x.shape)}" if hasattr(x, "shape") else type(x).__name__
    )


def _some(keys: list[str], most: int = 6) -> str:
    return ", ".join(keys[:most]) + (f" and {len(keys) - most} more" if len(keys) > most else "")
