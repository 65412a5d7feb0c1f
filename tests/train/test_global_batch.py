"""A run that goes on with another number of ranks: the same samples a step, the same order, the same weights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import THREADS, needs_mpi
from rows import rows

import ox
from ox import tolerance, train
from ox.data.distributed import DistributedSampler
from ox.errors import TrainError
from ox.train import TrainConfig
from ox.train.global_batch import DividedSampler, Share, divide, share, used

pytestmark = pytest.mark.usefixtures("forked_processes")

OPTIONS = TrainConfig(epochs=1, batch_size=16, lr=0.1)


@rows(
    ("begun", "now", "accumulate", "expected"),
    [
        (4, 4, 1, (16, 1)),
        (4, 2, 1, (16, 2)),
        (4, 1, 1, (16, 4)),
        (1, 2, 1, (8, 1)),
        (2, 4, 3, (12, 2)),
        (3, 2, 1, (12, 2)),
        (1, 16, 1, (1, 1)),
        (5, 16, 1, (5, 1)),
    ],
)
def test_shares(begun: int, now: int, accumulate: int, expected: tuple[int, int]) -> None:
    options = TrainConfig(epochs=1, batch_size=16, lr=0.1, accumulate=accumulate)
    found = share(options, begun, now)
    assert (found.batch_size, found.accumulate) == expected
    assert found.unit * found.accumulate == begun * accumulate * 16


def test_a_step_that_cannot_accumulate_or_whose_batches_are_whole() -> None:
    assert share(OPTIONS, 4, 2, one_batch=True) == Share(32, 1, 2)
    assert share(OPTIONS, 4, 2, batched=True) == Share(16, 2, 2, True)
    with pytest.raises(TrainError, match="2 processes cannot share the 4 batches of the batch_sampler"):
        share(OPTIONS, 4, 2, batched=True, one_batch=True)


def test_numbers_that_do_not_divide_are_told_which_do() -> None:
    with pytest.raises(TrainError, match="3 processes cannot share the 64 samples of each step") as raised:
        share(OPTIONS, 4, 3)
    assert "1, 2, 4, 8, 16, 32, 64 processes" in str(raised.value) and "the run began on 4" in str(raised.value)


def test_every_step_has_the_same_samples() -> None:
    """Whatever the number of ranks, step k has the k-th 12 samples of one order; the last may repeat some."""
    options = TrainConfig(epochs=1, batch_size=3, lr=0.1)
    four = [list(DistributedSampler(range(40), num_replicas=4, rank=rank, seed=5)) for rank in range(4)]
    expected = [sorted(i for order in four for i in order[k : k + 3]) for k in range(0, 10, 3)]
    for size in (1, 2, 3, 6):
        part = share(options, 4, size)
        each = part.batch_size * part.accumulate
        orders = []
        for rank in range(size):
            source = DistributedSampler(range(40), num_replicas=1, rank=0, seed=5)
            orders.append(list(DividedSampler(source, rank, size, 40)))
        steps = [sorted(i for order in orders for i in order[k : k + each]) for k in range(0, len(orders[0]), each)]
        assert steps[:3] == expected[:3] and set(steps[3]) >= set(expected[3]) and len(steps) == 4, size


def test_drop_last_leaves_out_the_same() -> None:
    options = TrainConfig(epochs=1, batch_size=16, lr=0.1, drop_last=True)
    assert used(options, 4, 100) == 64 and used(OPTIONS, 4, 100) == 100 and used(options, 1, 100) == 96
    assert divide([1, 2, 3], 1, 2) == [2, 1] and divide([], 0, 2) == [] and divide([1], 2, 3) == [1]


PAGE = """
import os
import signal

import numpy as np
import ox
from ox import nn
from ox.data import TensorDataset

count = [0]


def model():
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))


def data():
    r = np.random.default_rng(0)
    x = r.standard_normal((300, 6)).astype(np.float32)
    y = (x.sum(1) > 0).astype(np.int64)
    return TensorDataset(x[:240], y[:240]), TensorDataset(x[240:], y[240:]), None


def augment(batch, generator):
    count[0] += 1
    if str(count[0]) == os.environ.get("STOP"):
        os.kill(os.getpid(), signal.SIGTERM)
    return batch


def scheduler(optimizer, lr, steps):
    return ox.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (2 * steps))


loss = nn.CrossEntropyLoss()
defaults = dict(epochs=3, batch_size=20, lr=0.01)
"""


def trained(folder: Path, *words: object, code: int = 0, **env: str) -> str:
    """The output of `ox train`, which ends with this exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "ox_cli", "train", *map(str, words)], cwd=folder, capture_output=True, text=True,
        env={**os.environ, **THREADS, **env}, timeout=150,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def values(run: Path) -> dict[str, np.ndarray]:
    state = ox.load(run / "checkpoints/last.safetensors")
    found = {name: value.array for name, value in state["model"].items()}
    for key, slots in state["optimizer"]["state"].items():
        found |= {f"optimizer {key} {slot}": np.asarray(getattr(x, "array", x)) for slot, x in slots.items()}
    return found


def assert_close(one: Path, other: Path) -> None:
    a, b = values(one), values(other)
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert tolerance.compare(value, b[name]).ok, name


