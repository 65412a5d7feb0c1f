"""`ox train --from model.onnx --data ...`: runs that begin from a file, from their first lines to what they export."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import run_main
from stopped_runs import StopAfter

import ox
from ox import nn, train
from ox.errors import LoadError, RecipeError
from ox.train.run import checkpoint

MISFIT = "RecipeError: the data do not fit four.onnx: input 'point'"
PAGE = '''
"""Three clouds of points."""

import numpy as np

from ox import nn
from ox.data import TensorDataset

labels = ["left", "middle", "right"]
defaults = {"epochs": 3, "batch_size": 16, "lr": 0.05}
loss = nn.CrossEntropyLoss()


def data():
    random = np.random.RandomState(0)

    def part(count):
        cloud = random.randint(0, 3, count)
        points = random.randn(count, 2) + 3.0 * cloud[:, None]
        return TensorDataset(points.astype(np.float32), cloud.astype(np.int64))

    return part(72), part(32), part(32)
'''


class Net(nn.Module):
    """Points to probabilities of four things, with everything that a training mode changes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(16, 4)

    def forward(self, point: Any) -> Any:
        return self.head(self.body(point)).softmax(-1)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, point: Any, weight: Any) -> Any:
        return self.head(ox.cat([point, weight], 1))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with clouds.py and four.onnx, to stand in."""
    pytest.importorskip("onnxruntime")  # what ox exports is proven on it
    monkeypatch.chdir(tmp_path)
    Path("clouds.py").write_text(PAGE)
    ox.manual_seed(0)
    net = Net()
    net(ox.randn(32, 2))
    ox.export.save(net, "four.onnx", np.ones((4, 2), np.float32), output_names=["probabilities"], labels="abcd")
    return tmp_path


def arrays(path: str, classes: int = 3, count: int = 60, **changed: Any) -> Path:
    random = np.random.default_rng(0)
    target = np.arange(count) % classes
    points = (random.normal(size=(count, 2)) + 3 * target[:, None]).astype(np.float32)
    np.savez(path, **{name: x for name, x in ({"point": points, "target": target} | changed).items() if x is not None})
    return Path(path)


def weights(run: train.Run, which: str = "last") -> dict[str, bytes]:
    return {name: x.numpy().tobytes() for name, x in checkpoint.load(getattr(run, which))["model"].items()}


def test_a_float16_file_and_what_it_shares(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A square layer that is called twice, and names of another tool; with the recipe's own settings it learns."""
    random = np.random.default_rng(0)
    sizes = {"first": (2, 8), "twice": (8, 8), "head": (8, 3)}
    nodes = [
        onnx.helper.make_node("Cast", ["point"], ["x"], to=onnx.TensorProto.FLOAT16),
        *(onnx.helper.make_node("MatMul", pair, [name]) for pair, name in (
            (["x", "first"], "a"), (["a", "twice"], "b"), (["b", "twice"], "c"), (["c", "head"], "d"))),
        onnx.helper.make_node("Cast", ["d"], ["y"], to=onnx.TensorProto.FLOAT),
    ]  # fmt: skip
    ends = [onnx.helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("point", 2), ("y", 3))]
    stored = [onnx.numpy_helper.from_array(random.normal(size=s).astype(np.float16), n) for n, s in sizes.items()]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    opset = [onnx.helper.make_opsetid("", 21)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), "half.onnx")
    assert run_main("train", "--from", "half.onnx", "--data", "clouds.py", "--layers", "all", "--lr", "0.005") == 0
    shown = capsys.readouterr().out
    assert "104 of 104 parameters, float16 weights in float32\n" in shown
    assert "used in several places, trained as one: twice (2)\n" in shown
    losses = [float(loss) for loss in re.findall(r" loss ([\d.]+)  validation", shown)]
    assert losses[-1] < losses[0]
    assert run_main("export", "again.onnx", "--run", "runs/half-clouds-0001") == 0


# -- what is typed, and what is shown ------------------------------------------------------------------------------


def test_from_the_first_line_to_the_exported_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("train", "--from", "four.onnx", "--data", "clouds.py", "--layers", "head") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("run runs/four-clouds-0001")
    assert lines[1] == "four-clouds: 72 train, 32 validation, 32 test · from four.onnx"
    assert lines[2] == "training a new head of 3 classes: 51 of 131 parameters"
    assert lines[-1] == "next: ox export model.onnx"
    assert run_main("export", "tuned.onnx") == 0
    assert "labels left, middle, right" in capsys.readouterr().out

    Path("four.onnx").unlink()
    run = train.find("runs/four-clouds-0001")
    assert run.result is not None
    held_back = run.result["held_back"]
    assert held_back["accuracy"] > 0.5
    for source in (run.folder, "tuned.onnx"):
        assert run_main("eval", source, "--json") == 0
        assert json.loads(capsys.readouterr().out)["correct"] == held_back["correct"], source
    shown = []
    for source in (run.folder, "tuned.onnx"):
        assert run_main("predict", source, "held-back:3") == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1], "the file ends in probabilities, and they are no scores"
    assert run_main("eval", "tuned.onnx", "--recipe", "clouds.py") == 0, "a page without model() has data all the same"


