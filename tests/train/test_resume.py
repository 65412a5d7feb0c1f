"""Killed at any moment and resumed, a run ends with the very weights of one that was left in peace."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from stopped_runs import StopAfter
from waiting import AUGMENT_WAITS, wait_until

from ox import train
from ox.errors import LoadError, TrainError
from ox.serialization.files import load as read_file
from ox.train.display import Silent
from ox.train.run import checkpoint, loop
from ox.train.run.run import find

pytestmark = pytest.mark.usefixtures("forked_processes")

OPTIONS = {"epochs": 4, "checkpoint_every": 1e-9}  # a checkpoint a step


def weights(run: train.Run, which: str = "last") -> dict[str, bytes]:
    state = checkpoint.load(getattr(run, which))
    return {name: x.array.tobytes() for name, x in state["model"].items()}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ox_cli", "train", *arguments]


def lines(run: train.Run) -> list[tuple]:
    """metrics.jsonl without what a clock wrote into it; every line must be whole."""
    read = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    return [tuple((k, v) for k, v in line.items() if k not in ("seconds", "samples_per_second")) for line in read]


def test_same_seed_same_weights(page: Path, tmp_path: Path) -> None:
    one, two = (train.train(page, out=tmp_path / name) for name in "ab")
    other = train.train(page, out=tmp_path / "c", seed=1)
    assert weights(one) == weights(two) != weights(other)
    assert lines(one) == lines(two)


def test_seconds_are_those_of_training(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All epochs so far, also those before a stop: here each look at the clock takes a second."""

    def seconds(run: train.Run) -> list[float]:
        rows = [json.loads(line) for line in run.metrics.read_text().splitlines()]
        return [row["seconds"] for row in rows if "seconds" in row]

    clock = SimpleNamespace(perf_counter=itertools.count(1e6).__next__, monotonic=itertools.count(1e6).__next__)
    monkeypatch.setattr(loop, "time", clock)
    whole = seconds(train.train(page, out=tmp_path / "whole", epochs=4))
    assert 0 < whole[0] < whole[1] < 100 and {*np.diff(whole)} == {whole[1] - whole[0]}
    with pytest.raises(KeyError):
        train.train(page, out=tmp_path / "stopped", show=StopAfter(7), **OPTIONS)
    resumed = seconds(train.resume(max((tmp_path / "stopped").iterdir())))
    assert len(resumed) == 4 and resumed == sorted(resumed) and abs(resumed[-1] - whole[-1]) < whole[0]


@pytest.mark.parametrize("every", [1e-9, 1e9], ids=["each step", "each epoch"])
@pytest.mark.slow
def test_stopped_after_any_step(page: Path, tmp_path: Path, every: float) -> None:
    whole = train.train(page, out=tmp_path / "whole", epochs=3, checkpoint_every=every)
    for after in range(1, 15):
        with pytest.raises(KeyError):
            train.train(page, out=tmp_path / "stopped", epochs=3, checkpoint_every=every, show=StopAfter(after))
        folder = max((tmp_path / "stopped").iterdir())
        resumed = train.resume(folder)
        assert weights(resumed) == weights(whole), after
        assert weights(resumed, "best") == weights(whole, "best")
        assert lines(resumed) == lines(whole)
        assert resumed.result["held_back"] == whole.result["held_back"]


SLOWLY = """
import os
import time

from ox.serialization import files

chunks = files.chunks


def slowly(arrays, metadata):
    for piece in chunks(arrays, metadata):
        time.sleep(0.001)
        yield piece


if "OX_TEST_SLOWLY" in os.environ:
    files.chunks = slowly


def augment(batch, generator):
    time.sleep(0.02)
"""


