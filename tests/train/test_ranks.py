"""The trainer on several processes: one process's weights, one folder, stops, kills, and what must be alike."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from ranks import THREADS, needs_mpi, run
from waiting import AUGMENT_WAITS, wait_for_files, wait_until

import ox
from ox import train
from ox.train.evaluation import Result
from ox.train.ranks import Ranks

pytestmark = [needs_mpi, pytest.mark.usefixtures("forked_processes")]

PAGE = '''
"""Two clouds."""
import numpy as np
import ox
from ox import nn
from ox.data import TensorDataset


def model():
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(){more}, nn.Linear(12, 2))


def data():
    r = np.random.default_rng(0)
    x = r.standard_normal(({count}, 6)).astype(np.float32)
    y = (x.sum(1) + r.standard_normal({count}) * 0.3 > 0).astype(np.int64)
    cut = {count} - 75
    return TensorDataset(x[:cut], y[:cut]), TensorDataset(x[cut:-24], y[cut:-24]), TensorDataset(x[-24:], y[-24:])


{waits}
    x, y = batch
    return x + {noise} * ox.randn(x.shape, generator=generator), y


loss = nn.CrossEntropyLoss()
metrics = ["f1", "auroc"]
defaults = dict(epochs={epochs}, batch_size={batch}, lr=0.01)
'''


def page(folder: Path, name: str = "clouds", **changes: object) -> Path:
    told = {"more": "", "count": 315, "noise": 0.01, "epochs": 3, "batch": 20, "waits": AUGMENT_WAITS} | changes
    (folder / f"{name}.py").write_text(PAGE.format(**told))
    return folder / f"{name}.py"


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "ox_cli", "train", *map(str, words)]


def trained(folder: Path, *words: object, limit: float = 150) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **THREADS}
    return subprocess.run(command(*words), cwd=folder, capture_output=True, text=True, env=env, timeout=limit)


def weights(folder: Path, name: str = "last") -> dict[str, np.ndarray]:
    state = ox.load(folder / "checkpoints" / f"{name}.safetensors")
    found = {f"model.{key}": value.array for key, value in state["model"].items()}
    for key, slots in state["optimizer"]["state"].items():
        found |= {f"optimizer.{key}.{slot}": np.asarray(getattr(x, "array", x)) for slot, x in slots.items()}
    return found


def assert_same(one: Path, other: Path) -> None:
    for name in ("last", "best"):
        a, b = weights(one, name), weights(other, name)
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[key], b[key]) for key in a), name


def test_two_processes_train_as_one_with_batches_twice_as_large(tmp_path: Path) -> None:
    """The same samples a step, though dealt out otherwise: no noise, no dropout, and 240 samples divide evenly."""
    code = """
    from ox.train import TrainConfig, load
    from ox.train.trainer import Trainer
    def batch(n):
        r = np.random.default_rng(n)
        return ox.from_numpy(r.standard_normal((20, 6)).astype(np.float32)), ox.from_numpy(r.integers(0, 2, 20))
    recipe = load("clouds.py")
    trainer = Trainer(recipe, TrainConfig.from_defaults(recipe.defaults, clip=1.0, ema=0.9))
    mine = [(x[rank * 10:rank * 10 + 10], y[rank * 10:rank * 10 + 10]) for x, y in map(batch, range(16))]
    for i in range(8):
        trainer.step(*mine[2 * i : 2 * i + 2])       # accumulated over two
    if rank == 0:
        np.savez("together.npz", **{k: v.numpy() for k, v in trainer.model.state_dict().items()})
    """
    page(tmp_path)
    run(code, 2, tmp_path)
    recipe = train.load(tmp_path / "clouds.py")
    trainer = train.Trainer(recipe, train.TrainConfig.from_defaults(recipe.defaults, clip=1.0, ema=0.9))
    for i in range(8):
        drawn = [np.random.default_rng(n) for n in (2 * i, 2 * i + 1)]
        trainer.step(
            *(
                (ox.from_numpy(r.standard_normal((20, 6)).astype(np.float32)), ox.from_numpy(r.integers(0, 2, 20)))
                for r in drawn
            )
        )
    together = np.load(tmp_path / "together.npz")
    for name, value in trainer.model.state_dict().items():
        assert np.allclose(together[name], value.numpy(), atol=1e-5), name


def test_a_run_of_two_processes(tmp_path: Path) -> None:
    page(tmp_path)
    done = trained(tmp_path, "clouds.py", "--nproc", 2)
    assert done.returncode == 0, done.stderr
    assert "2 processes" in done.stdout and "batch size 2 × 20" in done.stdout
    assert done.stdout.count("epoch 3/3") == 1 and done.stdout.count("next: ox export") == 1
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["clouds-0001"]
    run_ = train.find(tmp_path / "runs" / "clouds-0001")
    assert run_.config["machine"]["processes"] == 2 and run_.config["run"]["command"].endswith("clouds.py --nproc 2")
    rows = [json.loads(line) for line in run_.metrics.read_text().splitlines()]
    assert [row["step"] for row in rows if "validation_loss" in row] == [6, 12, 18]  # 240 samples by 2 × 20
    # what the ranks counted together is what one process counts
    recipe, model = train.restore(run_)
    trainer = train.Trainer(recipe, run_.options)
    held_back = trainer.evaluate(trainer.data.held_back, model).to_table()
    told = run_.result["held_back"]
    assert held_back["count"] == told["count"] == 24 and held_back["correct"] == told["correct"]
    assert all(np.isclose(held_back[name], told[name]) for name in ("loss", "f1", "auroc"))


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_stopped_and_resumed(number: signal.Signals, tmp_path: Path) -> None:
    """Dropout and noise are each rank's own, so their random numbers must come back, too."""
    page(tmp_path, more=", nn.Dropout(0.2), nn.BatchNorm1d(12)")
    whole = trained(tmp_path, "clouds.py", "--nproc", 2, "--out", "whole")
    assert whole.returncode == 0, whole.stderr
    process = subprocess.Popen(
        command("clouds.py", "--nproc", 2, "--checkpoint-every", 1e-9), cwd=tmp_path, stdout=subprocess.PIPE,
        env={**os.environ, **THREADS, "OX_TEST_WAITS": "8"}, text=True,
    )  # fmt: skip
    wait_for_files(tmp_path, "waits.*", 2, process)
    process.send_signal(number)
    rest = process.communicate(timeout=300)[0]
    assert process.returncode == 128 + number and rest.count("next: ox train --resume") == 1, rest
    folder = tmp_path / "runs" / "clouds-0001"
    alone = trained(tmp_path, "--resume", folder, "--nproc", 3)
    assert alone.returncode == 1 and "3 processes cannot share the 40 samples of each step" in alone.stderr
    resumed = trained(tmp_path, "--resume", folder)  # with as many as it began with
    assert resumed.returncode == 0 and "resumed after step" in resumed.stdout, resumed.stderr
    assert_same(folder, tmp_path / "whole" / "clouds-0001")
    one, other = (train.find(path).result for path in (folder, tmp_path / "whole" / "clouds-0001"))
    assert one is not None and other is not None
    assert one["held_back"] == other["held_back"] and one["best"]["loss"] == other["best"]["loss"]


