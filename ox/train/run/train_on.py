"""Another `fit` of a trainer that has finished."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ox.train.recipe import setup
from ox.train.weights import load_model

if TYPE_CHECKING:
    from ox.train.trainer import Trainer


def train_on(trainer: Trainer) -> None:
    """Prepares a trainer that has finished to train for as many epochs more, from the best weights, which the model has
    now. The optimizer continues, and a scheduler that was passed as a function gets the larger number of steps."""
    progress, update = trainer.progress, trainer.update
    trainer.first_epoch = progress.epoch
    max_steps = None if trainer.fit_steps is None else progress.step + trainer.fit_steps
    trainer.options = replace(trainer.options, epochs=progress.epoch + trainer.fit_epochs, max_steps=max_steps)
    trainer.steps = setup.steps(trainer.train_batches, trainer.options)
    if progress.best is not None:
        progress.best = progress.best | {"step": progress.step}
    trainer.model.train()
    if update.averaged_model is not None:
        load_model(update.averaged_model.module, trainer.model.state_dict())
    if not update.each_step:
        return
    state = update.state_dict()
    trainer.reset_groups()
    again = trainer.make_update()
    if any(one is other for one in again.schedulers for other in update.schedulers):  # passed as an object
        update.load_state_dict(state)
        trainer.scheduler = update.schedulers
    else:
        again.load_state_dict(state, progress.step)
        trainer.update = again
