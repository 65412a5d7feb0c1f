"""The recipes beside PyTorch: a page's own model, loss, optimizer, schedule and augmentation, with its imports changed.

    python benchmarks/bench_recipes.py                             # ms a step of each recipe
    RECIPES="fashion vit" STEPS=100 python benchmarks/bench_recipes.py
    WHOLE=1 ROUNDS=1 python benchmarks/bench_recipes.py            # seconds of all epochs, validation included

Both sides get the same batches from ox's datasets: the time of a step is that of augmentation, forward, backward and
update. A row without PyTorch is a page that uses what PyTorch does not have, or whose data are not on this machine.
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sides

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "parity"))

STEPS, WARM = int(os.environ.get("STEPS", "20")), 3
EVALUATION = 256  # rows of a validation batch

Tensors = list[Any]


class Loop:
    """What `ox train` does with a page, written so that either library can run it."""

    def __init__(self, lib: Any, page: Any, tensor: Callable[[Any], Any]) -> None:
        self.lib, self.page, self.tensor = lib, page, tensor
        self.options = {"epochs": 10, "batch_size": 32, "lr": 1e-3, **page.defaults}
        self.train, self.validation = page.data()[:2]
        lib.manual_seed(0)
        self.generator = lib.Generator()
        self.model = page.model()
        self.per_epoch = -(-len(self.train) // self.options["batch_size"])
        lr, steps = self.options["lr"], self.options["epochs"] * self.per_epoch
        own = getattr(page, "optimizer", None)
        self.optimizer = own(self.model, lr) if own else lib.optim.AdamW(self.model.parameters(), lr=lr)
        self.scheduler = page.scheduler(self.optimizer, lr, steps) if hasattr(page, "scheduler") else None

    def batches(self, part: Any, size: int, order: Any) -> Iterator[Tensors]:
        from ox.data import default_collate

        for first in range(0, len(order), size):
            rows = order[first : first + size]
            batch = part.batch(rows) if hasattr(part, "batch") else default_collate([part[int(i)] for i in rows])
            yield [self.tensor(x) for x in batch]

    def loss(self, batch: Tensors) -> Any:
        if hasattr(self.page, "step"):
            return self.page.step(self.model, tuple(batch))[0]
        *inputs, targets = batch
        return self.page.loss(self.model(*inputs), targets)

    def step(self, batch: Tensors) -> None:
        if hasattr(self.page, "augment"):
            batch = self.page.augment(tuple(batch), self.generator)
        loss = self.loss(batch)
        loss.item()  # as every loop does that shows it
        self.optimizer.zero_grad()
        loss.backward()
        if "clip" in self.options:
            self.lib.nn.utils.clip_grad_norm_(self.model.parameters(), self.options["clip"])
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()

    def milliseconds(self) -> float:
        """Median time of a step."""
        order = np.resize(np.random.RandomState(0).permutation(len(self.train)), STEPS * self.options["batch_size"])
        taken = []
        for batch in self.batches(self.train, self.options["batch_size"], order):
            began = time.perf_counter()
            self.step(batch)
            taken.append(time.perf_counter() - began)
        return statistics.median(taken[WARM:]) * 1e3

    def seconds(self) -> float:
        """All epochs, each with its validation."""
        began, orders = time.perf_counter(), np.random.RandomState(0)
        for _ in range(self.options["epochs"]):
            for batch in self.batches(self.train, self.options["batch_size"], orders.permutation(len(self.train))):
                self.step(batch)
            self.model.eval()
            with self.lib.no_grad():
                for batch in self.batches(self.validation, EVALUATION, np.arange(len(self.validation))):
                    self.loss(batch).item()
            self.model.train()
        return time.perf_counter() - began


def figures(lib: Any, page: Callable[[str], Any], tensor: Callable[[Any], Any]) -> dict[str, float]:
    from ox.train.recipe.recipe import available

    found = {}
    for name in os.environ.get("RECIPES", "").split() or available():
        try:
            loop = Loop(lib, page(name), tensor)
            key, measure = (f"{name}, s", loop.seconds) if "WHOLE" in os.environ else (f"{name}, ms", loop.milliseconds)
            found[key] = measure()
        except Exception as error:  # a page that cannot move over, or data that are not there: the others go on
            if "RECIPES" in os.environ:
                raise
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    return found


def run_ox() -> dict[str, float]:
    import ox

    return figures(ox, lambda name: importlib.import_module(f"ox_models.{name}"), lambda x: x)


def run_torch() -> dict[str, float]:
    import torch
    from moved import moved

    def tensor(x: Any) -> Any:
        return x if isinstance(x, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(x.numpy()))

    return figures(torch, moved, tensor)


if __name__ == "__main__":
    sides.main({"ox": run_ox, "torch": run_torch}, unit="smaller is better")
