"""`Trainer.fit` called again, as when a cell of a notebook is run again: it trains on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn, optim, train
from ox.errors import TrainError


def trainer(epochs: int = 2, scheduler: Any = None, validation: Any = 0.25, **options: Any) -> train.Trainer:
    ox.manual_seed(3)
    x = ox.randn(64, 4, generator=ox.Generator(1))
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    return train.Trainer(
        model, nn.CrossEntropyLoss(), lambda model, lr: optim.Adam(model.parameters(), lr), (x, y), validation,
        scheduler=scheduler, epochs=epochs, batch_size=16, seed=5, lr=0.01, **options,
    )  # fmt: skip


def weights(of: train.Trainer) -> list[np.ndarray[Any, Any]]:
    return [parameter.detach().numpy().copy() for parameter in of.model.parameters()]


@pytest.mark.parametrize("options", [{}, {"compile": True}, {"accumulate": 2, "clip": 1.0}, {"workers": 1}])
def test_two_fits_are_one_of_as_many_epochs(options: dict[str, Any]) -> None:
    twice = trainer(2, validation=None, **options)
    assert [twice.fit()["epochs"], twice.fit()["epochs"]] == [2, 4]
    once = trainer(4, validation=None, **options)
    once.fit()
    assert all(np.array_equal(a, b) for a, b in zip(weights(twice), weights(once), strict=True))
    assert [row["epoch"] for row in twice.progress.history] == [1, 2, 3, 4]


def test_the_schedule_is_that_of_all_epochs() -> None:
    def scheduler(optimizer: Any, lr: float, steps: int) -> Any:
        return optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)

    again, once = (trainer(epochs, scheduler, None) for epochs in (2, 4))
    again.fit()
    assert again.lr == pytest.approx(0)
    again.fit()
    once.fit()
    assert [row["lr"] for row in again.progress.history[2:]] == [row["lr"] for row in once.progress.history[2:]]


def test_a_scheduler_that_was_passed_goes_on() -> None:
    model = nn.Linear(4, 2)
    optimizer = optim.SGD(model.parameters(), 0.1)
    schedule = optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    data = (ox.randn(64, 4), ox.randint(0, 2, (64,)))
    one = train.Trainer(
        model, nn.CrossEntropyLoss(), optimizer, data, None, scheduler=schedule, epochs=1, batch_size=16
    )
    assert [one.fit()["best"]["lr"] for _ in range(3)] == [0.05, 0.025, 0.0125]


def test_the_best_of_all_epochs_stays() -> None:
    one = trainer(2, ema=0.9, best="-loss")
    first = one.fit()
    before = weights(one)
    one.update.optimizers[0].param_groups[0]["lr"] = 1e3  # nothing becomes better
    second = one.fit()
    assert second["best"]["epoch"] == first["best"]["epoch"]
    assert all(np.array_equal(a, b) for a, b in zip(before, weights(one), strict=True))


def test_patience_and_steps_count_anew() -> None:
    patient = trainer(6, patience=1)
    done = patient.fit()["epochs"]
    assert patient.fit()["epochs"] > done
    stepped = trainer(5, max_steps=4)
    assert [stepped.fit()["steps"] for _ in range(3)] == [4, 8, 12]


def test_folders(tmp_path: Path) -> None:
    one = trainer(1, best="-loss")
    one.fit()
    result = one.fit(tmp_path / "run")
    assert result["epochs"] == 2 and train.find(tmp_path / "run").result["epochs"] == 2
    with pytest.raises(TrainError, match="there is a run in"):
        one.fit(tmp_path / "run")
    assert one.fit(tmp_path / "run", resume=True) == result
    assert one.fit()["epochs"] == 3
    # a best epoch of an earlier fit is in the folder, too
    one.update.optimizers[0].param_groups[0]["lr"] = 1e3
    last = one.fit(tmp_path / "last")
    assert ox.load(tmp_path / "last/checkpoints/best.safetensors")["progress"]["best"]["epoch"] == last["best"]["epoch"]


class Stop(train.loggers.Logger):
    """Interrupts after an epoch, as Ctrl-C does."""

    def epoch(self, values: dict[str, Any]) -> None:
        if values["epoch"] == 2:
            raise KeyboardInterrupt


def test_after_an_interruption() -> None:
    one = trainer(3)
    with pytest.raises(KeyboardInterrupt):
        one.fit(loggers=[Stop()])
    assert one.fit()["epochs"] == 3 and one.fit()["epochs"] == 6


def test_the_hint_of_an_interrupted_script(tmp_path: Path) -> None:
    class Interrupt(train.loggers.Logger):
        def epoch(self, values: dict[str, Any]) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    folder = tmp_path / "mine"
    with pytest.raises(train.Interrupted) as caught:
        trainer(3).fit(folder, loggers=[Interrupt()])
    assert caught.value.hint == f"fit({str(folder)!r}, resume=True)"
    assert trainer(3).fit(folder, resume=True)["epochs"] == 3
