"""Full disks, two processes on one folder, samples that a model cannot take."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import AUGMENT_WAITS, wait_until

import ox
from ox import nn, train
from ox.errors import ShapeError, TrainError
from ox.train.display import Silent
from ox.train.run import checkpoint

pytestmark = pytest.mark.usefixtures("forked_processes")


def weights(run: train.Run) -> dict[str, bytes]:
    return {name: x.array.tobytes() for name, x in checkpoint.load(run.last)["model"].items()}


# -- disks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path):
    """A disk of 2 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


class Fill(Silent):
    """Leaves so many bytes free after a step."""

    def __init__(self, disk: Path, step: int, leave: int) -> None:
        self.file, self.at, self.leave = disk / "filler", step, leave

    def step(self, trainer, rate) -> None:
        if trainer.progress.step == self.at:
            for thread in threading.enumerate():
                if thread.name == "ox checkpoint":  # of the epoch before; it needs its room
                    thread.join()
            while (room := os.statvfs(self.file.parent).f_bavail * 4096 - self.leave) > 0:
                with open(self.file, "ab") as file:
                    file.write(bytes(room))


WIDE = (("(2, 16)", "(2, 4096)"), ("(16, 2)", "(4096, 2)"))


def test_a_full_disk(variant, tmp_path: Path, small_disk: Path) -> None:
    """The checkpoint before survives, the error says how much was missing, and with room the run goes on."""
    page = variant("wide", *WIDE)
    whole = train.train(page, out=tmp_path / "whole", epochs=3)
    with pytest.raises(TrainError, match="the checkpoint could not be written") as caught:
        train.train(page, out=small_disk, epochs=3, show=Fill(small_disk, 7, 65536))
    told = {name: float(text.removesuffix(" kB")) for name, text in caught.value.extra.items()}
    assert 240 < told["needed"] < 400  # weights and two moments of each
    assert told["free"] <= 66
    assert told["missing"] == pytest.approx(told["needed"] - told["free"], abs=0.11)
    run = train.find(small_disk / "wide-0001")
    assert checkpoint.load(run.last)["progress"]["epoch"] == 1
    assert sorted(p.stem for p in run.last.parent.iterdir()) == ["best", "last", "last-1"]
    (small_disk / "filler").unlink()
    assert weights(train.resume(run.folder)) == weights(whole)


def test_a_disk_too_full_for_a_line(variant, tmp_path: Path, small_disk: Path) -> None:
    """What was measured comes before the checkpoint: that is one clear error, too."""
    page = variant("wide", *WIDE)
    whole = train.train(page, out=tmp_path / "whole", epochs=3)
    with pytest.raises(TrainError, match="could not be written"):
        train.train(page, out=small_disk, epochs=3, show=Fill(small_disk, 7, 0))
    (small_disk / "filler").unlink()
    resumed = train.resume(small_disk / "wide-0001")
    assert weights(resumed) == weights(whole)
    steps = [line["step"] for line in train.loggers.read(resumed.metrics)]
    assert steps == [line["step"] for line in train.loggers.read(whole.metrics)]