def test_the_exported_file_has_the_interface_of_the_old_one(here: Path) -> None:
    run = train.train(train.load_from("four.onnx", "clouds.py", "head"))
    assert run_main("export", "tuned.onnx", "--run", run.folder) == 0
    old, new = onnx.load("four.onnx").graph, onnx.load("tuned.onnx").graph
    assert list(old.input) == list(new.input)
    assert [v.name for v in new.output] == ["probabilities"]
    assert [node.op_type for node in new.node] == [node.op_type for node in old.node]
    before, after = ({t.name: onnx.numpy_helper.to_array(t) for t in g.initializer} for g in (old, new))
    assert before.keys() == after.keys()
    assert {n for n in before if before[n].tobytes() != after[n].tobytes()} == {"head.weight", "head.bias"}
    import onnxruntime

    session = onnxruntime.InferenceSession("tuned.onnx", providers=["CPUExecutionProvider"])
    (given,) = session.run(None, {"point": np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)})
    np.testing.assert_allclose(given.sum(1), 1, atol=1e-5)
    assert given.shape == (7, 3)


@pytest.mark.parametrize(
    ("data", "layers", "shown"),
    [
        ("clouds.py", "all", "training all layers and a new head of 3 classes: 131 of 131 parameters"),
        ("four.py", "all", "training all layers: 148 of 148 parameters"),
        ("four.py", "head", "training its head: 68 of 148 parameters"),
        ("clouds.npz", "head", "training a new head of 3 classes: 51 of 131 parameters"),
    ],
)
def test_which_layers(here: Path, capsys: pytest.CaptureFixture[str], data: str, layers: str, shown: str) -> None:
    """A head is new where the data name another number of classes than the file gives scores."""
    Path("four.py").write_text(PAGE.replace('"right"]', '"right", "none"]'))
    arrays("clouds.npz")
    assert run_main("train", "--from", "four.onnx", "--data", data, "--layers", layers, "--epochs", 1) == 0
    assert shown in capsys.readouterr().out.splitlines()


def test_arrays(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays("clouds.npz", count=100)
    assert run_main("train", "--from", "four.onnx", "--data", "clouds.npz", "--lr", 0.05, "--epochs", 8) == 0
    assert "four-clouds: 70 train, 15 validation, 15 test" in capsys.readouterr().out
    assert run_main("export", "tuned.onnx") == 0
    assert run_main("eval", "tuned.onnx") == 0
    assert "correct" in capsys.readouterr().out
    ox.export.save(Two(), "two.onnx", (np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)))
    arrays("both.npz", classes=2, weight=np.ones((60, 1), np.float32))
    run = train.train(train.load_from("two.onnx", "both.npz"), epochs=1)
    assert run.config["from"] == {"file": "base.onnx", "source": str(here / "two.onnx"), "layers": "all"}


def test_a_recipe_of_ox_is_data_too(here: Path) -> None:
    ox.export.save(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), "flat.onnx", np.ones((4, 1, 8, 8), np.float32))
    run = train.train(train.load_from("flat.onnx", "digits"), epochs=1, limit=64)
    assert run.name == "flat-digits-0001"
    assert {name.removeprefix("model/") for name in weights(run)} == {"net.1.weight", "net.1.bias"}


def test_a_file_with_its_weights_beside_it(here: Path) -> None:
    """The run's copy has them inside."""
    model = onnx.load("four.onnx")
    Path("beside").mkdir()
    onnx.save(model, "beside/four.onnx", save_as_external_data=True, location="four.data", size_threshold=0)
    assert Path("beside/four.data").stat().st_size
    inside = train.train(train.load_from("four.onnx", "clouds.py"), epochs=1, out="a")
    outside = train.train(train.load_from("beside/four.onnx", "clouds.py"), epochs=1, out="b")
    for path in Path("beside").iterdir():
        path.unlink()
    assert weights(inside) == weights(outside)
    train.restore(outside.folder)


# -- the folder of a run is all that it needs -----------------------------------------------------------------------


