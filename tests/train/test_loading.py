"""How a recipe's data reach the loop: collate, samplers, streams, steps an epoch; a run goes on within them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rows import rows
from stopped_runs import StopAfter

from ox import nn, train
from ox.data import IterableDataset, Sampler
from ox.errors import ArgumentError, RecipeError
from ox.train.run import checkpoint

HEAD = """
import random

import numpy as np

import ox
from ox import nn
from ox.data import IterableDataset, Sampler, TensorDataset, WeightedRandomSampler, get_worker_info

defaults = {"epochs": 3, "batch_size": 8, "lr": 0.05}
loss = nn.CrossEntropyLoss()


def points(count, seed=0):
    random = np.random.RandomState(seed)
    side = random.randint(0, 2, count)
    return (random.randn(count, 2) + 2.0 * side[:, None]).astype(np.float32), side


def data():
    return TensorDataset(*points(60)), TensorDataset(*points(24, 1))


def model():
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
"""
STREAM = '''

class Lines(IterableDataset):
    """Draws from the global generators, as public streams do."""

    def __init__(self, count=None):
        self.count = count

    def __iter__(self):
        i, info = 0, get_worker_info()
        while self.count is None or i < self.count:
            noise = np.random.randn(2) + random.random() + ox.rand(2).numpy()
            if info is None or i % info.num_workers == info.id:
                yield np.float32([i % 7, -(i % 3)] + noise), i % 2
            i += 1


def data():
    return Lines(COUNT), TensorDataset(*points(24, 1))
'''
PAGES = {
    "weights": "def sampler(dataset):\n    return WeightedRandomSampler(np.arange(60) + 1.0, 50)\n",
    "own generator": """
class Own(Sampler):
    def __init__(self, count):
        self.random, self.count = np.random.default_rng(3), count

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter(self.random.permutation(self.count).tolist())


def sampler(dataset):
    return Own(len(dataset))
""",
    "global generator": """
class Buckets:
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return 12

    def __iter__(self):
        order = np.random.permutation(self.count)
        random.shuffle(order)
        for i in range(12):
            yield order[i * 5 : i * 5 + 5]


def batch_sampler(dataset):
    return Buckets(len(dataset))
""",
    "drop_last": "defaults['drop_last'] = True\n",
    "steps_per_epoch": "defaults['steps_per_epoch'] = 5\n",
    "max_steps": "defaults |= {'max_steps': 17, 'epochs': 9}\n",
    "stream": STREAM.replace("COUNT", "45"),
    "endless stream": STREAM.replace("COUNT", "") + "\ndefaults |= {'steps_per_epoch': 6, 'accumulate': 2}\n",
    "short stream": STREAM.replace("COUNT", "45") + "\ndefaults |= {'steps_per_epoch': 4}\n",
    "endless in workers": STREAM.replace("COUNT", "")
    + "\ndefaults |= {'steps_per_epoch': 6, 'workers': 2, 'timeout': 300}\n",
    "collate": """
from ox.data import default_collate

def collate(samples):
    x, y = default_collate(samples)
    return x + float(np.random.rand()), y
