"""Training a recipe: its page, its run's folder, checkpoints of everything, and what a person sees of it.

    recipe = ox.train.load("digits")
    run = ox.train.train(recipe, epochs=3)             # what `ox train digits --epochs 3` does
    recipe, model = ox.train.restore(run.folder)       # the best weights, in eval mode

    trainer = ox.train.Trainer(model, loss, optimizer, train_data, epochs=3)  # the same without a page
    trainer.fit("runs/mine", resume=True)

The hand-written loop needs none of this; see docs/training.md.
"""

from ox.train import amp, distributed
from ox.train.datasets import Data
from ox.train.evaluate import Result, evaluate
from ox.train.keeper import Checkpoints
from ox.train.loop import Interrupted, fit
from ox.train.options import Options
from ox.train.progress import Progress
from ox.train.recipe import Recipe, available, load, load_from
from ox.train.run import Run, find, newest_run
from ox.train.session import prepare, restore, resume, train
from ox.train.trainer import Trainer

__all__ = [
    "Checkpoints",
    "Data",
    "Interrupted",
    "Options",
    "Progress",
    "Recipe",
    "Result",
    "Run",
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