@pytest.mark.parametrize("layers", ["all", "head"])
def test_stopped_and_resumed(here: Path, layers: str) -> None:
    """The same bits, though the file has gone."""
    recipe = train.load_from("four.onnx", "clouds.py", layers)
    whole = train.train(recipe, out="whole")
    for after in (1, 7):
        with pytest.raises(KeyError):
            train.train(recipe, out=f"stopped-{after}", checkpoint_every=1e-9, show=StopAfter(after))
    Path("four.onnx").unlink()
    Path("clouds.py").unlink()
    for after in (1, 7):
        resumed = train.resume(f"stopped-{after}/four-clouds-0001")
        assert weights(resumed) == weights(whole), after
        assert weights(resumed, "best") == weights(whole, "best")
        assert resumed.result is not None and whole.result is not None
        assert resumed.result["held_back"] == whole.result["held_back"]
    config = tomllib.loads((whole.folder / "config.toml").read_text())
    assert config["from"] == {
        "file": "base.onnx", "source": str(here / "four.onnx"), "layers": layers, "classes": 3,
    }  # fmt: skip


def test_resumed_from_the_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError):
        train.train(train.load_from("four.onnx", "clouds.py"), checkpoint_every=1e-9, show=StopAfter(7))
    Path("four.onnx").rename("gone.onnx")
    assert run_main("train", "--resume", "runs/four-clouds-0001") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].endswith("· from four.onnx")
    assert re.fullmatch(r"resumed after step [1-6] of 15", shown[3])


def test_a_copy_that_was_lost(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train.train(train.load_from("four.onnx", "clouds.py"), epochs=1)
    (run.folder / "base.onnx").unlink()
    assert run_main("eval", run.folder) == 1
    assert capsys.readouterr().err.startswith("MissingFileError: ")


# -- one clear error, and nothing left behind -----------------------------------------------------------------------


def refused(here: Path, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    before = sorted(here.rglob("*"))
    capsys.readouterr()
    code = run_main("train", *arguments)
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err and not shown.out
    assert [path for path in sorted(here.rglob("*")) if "__pycache__" not in path.parts] == before
    return code, shown.err


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (["--from", "five.onnx", "--data", "clouds.py"], 1, "MissingFileError: "),
        (["--from", "junk.onnx", "--data", "clouds.py"], 1, "LoadError: "),
        (["--from", ".", "--data", "clouds.py"], 1, "FolderError: "),
        (["--from", "conv.onnx", "--data", "images.py"], 1, "LoadError: the file has no head"),
        (["--from", "conv.onnx", "--data", "images.py", "--layers", "head"], 1, "LoadError: the file has no head"),
        (["--from", "four.onnx", "--data", "many.py"], 1, "RecipeError: a target of the train data has no score"),
        (["--from", "four.onnx", "--data", "images.py"], 1, MISFIT),
        (["--from", "four.onnx", "--data", "double.py"], 1, MISFIT),
        (["--from", "two.onnx", "--data", "clouds.py"], 1, "RecipeError: the data do not fit two.onnx: the inputs"),
        (["--from", "four.onnx", "--data", "nowhere.py"], 1, "RecipeError: there is no recipe file nowhere.py"),
        (["--from", "four.onnx", "--data", "cluods"], 1, "RecipeError: there is no recipe 'cluods'"),
        (["--from", "four.onnx", "--data", "dataless.py"], 1, "RecipeError: dataless.py is not a recipe"),
        (["--from", "four.onnx", "--data", "empty.py"], 1, "RecipeError: data() in empty.py returned an empty"),
        (["--from", "four.onnx", "--data", "nowhere.npz"], 1, "RecipeError: nowhere.npz cannot be read"),
        (["--from", "four.onnx", "--data", "junk.npz"], 1, "RecipeError: junk.npz cannot be read"),
        (["--from", "four.onnx", "--data", "single.npz"], 1, "RecipeError: single.npz cannot be read"),
        (["--from", "four.onnx", "--data", "pickled.npz"], 1, "RecipeError: pickled.npz cannot be read"),
        (["--from", "four.onnx", "--data", "other.npz"], 1, "RecipeError: other.npz has no array 'point'"),
        (["--from", "four.onnx", "--data", "targetless.npz"], 1, "RecipeError: targetless.npz has no array 'target'"),
        (["--from", "four.onnx", "--data", "float.npz"], 1, "RecipeError: 'target' in float.npz names no classes"),
        (["--from", "four.onnx", "--data", "words.npz"], 1, "RecipeError: 'target' in words.npz names no classes"),
        (["--from", "four.onnx", "--data", "negative.npz"], 1, "RecipeError: 'target' in negative.npz names no"),
        (["--from", "four.onnx", "--data", "huge.npz"], 1, "RecipeError: 'target' in huge.npz names no classes"),
        (["--from", "four.onnx", "--data", "uneven.npz"], 1, "RecipeError: the arrays of uneven.npz are no samples"),
        (["--from", "four.onnx", "--data", "scalar.npz"], 1, "RecipeError: the arrays of scalar.npz are no samples"),
        (["--from", "four.onnx", "--data", "few.npz"], 1, "RecipeError: the arrays of few.npz are no samples"),
        (["--from", "four.onnx", "--data", "wide.npz"], 1, MISFIT),
        (["--from", "four.onnx", "--data", "clouds.py", "--layers", "last"], 1, "ArgumentError: there are no layers"),
        (["--from", "four.onnx", "--data", "clouds.py", "--epochs", "0"], 1, "ArgumentError: epochs must be"),
        (["digits", "--from", "four.onnx", "--data", "clouds.py"], 2, "UsageError: --from needs --data"),
        (["--from", "four.onnx"], 2, "UsageError: --from needs --data"),
        (["--data", "clouds.py"], 2, "UsageError: --data and --layers need --from"),
        (["digits", "--layers", "head"], 2, "UsageError: --data and --layers need --from"),
        (["--resume", "runs/x", "--from", "four.onnx"], 2, "UsageError: --resume uses the run's own options"),
    ],
    ids=lambda x: " ".join(x[-2:]) if isinstance(x, list) else None,
)
def test_one_clear_error(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, shown: str
) -> None:
    Path("junk.onnx").write_bytes(b"junk")
    ox.export.save(Two(), "two.onnx", (np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)))
    conv = nn.Sequential(nn.Conv2d(1, 4, 2), nn.AdaptiveMaxPool2d(1), nn.Flatten())
    ox.export.save(conv, "conv.onnx", np.ones((4, 1, 3, 3), np.float32))
    images = PAGE.replace("points.astype(np.float32)", "np.zeros((count, 1, 3, 3), np.float32)")
    Path("images.py").write_text(images)
    unlabelled = PAGE.replace("labels = ", "names = ")
    Path("many.py").write_text(unlabelled.replace("cloud.astype(np.int64)", "cloud + 2"))
    Path("double.py").write_text(PAGE.replace("points.astype(np.float32)", "points"))
    Path("dataless.py").write_text(PAGE.replace("def data", "def samples"))
    Path("empty.py").write_text(PAGE.replace("part(72)", "part(0)"))
    Path("junk.npz").write_bytes(b"junk")
    with open("single.npz", "wb") as file:
        np.save(file, np.zeros(3))
    arrays("pickled.npz", target=np.array([{}] * 60, dtype=object))
    arrays("other.npz", point=None, points=np.zeros((60, 2)))
    arrays("targetless.npz", target=None)
    arrays("float.npz", target=np.zeros(60))
    arrays("words.npz", target=np.array(["cat", "dog"] * 30))
    arrays("negative.npz", target=np.full(60, -1))
    arrays("huge.npz", target=np.full(60, 2**40))
    arrays("uneven.npz", point=np.zeros((59, 2), np.float32))
    arrays("scalar.npz", point=np.zeros((), np.float32))
    arrays("few.npz", count=9)
    arrays("wide.npz", point=np.zeros((60, 3), np.float32))
    given, told = refused(here, capsys, *arguments)
    assert told.startswith(shown), told
    assert given == code