def test_a_limit_that_is_no_full_disk(variant, tmp_path: Path) -> None:
    page = variant("wide", ("(2, 16)", "(2, 65536)"), ("(16, 2)", "(65536, 2)"))
    command = [sys.executable, "-m", "ox_cli", "train", str(page)]
    limited = ["bash", "-c", 'ulimit -f 500 && exec "$@"', "bash", *command]
    done = subprocess.run(limited, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("TrainError: the checkpoint could not be written")
    assert "needed 1.3 MB" in done.stderr
    assert "missing" not in done.stderr


# -- two processes, and a scheduler's ---------------------------------------------------------------------------------


def test_two_processes_on_one_folder(variant, tmp_path: Path) -> None:
    page = variant("slow", ("\ndef augment(batch, generator):\n", AUGMENT_WAITS))
    command = [sys.executable, "-m", "ox_cli", "train"]
    env = os.environ | {"OX_TEST_WAITS": "7"}
    first = subprocess.Popen([*command, str(page)], cwd=tmp_path, stdout=subprocess.DEVNULL, env=env)
    try:
        folder = tmp_path / "runs" / "slow-0001"
        wait_until((folder / "checkpoints" / "last.safetensors").exists, process=first)
        second = subprocess.run(
            [*command, "--resume", str(folder)], capture_output=True, text=True, cwd=tmp_path, timeout=300
        )
        assert first.poll() is None
        assert second.returncode == 1
        assert second.stderr.startswith(f"TrainError: another process is training {folder}")
        assert f"process {first.pid} on {platform.node()}, since 2" in second.stderr
    finally:
        first.kill()
        first.wait()
    assert train.resume(folder).result is not None  # what a killed process left does not hold anybody up
    assert not (folder / ".training").exists()


def test_a_scheduler_that_takes_the_machine_away(variant, tmp_path: Path) -> None:
    """SIGTERM in the middle of an epoch: a checkpoint, exit 143, and the run ends as if nothing had been."""
    page = variant("slow", ("\ndef augment(batch, generator):\n", AUGMENT_WAITS))
    whole = train.train(page, out=tmp_path / "whole")
    command = [sys.executable, "-m", "ox_cli", "train", str(page), "--checkpoint-every", "1e-9"]
    env = os.environ | {"OX_TEST_WAITS": "7"}
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=env)
    folder = tmp_path / "runs" / "slow-0001"
    wait_until((tmp_path / "waits.0").exists, process=process)
    process.terminate()
    shown = process.communicate(timeout=300)[0]
    assert process.returncode == 143 == 128 + signal.SIGTERM
    assert checkpoint.load(folder / "checkpoints" / "last.safetensors")["progress"]["step"] == 7
    assert "after step 7 of 15" in shown
    assert not list(folder.glob("checkpoints/.*"))
    done = subprocess.run(
        [sys.executable, "-m", "ox_cli", "train", "--resume", str(folder)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert weights(train.find(folder)) == weights(whole)


def test_a_polite_stop_waits_for_the_checkpoint(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, join, joined = checkpoint.save, threading.Thread.join, defaultdict[Any, threading.Event](threading.Event)

    def slow(run: train.Run, state: dict, **named: object) -> None:
        if state["progress"]["step"] == 8:
            joined[threading.current_thread()].wait(1)  # so long if nobody waits for it
        save(run, state, **named)

    def joins(self: threading.Thread, timeout: float | None = None) -> None:
        joined[self].set()
        join(self, timeout)

    class Terminate(Silent):
        def step(self, trainer, rate) -> None:
            if trainer.progress.step == 8:
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(checkpoint, "save", slow)
    monkeypatch.setattr(threading.Thread, "join", joins)
    with pytest.raises(train.Interrupted) as caught:
        train.train(page, out=tmp_path, show=Terminate())
    assert caught.value.exit_code == 143
    assert checkpoint.load(tmp_path / "points-0001" / "checkpoints" / "last.safetensors")["progress"]["step"] == 8


def test_a_polite_stop_whose_checkpoint_fails_says_so(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checkpoint.save

    def full(run: train.Run, state: dict, **named: object) -> None:
        if state["progress"]["step"] == 8:
            raise TrainError("the disk is full")
        real(run, state, **named)

    class Terminate(Silent):
        def step(self, trainer, rate) -> None:
            if trainer.progress.step == 8:
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(TrainError, match="the disk is full"):
        train.train(page, out=tmp_path, show=Terminate())


# -- samples ---------------------------------------------------------------------------------------------------------


def trainer(train_data: object, validation: object = None, model: nn.Module | None = None, **more: object):
    x = np.zeros((8, 3), np.float32), np.zeros(8, np.int64)
    return train.Trainer(
        model or nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
        nn.CrossEntropyLoss(), None, train_data, x if validation is None else validation, batch_size=8, **more,
    )  # fmt: skip


def data(count: int, **wrong: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples whose first number is their index; `at` gets the label `label`."""
    x, y = np.random.RandomState(0).randn(count, 3).astype(np.float32), np.arange(count) % 2
    for at in wrong:
        y[int(at[1:])] = wrong[at]
    return x, y


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_label_without_a_score(accumulate: int) -> None:
    with pytest.raises(TrainError) as caught:
        trainer(data(50, _37=2), accumulate=accumulate, epochs=2, seed=0).fit()
    error = caught.value
    assert error.what.startswith("the model cannot take a sample of batch ")
    assert error.what.endswith(" of epoch 1")
    assert error.extra["sample"].startswith("index 37 of its data (sample ")
    assert "out of range" in error.extra["cause"]
    assert (error.expected, error.got) == ("0 to 1", "2")
    # the batch is the one of that number in the order of the seed
    number = int(error.what.split("batch ")[1].split()[0])
    order = next(iter(ox.data.DataLoader(range(50), 50, shuffle=True, generator=ox.Generator(1)))).tolist()
    row = int(error.extra["sample"].split("(sample ")[1].split()[0])
    assert order[8 * (number - 1) + row] == 37


def test_several_samples_are_listed() -> None:
    with pytest.raises(TrainError) as caught:
        trainer(data(50), data(50, _3=7, _44=7)).fit()
    error = caught.value
    assert error.what.startswith("the model cannot take a sample of batch 1 of the validation data after step 7")
    assert error.extra["sample"] == "index 3 of its data (sample 3 of the batch)"
    with pytest.raises(TrainError) as caught:
        trainer(data(50), data(50, _33=7, _44=7)).fit()
    assert caught.value.what.startswith("the model cannot take a sample of batch 2 of the validation")
    assert caught.value.extra["sample"] == "index 33 of its data (sample 1 of the batch); also 44"


@pytest.mark.parametrize("more", [{}, {"limit": 58}], ids=str)
def test_an_index_is_that_of_the_callers_data(more: dict) -> None:
    """Not that of the share that is left to train on, nor of the one that is set aside."""
    x, y = data(100, _57=7)
    where = set()
    for seed in range(25):
        model, options = nn.Linear(3, 2), {"seed": seed, "epochs": 1, "batch_size": 16, **more}
        one = train.Trainer(model, nn.CrossEntropyLoss(), None, (x, y), **options)
        parts = one.data.parts().items()
        held = [name for name, part in parts if any(int(part[i][1].item()) == 7 for i in range(len(part)))]
        if not held or held[0] in where:  # with a limit the sample may be left out
            continue
        where.add(held[0])
        with pytest.raises(TrainError) as caught:
            one.fit()
        assert caught.value.extra["sample"].startswith("index 57 of its data (sample ")
    assert where == {"train", "validation"}


def test_nan_is_explained_before_a_metric_refuses_it() -> None:
    x, y = data(20)
    x[11, 0] = np.nan
    with pytest.raises(TrainError, match="the loss is nan at validation data after step 1") as caught:
        trainer(data(8), (x, y), nn.Linear(3, 2), metrics=["f1"]).fit()
    assert "the data itself" in caught.value.extra["cause"]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_sample_that_holds_nan(accumulate: int) -> None:
    x, y = data(60)
    x[37, 1] = np.nan
    for train_data, validation in (((x, y), None), (data(8), (x, y))):
        with pytest.raises(TrainError, match="the loss is nan") as caught:
            trainer(train_data, validation, nn.Linear(3, 2), accumulate=accumulate, seed=0).fit()
        assert caught.value.extra["samples"] == "index 37 of the data"


def test_a_batch_that_is_not_of_the_data() -> None:
    one, (x, y) = trainer(data(20), model=nn.Linear(3, 2)), data(8, _3=7, _5=7)
    with pytest.raises(TrainError, match="a sample of a batch of your own") as caught:
        one.step((ox.tensor(x), ox.tensor(y)))
    assert caught.value.extra["sample"] == "sample 3 of the batch; also 5"
    x[1] = np.nan
    with pytest.raises(TrainError, match="the loss is nan") as caught:
        one.step((ox.tensor(x), ox.tensor(y % 2)))
    assert "in samples [1]" in caught.value.extra["cause"]
    assert "samples" not in caught.value.extra


def test_an_index_out_of_range_of_an_embedding() -> None:
    words = np.random.RandomState(0).randint(0, 10, (30, 5))
    words[21, 3] = 10
    model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(20, 2))
    labels = np.arange(30) % 2
    with pytest.raises(TrainError) as caught:
        trainer((words, labels), (words[:5], labels[:5]), model).fit()
    assert "index 21 of its data" in caught.value.extra["sample"]


def test_an_error_of_the_users_own_code() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(3, 2)

        def forward(self, x: ox.Tensor) -> ox.Tensor:
            if float(x[:, 0].max().item()) > 100:
                raise ValueError("a point this far out is a slip")
            return self.body(x)

    x, y = data(20)
    x[13, 0] = 1000
    with pytest.raises(TrainError) as caught:
        trainer((x, y), model=Picky()).fit()
    assert caught.value.extra["cause"] == "ValueError: a point this far out is a slip"
    assert "index 13 of" in caught.value.extra["sample"]
    assert "raise ValueError" in str(caught.value.where)
    assert isinstance(caught.value.__cause__, ValueError)


def test_what_is_no_samples_fault_stays_what_it_is() -> None:
    x, y = data(20)
    with pytest.raises(ShapeError) as caught:
        trainer((x[:, :2], y)).fit()
    assert caught.value.extra["when"] == "batch 1 of epoch 1"

    class Broken(nn.Linear):
        def forward(self, x: ox.Tensor) -> ox.Tensor:
            return super().forward(x).no_such_thing

    with pytest.raises(AttributeError) as other:
        trainer((x, y), model=Broken(3, 2)).fit()
    assert "in batch 1 of epoch 1" in other.value.__notes__


def test_a_blamed_batch_changes_nothing() -> None:
    """The search for the sample draws no random numbers, moves no order, and leaves the model in training."""
    one = trainer(data(20, _3=5), model=nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2)))
    given = 0
    with pytest.raises(TrainError):
        for batch in one.batches():
            given += 1
            drawn, order = ox.random.get_state(), one.train_batches.order.get_state()
            one.step(batch)
    assert one.train_batches.loader.state_dict()["position"] == given
    assert one.train_batches.order.get_state() == order
    assert one.model.training
    after = ox.random.get_state()
    ox.random.set_state(drawn)
    one.model(batch[0])  # the forward pass itself draws
    assert ox.random.get_state() == after


# -- runs that never begin -------------------------------------------------------------------------------------------


def test_a_first_step_that_fails_leaves_no_folder(variant, tmp_path: Path) -> None:
    page = variant("wrong", ("nn.Linear(16, 2)", "nn.Linear(17, 2)"))
    with pytest.raises(ShapeError):
        train.train(page, out=tmp_path / "runs")
    assert not list((tmp_path / "runs").iterdir())
    one = trainer(data(50), epochs=2)
    one.loss = lambda model, batch: (model(*batch[:-1]).no_such_thing, None)
    with pytest.raises(AttributeError):
        one.fit(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(AttributeError):
        one.fit(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def ox_train(folder: Path, *words: object) -> tuple[int, str]:
    """Exit code and standard error of `ox train`."""
    done = subprocess.run(
        [sys.executable, "-m", "ox_cli", "train", *map(str, words)],
        capture_output=True, cwd=folder, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stderr.decode(errors="replace")


ENDS = "import sys; sys.exit({code})"
EXITS = {
    "read": ("defaults =", "{ends}\ndefaults ="),
    "data": ("    random = np.random", "    {ends}\n    random = np.random"),
    "model": ("def model():\n", "def model():\n    {ends}\n"),
    "loss": ("loss = nn.CrossEntropyLoss()", "def loss(outputs, targets):\n    {ends}"),
    "augment": ("def augment(batch, generator):\n", "def augment(batch, generator):\n    {ends}\n"),
}


@pytest.mark.parametrize("where", EXITS)
def test_a_page_that_ends_the_program(variant, tmp_path: Path, where: str) -> None:
    """Its code and its message are kept, its line is named, and no folder is left."""
    old, new = EXITS[where]
    for code, exit_code, said in (("3", 3, "sys.exit(3) in "), ("'no data today'", 1, "no data today\n")):
        page = variant("ends", (old, new.format(ends=ENDS.format(code=code))))
        found, shown = ox_train(tmp_path, page)
        assert found == exit_code
        assert said in shown
        assert "ends.py:" in shown
        assert "Traceback" not in shown
        assert not list(tmp_path.glob("runs/*"))


def test_a_file_where_a_folder_is_expected(page: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    for out in (tmp_path / "taken", tmp_path / "taken" / "runs"):
        with pytest.raises(TrainError, match="no run can be made") as caught:
            train.train(page, out=out)
        assert caught.value.got == f"{tmp_path / 'taken'}, which is a file"


def test_a_number_of_processes_that_is_none(page: Path, tmp_path: Path) -> None:
    for count in (0, -1):
        code, shown = ox_train(tmp_path, page, "--nproc", count)
        assert code == 2
        assert "expected at least 1" in shown


def test_a_path_that_is_not_utf8(page: Path, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xff"))
    odd.mkdir()
    (odd / "points.py").write_text(page.read_text())
    run = train.train(odd / "points.py", out=odd / "runs", epochs=1)
    assert train.resume(run.folder, epochs=2).result["epochs"] == 2
    assert train.restore(run.folder)


def test_a_linked_folder(page: Path, tmp_path: Path) -> None:
    run = train.train(page, out=tmp_path / "elsewhere", epochs=1)
    (tmp_path / "link").symlink_to(run.folder)
    assert train.resume(tmp_path / "link", epochs=2).result["epochs"] == 2
    assert (tmp_path / "link").is_symlink()


@pytest.mark.skipif(os.getuid() != 0, reason="who writes everywhere needs another user to be refused")
def test_folders_that_cannot_be_written(page: Path, tmp_path: Path) -> None:
    run = train.train(page, out=tmp_path / "runs", epochs=1)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setuid(65534)
            for path in (tmp_path, *tmp_path.parents):
                if not os.access(path, os.X_OK):
                    os._exit(77)  # pytest's own folder is closed to others
            for work, said in (
                (lambda: train.train(page, out=tmp_path / "new"), "no run can be made in"),
                (lambda: train.resume(run.folder, epochs=2), "was not written"),
                (lambda: ox.save(1, run.folder / "x"), "was not written"),
            ):
                try:
                    work()
                except ox.OxError as error:
                    code = int(said not in error.what)
                if code:
                    break
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 77:
        pytest.skip("the folder for tests is closed to other users")
    assert code == 0
    assert train.restore(run.folder)


class Remove(Silent):
    """Somebody removes the run's folder while it goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def step(self, trainer, rate) -> None:
        if trainer.progress.step == 7:
            import shutil

            while self.folder.exists():  # a checkpoint may be written meanwhile
                shutil.rmtree(self.folder, ignore_errors=True)


def test_a_folder_that_is_removed(page: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="the run's folder is gone"):
        train.train(page, out=tmp_path / "runs", show=Remove(tmp_path / "runs" / "points-0001"))


def test_a_worker_that_raises(variant, tmp_path: Path) -> None:
    """The page's line, and no folder of a run without a step."""
    page = variant(
        "worker", ("\ndef data():", "\nclass Bad(TensorDataset):\n    def __getitem__(self, index):\n"
                   "        raise ValueError('a torn file')\n\n\ndef data():"),
        ("return part(72), part(32)", "return Bad(*part(72).tensors), part(32)"),
    )  # fmt: skip
    code, shown = ox_train(tmp_path, page, "--workers", 2)
    assert code == 1
    assert "a torn file" in shown
    assert "worker.py:" in shown
    assert not list(tmp_path.glob("runs/*"))
