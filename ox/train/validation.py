"""Evaluates a dataset; errors name the batch and the samples that cause them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.autograd import no_grad
from ox.data import DataLoader
from ox.data.dataset import root_indices
from ox.errors import OxError
from ox.train import rng_state
from ox.train.batch import batch_size as batch_size_of
from ox.train.batch import model_arguments
from ox.train.diagnose.bad_sample import locate_bad_samples
from ox.train.diagnose.nonfinite import diagnose
from ox.train.evaluation import Result, Step, evaluate
from ox.train.metrics import Metric
from ox.train.recipe.datasets import first, is_stream, share

if TYPE_CHECKING:
    from ox.train.trainer import Trainer


def validate(
    model: Any,
    step: Step,
    part: Any,
    *,
    name: str,
    batch_size: int,
    to_device: Callable[[Any], Any],
    metrics: Sequence[Metric] = (),
    collate: Callable[[list[Any]], Any] | None = None,
    weight: Callable[[Any], float] = batch_size_of,
    rank: int = 0,
    size: int = 1,
) -> Result:
    """`evaluate` on a dataset, in its order.

    Args:
        name: of the dataset, for errors: "validation after step 20".
        to_device: moves a batch to the model's device.
        collate: combines samples into a batch; None: `ox.data.default_collate`.
        weight: of a batch's loss; see `ox.train.loss_weight`.
        rank, size: evaluate every `size`-th sample, starting at `rank`.

    Raises:
        TrainError: the loss is NaN or infinite, or the model cannot process a sample.
    """
    part = share(part, rank, size)
    loader = DataLoader(part, batch_size=batch_size, collate_fn=collate)
    with np.errstate(all="ignore"):
        try:
            result = evaluate(model, step, map(to_device, loader), metrics, weight)
        except Exception as error:
            raise _locate_error(error, model, step, map(to_device, loader), name, part, weight) from error
        # without any label that counts the loss is NaN, but other ranks may have some
        if result.count and not np.isfinite(result.loss) and (result.weight or size == 1):
            raise _locate_error(None, model, step, map(to_device, loader), name, part, weight)
    return result


def check_first_samples(trainer: Trainer) -> None:
    """Reads the first two samples of the validation and test sets and checks that they have a target and match the
    arguments of the model, so that such errors appear before the first epoch. The model is not called. Streams are
    skipped, since some can be read only once; random states are preserved.

    Raises:
        the errors of `validate`.
    """
    recipe = trainer.recipe
    own = recipe.optional("validate") or recipe.optional("step")
    parts = {name: first(part, 2) for name, part in trainer.data.parts().items() if not is_stream(part)}
    with rng_state.fork_rng():
        if own is not None or "train" not in parts or _call_error(trainer, parts.pop("train")) is not None:
            return
        for name, part in parts.items():
            if (error := _call_error(trainer, part)) is not None:
                if isinstance(error, OxError):
                    error.extra = {"when": f"the {name} data are read", **error.extra}
                raise error


def _call_error(trainer: Trainer, part: Any) -> Exception | None:
    """The error of collating a few samples and matching them with the model's arguments; None without one."""
    try:
        for batch in DataLoader(part, batch_size=2, collate_fn=trainer.collate):
            model_arguments(trainer.model, tuple(batch) if type(batch) is list else batch)
    except Exception as error:
        return error
    return None


def _locate_error(
    error: Exception | None,
    model: Any,
    step: Step,
    batches: Iterable[Any],
    name: str,
    part: Any,
    weight: Callable[[Any], float],
) -> Exception:
    """The error to raise: of the first batch that fails or whose loss is not finite, of those that count."""
    training, done = model.training, 0
    uncounted: tuple[Any, float, Any] | None = None
    model.eval()
    try:
        with no_grad():
            for i, batch in enumerate(batches):
                count = batch_size_of(batch)
                indices = [] if is_stream(part) else root_indices(part, range(done, min(done + count, len(part))))
                try:
                    value = float(step(model, batch)[0])
                except Exception as own:
                    return locate_bad_samples(own, step, model, batch, f"batch {i + 1} of the {name}", indices)
                if not np.isfinite(value):  # before an error of a metric
                    if weight(batch):
                        return diagnose(model, step, batch, value, name, indices)
                    uncounted = uncounted or (batch, value, indices)
                done += count
            if error is None:
                assert uncounted is not None, "a loss that is not finite has a batch"
                batch, value, indices = uncounted
                return diagnose(model, step, batch, value, name, indices)
    finally:
        model.train(training)
    assert error is not None
    return error
