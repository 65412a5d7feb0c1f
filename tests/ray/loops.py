"""What the tests train on Ray: with a Trainer, and in a loop of their own."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ox
import ox.distributed as dist
from ox import nn
from ox.data import TensorDataset
from ox.train import Trainer

EPOCHS, BATCH, SAMPLES = 3, 16, 128
DISTURBED = 1, 2  # epoch and step in which rank 1 hangs


def data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x = np.random.default_rng(0).normal(size=(SAMPLES, 8)).astype(np.float32)
    return x, (x.sum(1) > 0).astype(np.int64)


def model() -> nn.Module:
    ox.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))


def hang(config: dict[str, Any], epoch: int, step: int) -> None:
    """Where the config names a marker: once, rank 1 stops in mid-epoch, until somebody removes its node."""
    marker = Path(config["marker"]) if config else None
    if marker is not None and dist.get_rank() == 1 and (epoch, step) == DISTURBED and not marker.exists():
        marker.touch()
        threading.Event().wait()


def trainer(config: dict[str, Any]) -> Trainer:
    calls = [0]

    def augment(batch: Any, generator: Any) -> Any:
        steps = SAMPLES // BATCH // dist.get_world_size()
        hang(config, made.progress.epoch, calls[0] % steps)
        calls[0] += 1
        return batch

    made = Trainer(
        model(), nn.CrossEntropyLoss(), None, TensorDataset(*data()), None,
        augment=augment, epochs=EPOCHS, batch_size=BATCH, lr=0.01,
    )  # fmt: skip
    return made


def trainer_loop(config: dict[str, Any]) -> None:
    import ox.ray

    ox.ray.fit(trainer(config))


class Loop:
    """Steps of one global batch, which the ranks divide: on any number of ranks the gradient is the same."""

    def __init__(self) -> None:
        self.epoch = 0
        self.net = model()
        self.optimizer = ox.optim.AdamW(self.net.parameters(), lr=0.01)

    def epochs(self, config: dict[str, Any]) -> Iterator[None]:
        """The remaining epochs."""
        x, y = data()
        rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        net = nn.parallel.DistributedDataParallel(self.net) if ranks > 1 else self.net
        net.eval()  # no dropout, whose masks would differ with the number of ranks
        for epoch in range(self.epoch, EPOCHS):
            order = np.random.default_rng(epoch).permutation(SAMPLES)
            for step, start in enumerate(range(0, SAMPLES, BATCH)):
                hang(config, epoch, step)
                part = order[start : start + BATCH][rank::ranks]
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(net(ox.tensor(x[part])), ox.tensor(y[part])).backward()
                self.optimizer.step()
            self.epoch += 1
            yield

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]


def elastic_loop(config: dict[str, Any]) -> None:
    import ray.train
    from ray.train import Checkpoint

    loop, first = Loop(), dist.get_rank() == 0
    if (begun := ray.train.get_checkpoint()) is not None:
        with begun.as_directory() as folder:
            loop.load_state_dict(ox.load(Path(folder, "state.ox")))
    for _ in loop.epochs(config):
        with tempfile.TemporaryDirectory() as folder:
            if first:
                ox.save(loop.state_dict(), Path(folder, "state.ox"))
            metrics = {"epoch": loop.epoch, "ranks": dist.get_world_size()}
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder) if first else None)
