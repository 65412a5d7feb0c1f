"""One training step: forward and backward of its batches, and the update of the weights."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ox import random
from ox.core.tensor import is_tensor
from ox.errors import DistributedError, RecipeError, TrainError
from ox.train.batch import batch_size, target_of
from ox.train.diagnose.bad_sample import locate_bad_samples
from ox.train.diagnose.nonfinite import diagnose
from ox.train.evaluation import Result

if TYPE_CHECKING:
    from ox.train.trainer import Trainer

Batch = Any


class Step:
    """The training step: with an ordinary optimizer, an optimizer with a closure, or the recipe's own `step`."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self._training_loss = trainer.update.compiled(_loss)
        if trainer.options.compile and (trainer.recipe.updates or trainer.update.closure):
            what = "the recipe's own step()" if trainer.recipe.updates else "a step with a closure"
            logging.getLogger("ox.compile").warning(
                "ox.compile: %s calls backward and the optimizer itself, and stays eager", what
            )

    def __call__(self, batches: list[Batch], weights: list[float], running: Result) -> float:
        """Runs one step and adds its batches to `running`. Returns their mean loss, by weight."""
        if self.trainer.recipe.updates:
            return self._user_step(batches, weights, running)
        whole = self.trainer.ranks.sum(sum(weights))
        counts = bool(whole)
        if not counts:  # no label counts on any rank: the loss is NaN, which is an error below
            weights = [float(batch_size(batch)) for batch in batches]
            whole = self.trainer.ranks.sum(sum(weights))
        if self.trainer.update.closure:
            return self._closure_step(batches, weights, whole, running)
        loss = self._gradients(batches, weights, whole, running)
        if not counts and loss:
            what = f"batch_weight is 0 for all batches of a step, but their loss is {loss:.4g}: they count by samples"
            warnings.warn(what, stacklevel=2)
        self.trainer.update()
        return loss

    def _closure_step(self, batches: list[Batch], weights: list[float], whole: float, running: Result) -> float:
        """A step of an optimizer that calls a closure for loss and gradients, such as LBFGS."""
        losses: list[float] = []

        def closure() -> float:
            # only the first is the loss of the current weights; a line search tries other weights
            result = Result() if losses else running
            losses.append(self._gradients(batches, weights, whole, result, checked=not losses))
            self.trainer.update.clip()
            return self.trainer.ranks.sum(losses[-1] * (sum(weights) / whole))

        self.trainer.update(closure)
        return losses[0]

    def _user_step(self, batches: list[Batch], weights: list[float], running: Result) -> float:
        """A `step(model, batch, optimizers)` of the recipe, which calls backward and the optimizers."""
        before = self.trainer.progress.step
        for batch, weight in zip(batches, weights, strict=True):
            try:
                loss, outputs = self._cast_loss(self.trainer.network, batch)
            except (TrainError, DistributedError):
                raise
            except Exception as error:
                number, _ = self.trainer.train_batches.sample_indices()
                error.add_note(f"in batch {number} of epoch {self.trainer.progress.epoch + 1}")
                raise
            value = float(loss)
            if not np.isfinite(value):
                raise TrainError(
                    f"the loss is {value} at step {before + 1}",
                    extra={"cause": "the recipe's own step(), which has already updated the weights"},
                    hint="a smaller --lr, or ox.nn.utils.clip_grad_norm_ in the step",
                )
            running.add(value, outputs, batch, weight)
        self.trainer.update.after_step()
        return running.loss

    def _gradients(
        self, batches: list[Batch], weights: list[float], whole: float, running: Result, checked: bool = True
    ) -> float:
        """Forward and backward of each batch. Returns their mean loss, by weight.

        Args:
            whole: the sum of the weights of all ranks. The mean of the ranks' gradients is that of one batch.
            checked: raise an error if the loss is not finite.
        """
        own, loss_sum = sum(weights), 0.0
        for i, (batch, weight) in enumerate(zip(batches, weights, strict=True)):
            with self.trainer.ranks.no_sync(self.trainer.network, last=i == len(batches) - 1):
                try:
                    loss, value, outputs = self._forward(batch, len(batches) - i, checked and weight > 0)
                except (TrainError, DistributedError):
                    raise
                except Exception as error:
                    raise self._with_bad_samples(error, batch, len(batches) - i) from error
                if i == 0:
                    self.trainer.update.zero_grad()
                if not weight:  # the loss is NaN; its gradients are zero
                    loss = sum((p * 0).sum() for p in self.trainer.model.parameters() if p.requires_grad)
                elif (share := weight * self.trainer.ranks.size / whole) != 1:
                    loss = loss * share
                self.trainer.update.backward(loss)
            running.add(value, outputs, batch, weight)
            if weight:
                loss_sum += value * (weight / own)
        self.trainer.ranks.average_gradients(self.trainer.model)
        return loss_sum

    def _forward(self, batch: Batch, back: int, checked: bool) -> tuple[Any, float, Any]:
        """Loss, its value and outputs of a training batch."""
        before = random.get_state()
        loss, outputs = self._training_loss(self._cast_loss, self.trainer.network, batch)
        value = float(loss)
        if self.trainer.progress.step == 0:
            self._check_labels(outputs, target_of(batch))
        if checked and not np.isfinite(value):
            random.set_state(before)
            when = f"step {self.trainer.progress.step + 1}"
            raise diagnose(
                self.trainer.model,
                self._cast_loss,
                batch,
                value,
                when,
                self.trainer.train_batches.sample_indices(back)[1],
            )
        return loss, value, outputs

    def _check_labels(self, outputs: Any, targets: Any) -> None:
        """Raises RecipeError unless a classification has one label per class."""
        labels = self.trainer.recipe.labels
        shape: tuple[int, ...] = getattr(outputs, "shape", ())
        if not is_tensor(targets):
            return
        classes = len(shape) == 2 and shape[1] > 1 and targets.ndim == 1 and not targets.is_floating_point()
        if labels is not None and classes and len(labels) != shape[1]:
            raise RecipeError(
                f"the labels of {self.trainer.recipe.path.name} do not fit the model's outputs",
                expected=f"{shape[1]} labels, one a class",
                got=f"{len(labels)}: {', '.join(labels[:4])}{', ...' if len(labels) > 4 else ''}",
            )

    def _with_bad_samples(self, error: Exception, batch: Batch, back: int) -> Exception:
        """The error of a training batch, with the samples that cause it."""
        number, indices = self.trainer.train_batches.sample_indices(back)
        when = f"batch {number} of epoch {self.trainer.progress.epoch + 1}" if number else "a batch of your own"
        return locate_bad_samples(error, self.trainer.loss, self.trainer.model, batch, when, indices)

    def _cast_loss(self, model: Any, batch: Batch) -> tuple[Any, Any]:
        with self.trainer.update.autocast():
            return self.trainer.loss(model, batch)


def _loss(loss: Callable[[Any, Batch], tuple[Any, Any]], model: Any, batch: Batch) -> tuple[Any, Any]:
    """The loss and the outputs of a batch; a function of what a recording of it depends on."""
    return loss(model, batch)