@pytest.mark.slow
def test_killed_at_random_moments(variant, tmp_path: Path) -> None:
    """SIGKILL from outside, again and again, whatever the process is doing: also while it writes a checkpoint, which
    is most of the time, for each is written so slowly that the next step does not wait for it."""
    page = variant("points", ("\ndef augment(batch, generator):\n", SLOWLY))
    whole = train.train(page, out=tmp_path / "whole", **OPTIONS)
    chance, kills, torn, folder = random.Random(7), 0, 0, tmp_path / "killed" / "points-0001"
    slowly = os.environ | {"OX_TEST_SLOWLY": "1"}
    for _ in range(10):
        begun = (folder / "checkpoints" / "last.safetensors").is_file()
        arguments = ["--resume", str(folder)] if begun else [str(page), "--out", str(folder.parent), "--epochs", "4"]
        if not begun:
            arguments += ["--checkpoint-every", "1e-9"]
            folder = folder.parent / f"points-{len(list(folder.parent.glob('points-*'))) + 1:04d}"
        process = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, env=slowly)
        written = _stamp(folder)
        wait_until(partial(_has_gone_on, process, folder, written))
        time.sleep(chance.uniform(0, 0.2))  # noqa: TID251  # a kill comes at any moment
        process.kill()
        if process.wait() != -signal.SIGKILL:
            assert process.returncode == 0
            break
        kills += 1
        torn += bool(list(folder.glob("checkpoints/.*")))
    run = find(folder)
    if run.result is None:
        run = train.resume(folder)
    assert kills >= 2
    assert torn, "no kill came while a checkpoint was being written"
    assert weights(run) == weights(whole)
    assert weights(run, "best") == weights(whole, "best")
    assert lines(run) == lines(whole)
    assert not list(folder.rglob(".*"))
    names = {path.relative_to(folder) for path in folder.rglob("*")}
    clean = {path.relative_to(whole.folder) for path in whole.folder.rglob("*")}
    assert {n for n in names ^ clean if "tfevents" not in n.name} == set()


def _has_gone_on(process: subprocess.Popen[bytes], folder: Path, written: int) -> bool:
    return _stamp(folder) != written or process.poll() is not None


def _stamp(folder: Path) -> int:
    try:
        return (folder / "checkpoints" / "last.safetensors").stat().st_mtime_ns
    except OSError:
        return 0


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2], ids=["SIGUSR1", "SIGUSR2"])
def test_a_warning_writes_a_checkpoint_and_the_run_goes_on(page: Path, tmp_path: Path, number: signal.Signals) -> None:
    """As a scheduler sends it before the time of a job is over."""
    saved: list[int] = []

    class Warned(Silent):
        def step(self, trainer, rate) -> None:  # type: ignore[no-untyped-def]
            if trainer.progress.step in (2, 7):
                os.kill(os.getpid(), number)
            if trainer.progress.step in (3, 8):
                path = tmp_path / "run" / "checkpoints" / "last.safetensors"
                saved.append(checkpoint.load(path)["progress"]["step"])

    recipe = train.load(page)
    trainer = train.Trainer(recipe, train.TrainConfig.from_defaults(recipe.defaults, epochs=2))
    assert trainer.fit(tmp_path / "run", show=Warned())["epochs"] == 2
    assert saved == [2, 7]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_polite_stop_writes_a_checkpoint(variant, tmp_path: Path, number: signal.Signals) -> None:
    page = variant("points", ("\ndef augment(batch, generator):\n", AUGMENT_WAITS))
    process = subprocess.Popen(
        command(str(page), "--epochs", "20"), stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        env=os.environ | {"OX_TEST_WAITS": "7"},
    )  # fmt: skip
    wait_until((tmp_path / "waits.0").exists, process=process)
    process.send_signal(number)
    shown = process.communicate(timeout=300)[0]
    assert process.returncode == 128 + number
    assert "epoch  1/20" in shown and "epoch  2/20" not in shown
    assert "next: ox train --resume runs/points-0001" in shown and "after step 7 of 100" in shown
    state = checkpoint.load(tmp_path / "runs" / "points-0001" / "checkpoints" / "last.safetensors")
    assert state["progress"]["step"] == 7


