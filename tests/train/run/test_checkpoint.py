"""Checkpoints that a disk has damaged, runs that are gone on with otherwise than they were begun."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import numpy as np
import pytest

import ox
from ox import nn, train
from ox.errors import ArgumentError, LoadError, TrainError
from ox.train.display import Silent
from ox.train.run import checkpoint, fingerprint
from ox.train.weights import best_weights

EACH_STEP = 1e-9


class Stop(Silent):
    """Stops the run after so many steps, and keeps what it was told at the start."""

    def __init__(self, after: int = -1) -> None:
        self.after, self.notes, self.finished_runs = after, list[str](), 0

    def begin(self, trainer, run, threads, notes) -> None:
        self.notes = notes

    def was_finished(self, run) -> None:
        self.finished_runs += 1

    def step(self, trainer, rate) -> None:
        if trainer.progress.step == self.after:
            raise KeyError("killed")


@pytest.fixture(autouse=True)
def none_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that is due while another is written is left out: here it waits, so that each step has its own."""
    real = train.Checkpoints.save
    monkeypatch.setattr(
        train.Checkpoints, "save", lambda self, state, *, best=False, wait=True: real(self, state, best=best)
    )


def weights(run: train.Run, which: str = "last") -> dict[str, bytes]:
    return {name: x.array.tobytes() for name, x in checkpoint.load(getattr(run, which))["model"].items()}


def stopped(page: Path, root: Path, after: int = 7, **options: object) -> train.Run:
    with pytest.raises(KeyError):
        train.train(page, out=root, show=Stop(after), **{"checkpoint_every": EACH_STEP, **options})
    return train.newest_run(root) if list(root.glob("*/checkpoints/best*")) else train.find(max(root.iterdir()))


def damage(path: Path, flip: int = -5) -> None:
    """Flip a bit, in a file of its own: other names keep what they have."""
    data = bytearray(path.read_bytes())
    data[flip] ^= 16
    path.unlink()
    path.write_bytes(data)


def damage_all_names(path: Path) -> None:
    """What a disk does: all names of one file are damaged together."""
    data = bytearray(path.read_bytes())
    data[-5] ^= 16
    path.write_bytes(data)


# -- how many there are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1, 2, 4])
def test_the_newest_are_kept(page: Path, tmp_path: Path, keep: int) -> None:
    run = stopped(page, tmp_path, 12, keep=keep)
    names = ["last", *(f"last-{i}" for i in range(1, keep))]
    assert sorted(p.stem for p in run.last.parent.iterdir()) == sorted(["best", *names])
    steps = [checkpoint.load(run.last.with_stem(name))["progress"]["step"] for name in names]
    assert steps == list(range(11, 11 - keep, -1))


def test_fewer_are_kept_from_now_on(page: Path, tmp_path: Path) -> None:
    run = stopped(page, tmp_path, 7, keep=4)
    run = train.resume(run.folder, keep=1)
    assert sorted(p.stem for p in run.last.parent.iterdir()) == ["best", "last"]
    assert train.find(run.folder).options.keep == 1


