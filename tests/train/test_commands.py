"""ox train, ox eval, ox predict as they are typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import run_main

from ox import train

pytestmark = pytest.mark.usefixtures("forked_processes")


@pytest.fixture
def run(here: Path, page: Path) -> train.Run:
    return train.train(page, epochs=2)


def test_train_says_what_it_does(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("train", "points.py", "--epochs", 2, "--seed", 3, "--limit", 40) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ox 0.1 · cpu (")
    assert lines[0].endswith(" · seed 3 · run runs/points-0001")
    assert lines[1] == "points: 40 train, 32 validation, 32 test · Sequential, 82 parameters"
    assert lines[2].startswith("epoch 1/2  loss ")
    assert lines[4].startswith("best on validation: epoch ")
    assert "curves runs/points-0001/curves.png" in lines[4]
    assert lines[5:] == ["next: ox export model.onnx"]


def test_a_terminal_sees_a_live_bar(here: Path) -> None:
    command = "[sys.executable, '-m', 'ox_cli', 'train', 'points.py', '--epochs', '1']"
    code = f"import pty, sys; sys.exit(pty.spawn({command}) >> 8)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout
    assert "━" * 20 in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (["digit"], 1, "RecipeError: there is no recipe 'digit'"),
        (["points.py", "--epochs", "0"], 1, "ArgumentError: epochs must be"),
        (["points.py", "--lr", "much"], 2, "UsageError: "),
        (["points.py", "--device", "tpu"], 1, "ArgumentError: there is no such device"),
        (["points.py", "--device", "cuda:one"], 1, "ArgumentError: there is no such device"),
        (["points.py", "--device", "cuda:1", "--nproc", "2"], 1, "ArgumentError: each rank has a GPU of its own"),
        ([], 2, "UsageError: ox train needs a recipe"),
        (["--resume", "runs/points-0001"], 1, "LoadError: runs/points-0001 is not a run"),
        (["points.py", "--out", "points.py"], 1, "TrainError: no run can be made in points.py"),
    ],
)
def test_one_clear_error(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, shown: str
) -> None:
    before = sorted(here.rglob("*"))
    assert run_main("train", *arguments) == code
    assert capsys.readouterr().err.startswith(shown)
    assert sorted(here.rglob("*")) == before


def test_resume_takes_no_other_flag(run: train.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("train", "--resume", run.folder, "--lr", 5) == 2
    assert "does not take --lr" in capsys.readouterr().err
    assert run_main("train", "--resume", run.folder) == 0
    shown = capsys.readouterr()
    assert "is finished: 2 of 2 epochs" in shown.out
    assert f"--resume {run.folder} --epochs N" in shown.out.replace("\n", " ")
    assert not shown.err
    assert run_main("train", "--resume", run.folder, "--epochs", 1) == 1
    assert "expected at least 2 epochs" in capsys.readouterr().err


def test_eval_agrees_with_the_run(run: train.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("eval", run.folder, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    held_back = run.result["held_back"]
    assert (told["correct"], told["count"], told["accuracy"]) == (held_back["correct"], 32, held_back["accuracy"])
    assert run_main("eval") == 0  # the newest run
    assert f"{held_back['correct']} of 32 correct" in capsys.readouterr().out


def test_predict_from_the_recipes_own_data(run: train.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("predict", run.folder, "test:3") == 0
    assert " · target: " in (shown := capsys.readouterr().out)
    assert run_main("predict", run.folder, "held-back:3") == 0  # the older name
    assert capsys.readouterr().out == shown
    assert run_main("predict", run.folder, "test:3", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["label"] in ("left", "right")
    assert sum(told["probabilities"].values()) == pytest.approx(1)


@pytest.mark.parametrize("kind", ["sample", "batch", "npz"])
def test_predict_from_a_file(run: train.Run, here: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    points = np.array([[-1.0, -1.0], [4.0, 4.0]])
    if kind == "npz":
        np.savez(here / "in.npz", point=points)
    else:
        np.save(here / "in.npy", points if kind == "batch" else points[1])
    assert run_main("predict", run.folder, "in.npz" if kind == "npz" else "in.npy") == 0
    labels = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert labels == (["right"] if kind == "sample" else ["left", "right"])


def test_predict_refuses(run: train.Run, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(here / "wide.npy", np.zeros((1, 3)))
    np.savez(here / "two.npz", a=np.zeros(2), b=np.zeros(2))
    (here / "junk.npy").write_bytes(b"\x93NUMPY junk")
    np.save(here / "pickled.npy", np.array([{}]), allow_pickle=True)
    for given, shown in {
        "wide.npy": "ShapeError: the input does not fit the model",
        "two.npz": "LoadError: two.npz does not contain the model's inputs",
        "junk.npy": "LoadError: junk.npy is not a NumPy file",
        "pickled.npy": "LoadError: pickled.npy is not a NumPy file",
        "nothing.npy": "LoadError: there is no input file nothing.npy",
        "test:32": "ArgumentError: there is no sample 32",
        "test:x": "ArgumentError: there is no sample x",
    }.items():
        assert run_main("predict", run.folder, given) == 1
        assert capsys.readouterr().err.startswith(shown), given


def test_a_file_that_is_no_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    (here / "junk.onnx").write_bytes(b"junk")
    assert run_main("eval", "junk.onnx") == 1
    assert capsys.readouterr().err.startswith("LoadError: junk.onnx is not an ONNX file")
    assert run_main("eval", "nothing.onnx") == 1
    assert capsys.readouterr().err.startswith("LoadError: there is no file nothing.onnx")


def as_onnx(run: train.Run, path: Path) -> None:
    """The run's network as a file, made without ox.export."""
    onnx = pytest.importorskip("onnx")
    weights = [x.array for x in train.run.checkpoint.load(run.best)["model"].values()]
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Gemm", ["point", "w0", "w1"], ["a"], transB=1),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Gemm", ["b", "w2", "w3"], ["scores"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "points",
        [helper.make_tensor_value_info("point", kind, ["batch", 2])],
        [helper.make_tensor_value_info("scores", kind, ["batch", 2])],
        [onnx.numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    helper.set_model_props(model, {"ox.recipe": "points", "ox.run": run.name})
    onnx.save(model, path)


def test_an_onnx_file_counts_like_its_run(run: train.Run, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    as_onnx(run, here / "model.onnx")
    assert run_main("eval", "model.onnx", "--json") == 0
    assert json.loads(capsys.readouterr().out)["correct"] == run.result["held_back"]["correct"]
    shown = []
    for source in ("model.onnx", run.folder):
        assert run_main("predict", source, "held-back:0") == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]

    run.folder.rename(here / "elsewhere")
    assert run_main("eval", "model.onnx") == 1
    assert "the recipe of model.onnx is not here" in capsys.readouterr().err
    assert run_main("eval", "model.onnx", "--recipe", "points.py") == 0
    np.save(here / "wide.npy", np.zeros((1, 3), np.float32))
    capsys.readouterr()
    assert run_main("predict", "model.onnx", "wide.npy") == 1
    assert capsys.readouterr().err.startswith("ShapeError: the input does not fit the model")


def test_eval_of_metrics(variant, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = variant(
        "numbers",
        ("nn.CrossEntropyLoss()", 'nn.MSELoss()\nmetrics = ["mae", "r2"]\nbest = "-mae"'),
        ("side.astype(np.int64)", "np.stack([side, side], 1).astype(np.float32)"),
    )
    run = train.train(page, epochs=2)
    assert run_main("eval", run.folder, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    for name in ("mae", "r2"):
        assert told[name] == pytest.approx(run.result["held_back"][name])
    assert "correct" not in told
    assert run_main("eval", run.folder) == 0
    assert told["loss"] == pytest.approx(run.result["held_back"]["loss"])
    shown = f"loss {told['loss']:.4g}, mae {told['mae']:.4g}, r2 {told['r2']:.4g}"
    assert f"test set: {shown}" in capsys.readouterr().out


def test_numbers_without_metrics(variant, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = variant(
        "numbers",
        ("nn.CrossEntropyLoss()", "nn.MSELoss()"),
        ("side.astype(np.int64)", "(3.5 * np.stack([side, side], 1)).astype(np.float32)"),
    )
    run = train.train(page, epochs=2)
    assert run_main("runs") == 0
    best = run.result["best"]["validation_loss"]
    row = capsys.readouterr().out.splitlines()[1]
    assert row.count(f"loss {best:.4g}") == 1
    as_onnx(run, here / "model.onnx")
    told = []
    for source in (run.folder, "model.onnx"):
        assert run_main("eval", source, "--json") == 0
        told.append(json.loads(capsys.readouterr().out))
        assert told[-1]["loss"] == pytest.approx(run.result["held_back"]["loss"])
        assert told[-1]["rmse"] == pytest.approx(told[-1]["loss"] ** 0.5)
        assert told[-1].keys() >= {"mae", "r2", "count"}
    assert told[0]["r2"] == pytest.approx(told[1]["r2"])
    assert run_main("eval", run.folder) == 0
    assert "test set: loss " in capsys.readouterr().out


def test_answers_within_a_sample_are_counted_apart(variant, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A class for each of three places of a sample: never more than all are right."""
    page = variant(
        "places",
        ("nn.Linear(16, 2))", "nn.Linear(16, 6), nn.Unflatten(1, (2, 3)))"),
        ("side.astype(np.int64)", "np.stack([side] * 3, 1).astype(np.int64)"),
    )
    run = train.train(page, epochs=2)
    held_back = run.result["held_back"]
    assert held_back["answers"] == 96
    assert held_back["accuracy"] == held_back["correct"] / 96 <= 1
    assert run_main("eval", run.folder) == 0
    assert f"{held_back['correct']} of 96 correct" in capsys.readouterr().out


def test_steps_threads_and_the_last_batch_from_the_command_line(page: Path, here: Path) -> None:
    """In a process of its own: threads are those of a process."""
    words = ["--max-steps", "7", "--steps-per-epoch", "3", "--drop-last", "--threads", "1", "--timeout", "60"]
    done = subprocess.run(
        [sys.executable, "-m", "ox_cli", "train", str(page), *words], cwd=here, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "stopped after 7 steps" in done.stdout
    run = train.find(here / "runs" / "points-0001")
    options = run.config["options"]
    assert {k: options[k] for k in ("max_steps", "steps_per_epoch", "drop_last", "threads", "timeout")} == {
        "max_steps": 7, "steps_per_epoch": 3, "drop_last": True, "threads": 1, "timeout": 60.0
    }  # fmt: skip
    assert run.config["machine"]["threads"] == 1
    assert [row["step"] for row in map(json.loads, run.metrics.read_text().splitlines()) if "seconds" in row] == [
        3,
        6,
        7,
    ]


def test_runs_names_a_folder_whose_config_is_damaged(run: train.Run, capsys: pytest.CaptureFixture[str]) -> None:
    broken = run.folder.with_name("points-0002")
    broken.mkdir()
    (broken / "config.toml").write_text("[run\n")
    run.folder.with_name("points-0003").mkdir()  # of a process that was killed while it made it
    assert run_main("runs") == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].startswith("points-0001")
    assert shown.err.startswith("skipped: runs/points-0002/config.toml is not the config of a run")
    assert "points-0003" not in shown.out + shown.err