def test_labels_are_the_classes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """More kinds of targets than the page has labels: a head of its labels could not say them."""
    Path("two.py").write_text(PAGE.replace(', "right"]', "]"))
    code, told = refused(here, capsys, "--from", "four.onnx", "--data", "two.py")
    assert (code, told.splitlines()[0]) == (1, "RecipeError: a target of the train data has no score")
    assert "there are 2 scores" in told


def test_from_python(here: Path) -> None:
    with pytest.raises(LoadError):
        train.load_from("nowhere.onnx", "clouds.py")
    with pytest.raises(RecipeError):
        train.load_from("four.onnx", "nowhere.py")
    recipe = train.load_from("four.onnx", "clouds.py", "head", classes=7)
    model = recipe.model().eval()
    with ox.no_grad():
        assert model(ox.ones(2, 2)).shape == (2, 7)


def test_typed_in_a_shell(here: Path) -> None:
    """Once as a process of its own: nothing but the commands."""
    words = [sys.executable, "-m", "ox_cli", "train", "--from", "four.onnx", "--data", "clouds.py", "--epochs", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_the_file_is_opened_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ox.onnx_module.loaded

    opened, real = [], ox.onnx_module.loaded.load

    def noted(path: object) -> object:
        opened.append(path)
        return real(path)

    monkeypatch.setattr(ox.onnx_module.loaded, "load", noted)
    run = train.train(train.load_from("four.onnx", "clouds.py"), epochs=1)
    assert len(opened) == 1
    train.restore(run)
    assert len(opened) == 2