def test_best_behind_last_is_mended(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the two names of one checkpoint."""
    whole = train.train(page, out=tmp_path / "whole", epochs=1)
    real = checkpoint._link

    def killed(*names: Path) -> None:
        raise KeyError("killed")

    monkeypatch.setattr(checkpoint, "_link", killed)
    with pytest.raises(KeyError):
        train.train(page, out=tmp_path / "stopped", epochs=1)
    monkeypatch.setattr(checkpoint, "_link", real)
    folder = tmp_path / "stopped" / "points-0001"
    assert not (folder / "checkpoints" / "best.safetensors").exists()
    assert weights(train.resume(folder), "best") == weights(whole, "best")


def test_a_checkpoint_holds_everything(page: Path, tmp_path: Path) -> None:
    run = train.train(page, out=tmp_path / "runs", epochs=1)
    state = read_file(run.last)
    assert {"model", "optimizer", "scheduler", "random", "loader", "progress"} <= set(state)
    assert state["progress"]["epoch"] == 1
    assert state["progress"]["best"] == state["progress"]["history"][0]


def test_a_disk_that_refuses(variant, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: it stops with one error and leaves no torn file."""
    page = variant("points", ("(2, 16)", "(2, 65536)"), ("(16, 2)", "(65536, 2)"))
    limited = ["bash", "-c", 'ulimit -f 500 && exec "$@"', "bash", *command(str(page))]
    done = subprocess.run(limited, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("TrainError: the checkpoint could not be written")
    assert not list((tmp_path / "runs" / "points-0001" / "checkpoints").iterdir())


# -- what cannot be resumed: one error each, and nothing changed on disk --------------------------------------------


def stopped(page: Path, root: Path) -> Path:
    with pytest.raises(KeyError):
        train.train(page, out=root, checkpoint_every=1e-9, show=StopAfter(7))
    return root / "points-0001"


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in root.rglob("*") if p.is_file()}


def refused(folder: Path, kind: type[Exception]) -> str:
    before = snapshot(folder)
    with pytest.raises(kind) as caught:
        train.resume(folder)
    assert snapshot(folder) == before
    return str(caught.value)


def test_what_killed_processes_left_is_removed(page: Path, tmp_path: Path) -> None:
    """Also what versions before left, whose checkpoints were written by safetensors itself."""
    folder = stopped(page, tmp_path / "runs")
    for name in (".last.safetensors.01234567.tmp", ".tmpA1b2C3", ".best.safetensors.89abcdef.tmp"):
        (folder / "checkpoints" / name).write_bytes(b"half")
    for name in (".curves.png.01234567.tmp", ".metrics.jsonl.01234567.tmp", ".result.json.01234567.tmp", ".training"):
        (folder / name).write_bytes(b"half")
    (folder / ".tmpA1b2C3").write_bytes(b"not ours")
    run = train.resume(folder)
    assert [path.name for path in run.folder.rglob(".*")] == [".tmpA1b2C3"]


def test_killed_before_the_first_checkpoint(page: Path, tmp_path: Path) -> None:
    whole = train.train(page, out=tmp_path / "whole", epochs=2)
    with pytest.raises(KeyError):
        train.train(page, out=tmp_path / "stopped", epochs=2, show=StopAfter(1))
    folder = max((tmp_path / "stopped").iterdir())
    for left in [*(folder / "checkpoints").iterdir(), folder / "metrics.jsonl"]:
        left.unlink(missing_ok=True)
    resumed = train.resume(folder)
    assert weights(resumed) == weights(whole)
    assert lines(resumed) == lines(whole)


def test_a_finished_run(page: Path, tmp_path: Path) -> None:
    """It is left as it is: what starts a run again and again comes to an end."""
    run = train.train(page, out=tmp_path / "runs", epochs=1)
    before = snapshot(run.folder)
    assert train.resume(run.folder).result == run.result
    assert snapshot(run.folder) == before


KILL = """
import os, signal, sys
from pathlib import Path
from ox import train
from ox.serialization import files
from ox.train.run import run

count, real = int(sys.argv[3]), files.write_whole

def killed(path, *args, **kwargs):
    global count
    if count == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    count -= 1
    return real(path, *args, **kwargs)

run.write_whole = killed
if sys.argv[2] == "fit":
    recipe = train.load(sys.argv[1])
    train.Trainer(recipe, train.TrainConfig.from_defaults(recipe.defaults, epochs=1)).fit("runs/mine", resume=True)
else:
    train.train(sys.argv[1], epochs=1)
"""


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("way", ["train", "fit"])
@pytest.mark.parametrize("after", [0, 1])
def test_killed_while_the_folder_is_made(page: Path, tmp_path: Path, way: str, after: int) -> None:
    """There is a whole folder or none; what is left under a temporary name the next run removes."""
    for count in (after, 99):
        done = subprocess.run([sys.executable, "-c", KILL, page, way, str(count)], cwd=tmp_path, timeout=120)
        left = [path.name for path in (tmp_path / "runs").iterdir()]
        if count != 99:
            assert done.returncode == -signal.SIGKILL
            assert [name.startswith(".ox-run-") for name in left] == [True]
            assert train.run.run.runs_in(tmp_path / "runs") == []
    assert done.returncode == 0
    assert left == ["mine" if way == "fit" else "points-0001"]
    assert train.find(tmp_path / "runs" / left[0]).config["run"]["name"] == left[0]


def test_a_folder_that_a_kill_left_empty(page: Path, tmp_path: Path) -> None:
    """By versions before: it is no run, and its number is not taken again."""
    (tmp_path / "points-0003").mkdir()
    shown = refused(tmp_path / "points-0003", LoadError)
    assert "killed while" in shown
    assert "rm -r" in shown
    (tmp_path / "points-0003" / "checkpoints").mkdir()
    assert "killed while" in refused(tmp_path / "points-0003", LoadError)
    assert train.train(page, out=tmp_path, epochs=1).name == "points-0004"
    recipe = train.load(page)
    train.Trainer(recipe, train.TrainConfig.from_defaults(recipe.defaults, epochs=1)).fit(
        tmp_path / "points-0003", resume=True
    )


def test_the_rights_of_a_runs_folder_are_the_usual_ones(page: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    folder = train.train(page, out=tmp_path / "runs", epochs=1).folder
    assert folder.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_no_run(tmp_path: Path) -> None:
    assert "no such folder" in refused(tmp_path / "nowhere", LoadError)
    assert "without config.toml" in refused(tmp_path, LoadError)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_all_checkpoints_truncated(page: Path, tmp_path: Path, keep: int) -> None:
    folder = stopped(page, tmp_path / "runs")
    for path in (folder / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:keep])
    assert "cannot be read" in refused(folder, LoadError)


def test_a_changed_recipe(page: Path, tmp_path: Path) -> None:
    """The lines that differ are shown: from the page that was trained, or from the checkpoint once that is gone."""
    folder = stopped(page, tmp_path / "runs")
    copy = folder / "recipe.py"
    copy.write_text(copy.read_text().replace("return part(72)", "return part(80)"))
    shown = refused(folder, TrainError)
    assert "changed since" in shown
    assert "-25      return part(72), part(32), part(32)" in shown
    assert "+25      return part(80), part(32), part(32)" in shown
    assert f"cp {page} {copy}" in shown
    page.write_text("# another page by now")
    assert "-25      return part(72), part(32), part(32)" in (shown := refused(folder, TrainError))
    assert "put these lines back" in shown
    assert f"ox train {copy}" in shown
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    assert "put it back as it was" in refused(folder, TrainError)


def test_a_change_of_many_lines_is_cut_short(page: Path, tmp_path: Path) -> None:
    folder = stopped(page, tmp_path / "runs")
    (folder / "recipe.py").write_text("x = 1\n" * 30 + page.read_text())
    assert "and 22 lines more" in refused(folder, TrainError)
    (folder / "recipe.py").write_bytes(page.read_bytes().replace(b"\n", b"\r\n"))
    assert train.resume(folder).result


def test_a_config_that_names_another_page(page: Path, tmp_path: Path) -> None:
    folder = stopped(page, tmp_path / "runs")
    config = folder / "config.toml"
    config.write_text(re.sub('sha256 = "...', 'sha256 = "xyz', config.read_text()))
    assert "config.toml was changed since" in refused(folder, TrainError)


def test_a_checkpoint_of_another_architecture(page: Path, variant, tmp_path: Path) -> None:
    folder = stopped(page, tmp_path / "runs")
    other = variant(
        "other",
        ("nn.Linear(16, 2))", "nn.Linear(16, 2), nn.Identity(), nn.Linear(2, 2))"),
        ("(2, 16)", "(2, 16, bias=False)"),
    )
    with pytest.raises(KeyError):
        train.train(other, out=tmp_path / "others", checkpoint_every=1e-9, show=StopAfter(7))
    from ox.serialization import files

    last, theirs = find(folder).last, find(tmp_path / "others" / "other-0001").last
    files.save({**files.load(theirs), "facts": files.load(last)["facts"]}, last)
    shown = refused(folder, LoadError)
    assert "another architecture" in shown
    assert "missing 0.bias" in shown
    assert "unknown 5.bias, 5.weight" in shown


def test_a_run_that_another_process_trains(page: Path, tmp_path: Path) -> None:
    folder = stopped(page, tmp_path / "runs")
    with find(folder).lock():
        assert "another process" in refused(folder, TrainError)
    train.resume(folder)


def test_a_checkpoint_speaks_to_other_readers(page: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    run = train.train(page, out=tmp_path, epochs=1)
    found = load_file(run.best)
    assert found["model/0.weight"].shape == (16, 2)
    assert not [name for name in found if name.isdigit()]


def test_a_damaged_config(page: Path, tmp_path: Path) -> None:
    folder = stopped(page, tmp_path / "runs")
    (folder / "config.toml").write_text("[run\n")
    assert "not the config of a run" in refused(folder, LoadError)


def test_weights_survive_bit_for_bit(tmp_path: Path) -> None:
    """NaN with a payload, infinities, negative zero, and bfloat16 as the model's own type."""
    import ml_dtypes

    from ox import tensor
    from ox.serialization import files

    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32)
    odd.view(np.uint32)[0] = 0x7FC12345
    state = {"a": tensor(odd), "b": tensor(odd.astype(ml_dtypes.bfloat16))}
    files.save(state, tmp_path / "x")
    back = files.load(tmp_path / "x")
    assert all(back[name].array.tobytes() == state[name].array.tobytes() for name in state)
    assert back["b"].dtype == ml_dtypes.bfloat16
