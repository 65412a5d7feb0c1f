"""The trainer without a page, and what it does to gradients and weights between two steps."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from stopped_runs import StopAfter

import ox
from ox import nn, train
from ox.data import TensorDataset
from ox.errors import ArgumentError, RecipeError, TrainError
from ox.train.display import Silent
from ox.train.run import checkpoint
from ox.train.run.run import find


def points(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(seed)
    x = random.randn(count, 3).astype(np.float32)
    return x, (x.sum(1) > 0).astype(np.int64)


def net(dropout: float = 0.0) -> nn.Module:
    ox.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 2))


def weights(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: x.numpy().copy() for name, x in model.state_dict().items()}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


# -- plain objects ---------------------------------------------------------------------------------------------------


def test_a_model_a_loss_an_optimizer_and_data(tmp_path: Path) -> None:
    model = net()
    optimizer = ox.optim.Adam(model.parameters(), lr=0.02)
    trainer = train.Trainer(
        model, nn.CrossEntropyLoss(), optimizer, points(200), points(80, 1), points(50, 2), metrics=["f1"], epochs=5
    )
    assert trainer.options.lr == 0.02
    result = trainer.fit()
    assert result["held_back"]["count"] == 50
    assert result["held_back"]["accuracy"] > 0.9
    assert result["best"]["validation_f1"] > 0.9
    assert not model.training
    # the model has the best weights
    assert trainer.evaluate(trainer.data.validation).loss == pytest.approx(result["best"]["validation_loss"])


def test_one_score_of_two_classes_has_no_accuracy_of_its_own() -> None:
    """The largest of one column is always the first: that chose the best epoch. The metric knows better."""
    x, y = points(100)

    def loss(outputs: ox.Tensor, targets: ox.Tensor) -> ox.Tensor:
        return nn.BCEWithLogitsLoss()(outputs.squeeze(1), targets.float())

    ox.manual_seed(0)
    plain = train.Trainer(nn.Linear(3, 1), loss, None, (x, y), (x, y), epochs=2, lr=0.1).fit()["best"]
    assert plain["validation_accuracy"] is None
    ox.manual_seed(0)
    model = nn.Linear(3, 1)
    best = train.Trainer(model, loss, None, (x, y), (x, y), epochs=2, lr=0.1, metrics=["accuracy"]).fit()["best"]
    right = ((model(ox.tensor(x)).detach().numpy()[:, 0] > 0) == y).mean()
    assert best["validation_accuracy"] == pytest.approx(right)


def test_a_share_of_the_training_data_is_set_aside() -> None:
    trainer = train.Trainer(net(), nn.CrossEntropyLoss(), train_data=points(100), epochs=1)
    assert [len(part) for part in trainer.data.parts().values()] == [90, 10]
    rows = [{tuple(part[i][0].tolist()) for i in range(len(part))} for part in trainer.data.parts().values()]
    assert not rows[0] & rows[1]


def test_each_checkpoint_is_announced_when_it_is_written(tmp_path: Path) -> None:
    trainer = train.Trainer(net(), nn.CrossEntropyLoss(), None, points(64), points(16, 1), epochs=2, batch_size=16)
    last, steps = tmp_path / "mine" / "checkpoints" / "last.safetensors", []
    trainer.on_checkpoint = lambda: steps.append(checkpoint.load(last)["progress"]["step"])
    trainer.fit(tmp_path / "mine")
    assert steps == [0, 4, 8]


def test_functions_in_place_of_objects() -> None:
    made = []

    def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
        made.append(lr)
        return ox.optim.SGD(model.parameters(), lr=lr)

    def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
        made.append(steps)
        return ox.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)

    trainer = train.Trainer(
        net(), nn.CrossEntropyLoss(), optimizer, points(64), points(8, 1),
        scheduler=scheduler, epochs=2, batch_size=8, lr=0.5, accumulate=3,
    )  # fmt: skip
    trainer.fit()
    assert made == [0.5, 6]  # 8 batches are 3 steps, the last of two batches
    assert trainer.lr == pytest.approx(0.0)
    assert trainer.progress.step == 6


def test_what_a_trainer_needs() -> None:
    data, loss = points(20), nn.CrossEntropyLoss()
    for wrong, match in [
        (lambda: train.Trainer(loss=loss, model="net", train_data=data), "needs a model"),
        (lambda: train.Trainer(net(), loss), "needs train_data"),
        (lambda: train.Trainer(net(), train_data=data), "needs a loss"),
        (lambda: train.Trainer(net(), loss, train_data=data, epoch=3), "no option 'epoch'"),
        (lambda: train.Trainer(net(), loss, train_data=data, validation_data=1.5), "share between"),
        (lambda: train.Trainer(net(), loss, train_data=data, metrics=["acc"]), "no metric 'acc'"),
        (lambda: train.Trainer(net(), loss, train_data=data, metrics="f1"), "metrics is a list of names"),
        (lambda: train.Trainer(net(), loss, train_data=points(5)), "5 samples of train_data cannot be divided"),
        (lambda: train.Trainer(net(), loss, train_data=(data[0], data[1].tolist())), "arrays and something else"),
    ]:
        with pytest.raises(ArgumentError, match=match):
            wrong()


def test_a_script_that_is_started_again_goes_on(tmp_path: Path) -> None:
    """The same lines, killed in the middle of an epoch: bit for bit what they would have given."""

    def script(folder: Path, show: Silent | None = None, resume: bool = True, rows: int = 16) -> dict[str, np.ndarray]:
        model = net(0.2)
        trainer = train.Trainer(
            model, nn.CrossEntropyLoss(), ox.optim.Adam(model.parameters(), lr=0.01), points(100), points(40, 1),
            batch_size=rows, epochs=3, checkpoint_every=1e-9,
        )  # fmt: skip
        trainer.fit(folder, resume=resume, show=show)
        return weights(model)

    whole = script(tmp_path / "whole")
    for after in (1, 9, 14):
        folder = tmp_path / str(after)
        with pytest.raises(KeyError):
            script(folder, StopAfter(after))
        with pytest.raises(TrainError, match="there is a run in"):
            script(folder, resume=False)
        with pytest.raises(TrainError, match="other options") as caught:
            script(folder, rows=8)
        assert caught.value.got == "batch_size=8"
        assert same(script(folder), whole)
    assert same(script(tmp_path / "whole"), whole)  # finished: the best weights, and nothing is trained
    with pytest.raises(RecipeError, match="trained by a script"):
        train.restore(tmp_path / "whole")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    with pytest.raises(TrainError, match="not empty"):
        script(tmp_path / "taken")


def test_loggers_of_ones_own_are_told(tmp_path: Path) -> None:
    trainer = train.Trainer(net(), nn.CrossEntropyLoss(), train_data=points(64), epochs=2, batch_size=8)
    trainer.fit(loggers=[train.loggers.JSONL(tmp_path / "m.jsonl"), train.loggers.CSV(tmp_path)])
    lines = train.loggers.read(tmp_path / "m.jsonl")
    assert [line["step"] for line in lines] == [*range(1, 9), 8, *range(9, 17), 16]
    assert (tmp_path / "epochs.csv").read_text().count("\n") == 3


# -- between two steps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(4, 4, 4), (4, 4, 1), (4,), (5, 2)], ids=str)
def test_accumulated_gradients_are_those_of_one_batch(sizes: tuple[int, ...]) -> None:
    """Also where the last batch is smaller: a sample weighs the same wherever it stands."""
    x, y = points(sum(sizes))
    cuts = np.cumsum(sizes)[:-1]
    batches = [(ox.tensor(a), ox.tensor(b)) for a, b in zip(np.split(x, cuts), np.split(y, cuts), strict=True)]
    ended, losses = [], []
    for given in ([(ox.tensor(x), ox.tensor(y))], batches):
        model = net()
        optimizer = ox.optim.SGD(model.parameters(), lr=1.0)
        trainer = train.Trainer(model, nn.CrossEntropyLoss(), optimizer, (x, y), (x, y))
        losses.append(trainer.step(*given))
        ended.append(weights(model))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    for name in ended[0]:
        assert np.allclose(ended[0][name], ended[1][name], atol=1e-6), name


def test_an_epoch_ends_with_a_smaller_group() -> None:
    trainer = train.Trainer(
        net(), nn.CrossEntropyLoss(), train_data=points(21), validation_data=points(4), batch_size=4, accumulate=4
    )
    groups = [[len(batch[1]) for batch in group] for group in trainer.train_batches.groups()]
    assert groups == [[4, 4, 4, 4], [4, 1]]
    assert len(trainer.train_batches) == 2


@pytest.mark.parametrize("amp", [None, "fp16"])
def test_gradients_are_clipped_to_a_norm(amp: str | None) -> None:
    """Their own norm, not that of gradients of a scaled loss."""
    x, y = points(16)
    moved = {}
    for clip in (None, 0.01, 1e6):
        model = net()
        before = weights(model)
        optimizer = ox.optim.SGD(model.parameters(), lr=1.0)
        train.Trainer(model, nn.CrossEntropyLoss(), optimizer, (x, y), (x, y), clip=clip, amp=amp).step(
            (ox.tensor(x), ox.tensor(y))
        )
        after = weights(model)
        moved[clip] = np.sqrt(sum(np.square(after[name] - before[name]).sum() for name in before))
    assert moved[0.01] == pytest.approx(0.01, rel=1e-3)
    assert moved[None] == pytest.approx(moved[1e6], rel=1e-6)
    assert moved[None] > 0.05


def test_averaged_weights_are_evaluated_and_kept(tmp_path: Path) -> None:
    model = net()
    optimizer = ox.optim.SGD(model.parameters(), lr=0.5)
    x, y = points(32)
    trainer = train.Trainer(model, nn.CrossEntropyLoss(), optimizer, (x, y), (x, y), batch_size=8, ema=0.8, epochs=1)
    average = None
    for batch in trainer.batches():
        trainer.step(batch)
        now = weights(model)
        average = now if average is None else {n: 0.8 * average[n] + 0.2 * now[n] for n in now}
    kept = weights(trainer.update.evaluation_model)
    assert average is not None
    for name in kept:
        assert np.allclose(kept[name], average[name], atol=1e-6), name
        assert not np.allclose(kept[name], now[name], atol=1e-4)
    with ox.no_grad():
        loss = nn.CrossEntropyLoss()(trainer.update.evaluation_model(ox.tensor(x)), ox.tensor(y)).item()
    assert trainer.evaluate(trainer.data.validation).loss == pytest.approx(loss, rel=1e-5)


def test_averages_go_on_where_they_were() -> None:
    """Those of a trainer that begins from another's state: not anew from the weights of its own first step."""

    def made() -> train.Trainer:
        x, y = points(64)
        return train.Trainer(net(), nn.CrossEntropyLoss(), None, (x, y), (x, y), batch_size=8, ema=0.9, lr=0.1)

    whole, again = made(), made()
    batches = list(whole.batches())
    for batch in batches[:4]:
        whole.step(batch)
    again.load_state_dict(whole.state_dict())
    for batch in batches[4:]:
        whole.step(batch)
        again.step(batch)
    assert same(weights(whole.update.evaluation_model), weights(again.update.evaluation_model))
    assert again.state_dict()["ema"]["count"] == 8