def test_a_disk_without_links(page: Path, whole: train.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(checkpoint.os, "link", none)
    run = stopped(page, tmp_path / "runs")
    assert sorted(p.stem for p in run.last.parent.iterdir()) == ["best", "last", "last-1"]
    run.last.unlink()  # killed between two renames
    assert weights(train.resume(run.folder)) == weights(whole)


# -- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [2, 6, 7, 11])
@pytest.mark.parametrize("every", [EACH_STEP, 1e9], ids=["each step", "each epoch"])
def test_a_damaged_last_one(page: Path, whole: train.Run, tmp_path: Path, after: int, every: float) -> None:
    """The run goes on from the newest that is whole, says so, and ends as it would have."""
    run = stopped(page, tmp_path / "runs", after, checkpoint_every=every)
    if not checkpoint.previous(run.last):
        pytest.skip("there is only one")
    step = checkpoint.load(checkpoint.previous(run.last)[0])["progress"]["step"]
    damage_all_names(run.last)
    show = Stop()
    resumed = train.resume(run.folder, show=show)
    assert show.notes[0].startswith("damaged: last.safetensors")  # and the best, where that is the same file
    assert show.notes[0].endswith(f"; resuming from last-1.safetensors, step {step}")
    assert weights(resumed) == weights(whole)
    assert weights(resumed, "best") == weights(whole, "best")
    assert resumed.result["best"] == {**whole.result["best"], **{
        name: resumed.result["best"][name] for name in ("seconds", "samples_per_second")
    }}  # fmt: skip


def test_all_but_the_best_are_damaged(page: Path, whole: train.Run, tmp_path: Path) -> None:
    run, show = stopped(page, tmp_path / "runs", 9), Stop()
    for path in (run.last, *checkpoint.previous(run.last)):
        damage(path)
    assert weights(train.resume(run.folder, show=show)) == weights(whole)
    assert "last.safetensors and last-1.safetensors; resuming from best.safetensors, step 5" in show.notes[0]
    assert checkpoint.newest(train.find(run.folder)).damaged == []


def test_all_are_damaged(page: Path, tmp_path: Path) -> None:
    run = stopped(page, tmp_path)
    for path in run.last.parent.iterdir():
        damage(path)
    with pytest.raises(LoadError, match=r"last\.safetensors is damaged"):
        train.resume(run.folder)


def test_a_damaged_best_one_is_found_at_once(page: Path, tmp_path: Path) -> None:
    run = stopped(page, tmp_path, 9)
    damage(run.best)
    before = {p: p.read_bytes() for p in run.folder.rglob("*") if p.is_file()}
    with pytest.raises(LoadError, match=r"best\.safetensors is damaged") as caught:
        train.resume(run.folder)
    assert {p: p.read_bytes() for p in run.folder.rglob("*") if p.is_file()} == before
    assert caught.value.hint.startswith(f"rm {run.best}")
    with pytest.raises(LoadError, match="damaged"):
        train.restore(run.folder)  # what ox eval, predict and export begin with
    run.best.unlink()
    show = Stop()
    run = train.resume(run.folder, show=show)
    assert "the best weights, of epoch 1, are lost" in show.notes[0]
    assert run.result["best"]["epoch"] > 1
    assert train.restore(run.folder)


def test_last_and_best_are_damaged_apart(page: Path, tmp_path: Path) -> None:
    """The older checkpoint is whole, and has lost its best weights: that is not gone on with unasked."""
    run = stopped(page, tmp_path, 9)
    assert not run.best.samefile(run.last)
    damage(run.last)
    damage(run.best)
    with pytest.raises(LoadError, match=r"best\.safetensors is damaged"):
        train.resume(run.folder)
    run.best.unlink()
    show = Stop()
    train.resume(run.folder, show=show)
    assert show.notes[0].startswith("damaged: last.safetensors; resuming from last-1.safetensors, step 7")
    assert "the best weights, of epoch 1, are lost" in show.notes[1]


def test_a_best_one_that_is_the_one_before_last_too(page: Path, whole: train.Run, tmp_path: Path) -> None:
    run, show = stopped(page, tmp_path / "runs", 7), Stop()
    damage(run.best)
    assert weights(train.resume(run.folder, show=show), "best") == weights(whole, "best")
    assert show.notes[0] == "damaged: best.safetensors; resuming from last-1.safetensors, step 5"


def test_a_best_one_that_is_last_too_is_named_again(page: Path, tmp_path: Path) -> None:
    run = train.train(page, out=tmp_path, epochs=1)
    (run.folder / "result.json").unlink()
    damage(run.best)
    assert weights(train.resume(run.folder), "best") == weights(run)


def test_no_best_one_and_nothing_to_come(page: Path, tmp_path: Path) -> None:
    run = train.train(page, out=tmp_path, epochs=8, lr=0.5, keep=1)
    if run.result["best"]["epoch"] == 8:
        pytest.skip("the last epoch is the best")
    (run.folder / "result.json").unlink()
    run.best.unlink()
    with pytest.raises(LoadError, match="no epoch remains") as caught:
        train.resume(run.folder)
    assert caught.value.hint.endswith("--epochs 9")
    assert train.resume(run.folder, epochs=9).result["best"]["epoch"] == 9


def test_any_damage_of_any_checkpoint(page: Path, tmp_path: Path) -> None:
    """Flips and truncations all over each file: one error, or the very weights."""
    run = stopped(page, tmp_path / "runs", 7)
    good = {path.stem: (path.read_bytes(), weights(run, path.stem)) for path in (run.last, run.best)}
    random, found = np.random.RandomState(0), 0
    for path in (run.last, run.best):
        data, known = good[path.stem]
        places = sorted({*range(120), *random.randint(0, len(data), 150).tolist(), *range(len(data) - 20, len(data))})
        for place in places:
            for torn in (data[:place], data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :]):
                path.unlink(missing_ok=True)
                path.write_bytes(torn)
                try:
                    assert weights(run, path.stem) == known, place
                except LoadError as error:
                    found += 1
                    assert str(path) in error.what
        path.unlink()
        path.write_bytes(data)
    assert found > 500