@needs_mpi
@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("begun", "now"), [(2, 1), (1, 2)])
def test_another_number_of_processes(begun: int, now: int, tmp_path: Path) -> None:
    """Stopped in the middle of an epoch, gone on with the other number: the weights of an undisturbed run."""
    (tmp_path / "clouds.py").write_text(PAGE)
    trained(tmp_path, "clouds.py", "--nproc", begun, "--out", "whole")
    trained(tmp_path, "clouds.py", "--nproc", begun, STOP="8", code=143)
    folder = tmp_path / "runs" / "clouds-0001"
    out = trained(tmp_path, "--resume", folder, "--nproc", now)
    each = {(2, 1): "40 samples: 1 process × batch size 20 × accumulate 2",
            (1, 2): "20 samples: 2 processes × batch size 10 × accumulate 1"}[begun, now]  # fmt: skip
    assert f"processes: {begun} before, {now} now; a step stays {each}" in out, out
    assert_close(folder, tmp_path / "whole" / "clouds-0001")
    one, other = (train.find(path).result for path in (folder, tmp_path / "whole" / "clouds-0001"))
    assert one is not None and other is not None and one["steps"] == other["steps"]
    assert np.isclose(one["best"]["loss"], other["best"]["loss"], rtol=1e-5)


MORE = {
    "sampler": "def sampler(dataset):\n    return np.random.permutation(len(dataset)).tolist()[:200]\n",
    "batch_sampler": """
class Batches:
    def __len__(self):
        return 12

    def __iter__(self):
        yield from np.random.permutation(240).reshape(12, 20).tolist()


def batch_sampler(dataset):
    return Batches()
""",
    "drop_last": "defaults['drop_last'] = True\nrows = data\n\n\ndef data():\n    x, *others = rows()\n"
    "    return TensorDataset(*(t[:230] for t in x.tensors)), *others\n",
    "steps_per_epoch": "defaults['steps_per_epoch'] = 4\n",
    "stream": """
from ox.data import IterableDataset


class Lines(IterableDataset):
    def __len__(self):
        return 240

    def __iter__(self):
        r = np.random.default_rng(7)
        for i in range(240):
            yield r.standard_normal(6).astype(np.float32), i % 2


arrays = data


def data():
    return Lines(), *arrays()[1:]
""",
}


@needs_mpi
@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", MORE)
def test_orders_of_every_kind_go_on(name: str, tmp_path: Path) -> None:
    """From two processes to one, in the middle of an epoch."""
    (tmp_path / "clouds.py").write_text(PAGE + MORE[name])
    trained(tmp_path, "clouds.py", "--nproc", 2, "--out", "whole")
    trained(tmp_path, "clouds.py", "--nproc", 2, STOP="9", code=143)
    folder = tmp_path / "runs" / "clouds-0001"
    assert "processes: 2 before, 1 now" in trained(tmp_path, "--resume", folder, "--nproc", 1)
    assert_close(folder, tmp_path / "whole" / "clouds-0001")


SCRIPT = """
import os, signal, sys
import numpy as np
import ox, ox.distributed as dist
from ox import nn
from ox.distributed.optim import ZeroRedundancyOptimizer
from ox.train import Trainer

dist.init_process_group()
ox.manual_seed(0)
r = np.random.default_rng(0)
x = r.standard_normal((240, 6)).astype(np.float32)
model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.1), nn.ReLU(), nn.Linear(12, 2))
optimizer = ZeroRedundancyOptimizer(model.parameters(), ox.optim.Adam, lr=0.01)

def step(model, batch):
    if str(trainer.progress.step) == os.environ.get("STOP"):
        os.kill(os.getpid(), signal.SIGTERM)
    out = model(batch[0])
    return nn.functional.cross_entropy(out, batch[1]), out

trainer = Trainer(model, None, optimizer, (x, (x.sum(1) > 0).astype(np.int64)), step=step, epochs=3, batch_size=20,
                  amp="fp16", ema=0.9)
try:
    result = trainer.fit("mine", resume=True)
except ox.train.Interrupted as stop:
    sys.exit(stop.exit_code)
scale = trainer.update.scaler.get_scale()
print("done", trainer.progress.step, f"{result['best']['validation_accuracy']:.2f}", f"scale {scale:g}", flush=True)
dist.destroy_process_group()
"""


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(("begun", "now"), [(2, 1), (1, 2)])
def test_sharded_state_scaler_statistics_and_dropout(begun: int, now: int, tmp_path: Path) -> None:
    """What differs between ranks or is shared out among them comes back; the script does not change."""
    (tmp_path / "script.py").write_text(SCRIPT)

    def launched(ranks: int, code: int, **env: str) -> str:
        words = [sys.executable, "-m", "ox_cli", "launch", "--nproc", str(ranks), "--", "script.py"]
        done = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **THREADS, **env}, timeout=150
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    launched(begun, 143, STOP="8")
    before = ox.load(tmp_path / "mine/checkpoints/last.safetensors")
    out = launched(now, 0)
    after = ox.load(tmp_path / "mine/checkpoints/last.safetensors")
    steps = {1: 33, 2: 18}[begun]  # of 216 samples, by 20 or 40
    assert out.count(f"done {steps} ") == now and out.count("scale 65536") == now, out
    assert after["progress"]["step"] == steps and before["progress"]["step"] == 9
    for name in ("1.running_mean", "1.running_var"):
        assert not np.array_equal(before["model"][name].array, after["model"][name].array)
    moments = [slots["exp_avg"].array for slots in after["optimizer"]["state"].values()]
    assert len(moments) == 6 and all(np.isfinite(m).all() and m.any() for m in moments)
