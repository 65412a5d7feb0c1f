"""What a recipe's optimizer() and scheduler() may return, and that a run goes on with all of their state."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from stopped_runs import StopAfter

import ox
from ox import nn, train
from ox.errors import LoadError, RecipeError, TrainError
from ox.train.run import checkpoint

HEAD = """
import numpy as np
import ox
from ox import nn
from ox.data import TensorDataset
from ox.optim import SGD, Adam, LBFGS
from ox.optim import lr_scheduler

defaults = {"epochs": 4, "batch_size": 16, "lr": 0.05}
loss = nn.CrossEntropyLoss()


def data():
    random = np.random.RandomState(0)
    side = random.randint(0, 2, 128)
    points = (random.randn(128, 2) + 2.0 * side[:, None]).astype(np.float32)
    return TensorDataset(points[:96], side[:96]), TensorDataset(points[96:], side[96:])


def model():
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
"""
PLATEAU = """
def scheduler(optimizer, lr, steps):
    return lr_scheduler.ReduceLROnPlateau(optimizer, {mode}factor=0.5, patience=0, threshold={threshold})
"""
SEVERAL = """
def optimizer(model, lr):
    return {"first": SGD(model[0].parameters(), lr=lr, momentum=0.9), "last": Adam(model[3].parameters(), lr=lr)}


def scheduler(optimizer, lr, steps):
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer["first"], patience=0, threshold=1.0)
    return [plateau, lr_scheduler.OneCycleLR(optimizer["last"], lr, steps)]
"""
CLOSURE = """
def optimizer(model, lr):
    return LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=3, line_search_fn="strong_wolfe")
"""
GAN = """
import numpy as np
import ox
from ox import nn
from ox.data import TensorDataset
from ox.optim import SGD, Adam
from ox.optim.lr_scheduler import StepLR

defaults = {"epochs": 3, "batch_size": 16, "lr": 0.01}
criterion = nn.BCEWithLogitsLoss()


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.critic = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))

    def forward(self, noise):
        return self.generator(noise)


def model():
    return GAN()


def data():
    points = np.random.RandomState(0).randn(80, 2).astype(np.float32) + 3
    return TensorDataset(points), None


def optimizer(model, lr):
    return Adam(model.generator.parameters(), lr=lr), SGD(model.critic.parameters(), lr=lr, momentum=0.5)


def scheduler(optimizer, lr, steps):
    return [StepLR(one, 3, 0.9) for one in optimizer]


def step(model, batch, optimizers):
    (real,) = batch
    generator, critic = optimizers
    ones, zeros = ox.ones(len(real), 1), ox.zeros(len(real), 1)
    fake = model(ox.randn(len(real), 4))
    critic.zero_grad()
    loss = criterion(model.critic(real), ones) + criterion(model.critic(fake.detach()), zeros)
    loss.backward()
    critic.step()
    generator.zero_grad()
    own = criterion(model.critic(fake), ones)
    own.backward()
    generator.step()
    return own, None