def test_a_loop_of_ones_own_falls_back(tmp_path: Path) -> None:
    with train.Checkpoints(tmp_path, keep=3) as checkpoints:
        for step in range(5):
            checkpoints.save({"model": {"w": ox.full((2,), float(step))}})
    damage(checkpoints.run.last)
    again = train.Checkpoints(tmp_path)
    with pytest.warns(UserWarning, match=r"last\.safetensors is damaged: resuming from last-1\.safetensors"):
        assert again.last()["model"]["w"].tolist() == [3.0, 3.0]
    for path in checkpoint.previous(again.run.last):
        damage(path)
    with pytest.raises(LoadError, match=r"last\.safetensors is damaged"):
        again.last()
    with pytest.raises(ArgumentError, match="keep"):
        train.Checkpoints(tmp_path, keep=0)


# -- more epochs -----------------------------------------------------------------------------------------------------


def test_a_finished_run_is_lengthened(page: Path, tmp_path: Path) -> None:
    """Without a schedule it ends as a run of so many epochs from the start."""
    whole = train.train(page, out=tmp_path / "whole", epochs=4)
    run = train.train(page, out=tmp_path / "runs", epochs=2)
    show = Stop()
    longer = train.resume(run.folder, epochs=4, show=show)
    assert show.notes == ["epochs: 2 before, 4 now"]
    assert weights(longer) == weights(whole)
    assert weights(longer, "best") == weights(whole, "best")
    assert longer.result["epochs"] == train.find(run.folder).options.epochs == 4
    assert [line["step"] for line in train.loggers.read(longer.metrics)] == [
        line["step"] for line in train.loggers.read(whole.metrics)
    ]
    assert train.resume(run.folder, show=show).result["epochs"] == 4
    assert show.finished_runs == 1


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", ["CosineAnnealingLR(optimizer, steps)", "OneCycleLR(optimizer, lr, steps)",
                                  "LambdaLR(optimizer, lambda i: 1 - i / steps)", "StepLR(optimizer, 4)"])  # fmt: skip
def test_the_schedule_of_a_lengthened_run(variant, tmp_path: Path, name: str) -> None:
    """It is that of the new number of epochs, from the step at which the run stands."""
    maker = f"\ndef scheduler(optimizer, lr, steps):\n    return ox.optim.lr_scheduler.{name}\n\n"
    page = variant("scheduled", ("\ndef augment", f"{maker}\ndef augment"))

    def rates(run: train.Run) -> list[float]:
        return [line["lr"] for line in train.loggers.read(run.metrics) if "validation_loss" in line]

    whole = train.train(page, out=tmp_path / "whole", epochs=4)
    run, show = train.train(page, out=tmp_path / "runs", epochs=2), Stop()
    before = rates(run)
    longer = train.resume(run.folder, epochs=4, show=show)
    assert rates(longer) == pytest.approx(before + rates(whole)[2:], abs=1e-12)
    assert show.notes[1] == f"{name.split('(')[0]} uses 4 epochs from here on"
    killed = train.train(page, out=tmp_path / "others", epochs=2)
    with pytest.raises(KeyError):
        train.resume(killed.folder, epochs=4, checkpoint_every=EACH_STEP, show=Stop(13))
    assert weights(train.resume(killed.folder)) == weights(longer)


def test_what_a_run_is_not_gone_on_with(page: Path, tmp_path: Path) -> None:
    run = stopped(page, tmp_path, 12)
    with pytest.raises(TrainError, match="already trained more epochs"):
        train.resume(run.folder, epochs=1)
    with pytest.raises(ArgumentError, match="lr"):
        train.resume(run.folder, lr=0.5)
    assert train.resume(run.folder, epochs=2).result["epochs"] == 2


# -- an edited config ------------------------------------------------------------------------------------------------


def edit(run: train.Run, old: str, new: str) -> None:
    path = run.folder / "config.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"), [("lr = 0.05", "lr = 0.5"), ("seed = 0", "seed = 1"), ("batch_size = 16", "batch_size = 8")]
)
def test_an_edited_config_is_noticed(page: Path, tmp_path: Path, old: str, new: str) -> None:
    run = stopped(page, tmp_path)
    edit(run, old, new)
    with pytest.raises(TrainError, match=r"config\.toml was changed") as caught:
        train.resume(run.folder)
    assert (caught.value.expected, caught.value.got) == (old.replace(" ", ""), new.replace(" ", ""))
    edit(run, new, old)
    assert train.resume(run.folder).result


def test_an_edit_that_counts_from_now_on(page: Path, tmp_path: Path) -> None:
    run, show = train.train(page, out=tmp_path, epochs=2), Stop()
    edit(run, "epochs = 2", "epochs = 3")
    assert train.resume(run.folder, show=show).result["epochs"] == 3
    assert show.notes == ["epochs: 2 before, 3 now"]


def test_an_edit_beside_the_options(page: Path, tmp_path: Path) -> None:
    run = stopped(page, tmp_path)
    edit(run, 'name = "points"', 'name = "other"')
    assert train.resume(run.folder).result


# -- a script that was changed ---------------------------------------------------------------------------------------