def test_a_restored_run_has_the_averaged_weights(variant, tmp_path: Path) -> None:
    run = train.train(variant("averaged", ('"lr": 0.05', '"lr": 0.05, "ema": 0.9')), out=tmp_path, epochs=2)
    state = checkpoint.load(run.best)
    recipe, model = train.restore(run.folder)
    assert same(weights(model), {n: x.numpy() for n, x in state["ema"]["model"].items()})
    assert not same(weights(model), {n: x.numpy() for n, x in state["model"].items()})
    counted = train.evaluate(
        model, lambda m, b: (recipe.page.loss(m(b[0]), b[1]), m(b[0])), ox.data.DataLoader(recipe.data().held_back, 32)
    )
    assert counted.correct == run.result["held_back"]["correct"]


def test_it_stops_when_nothing_is_better(variant, tmp_path: Path) -> None:
    page = variant(
        "tired", ("loss = nn.CrossEntropyLoss()", FOREVER_WORSE), ('"lr": 0.05', '"lr": 0.05, "patience": 2')
    )
    run = train.train(page, out=tmp_path, epochs=9)
    assert run.result["best"]["epoch"] == 1
    assert run.result["epochs"] == 3
    rows = [line for line in train.loggers.read(run.metrics) if "validation_loss" in line]
    assert len(rows) == 3
    best, last = (checkpoint.load(path)["model"] for path in (run.best, run.last))
    restored = flat(train.restore(run.folder)[1].state_dict())
    assert flat(best) == restored != flat(last)  # weight decay moves the weights all the same
    before = run.last.read_bytes()
    train.resume(run.folder, epochs=30)  # more epochs are none for a run that stopped early
    assert run.last.read_bytes() == before
    again = train.resume(run.folder, epochs=30, patience=2 + run.options.patience)
    assert again.result["epochs"] == 5