TELLS_PID = """
import os
from pathlib import Path

Path("again").mkdir(exist_ok=True)
Path("again", f"{os.environ['OX_LAUNCH_ATTEMPT']}.{os.environ['RANK']}.{os.getpid()}.pid").touch()
if int(os.environ["OX_LAUNCH_ATTEMPT"]) <= int(os.environ.get("OX_TEST_KILLS", 0)):
    os.environ["OX_TEST_WAITS"] = "14"  # for its kill, after the checkpoint of an epoch or two
"""


@pytest.mark.slow
def test_killed_ranks_end_with_the_weights_of_an_undisturbed_run(tmp_path: Path) -> None:
    kills = 3
    slow = AUGMENT_WAITS + "    import time; time.sleep(0.03)"
    path = page(tmp_path, more=", nn.Dropout(0.2), nn.BatchNorm1d(12)", waits=slow, epochs=5 * kills)
    path.write_text(path.read_text() + TELLS_PID)
    whole = trained(tmp_path, "clouds.py", "--nproc", 2, "--out", "whole", limit=300)
    assert whole.returncode == 0, whole.stderr
    for mark in (tmp_path / "again").iterdir():
        mark.unlink()
    process = subprocess.Popen(
        command("clouds.py", "--nproc", 2, "--checkpoint-every", 1e-9, "--max-restarts", kills + 1), cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, **THREADS, "TMPDIR": str(tmp_path), "OX_TEST_KILLS": str(kills)},
    )  # fmt: skip
    last, chance = tmp_path / "runs" / "clouds-0001" / "checkpoints" / "last.safetensors", random.Random(kills)

    def step() -> int:
        return int(ox.load(last)["progress"]["step"]) if last.exists() else 0

    before = 0
    try:
        for attempt in range(kills):
            begun = wait_for_files(tmp_path, f"again/{attempt + 1}.*.pid", 2, process)
            wait_until(lambda further=before + 3: step() >= further, process=process)  # than the kill before
            before = step()
            time.sleep(chance.random() * 0.1)  # noqa: TID251  # a kill comes at any moment
            os.kill(int(chance.choice(begun).stem.split(".")[2]), signal.SIGKILL)
        out = process.communicate(timeout=200)[0]
    finally:
        process.kill()
    assert process.returncode == 0, out[-3000:]
    assert out.count("restarting all ranks") == kills and out.count("resumed after step") == kills, out[-3000:]
    assert_same(last.parent.parent, tmp_path / "whole" / "clouds-0001")


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ("options['seed'] = rank", "rank 1 has another seed than rank 0"),
        ("options['lr'] = 0.01 * (1 + rank)", "rank 1 has another lr than rank 0"),
        ("name = f'clouds{rank}'", "rank 1 has another recipe file than rank 0"),
        ("options['limit'] = 100 - rank", "rank 1 has another limit than rank 0"),
    ],
)
def test_ranks_that_were_told_something_else(differs: str, said: str, tmp_path: Path) -> None:
    page(tmp_path), page(tmp_path, "clouds0"), page(tmp_path, "clouds1", noise=0.02)
    code = f"""
    from ox.errors import TrainError
    from ox.train import TrainConfig, Trainer, load
    options, name = dict(), "clouds"
    {differs}
    recipe = load(name + ".py")
    try:
        Trainer(recipe, TrainConfig.from_defaults(recipe.defaults, **options))
    except TrainError as error:
        print("said", error.what, flush=True)
    """
    assert run(code, 2, tmp_path).count(f"said {said}") == 2


