"""Several backwards at once: `grad(..., is_grads_batched=True)`."""

from __future__ import annotations

from typing import Any

from ox.autograd.backward_pass import as_list, cotangents_of, grad


def grad_batched(
    outputs: Any, inputs: Any, batched: Any, retain: bool | None, create: bool, unused: bool | None, materialize: bool
) -> tuple[Any, ...]:
    """One backward for each entry of the leading dimension of the cotangents, the gradients stacked."""
    from ox.functions import stack

    several = cotangents_of(len(as_list(outputs)), batched)
    count = next((g.static_shape[0] for g in several if g is not None), 0)
    rows = []
    for k in range(count):
        last = k == count - 1 and not (create if retain is None else retain)
        chosen = [None if g is None else g[k] for g in several]
        found = grad(outputs, inputs, chosen, not last, create, allow_unused=unused, materialize_grads=materialize)
        rows.append(found)
    return tuple(None if column[0] is None else stack(list(column)) for column in zip(*rows, strict=True))