FOREVER_WORSE = """
worse = [0.0]


def loss(outputs, targets):
    worse[0] += 1.0
    return nn.functional.cross_entropy(outputs, targets) * 0 + outputs.sum() * 0 + worse[0]


metrics = ["accuracy"]
best = "-loss"
"""


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_mixed_precision_learns(amp: str) -> None:
    seen = []

    class Spy(nn.Module):
        def forward(self, x: ox.Tensor) -> ox.Tensor:
            seen.append((self.training, str(x.array.dtype)))
            return x

    ox.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), Spy(), nn.ReLU(), nn.Linear(8, 2))
    optimizer = ox.optim.Adam(model.parameters(), lr=0.02)
    trainer = train.Trainer(model, nn.CrossEntropyLoss(), optimizer, points(200), points(80, 1), epochs=4, amp=amp)
    result = trainer.fit()
    kind = {"bf16": "bfloat16", "fp16": "float16"}[amp]
    assert {dtype for training, dtype in seen if training} == {kind}
    assert {dtype for training, dtype in seen if not training} == {"float32"}  # as the exported model computes
    assert result["best"]["validation_accuracy"] > 0.9
    assert all(x.array.dtype == np.float32 for x in model.parameters())


def test_a_step_whose_scaled_gradients_overflow_changes_nothing() -> None:
    model = net()
    trainer = train.Trainer(
        model, nn.CrossEntropyLoss(), ox.optim.SGD(model.parameters(), lr=0.1), points(32), points(8), amp="fp16"
    )
    scaler = trainer.update.scaler
    scaler.load_state_dict(scaler.state_dict() | {"scale": 2.0**40})
    before = weights(model)
    batch = next(iter(trainer.batches()))
    trainer.step(batch)
    assert same(weights(model), before)
    assert trainer.update.scaler.get_scale() < 2.0**40
    for _ in range(40):
        trainer.step(batch)
    assert not same(weights(model), before)