def test_ranks_with_other_data_or_another_model(tmp_path: Path) -> None:
    page(tmp_path)
    code = """
    from ox.errors import ArgumentError, TrainError
    from ox.train import Trainer
    x, y = np.zeros((64, 6), np.float32), np.zeros(64, np.int64)
    def tried(width, count):
        try:
            Trainer(nn.Sequential(nn.Linear(6, width), nn.Linear(width, 2)), nn.CrossEntropyLoss(), None,
                    (x[:count], y[:count]), (x[:8], y[:8]), epochs=1, batch_size=4)
        except (ArgumentError, TrainError) as error:
            print("said", error.one_line().replace("\\n", " "), flush=True)
    tried(5, 64 - rank)
    tried(5 + rank, 64)
    """
    out = run(code, 2, tmp_path)
    assert out.count("said rank 1 has another length of the train data than rank 0") == 2, out
    assert out.count("0.weight") >= 2 and "rank 1" in out.rpartition("train data")[2], out


def test_an_error_of_one_rank_ends_all_and_names_it(tmp_path: Path) -> None:
    path = page(tmp_path)
    path.write_text(
        path.read_text().replace("    x, y = batch\n", "    x, y = batch\n    fail()\n", 1)
        + """

def fail(count=[0]):
    import os
    count[0] += 1
    if os.environ["RANK"] == "1" and count[0] == 5:
        raise ValueError("mine")
"""
    )
    done = trained(tmp_path, "clouds.py", "--nproc", 2)
    assert done.returncode == 1 and "rank 1: RecipeError: augment() in clouds.py stops" in done.stderr, done.stderr
    assert 'raise ValueError("mine")' in done.stderr
    assert "rank 0: DistributedError: " in done.stderr and "rank 1 has ended and will not come" in done.stderr


@pytest.mark.slow
def test_a_page_with_a_step_of_its_own(tmp_path: Path) -> None:
    """It may call parts of the model, which no wrapper sees: gradients are averaged after backward."""
    path = page(tmp_path)
    path.write_text(
        path.read_text()
        + "\ndef step(model, batch):\n    x, y = batch\n    out = model[2](model[1](model[0](x)))\n"
        + "    return loss(out, y), out\n"
    )
    page(tmp_path, "plain")
    for name in ("clouds", "plain"):
        done = trained(tmp_path, f"{name}.py", "--nproc", 2)
        assert done.returncode == 0, done.stderr
    one, other = (weights(tmp_path / "runs" / f"{name}-0001") for name in ("clouds", "plain"))
    assert all(np.allclose(one[key], other[key], atol=1e-5) for key in one)


def test_alone_is_nobody_else() -> None:
    ranks, result = Ranks(), Result(count=3, loss_sum=1.5)
    assert ranks.is_first and ranks.rank_seed(7) == 7 and ranks.sampler([1], 0) is None and ranks.sum(2.5) == 2.5
    assert (
        ranks.all_reduce_result(result) is result
        and ranks.agree([15], True, False) == (15, True, False)
        and ranks.agree([], False, True) == (0, False, True)
    )
    assert ranks.all_gather({"a": 1}) is None and ranks.broadcast("x") == "x"