"""
PAGES = {
    "plateau": HEAD + PLATEAU.format(mode="", threshold=1.0),
    "several": HEAD + SEVERAL,
    "closure": HEAD + CLOSURE,
    "closure with plateau": HEAD + CLOSURE + PLATEAU.format(mode="", threshold=1e-4),
    "gan": GAN,
}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.py"
    path.write_text(text)
    return path


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("after", [3, 9])
def test_killed_and_resumed_bit_for_bit(tmp_path: Path, name: str, after: int) -> None:
    page = written(tmp_path, PAGES[name])
    whole = train.train(page, out=tmp_path / "whole")
    with pytest.raises(KeyError):
        train.train(page, out=tmp_path / "cut", checkpoint_every=1e-9, show=StopAfter(after))
    cut = train.resume(tmp_path / "cut" / "page-0001")
    one, other = checkpoint.load(whole.last), checkpoint.load(cut.last)
    for part in ("model", "optimizer", "scheduler"):
        assert same(one[part], other[part]), part
    assert [row["loss"] for row in one["progress"]["history"]] == [row["loss"] for row in other["progress"]["history"]]


def same(one: object, other: object) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "node"):
        return one.numpy().tobytes() == other.numpy().tobytes()
    return bool(one == other)


def test_a_plateau_is_stepped_each_epoch_with_what_it_watches(tmp_path: Path) -> None:
    """A threshold of 1 lets no epoch count as progress, so that each halves the rate."""
    run = train.train(written(tmp_path, PAGES["plateau"]), out=tmp_path / "runs")
    rates = [json.loads(line)["lr"] for line in run.metrics.read_text().splitlines() if "validation_loss" in line]
    assert rates == [0.05, 0.025, 0.0125, 0.00625]  # a row holds the rate of its steps
    for mode, best, watched in [
        ("mode='max', ", "", "validation_accuracy"), ("", "metrics = ['mae']\nbest = '-mae'\n", "validation_mae"),
    ]:  # fmt: skip
        seen = []
        text = HEAD + PLATEAU.format(mode=mode, threshold=1e-4) + best
        if best:
            text += "def step(model, batch):\n    out = model(batch[0])\n    return loss(out, batch[1]), out[:, 0]\n"
        trainer = train.Trainer(train.load(written(tmp_path, text)), train.TrainConfig(2, 16, 0.05))
        trainer.scheduler.step = lambda metrics, seen=seen: seen.append(metrics)
        rows = trainer.fit()
        assert seen == [row[watched] for row in trainer.progress.history] and rows["epochs"] == 2


def test_a_plateau_without_its_figure_says_so(tmp_path: Path) -> None:
    text = HEAD.replace("nn.CrossEntropyLoss()", "lambda x, y: (x[:, 0] - y.float()).square().mean()")
    text = text.replace("nn.Linear(8, 2))", "nn.Linear(8, 1))") + PLATEAU.format(mode="mode='max', ", threshold=1e-4)
    with pytest.raises(RecipeError, match="watches accuracy") as caught:
        train.train(written(tmp_path, text), out=tmp_path / "runs")
    assert "mode='min'" in str(caught.value)


def test_without_validation_data_the_last_epoch_is_the_best(tmp_path: Path) -> None:
    run = train.train(written(tmp_path, GAN), out=tmp_path / "runs")
    assert run.result is not None
    assert run.result["best"]["epoch"] == 3 and run.result["best"]["validation_loss"] is None
    assert run.result["held_back"] is None and run.curves.is_file()
    with pytest.raises(RecipeError, match="patience needs validation data"):
        train.train(written(tmp_path, GAN), out=tmp_path / "runs", patience=2)


def test_a_step_that_updates_by_itself_and_what_does_not_go_with_it(tmp_path: Path) -> None:
    data = "    return TensorDataset(points), TensorDataset(points[:8])\n"
    text = GAN.replace("    return TensorDataset(points), None\n", data)
    with pytest.raises(RecipeError, match="is not defined") as caught:
        train.train(written(tmp_path, text), out=tmp_path / "runs")
    assert "validate(model, batch)" in str(caught.value)
    measured = "\ndef validate(model, batch):\n    return model.critic(batch[0]).mean(), None\n"
    run = train.train(written(tmp_path, text + measured), out=tmp_path / "runs", epochs=1)
    assert run.result is not None and np.isfinite(run.result["best"]["validation_loss"])
    for options, name in [({"clip": 1.0}, "clip"), ({"amp": "fp16"}, "amp='fp16'"), ({"accumulate": 2}, "accumulate")]:
        with pytest.raises(RecipeError, match=name):
            train.train(written(tmp_path, GAN), out=tmp_path / "runs", **options)
    bad = GAN.replace("return own, None", "return own * float('nan'), None")
    with pytest.raises(TrainError, match="nan at step 1"):
        train.train(written(tmp_path, bad), out=tmp_path / "runs")
    failing = GAN.replace("(real,) = batch", "raise KeyError('noise')")
    with pytest.raises(RecipeError, match="stops with KeyError"):
        train.train(written(tmp_path, failing), out=tmp_path / "runs")


def test_what_is_no_optimizer(tmp_path: Path) -> None:
    for made in ("None", "[]", "[SGD(model.parameters(), lr=lr), None]", "{'a': 1}"):
        text = HEAD + f"\n\ndef optimizer(model, lr):\n    return {made}\n"
        with pytest.raises(RecipeError, match="did not return an optimizer"):
            train.train(written(tmp_path, text), out=tmp_path / "runs")
    with pytest.raises(RecipeError, match="LBFGS evaluates the loss several times per step"):
        train.train(written(tmp_path, HEAD + CLOSURE), out=tmp_path / "runs", amp="fp16")
    two = SEVERAL.partition("def scheduler")[0]
    two = two.replace("Adam(model[3].parameters(), lr=lr)", "LBFGS(model[3].parameters())")
    with pytest.raises(RecipeError, match="LBFGS evaluates the loss several times per step") as caught:
        train.train(written(tmp_path, HEAD + two), out=tmp_path / "runs")
    assert "2 optimizers" in str(caught.value)


def test_lbfgs_goes_its_own_way_and_takes_clip_and_accumulate(tmp_path: Path) -> None:
    """The same as the loop by hand."""
    random = np.random.RandomState(0)
    x = random.randn(40, 3).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5], np.float32))[:, None]

    def net() -> nn.Module:
        ox.manual_seed(1)
        return nn.Linear(3, 1)

    model, loss = net(), nn.MSELoss()
    optimizer = ox.optim.LBFGS(model.parameters(), lr=0.3, max_iter=5)
    trainer = train.Trainer(
        model, loss, optimizer, (x, y), None, epochs=3, batch_size=20, accumulate=2, clip=100.0, sampler=range(40)
    )
    trainer.fit()
    hand = net()
    optimizer = ox.optim.LBFGS(hand.parameters(), lr=0.3, max_iter=5)
    for _ in range(3):

        def closure() -> ox.Tensor:
            optimizer.zero_grad()
            value = loss(hand(ox.tensor(x)), ox.tensor(y))
            value.backward()
            return value

        optimizer.step(closure)
    assert np.allclose(model.weight.detach().numpy(), hand.weight.detach().numpy(), atol=1e-4)


def test_a_trainer_with_two_optimizers_and_a_plateau() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizers = [ox.optim.SGD(model[0].parameters(), lr=0.2), ox.optim.Adam(model[2].parameters(), lr=0.01)]
    watching = ox.optim.lr_scheduler.ReduceLROnPlateau(optimizers[0], patience=0, threshold=1.0, factor=0.1)
    x = np.random.RandomState(0).randn(60, 3).astype(np.float32)
    trainer = train.Trainer(
        model, nn.CrossEntropyLoss(), optimizers, (x, (x.sum(1) > 0).astype(np.int64)), scheduler=watching, epochs=3
    )
    assert trainer.options.lr == 0.2
    trainer.fit()
    assert trainer.lr == pytest.approx(0.0002) and optimizers[1].param_groups[0]["lr"] == 0.01


def test_a_checkpoint_of_other_optimizers_is_refused(tmp_path: Path) -> None:
    page = train.load(written(tmp_path, HEAD))
    one = train.Trainer(page, train.TrainConfig(1, 16, 0.05)).state_dict()
    several = train.Trainer(train.load(written(tmp_path, HEAD + SEVERAL)), train.TrainConfig(1, 16, 0.05))
    with pytest.raises(LoadError, match="1 optimizers"):
        several.load_state_dict(one)
