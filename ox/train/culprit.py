"""Which sample of a batch the model cannot take: the samples are tried one by one."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from ox.autograd import no_grad
from ox.errors import DTypeError, OxError, TrainError
from ox.train import chance
from ox.train.batch import row, rows, tensors
from ox.train.evaluate import Step

SHOWN = 8  # indices of samples


def blame(error: Exception, step: Step, model: Any, batch: Any, when: str, indices: Sequence[int]) -> Exception:
    """The error to raise for a batch on which `step` raised `error`: with the samples that are to blame, or, where
    none or all of them are, the same error, which then says which batch it was.

    Args:
        when: the batch in words: "batch 3 of epoch 2".
        indices: of the batch's samples in their dataset; empty where they are not known.
    """
    count = rows(batch)
    failed = _alone(error, step, model, batch, count)
    if not failed or len(failed) == count > 1:
        if isinstance(error, OxError):
            error.extra["when"] = when
            _advise(error, model, batch)
        else:
            error.add_note(f"in {when}")
        return error
    (first, alone), *others = failed.items()
    which = f"index {indices[first]} of its data (row {first} of the batch)" if indices else f"row {first} of the batch"
    if others:
        indices = indices or range(count)
        rest = ", ".join(str(indices[other]) for other, _ in others[: SHOWN - 1])
        which += f"; also {rest}" + (f" and {len(others) - SHOWN + 1} more" if len(others) >= SHOWN else "")
    ours = isinstance(alone, OxError)
    return TrainError(
        f"the model cannot take a sample of {when}",
        where=alone.where if isinstance(alone, OxError) else _line(alone),
        extra={"sample": which, "cause": alone.what if isinstance(alone, OxError) else f"{_kind(alone)}: {alone}"},
        expected=getattr(alone, "expected", None) if ours else None,
        got=getattr(alone, "got", None) if ours else None,
        hint="look at that sample; clean the data, or leave it out",
    )


def _alone(error: Exception, step: Step, model: Any, batch: Any, count: int) -> dict[int, Exception]:
    """The rows that raise such an error by themselves. In eval mode, for a batch of one has no statistics. None
    of them where the batch cannot be taken apart."""
    failed: dict[int, Exception] = {}
    training = model.training
    model.eval()
    try:
        with no_grad(), chance.kept():
            for index in range(count):
                if (alone := row(batch, index, count)) is None:
                    break
                try:
                    step(model, alone)
                except Exception as own:
                    if type(own) is type(error):
                        failed[index] = own
    finally:
        model.train(training)
    return failed


def _advise(error: OxError, model: Any, batch: Any) -> None:
    """Where the data's type is not the model's, the place to change is where the data are made."""
    if not isinstance(error, DTypeError):
        return
    learnt = {str(p.dtype) for p in model.parameters()}
    other = [(name, str(x.dtype)) for name, x in tensors(batch) if str(x.dtype) not in learnt]
    told = f"{error.expected} {error.got}"
    found = [(f"tensor {name}" if name.isdigit() else name, kind) for name, kind in other if kind in told.split()]
    if found and len(learnt) == 1:
        (wanted,) = learnt
        why = ", as NumPy and scikit-learn make numbers" if found[0][1] == "float64" else ""
        error.hint = (
            f'.astype("{wanted}") in data(), where {found[0][0]} of the batch is made: it is {found[0][1]}{why}'
        )


def _kind(error: Exception) -> str:
    return type(error).__name__


def _line(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}   {frame.line}"