def test_the_sums_of_other_ranks_are_not_lost() -> None:
    states = [{"random": i, "augmentation": i, "running": {"count": i, "loss_sum": 2.0 * i}} for i in range(1, 5)]
    ranks = Ranks()
    assert ranks.own_state(states[:1]) == states[0]
    own = ranks.own_state(states)
    assert own["random"] == 1 and own["running"]["count"] == 10 and own["running"]["loss_sum"] == 20.0
    ranks.rank, ranks.size = 1, 3
    assert ranks.own_state(states)["running"]["count"] == 2 and ranks.own_state(states)["random"] == 2
    ranks.rank, ranks.size = 5, 6
    own = ranks.own_state(states)
    assert own["random"] is None and own["running"]["count"] == 0


MORE = {
    "step of its own": '''
def optimizer(model, lr):
    return [ox.optim.SGD(model[0].parameters(), lr=lr), ox.optim.Adam(model[2].parameters(), lr=lr)]


def step(model, batch, optimizers):
    outputs = model(batch[0])
    value = loss(outputs, batch[1])
    for one in optimizers:
        one.zero_grad()
    value.backward()
    for one in optimizers:
        one.step()
    return value, outputs
''',
    "unused": '''
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x):
        return self.used(x)


def model():
    return Net()
''',
    "closure": '''
def optimizer(model, lr):
    return ox.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3, line_search_fn="strong_wolfe")
''',
    "plateau": '''
def scheduler(optimizer, lr, steps):
    return ox.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=1.0, factor=0.5)
''',
    "sampler": '''
def sampler(dataset):
    return np.random.permutation(len(dataset)).tolist()[:120]
''',
    "stream": '''
from ox.data import IterableDataset


class Lines(IterableDataset):
    def __iter__(self):
        for i in range(130):
            yield np.random.randn(6).astype(np.float32), i % 2


arrays = data


def data():
    return Lines(), *arrays()[1:]


defaults["steps_per_epoch"] = 5
''',
}  # fmt: skip


DYING = ("--max-restarts", 1, "--checkpoint-every", 0.001, "--timeout", 100)
DIES = """
import os
import signal
from pathlib import Path

_plain, _count = augment, [0]


def augment(batch, generator):
    _count[0] += 1
    if _count[0] == 5 and Path("again").exists() and ox.distributed.get_rank() == 1 and not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return _plain(batch, generator)
"""


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", MORE)
def test_what_a_recipe_may_have_trains_on_two_processes(tmp_path: Path, name: str) -> None:
    """And is killed in the middle, with all its ranks, and started again: the weights are the same to the bit."""
    path = page(tmp_path, epochs=2, noise=0.01)
    path.write_text(path.read_text() + MORE[name] + DIES)
    whole = trained(tmp_path, "clouds.py", "--nproc", 2, "--out", "whole")
    assert whole.returncode == 0, whole.stderr
    again = trained(tmp_path, "clouds.py", "--nproc", 2, "--out", "again", *DYING)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("restarting all ranks") == 1 and (tmp_path / "died").exists()
    one, other = (ox.load(tmp_path / f / "clouds-0001/checkpoints/last.safetensors") for f in ("whole", "again"))
    assert all(np.array_equal(x.array, other["model"][key].array) for key, x in one["model"].items())


@pytest.mark.slow
def test_an_older_checkpoint_and_a_longer_run(tmp_path: Path) -> None:
    """Two ranks go on from the checkpoint before a damaged last one, and to more epochs: the same weights."""
    page(tmp_path, more=", nn.Dropout(0.2)")
    whole = trained(tmp_path, "clouds.py", "--nproc", 2, "--out", "whole", "--epochs", 5)
    assert whole.returncode == 0, whole.stderr
    first = trained(tmp_path, "clouds.py", "--nproc", 2, "--epochs", 2)
    assert first.returncode == 0, first.stderr
    folder = tmp_path / "runs" / "clouds-0001"
    longer = trained(tmp_path, "--resume", folder, "--epochs", 3)
    assert longer.returncode == 0 and "resumed after step 12 of 18" in longer.stdout, longer.stderr
    last = folder / "checkpoints" / "last.safetensors"
    data = bytearray(last.read_bytes())
    data[-5] ^= 16
    last.write_bytes(data)  # in place: its other name is damaged with it
    resumed = trained(tmp_path, "--resume", folder, "--epochs", 5)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming from last-1.safetensors, step 12" in resumed.stdout
    assert resumed.stdout.count("2 processes") == 1
    assert_same(folder, tmp_path / "whole" / "clouds-0001")


@pytest.mark.slow
def test_all_checkpoints_of_two_ranks_are_damaged(tmp_path: Path) -> None:
    """One error, of each rank the same, and nobody hangs."""
    page(tmp_path)
    assert trained(tmp_path, "clouds.py", "--nproc", 2, "--epochs", 1).returncode == 0
    folder = tmp_path / "runs" / "clouds-0001"
    for path in (folder / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-4])
    done = trained(tmp_path, "--resume", folder, "--epochs", 2)
    assert done.returncode == 1 and "cannot be read" in done.stderr, done.stderr
