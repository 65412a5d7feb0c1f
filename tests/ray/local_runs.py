"""On one Ray cluster in this machine's memory: a recipe, a Ray Dataset, a sweep. Run by test_local.py in a folder.

Prints a line of JSON for each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data
from ray.train import RunConfig, ScalingConfig

import ox.ray
from ox.ray import recipe_run, tuning
from ox.train.sweep import Sweep

ROWS = 40


def main() -> None:
    ray.init(address="local", num_cpus=3, include_dashboard=False)  # two for the workers, one for Ray Data
    run = recipe_run.train("weight.py", "local", nproc=2, epochs=1)
    print(json.dumps({"name": "recipe", "folder": str(run.folder), "result": run.result}), flush=True)

    x = np.arange(2 * ROWS, dtype=np.float32).reshape(ROWS, 2)
    rows = ray.data.from_numpy(x).map_batches(lambda batch: {"x": batch["data"], "y": batch["data"].sum(1)})
    result = ox.ray.OxTrainer(
        shares,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(Path("storage").resolve())),
        datasets={"train": rows},
    ).fit()
    print(json.dumps({"name": "dataset", **result.return_value}), flush=True)

    sweep = Sweep.create("weight.py", ["lr=0.05,0.3"], "loss", 0, Path("sweeps"))
    trials = tuning.run(sweep, "local", 2)
    best = sweep.best(trials)
    states = [trial.state for trial in trials]
    print(
        json.dumps({"name": "sweep", "states": states, "best": str(best.folder), "lr": best.options["lr"]}), flush=True
    )


def shares() -> dict[str, Any]:
    """Two epochs over this worker's share; returns what all workers have seen."""

    import ox.distributed as dist
    import ox.ray
    from ox.data import DataLoader

    loader = DataLoader(ox.ray.dataset("train", ["x", "y"]), batch_size=4)
    epochs = []
    for _ in range(2):
        batches = list(loader)
        assert all(x.shape[1:] == (2,) and (x.sum(1) == y).all() for x, y in batches)
        mine = [float(value) for x, _ in batches for value in x[:, 0].tolist()]
        everything: list[list[float]] = [[]] * dist.get_world_size()
        dist.all_gather_object(everything, mine)
        epochs.append(everything)
    problems = []
    for wrong in (lambda: ox.ray.dataset("other", ["x"]), lambda: next(iter(ox.ray.dataset("train", ["z"])))):
        try:
            wrong()
        except ox.errors.ArgumentError as error:
            problems.append(error.one_line())
    return {"epochs": epochs, "problems": problems}


if __name__ == "__main__":
    main()
