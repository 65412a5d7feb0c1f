"""Training: recipes, run folders, checkpoints, metrics, and what is printed.

    recipe = ox.train.load("digits")
    run = ox.train.train(recipe, epochs=3)             # what `ox train digits --epochs 3` does
    recipe, model = ox.train.restore(run.folder)       # the best weights, in eval mode

    trainer = ox.train.Trainer(model, loss, optimizer, train_data, epochs=3)  # the same without a recipe file
    trainer.fit("runs/mine", resume=True)

A training loop of your own needs none of this; see docs/training.md.
"""

from ox.train import amp, distributed
from ox.train.evaluation import Result, evaluate
from ox.train.recipe.datasets import Data
from ox.train.recipe.recipe import Recipe, available, load, load_from
from ox.train.run.checkpoint_writer import Checkpoints
from ox.train.run.loop import Interrupted, fit
from ox.train.run.progress import Progress
from ox.train.run.run import Run, find, newest_run
from ox.train.run.session import prepare, restore, resume, train
from ox.train.run.train_config import TrainConfig
from ox.train.trainer import Trainer

__all__ = [
    "Checkpoints",
    "Data",
    "Interrupted",
    "Progress",
    "Recipe",
    "Result",
    "Run",
    "TrainConfig",
    "Trainer",
    "amp",
    "available",
    "distributed",
    "evaluate",
    "find",
    "fit",
    "load",
    "load_from",
    "newest_run",
    "prepare",
    "restore",
    "resume",
    "train",
]