EVERYTHING = '"lr": 0.05, "accumulate": 2, "clip": 0.5, "ema": 0.9, "patience": 3, "amp": "fp16"'


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("every", [1e-9, 1e9], ids=["each step", "each epoch"])
def test_everything_together_resumes_bit_for_bit(variant, tmp_path: Path, every: float, compiled: bool) -> None:
    extra = """
metrics = ["accuracy", "f1", "auroc", "confusion"]
best = "-loss"


def sample(model):
    return str(ox.randn(2).tolist()) + str(np.random.rand())


def model():"""
    page = variant(
        "everything",
        ('"lr": 0.05', EVERYTHING + f', "compile": {compiled}'),
        ('"batch_size": 16', '"batch_size": 8'),
        ("\ndef model():", extra),
    )
    whole = train.train(page, out=tmp_path / "whole", checkpoint_every=every)
    assert whole.options.amp == "fp16"
    for after in (1, 3, 5, 6, 11):
        with pytest.raises(KeyError):
            train.train(page, out=tmp_path / "stopped", checkpoint_every=every, show=StopAfter(after))
        resumed = train.resume(max((tmp_path / "stopped").iterdir()))
        one, other = checkpoint.load(whole.last), checkpoint.load(resumed.last)
        clock = {"seconds", "samples_per_second"}
        for state in (one, other):
            del state["progress"]["seconds"]
            for row in [*state["progress"]["history"], state["progress"]["best"]]:
                for name in clock & row.keys():
                    del row[name]
        assert flat(one) == flat(other), after
        for result in (whole.result, resumed.result):
            assert result is not None
        assert whole.result["held_back"] == resumed.result["held_back"]
        assert whole.result["sample"] == resumed.result["sample"]


