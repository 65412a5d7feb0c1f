"""Updates in place, in pieces that stay in the cache: what `step` runs when nothing records."""

from __future__ import annotations

from collections.abc import Callable
from threading import local
from typing import Any

import numpy as np

from ox.tensors.tensor import Tensor

CHUNK = 1 << 16  # elements: parameter, gradient, two moments and a temporary in float32 are 1.3 MB

_temporaries = local()  # a thread's own: two optimizers may step at once


def in_pieces(update: Callable[..., None], tensors: list[Tensor], temporaries: int, *numbers: Any) -> None:
    """Run ``update(arrays, temporaries, *numbers)`` over the tensors' memory in flat pieces.

    The second tensor is the gradient, which is only read. Halves are updated in float32 and rounded back.
    """
    flat = [_flat(t, i != 1) for i, t in enumerate(tensors)]
    if not isinstance(flat[0], np.ndarray):
        update(flat, [flat[0] * 0 for _ in range(temporaries)], *numbers)
        return
    narrow = flat[0].dtype.itemsize < 4
    kind = np.dtype(np.float32) if narrow else flat[0].dtype
    scratch = _scratch(kind, temporaries)
    size = flat[0].size
    for start in range(0, size, CHUNK):
        piece = [a[start : start + CHUNK] for a in flat] if size > CHUNK else flat
        used = [t[: piece[0].size] for t in scratch]
        if narrow:
            wide = [a.astype(np.float32) for a in piece]
            update(wide, used, *numbers)
            for i, (a, b) in enumerate(zip(piece, wide, strict=True)):
                if i != 1:
                    a[...] = b
        else:
            update(piece, used, *numbers)


def _flat(tensor: Tensor, written: bool) -> Any:
    """The tensor's memory as one row; if it is to be written and cannot be, it first becomes a copy that can."""
    array = tensor.array
    if written and not (array.flags.c_contiguous and getattr(array.flags, "writeable", True)):
        tensor.array = array = array.copy(order="C")
    return array.reshape(-1)


def _scratch(kind: Any, count: int) -> list[Any]:
    held: dict[Any, list[Any]] = _temporaries.__dict__
    name = f"{kind} {count} {CHUNK}"
    if name not in held:
        held[name] = [np.empty(CHUNK, kind) for _ in range(count)]
    return held[name]


def sgd(
    arrays: list[Any], temporaries: list[Any], lr: float, decay: float, momentum: float, keep: float, nesterov: bool
) -> None:
    """Stochastic gradient descent on [parameter, gradient] or [parameter, gradient, momentum].

    `lr` is negative to maximise, `keep` is 1 less the dampening (1 on the first step).
    """
    p, g, *buffers = arrays
    t, u = temporaries
    if lr < 0:
        # d = -g + decay·p, and p falls along d: the sign stands on the gradient alone
        g, lr = np.negative(g, out=u), -lr
    if decay:
        np.multiply(p, decay, out=t)
        g = np.add(t, g, out=u)
    if buffers:
        (b,) = buffers
        if momentum != 1:
            np.multiply(b, momentum, out=b)
        if keep != 1:
            np.add(b, np.multiply(g, keep, out=t), out=b)
        else:
            np.add(b, g, out=b)
        g = np.add(g, np.multiply(b, momentum, out=t), out=u) if nesterov else b
    np.subtract(p, np.multiply(g, lr, out=t), out=p)


def adam(
    arrays: list[Any],
    temporaries: list[Any],
    step_size: float,
    keep: float,
    decay: float,
    beta1: float,
    beta2: float,
    eps: float,
    maximize: bool,
) -> None:
    """Adam on [parameter, gradient, first moment, second moment], or a fifth, the largest second moment.

    `step_size` is lr·sqrt(1 - beta2^t)/(1 - beta1^t) and `eps` is eps·sqrt(1 - beta2^t), which spares the division of
    the second moment; `keep` multiplies the parameter (AdamW), `decay` of it joins the gradient (Adam).
    """
    p, g, m, v, *largest = arrays
    t, u = temporaries
    if keep != 1:
        np.multiply(p, keep, out=p)
    if maximize:
        g = np.negative(g, out=u)
    if decay:
        np.multiply(p, decay, out=t)
        g = np.add(g, t, out=u)
    np.subtract(g, m, out=t)
    np.multiply(t, 1 - beta1, out=t)
    np.add(m, t, out=m)
    np.multiply(g, g, out=t)
    np.multiply(t, 1 - beta2, out=t)
    np.multiply(v, beta2, out=v)
    np.add(v, t, out=v)
    if largest:
        v = np.maximum(largest[0], v, out=largest[0])
    np.sqrt(v, out=t)
    np.add(t, eps, out=t)
    np.divide(m, t, out=t)
    np.multiply(t, step_size, out=t)
    np.subtract(p, t, out=p)