def points(count: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.RandomState(count).randn(count, 2).astype(np.float32)
    return x, (x.sum(1) > 0).astype(np.int64)


def script(folder: Path, *, count: int = 64, held: int = 8, loss=None, make=ox.optim.Adam, show=None, **more):
    ox.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    settings = {name: more.pop(name) for name in ("weight_decay", "betas") if name in more}
    trainer = train.Trainer(
        model, loss or nn.CrossEntropyLoss(), make(model.parameters(), lr=0.01, **settings), points(count), points(32),
        points(held), **{"batch_size": 16, "epochs": 3, "checkpoint_every": EACH_STEP, **more},
    )  # fmt: skip
    return trainer.fit(folder, resume=True, show=show)


def other_loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets) * 2.0


CHANGES = {
    "optimizer": {"make": ox.optim.SGD},
    "optimizer's decay": {"weight_decay": 0.5},
    "optimizer's betas": {"betas": (0.5, 0.9)},
    "length of the train data": {"count": 80},
    "loss": {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)},
    "loss's weight": {"loss": nn.CrossEntropyLoss(ox.tensor([1.0, 2.0]))},
    "loss function": {"loss": other_loss},
    "augment": {"augment": lambda batch, generator: batch},
    "best": {"best": "-loss"},
}


@pytest.mark.parametrize("finished", [False, True])
def test_a_changed_script_is_not_gone_on_with(tmp_path: Path, finished: bool, subtests: pytest.Subtests) -> None:
    if finished:
        script(tmp_path / "run")
    else:
        with pytest.raises(KeyError):
            script(tmp_path / "run", show=Stop(6))
    for name, change in CHANGES.items():
        with subtests.test(name):
            with pytest.raises(TrainError, match="was trained with another") as caught:
                script(tmp_path / "run", **change)
            assert caught.value.what.endswith(name.split("'")[0].removesuffix(" function"))
            assert caught.value.expected != caught.value.got
    assert script(tmp_path / "run")["epochs"] == 3


def test_a_change_that_harms_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        script(tmp_path / "run", show=Stop(6))
    show = Stop()
    assert script(tmp_path / "run", held=12, show=show)["held_back"]["count"] == 12
    assert show.notes == ["length of the test data: 8 before, 12 now"]


def test_a_fact_under_its_older_name() -> None:
    """A checkpoint of an older version speaks of the held back data."""
    then = {"length of the held back data": "8", "loss": "MSELoss()"}
    now = {"length of the test data": "12", "loss": "MSELoss()"}
    assert fingerprint.differences(then, now) == [("length of the test data", "8", "12")]


def test_a_finished_script_is_lengthened(tmp_path: Path) -> None:
    whole = script(tmp_path / "whole", epochs=5)
    script(tmp_path / "run", epochs=3)
    assert script(tmp_path / "run", epochs=5)["held_back"] == whole["held_back"]
    with pytest.raises(TrainError, match="already trained more epochs"):
        script(tmp_path / "run", epochs=4)
    assert train.find(tmp_path / "run").result["epochs"] == 5


def test_a_description_is_the_same_in_every_process() -> None:
    one, two, again = (eval(f"lambda o, t: o * {factor} - t") for factor in (2, 3, 2))
    describe = fingerprint.describe
    assert describe(one) != describe(two)
    assert describe(one).partition(" code ")[2] == describe(again).partition(" code ")[2]
    assert describe(functools.partial(other_loss, targets=1)) != describe(functools.partial(other_loss, targets=2))
    assert "0x" not in describe(nn.CrossEntropyLoss()) + describe(object()) + describe(ox.optim.Adam([ox.ones(1)]))
    assert fingerprint.differences({"loss": "f code 2.7:0"}, {"loss": describe(other_loss)})  # another name
    assert not fingerprint.differences({"loss": "other_loss code 2.7:0"}, {"loss": describe(other_loss)})


def test_runs_of_versions_before_go_on(page: Path, whole: train.Run, tmp_path: Path) -> None:
    """Their checkpoints have no options, no facts and no checksum."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    from ox.serialization import files

    run = stopped(page, tmp_path / "runs")
    for path in run.last.parent.iterdir():
        state = {name: part for name, part in files.load(path).items() if name not in ("options", "facts")}
        path.unlink()
        files.save({**state, "format": 2}, path)
        with safe_open(path, framework="numpy") as f:
            tree, arrays = f.metadata()["ox.tree"], {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118
        path.unlink()
        save_file(arrays, path, metadata={"ox.tree": tree})
    edit(run, "keep = 2\n", "")
    shutil.copytree(run.folder, tmp_path / "copy")
    assert weights(train.resume(run.folder)) == weights(whole)
    assert train.resume(tmp_path / "copy", epochs=4).result["epochs"] == 4
    assert best_weights(checkpoint.load(run.best))
