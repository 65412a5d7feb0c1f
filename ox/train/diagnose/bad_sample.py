"""Finds the samples of a batch that the model cannot process, by calling it with each sample alone."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from ox.autograd import no_grad
from ox.errors import DTypeError, OxError, TrainError
from ox.train import rng_state
from ox.train.batch import batch_size, single_sample, tensors
from ox.train.evaluation import Step

SHOWN = 8  # indices of samples


def locate_bad_samples(
    error: Exception, step: Step, model: Any, batch: Any, when: str, indices: Sequence[int]
) -> Exception:
    """The error to raise for a batch on which `step` raised `error`. It names the samples that fail on their own. If
    none or all of them fail, it is `error` itself, with the batch in its message.

    Args:
        when: the batch in words: "batch 3 of epoch 2".
        indices: of the samples of the batch in their dataset; empty if unknown.
    """
    count = batch_size(batch)
    failed = _failing_samples(error, step, model, batch, count)
    if not failed or len(failed) == count > 1:
        if isinstance(error, OxError):
            error.extra["when"] = when
            _suggest_dtype(error, model, batch)
        else:
            error.add_note(f"in {when}")
        return error
    (first, alone), *others = failed.items()
    which = (
        f"index {indices[first]} of its data (sample {first} of the batch)"
        if indices
        else f"sample {first} of the batch"
    )
    if others:
        indices = indices or range(count)
        rest = ", ".join(str(indices[other]) for other, _ in others[: SHOWN - 1])
        which += f"; also {rest}" + (f" and {len(others) - SHOWN + 1} more" if len(others) >= SHOWN else "")
    ours = isinstance(alone, OxError)
    return TrainError(
        f"the model cannot take a sample of {when}",
        where=alone.where if isinstance(alone, OxError) else _line(alone),
        extra={"sample": which, "cause": alone.what if isinstance(alone, OxError) else f"{_type_name(alone)}: {alone}"},
        expected=getattr(alone, "expected", None) if ours else None,
        got=getattr(alone, "got", None) if ours else None,
        hint="check this sample: correct or remove it",
    )


def _failing_samples(error: Exception, step: Step, model: Any, batch: Any, count: int) -> dict[int, Exception]:
    """The samples that raise an error of the same class on their own, by their position in the batch; none if the batch
    cannot be split. The model is in eval mode, because BatchNorm has no statistics for one sample."""
    failed: dict[int, Exception] = {}
    training = model.training
    model.eval()
    try:
        with no_grad(), rng_state.fork_rng():
            for index in range(count):
                if (alone := single_sample(batch, index, count)) is None:
                    break
                try:
                    step(model, alone)
                except Exception as own:
                    if type(own) is type(error):
                        failed[index] = own
    finally:
        model.train(training)
    return failed


def _suggest_dtype(error: OxError, model: Any, batch: Any) -> None:
    """Sets a hint to convert the data if its element type differs from that of the parameters."""
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


def _type_name(error: Exception) -> str:
    return type(error).__name__


def _line(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}   {frame.line}"