@pytest.mark.parametrize("options", [{}, {"clip": 0.1, "accumulate": 2}, {"amp": "bf16"}, {"ema": 0.9}], ids=str)
def test_a_compiled_run_is_the_eager_one(options: dict[str, object]) -> None:
    found = []
    for compiled in (False, True):
        ox.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 2))
        optimizer = ox.optim.AdamW(model.parameters(), lr=0.01)
        scheduler = ox.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
        trainer = train.Trainer(
            model, nn.CrossEntropyLoss(), optimizer, points(40), points(8),
            scheduler=scheduler, batch_size=16, epochs=3, compile=compiled, **options,
        )  # fmt: skip
        trainer.fit()
        found.append((trainer, [row["loss"] for row in trainer.progress.history]))
    assert np.allclose(*[losses for _, losses in found], rtol=1e-2 if "amp" in options else 1e-4)
    step, update = found[1][0]._step._training_loss, found[1][0].update.apply
    for one in (step, update):
        plans = [plan for held in one.plans.values() for plan in held if hasattr(plan, "layout")]
        assert plans, one.explain()
    assert not step.eager and found[1][0].options.to_table()["compile"] is True


def flat(value: object) -> object:
    """A state as something that can be compared."""
    if isinstance(value, dict):
        return {key: flat(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [flat(item) for item in value]
    if hasattr(value, "node"):
        value = value.array
    return value.tobytes() if isinstance(value, np.ndarray) else value


# -- which epoch is the best -----------------------------------------------------------------------------------------


class Told(train.metrics.Metric):
    """Says what it was told to say, evaluation by evaluation."""

    name = "told"

    def __init__(self, says: list[float]) -> None:
        super().__init__()
        self.says, self.said = says, -1

    def reset(self) -> None:
        super().reset()
        self.said += 1

    def count(self, outputs: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
        return {"x": np.array(0.0)}

    def result(self, state: object) -> float:
        return self.says[self.said]


@pytest.mark.parametrize(
    ("says", "best"), [([0.1, 0.5, 0.2], 2), ([0.5, 0.5, 0.1], 1), ([np.nan, 0.1, np.nan], 2), ([np.nan] * 3, 1)]
)
def test_the_metric_that_was_asked_for_chooses(says: list[float], best: int) -> None:
    # no other figure may move: a learning rate so small that every epoch is as good
    trainer = train.Trainer(
        net(), nn.CrossEntropyLoss(), train_data=points(32), validation_data=points(16, 1), held_back=points(8, 2),
        metrics=[Told([*says, 0.9])], best="told", epochs=3, lr=1e-30,
    )  # fmt: skip
    result = trainer.fit()
    assert result["best"]["epoch"] == best
    assert result["held_back"]["told"] == 0.9


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [("loss", "best = '-loss'"), ("-accuracy", "best = 'accuracy'"), ("perplexity", "best = '-perplexity'")],
)
def test_the_worst_is_never_chosen(wanted: str, hint: str) -> None:
    with pytest.raises(RecipeError, match="would keep the worst") as caught:
        train.run.progress.Criterion(wanted, [train.metrics.Perplexity()])
    assert caught.value.hint == hint


def test_a_figure_that_is_not_there() -> None:
    for wanted in ("f1", "confusion"):
        with pytest.raises(RecipeError, match="not a validation metric") as caught:
            train.run.progress.Criterion(wanted, [train.metrics.ConfusionMatrix(), train.metrics.RMSE()])
        assert caught.value.expected == "accuracy, -loss, -rmse"


def test_the_best_epoch_is_chosen_on_validation_alone_and_its_weights_are_kept(tmp_path: Path) -> None:
    """Validation gets worse with every epoch and what is held back gets better: the first epoch must win, its weights
    are those in `best`, and they are what is evaluated on what was held back."""
    x, y = points(64)
    seen: list[dict[str, np.ndarray]] = []

    class Look(Silent):
        def row(self, trainer, row) -> None:
            seen.append(weights(trainer.model))

    model = net()
    trainer = train.Trainer(
        model, nn.CrossEntropyLoss(), ox.optim.SGD(model.parameters(), lr=0.5), (x, y), (x, 1 - y), (x, y), epochs=3,
        best="-loss",
    )  # fmt: skip
    result = trainer.fit(tmp_path / "run", show=Look())
    assert result["best"]["epoch"] == 1
    run = find(tmp_path / "run")
    best = {n: v.numpy() for n, v in checkpoint.load(run.best)["model"].items()}
    last = {n: v.numpy() for n, v in checkpoint.load(run.last)["model"].items()}
    assert same(best, seen[0])
    assert same(last, seen[2])
    assert same(weights(model), seen[0])
    with ox.no_grad():
        loss = nn.CrossEntropyLoss()(model(ox.tensor(x)), ox.tensor(y)).item()
    assert result["held_back"]["loss"] == pytest.approx(loss, rel=1e-5)


# -- the order of the samples ----------------------------------------------------------------------------------------


def test_each_epoch_shuffles_anew_from_the_seed() -> None:
    def orders(seed: int) -> list[list[int]]:
        x = np.arange(50, dtype=np.float32)[:, None]
        trainer = train.Trainer(
            nn.Linear(1, 2), nn.CrossEntropyLoss(), None, TensorDataset(x, np.zeros(50, np.int64)), points(4),
            batch_size=8, seed=seed,
        )  # fmt: skip
        return [[int(i) for batch in trainer.batches() for i in batch[0].numpy()[:, 0]] for _ in range(2)]

    one, other = orders(0), orders(1)
    for order in (*one, *other):
        assert sorted(order) == list(range(50))
        assert order != list(range(50))
    assert one[0] != one[1]
    assert one[0] != other[0]
    assert one == orders(0)
    # the stream of the order is the seed's own: ox.Generator(seed + 1), and nothing but its loader draws from it
    again = ox.data.DataLoader(range(50), batch_size=50, shuffle=True, generator=ox.Generator(1))
    assert one == [next(iter(again)).tolist(), next(iter(again)).tolist()]


def test_metrics_need_outputs(variant, tmp_path: Path) -> None:
    own = """metrics = ["accuracy"]


def step(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1]), None


def data():"""
    with pytest.raises(RecipeError, match="no outputs for the metrics"):
        train.train(variant("silent", ("\ndef data():", own)), out=tmp_path)


def test_figures_that_are_not_finite_are_null_in_json(variant, tmp_path: Path) -> None:
    page = variant(
        "one", ("loss = nn", 'metrics = ["auroc"]\nloss = nn'), ("side.astype(np.int64)", "0 * side.astype(np.int64)")
    )
    run = train.train(page, out=tmp_path, epochs=1)
    assert run.result["held_back"]["auroc"] is None
    assert json.loads(run.metrics.read_text().splitlines()[-1])["validation_auroc"] is None


@pytest.mark.parametrize("after", [2, 7])
def test_workers_change_nothing(page: Path, tmp_path: Path, after: int) -> None:
    """The weights are those of one process, also when the run was stopped in the middle of an epoch."""
    alone = train.train(page, out=tmp_path / "alone", epochs=2)
    with pytest.raises(KeyError):
        train.train(page, out=tmp_path / "helped", epochs=2, workers=2, checkpoint_every=1e-9, show=StopAfter(after))
    helped = train.resume(tmp_path / "helped" / "points-0001")
    one, other = (checkpoint.load(run.last)["model"] for run in (alone, helped))
    assert flat(one) == flat(other)


def test_a_sample_changes_no_weights(variant, tmp_path: Path) -> None:
    """It may draw from every generator: training goes on as if it had not."""
    drawing = """
def sample(model):
    import random
    return f"{ox.randn(3).sum().item()} {np.random.rand()} {random.random()}"


def model():"""
    drawn = """import random
    points = points + np.float32(random.random() + np.random.rand()) * 0.01
    return points + 0.1"""
    changes = [("return points + 0.1", drawn)]
    runs = [
        train.train(variant("plain", *changes), out=tmp_path),
        train.train(variant("shown", *changes, ("\ndef model():", drawing)), out=tmp_path),
    ]
    one, other = (flat(checkpoint.load(run.last)["model"]) for run in runs)
    assert one == other
    assert "sample" in runs[1].result


# -- seeds ------------------------------------------------------------------------------------------------------------


def draws() -> list[float]:
    return [ox.rand(1).item(), float(np.random.rand()), random.random()]


def seed_all(seed: int) -> None:
    ox.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def validated(trainer: train.Trainer) -> list[int]:
    return [int(row) for row in trainer.data.validation.indices]


def test_only_a_seed_that_was_set_seeds_the_global_generators() -> None:
    after, model = {}, net()
    for seed in (1, 2):
        seed_all(seed)
        plain = draws()
        seed_all(seed)
        trainer = train.Trainer(model, nn.CrossEntropyLoss(), None, points(100), epochs=1)
        after[seed] = draws()
        assert after[seed][1:] == plain[1:]  # nothing is drawn from NumPy and Python
        seed_all(seed)
        again = train.Trainer(model, nn.CrossEntropyLoss(), None, points(100), epochs=1)
        assert again.options == trainer.options
        assert validated(again) == validated(trainer)
    assert all(one != other for one, other in zip(after[1], after[2], strict=True))
    seed_all(1)
    train.Trainer(model, nn.CrossEntropyLoss(), None, points(100), epochs=1, seed=5)
    one = draws()
    seed_all(2)
    train.Trainer(model, nn.CrossEntropyLoss(), None, points(100), epochs=1, seed=5)
    assert draws() == one


def test_a_run_without_a_seed_resumes_with_the_one_that_it_drew(tmp_path: Path) -> None:
    def trainer(script_seed: int, **options: int) -> train.Trainer:
        model = net(0.3)
        seed_all(script_seed)
        return train.Trainer(
            model, nn.CrossEntropyLoss(), ox.optim.Adam(model.parameters(), lr=0.02), points(200), epochs=3,
            batch_size=16, checkpoint_every=1e-9, **options,
        )  # fmt: skip

    whole = trainer(1)
    whole.fit(tmp_path / "whole")
    with pytest.raises(KeyError):
        trainer(1).fit(tmp_path / "run", show=StopAfter(17))
    seeded = trainer(2, seed=3)
    with pytest.raises(TrainError, match="other options"):
        seeded.fit(tmp_path / "run", resume=True)
    resumed = trainer(2)
    assert validated(resumed) != validated(whole)
    resumed.fit(tmp_path / "run", resume=True)
    assert validated(resumed) == validated(whole)
    assert resumed.options.seed == whole.options.seed == find(tmp_path / "run").options.seed
    assert same(weights(resumed.model), weights(whole.model))
