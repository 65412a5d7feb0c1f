"""The state of a trainer in a checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ox.data.loading.worker_seeds import mix
from ox.train import rng_state
from ox.train.run.progress import Progress
from ox.train.weights import load_model

if TYPE_CHECKING:
    from ox.train.trainer import Trainer


def state_dict(trainer: Trainer) -> dict[str, Any]:
    """`Trainer.state_dict`."""
    feed, random = trainer.train_batches.state_dict(), rng_state.get_state()
    own = {"random": random, "augmentation": feed["augmentation"], "running": asdict(trainer.progress.running)}
    return {
        "model": trainer.model.state_dict(),
        **trainer.update.state_dict(),
        "random": {**random, **{name: feed[name] for name in ("order", "augmentation", "stream")}},
        "loader": feed["loader"],
        "progress": trainer.progress.state_dict(),
        "ranks": trainer.ranks.all_gather(own),
        "unit": trainer.train_batches.share.unit,
        "options": trainer.options.to_table(),
        "facts": trainer.facts,
        "page": trainer.recipe.text,
    }


def load_state_dict(trainer: Trainer, state: dict[str, Any]) -> None:
    """`Trainer.load_state_dict`."""
    running = state["progress"]["running"]
    alone = {"random": state["random"], "augmentation": state["random"]["augmentation"], "running": running}
    states = state.get("ranks") or [alone]
    own = trainer.ranks.own_state(states)
    load_model(trainer.model, state["model"])
    epochs = state.get("options", {}).get("epochs", trainer.options.epochs)
    # with another number of epochs, the learning rates from here on are those of the new schedule
    trainer.update.load_state_dict(state, state["progress"]["step"] if epochs != trainer.options.epochs else None)
    rng_state.set_state(state["random"])
    share = trainer.train_batches.share
    unit = state.get("unit", len(states) * (1 if share.batched else trainer.options.batch_size))
    trainer.train_batches.load_state_dict({**state["random"], "loader": state["loader"]}, unit)
    trainer.progress = Progress.of(state["progress"] | {"running": own["running"]})
    if own["random"] is None:  # this rank is new
        seed = mix(trainer.options.seed, trainer.progress.step)
        rng_state.seed(trainer.ranks.rank_seed(seed))
        trainer.train_batches.augmentation.manual_seed(trainer.ranks.rank_seed(seed + 2))
    else:
        rng_state.set_state(own["random"])
        trainer.train_batches.augmentation.set_state(own["augmentation"])