""",
}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.py"
    path.write_text(HEAD + text)
    return path


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("after", [3, 8, 12])
def test_killed_and_resumed_bit_for_bit(tmp_path: Path, name: str, after: int) -> None:
    page = written(tmp_path, PAGES[name])
    whole = train.train(page, out=tmp_path / "whole")
    with pytest.raises(KeyError):
        train.train(page, out=tmp_path / "cut", checkpoint_every=1e-9, show=StopAfter(after))
    cut = train.resume(tmp_path / "cut" / "page-0001")
    one, other = checkpoint.load(whole.last), checkpoint.load(cut.last)
    assert all(one["model"][name].numpy().tobytes() == x.numpy().tobytes() for name, x in other["model"].items())
    assert [row["loss"] for row in one["progress"]["history"]] == [row["loss"] for row in other["progress"]["history"]]


def trained(page: Path, out: Path, **options: object) -> tuple[list[int], dict]:
    """The steps behind each epoch, and the result."""
    run = train.train(page, out=out, **options)
    rows = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert run.result is not None
    return [row["step"] for row in rows if "validation_loss" in row], run.result


@rows(
    ("name", "steps"),
    [
        ("drop_last", [7, 14, 21]), ("steps_per_epoch", [5, 10, 15]), ("max_steps", [8, 16, 17]),
        ("stream", [6, 12, 18]),
        ("endless stream", [6, 12, 18]), ("short stream", [4, 8, 12]), ("weights", [7, 14, 21]),
        ("global generator", [12, 24, 36]),
    ],
)  # fmt: skip
def test_steps_of_epochs(tmp_path: Path, name: str, steps: list[int]) -> None:
    assert trained(written(tmp_path, PAGES[name]), tmp_path / "runs")[0] == steps


class Counting(IterableDataset):
    def __iter__(self):
        i = 0
        while True:
            yield np.float32([i, 1.0]), i % 2
            i += 1


def seen_by(trainer: train.Trainer) -> list[float]:
    seen: list[float] = []
    step = trainer.step

    def noted(*batches):
        seen.extend(float(x) for batch in batches for x in batch[0][:, 0].numpy())
        return step(*batches)

    trainer.step = noted  # type: ignore[method-assign]
    trainer.fit()
    return seen


def test_an_endless_stream_goes_on_where_the_epoch_before_stopped() -> None:
    trainer = train.Trainer(
        nn.Linear(2, 2), nn.CrossEntropyLoss(), None, Counting(), steps_per_epoch=3, epochs=2, batch_size=4
    )
    assert trainer.data.validation is None and trainer.steps == 6
    assert seen_by(trainer) == list(range(24))


def test_an_endless_stream_may_end_by_steps_alone() -> None:
    trainer = train.Trainer(nn.Linear(2, 2), nn.CrossEntropyLoss(), None, Counting(), max_steps=5, batch_size=4)
    assert seen_by(trainer) == list(range(20)) and trainer.progress.epoch == 1


def test_data_with_a_length_begin_anew_within_an_epoch() -> None:
    x = np.arange(10, dtype=np.float32)[:, None] * np.ones(2, np.float32)
    trainer = train.Trainer(
        nn.Linear(2, 2), nn.CrossEntropyLoss(), None, (x, np.zeros(10, np.int64)), None,
        steps_per_epoch=4, epochs=2, batch_size=5,
    )  # fmt: skip
    seen = seen_by(trainer)
    assert [sorted(seen[i : i + 10]) for i in range(0, 40, 10)] == [list(range(10))] * 4
    assert seen[:10] != seen[10:20]


def test_samplers_of_a_trainer() -> None:
    x = np.arange(10, dtype=np.float32)[:, None] * np.ones(2, np.float32)
    given = {"model": nn.Linear(2, 2), "loss": nn.CrossEntropyLoss(), "train_data": (x, np.zeros(10, np.int64))}
    trainer = train.Trainer(**given, validation_data=None, sampler=[3, 1, 4, 1], epochs=2, batch_size=3)
    assert seen_by(trainer) == [3, 1, 4, 1] * 2
    batches = lambda dataset: [[0, 1, 2], [9]]  # noqa: E731
    trainer = train.Trainer(**given, validation_data=None, batch_sampler=batches, epochs=1)
    assert seen_by(trainer) == [0, 1, 2, 9]


class NoLength(Sampler):
    def __iter__(self):
        while True:
            yield 0


def test_samplers_that_cannot_be(tmp_path: Path) -> None:
    x = np.zeros((10, 2), np.float32)
    given = {"model": nn.Linear(2, 2), "loss": nn.CrossEntropyLoss(), "validation_data": None, "epochs": 1}
    array = (x, np.zeros(10, np.int64))
    with pytest.raises(RecipeError, match="cannot be iterated more than once"):
        train.Trainer(**given, train_data=array, sampler=iter([1, 2]))
    with pytest.raises(RecipeError, match="has no length") as caught:
        train.Trainer(**given, train_data=array, sampler=NoLength())
    assert "steps_per_epoch" in str(caught.value)
    trainer = train.Trainer(**given, train_data=array, sampler=NoLength(), steps_per_epoch=3, batch_size=2)
    assert seen_by(trainer) == [0.0] * 6
    with pytest.raises(RecipeError, match="a stream has no indices"):
        train.Trainer(**given, train_data=Counting(), sampler=[1], steps_per_epoch=3)
    with pytest.raises(RecipeError, match="a sampler or a batch_sampler"):
        train.Trainer(**given, train_data=array, sampler=[1], batch_sampler=[[1]])
    with pytest.raises(RecipeError, match="an epoch has no step") as caught:
        train.Trainer(**given, train_data=array, batch_size=16, drop_last=True)
    assert "10 samples, batch_size 16" in str(caught.value)
    with pytest.raises(IndexError):
        train.Trainer(**given, train_data=array, sampler=[10]).fit()


def test_a_scheduler_of_a_stream_wants_its_steps(tmp_path: Path) -> None:
    text = (
        STREAM.replace("COUNT", "45")
        + "\ndef scheduler(optimizer, lr, steps):\n    return ox.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps)\n"
    )
    with pytest.raises(ArgumentError) as caught:
        train.train(written(tmp_path, text), out=tmp_path / "runs")
    assert "max_steps or steps_per_epoch" in str(caught.value)
    assert trained(written(tmp_path, text), tmp_path / "runs", steps_per_epoch=5)[0] == [5, 10, 15]


def test_a_stream_without_samples(tmp_path: Path) -> None:
    page = written(tmp_path, STREAM.replace("COUNT", "0"))
    with pytest.raises(Exception, match="gave no batch"):
        train.train(page, out=tmp_path / "runs")
    with pytest.raises(RecipeError, match="gave no batch"):
        train.train(page, out=tmp_path / "runs", steps_per_epoch=3)


def test_a_stream_is_limited_and_validated(tmp_path: Path) -> None:
    page = written(
        tmp_path, STREAM.replace("COUNT", "45").replace("TensorDataset(*points(24, 1))", "Lines(20), Lines(12)")
    )
    steps, result = trained(page, tmp_path / "runs", limit=16, epochs=2)
    assert steps == [2, 4] and result["held_back"]["count"] == 12


def test_new_options_and_their_wrong_uses(tmp_path: Path) -> None:
    for name, value in [
        ("max_steps", 0), ("steps_per_epoch", 2.5), ("threads", 0), ("timeout", 0), ("timeout", float("nan")),
        ("drop_last", 1),
    ]:  # fmt: skip
        with pytest.raises(ArgumentError, match=name):
            train.TrainConfig(1, 1, 0.1, **{name: value})
