"""Every command uses the split, the encoding and the classes of the training; changed data are detected."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import run_main

import ox
from ox import train
from ox.data import Subset
from ox.errors import TrainError
from ox.graph.contract import DATASET
from ox.train.recipe.manifest import Manifest

HEAD = '''
"""Labels that are noise: nobody predicts those of a test set."""
import json
import random

import numpy as np

import ox
from ox import nn
from ox.data import Subset, TensorDataset, random_split
from ox.data.datasets import TableDataset

defaults = {"epochs": 2, "batch_size": 16, "lr": 0.01}
loss = nn.CrossEntropyLoss()
WIDTH = 16
state = np.random.RandomState(1)
x, y = state.randn(60, 4).astype("float32"), state.randint(0, 2, 60)
samples = TensorDataset(x, y)


def noted(parts):
    with open("splits.jsonl", "a") as file:
        file.write(json.dumps([np.asarray(part[:][0]).sum(1).tolist() for part in parts]) + "\\n")
    return parts


def model():
    return nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))


def data():
'''
SPLITS = {
    "random_split": "return noted(random_split(samples, [0.6, 0.2, 0.2]))",
    "a seeded random_split": "return noted(random_split(samples, [0.6, 0.2, 0.2], ox.Generator(3)))",
    "ox.randperm, numpy and python": "i = ox.randperm(60).numpy()[np.random.permutation(60)]; "
    "i = i[random.sample(range(60), 60)]; return noted([Subset(samples, i[a:b].tolist()) for a, b in CUTS])",
}
AT_THE_TOP = ("\ndef noted", "\norder = np.random.permutation(60)\n\n\ndef noted")
UNSEEDED = "i = np.random.default_rng().permutation(60)"
CUTS = "CUTS = (0, 36), (36, 48), (48, 60)\n"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a recipe file with this body of data(), in the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(body: str, name: str = "noise.py", *changes: tuple[str, str]) -> Path:
        text = HEAD + "    " + body.replace("; ", "\n    ") + "\n"
        for old, new in (("WIDTH = 16\n", "WIDTH = 16\n" + CUTS), *changes):
            assert old in text
            text = text.replace(old, new)
        Path(name).write_text(text)
        return Path(name)

    return write


def splits() -> list[list[list[float]]]:
    return [json.loads(line) for line in Path("splits.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", SPLITS)
def test_every_command_has_the_split_of_the_training(
    recipe: Callable[..., Path], kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train.train(recipe(SPLITS[kind]))
    trained = splits()[0]
    assert run_main("export", "m.onnx") == 0
    for command in (
        ["eval", run.folder], ["eval", "m.onnx"], ["predict", "m.onnx", "test:3"], ["predict", run.folder, "test:3"],
        ["quantize", "m.onnx", "--scheme", "int8"], ["eval", "m.onnx", "--recipe", "noise.py"],
        ["export", "again.onnx"], ["train", "--from", "m.onnx", "--data", "noise.py", "--seed", "5"],
    ):  # fmt: skip
        random.random(), np.random.rand(), ox.rand(1)  # elsewhere in the process
        assert run_main(*command) == 0, capsys.readouterr().err
    assert all(split == trained for split in splits())
    # another architecture, learning rate and resuming
    wide = train.train(recipe(SPLITS[kind], "wide.py", ("WIDTH = 16", "WIDTH = 7")), lr=0.1)
    train.resume(wide.folder, epochs=3)
    assert all(split == trained for split in splits())
    # another seed is another split, unless data() has a seed of its own
    train.train("noise.py", seed=4)
    assert (splits()[-1] == trained) == (kind == "a seeded random_split")
    capsys.readouterr()
    assert run_main("eval", run.folder, "--json") == 0 and run_main("eval", "m.onnx", "--json") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["correct"] == second["correct"] == run.result["held_back"]["correct"]


def test_what_a_recipe_file_draws_beside_its_functions(recipe: Callable[..., Path]) -> None:
    body = "return noted([TensorDataset(x[order[a:b]], y[order[a:b]]) for a, b in CUTS])"
    np.random.seed(11)
    before = np.random.get_state()[1].tolist()
    train.load(recipe(body, "noise.py", AT_THE_TOP))
    assert np.random.get_state()[1].tolist() == before
    run = train.train("noise.py")
    assert run_main("eval", run.folder) == 0 and run_main("export", "m.onnx") == 0 and run_main("eval", "m.onnx") == 0
    train.train("noise.py")
    assert len(splits()) > 3 and all(split == splits()[0] for split in splits())


def test_the_file_alone_has_the_split(recipe: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                      monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    run = train.train(recipe(f"{UNSEEDED}; return [Subset(samples, i[a:b].tolist()) for a, b in CUTS]"))
    correct = run.result["held_back"]["correct"]
    assert run_main("export", "m.onnx") == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    capsys.readouterr()
    assert run_main("eval", "../m.onnx", "--json") == 0  # its run is beside it
    shutil.move("../m.onnx", "m.onnx")
    shutil.move("../runs", "old")
    assert run_main("eval", "m.onnx", "--recipe", "../noise.py", "--json") == 0
    for line in capsys.readouterr().out.splitlines():
        assert json.loads(line)["correct"] == correct
    assert run_main("eval", "m.onnx") == 1
    shown = capsys.readouterr().err
    assert "the recipe of m.onnx is not here" in shown and "noise, as in the run noise-0001" in shown


def test_unseeded_draws_that_cannot_be_repeated_are_an_error(
    recipe: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    body = f"{UNSEEDED}; return [TensorDataset(x[i[a:b]], y[i[a:b]]) for a, b in CUTS]"
    run = train.train(recipe(body))
    assert run_main("eval", run.folder) == 1
    shown = capsys.readouterr().err
    assert "data() in recipe.py returns other samples in each call" in shown and "recipe.py:" in shown
    assert "def data():" in shown and "random_split" in shown


def test_stored_indices_win(recipe: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = train.train(recipe(f"{UNSEEDED}; return [Subset(samples, i[a:b].tolist()) for a, b in CUTS]"))
    stored = run.manifest()
    assert stored is not None
    part = run.recipe().data().held_back
    assert list(part.indices) == stored.parts["test"].indices.tolist()
    assert run_main("export", "m.onnx") == 0 and run_main("eval", "m.onnx", "--json") == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["correct"] == run.result["held_back"]["correct"]
    # a file keeps only the checksum of many indices
    few = Manifest.from_text(stored.to_text(max_index_bytes=10), "")
    assert few.parts["test"].indices is None and few.digest == stored.digest
    with pytest.raises(TrainError, match="the file lacks the indices of the train data"):
        run.recipe().with_data_of(few).data()


TABLE = "return TableDataset('t.csv', target='y', missing='fill').split([0.6, 0.2, 0.2])"
REGRESSION = (
    ("nn.CrossEntropyLoss()", "nn.L1Loss()"),
    ("nn.Linear(WIDTH, 2)", "nn.Linear(WIDTH, 1), nn.Flatten(0)"),
)


def write_table(count: int = 60, target: Callable[[int], object] = lambda i: 2.5 * i) -> None:
    colours = ["red", "green", "", "blue"]
    lines = [f"{i},{'' if i % 9 == 0 else i * i},{colours[i % 4]},{target(i)}" for i in range(count)]
    Path("t.csv").write_text("\n".join(["a,b,c,y", *lines]) + "\n")


def predictions(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    capsys.readouterr()
    assert run_main("predict", *arguments, "--json") == 0
    return capsys.readouterr().out.splitlines()


def test_a_file_encodes_a_table_as_the_training(
    recipe: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table()
    run = train.train(recipe(TABLE, "houses.py", *REGRESSION, ("nn.Linear(4,", "nn.Linear(5,")))
    assert run_main("export", "m.onnx") == 0
    Path("new.csv").write_text("c,a,b\nred,3,\nviolet,5,25\n,6,36\n")
    Path("new.json").write_text(json.dumps([{"a": 3, "b": None, "c": "red"}]))
    of_run = predictions(capsys, run.folder, "new.csv")
    of_file = predictions(capsys, "m.onnx", "new.csv")
    # the table may have grown, with another category
    Path("t.csv").write_text(Path("t.csv").read_text() + "70,7,violet,8\n")
    assert predictions(capsys, run.folder, "new.csv") == of_run
    # a file needs neither the recipe nor its table
    Path("t.csv").unlink()
    shutil.move("runs", "old")
    assert predictions(capsys, "m.onnx", "new.csv") == of_file
    assert predictions(capsys, "m.onnx", "new.json") == of_file[:1]
    values = [[json.loads(line)["output"] for line in lines] for lines in (of_run, of_file)]
    assert len(values[0]) == 3
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5)


def test_classes_of_a_table_are_labels_of_the_file(
    recipe: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(target=lambda i: "cheap" if i % 2 else "dear")
    run = train.train(recipe(TABLE, "houses.py", ("nn.Linear(4,", "nn.Linear(5,")))
    assert run_main("export", "m.onnx") == 0
    Path("new.csv").write_text("c,a,b\nred,3,9\n")
    for model in (run.folder, "m.onnx"):
        assert json.loads(predictions(capsys, model, "new.csv")[0])["label"] in ("cheap", "dear")


@pytest.mark.parametrize("change", ["a value", "a sample more", "samples less", "other names"])
def test_changed_data_are_detected(
    recipe: Callable[..., Path], change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table()
    run = train.train(recipe(TABLE, "houses.py", *REGRESSION, ("nn.Linear(4,", "nn.Linear(5,")))
    assert run_main("export", "m.onnx") == 0
    if change == "a value":
        write_table(target=lambda i: 2.5 * i + (i == 31))
    else:
        write_table({"a sample more": 61, "samples less": 20}.get(change, 60))
    if change == "other names":
        Path("t.csv").write_text(Path("t.csv").read_text().replace("red", "rot"))
    capsys.readouterr()
    for command in (["eval", run.folder], ["eval", "m.onnx"], ["quantize", "m.onnx"], ["predict", "m.onnx", "test:1"],
                    ["train", "--resume", run.folder, "--epochs", "3"]):  # fmt: skip
        assert run_main(*command) == 1
        shown = capsys.readouterr().err
        assert (
            "the data have changed since the training" in shown
            and "train data and validation data and test set: " in shown
        )
        counts = {"a sample more": ("60", "61"), "samples less": ("60", "20")}.get(change, ("checksum", "checksum"))
        expected, got = (next(line for line in shown.splitlines() if word in line) for word in ("expected", "  got"))
        assert counts[0] in expected and counts[1] in got
    with pytest.warns(UserWarning, match=r"houses.py has other data than the training: .* then, .* now"):
        assert run_main("eval", "m.onnx", "--recipe", "houses.py") == 0
    if change != "other names":  # which are other features
        with pytest.warns(UserWarning, match="recipe.py has other data than the training"):
            assert run_main("export", "again.onnx") == 0


def test_a_run_of_an_older_version(recipe: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Such a run has no description of its data, and its model() drew random numbers before data()."""
    path = recipe(SPLITS["random_split"])
    loaded = train.load(path)
    old = train.recipe.recipe.replace(loaded, data_seed=3, data_after_model=True)
    options = train.TrainConfig.from_defaults(loaded.defaults, seed=3)
    trainer = train.Trainer(old, options)
    trained = splits()[-1]
    trainer.fit("runs/old-0001")
    run = train.find("runs/old-0001")
    (run.folder / "data.json").unlink()
    text = (run.folder / "config.toml").read_text()
    (run.folder / "config.toml").write_text("[options]" + text.partition("[options]")[2] + text[: text.index("[data]")])
    assert run_main("export", "m.onnx", "--run", run.folder) == 0
    for command in (["eval", run.folder], ["eval", "m.onnx"], ["train", "--resume", run.folder, "--epochs", "3"]):
        assert run_main(*command) == 0, capsys.readouterr().err
        assert splits()[-1] == trained


@pytest.mark.parametrize("damage", ["missing", "cut", "edited", "another run's"])
def test_a_damaged_description(recipe: Callable[..., Path], damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = train.train(recipe(SPLITS["random_split"]))
    path = run.folder / "data.json"
    text = path.read_text()
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_text(text[:100])
    elif damage == "edited":
        path.write_text(text.replace('"samples": 12', '"samples": 11'))
    else:
        other = train.train("noise.py", seed=8)
        shutil.copy(other.folder / "data.json", path)
    for command in (["eval", run.folder], ["export", "m.onnx", "--run", run.folder], ["train", "--resume", run.folder,
                    "--epochs", "3"]):  # fmt: skip
        capsys.readouterr()
        assert run_main(*command) == 1
        shown = capsys.readouterr().err
        assert "LoadError" in shown and "data.json" in shown and "sha256" in shown


def test_a_file_with_a_damaged_description(recipe: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    import onnx

    train.train(recipe(SPLITS["random_split"]))
    assert run_main("export", "m.onnx") == 0
    model = onnx.load("m.onnx")
    (entry,) = (entry for entry in model.metadata_props if entry.key == DATASET)
    for value in (
        "",
        "{",
        "[]",
        '{"format": 9}',
        '{"format": 1, "parts": {}}',
        entry.value.replace('"digest": "', '"digest": "0'),
    ):
        entry.value = value
        onnx.save(model, "damaged.onnx")
        capsys.readouterr()
        assert run_main("eval", "damaged.onnx") == 1
        assert "LoadError" in (shown := capsys.readouterr().err) and "damaged.onnx" in shown
        assert run_main("inspect", "damaged.onnx") == 0  # the rest of the file is whole
    capsys.readouterr()
    assert run_main("inspect", "m.onnx") == 0
    assert "trained on  train 36, validation 12, test 12 samples" in capsys.readouterr().out


def test_trials_of_a_sweep_have_one_split(recipe: Callable[..., Path]) -> None:
    pytest.importorskip("optuna")
    recipe(SPLITS["random_split"])
    assert run_main("sweep", "noise.py", "lr=0.01,0.1", "seed=1,2,3", "--trials", "3", "--metric", "loss") == 0
    assert len(splits()) >= 3 and all(split == splits()[0] for split in splits())


IMAGES = '''
"""Images in folders, normalized by the images of the training."""
import numpy as np

from ox import nn
from ox.data import Subset, random_split
from ox.data.datasets import ImageFolder
from ox.data.transforms import Compose, Normalize, ToTensor

defaults = {"epochs": 1, "batch_size": 4}
loss = nn.CrossEntropyLoss()


def data():
    plain = ImageFolder("images", ToTensor())
    parts = random_split(plain, [0.6, 0.2, 0.2])
    pixels = np.stack([np.asarray(parts[0][i][0].numpy()) for i in range(len(parts[0]))])
    mean, std = pixels.mean((0, 2, 3)).tolist(), pixels.std((0, 2, 3)).tolist()
    images = ImageFolder("images", Compose([ToTensor(), Normalize(mean, std)]))
    return [Subset(images, part.indices) for part in parts]


def model():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 6 * 5, 3))
'''


def write_images() -> None:
    from PIL import Image

    state = np.random.RandomState(0)
    for number in range(24):
        folder = Path("images", ("ash", "elm", "oak")[number % 3])
        folder.mkdir(parents=True, exist_ok=True)
        pixels = state.randint(0, 60 + 60 * (number % 3), (6, 5, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def test_images_are_normalized_as_in_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    write_images()
    Path("trees.py").write_text(IMAGES)
    run = train.train("trees.py")
    manifest = run.manifest()
    assert manifest is not None and manifest.classes == ("ash", "elm", "oak")
    assert run_main("export", "m.onnx") == 0
    test = run.recipe().data().held_back
    path = first_file(test)
    shutil.copy(path, "new.png")
    by_index = json.loads(predictions(capsys, run.folder, "test:0")[0])["probabilities"]
    for model in (run.folder, "m.onnx"):
        shown = json.loads(predictions(capsys, model, "new.png")[0])
        assert shown["label"] in ("ash", "elm", "oak")
        np.testing.assert_allclose(list(shown["probabilities"].values()), list(by_index.values()), rtol=1e-4)
    shutil.move("runs", "old")
    assert json.loads(predictions(capsys, "m.onnx", "new.png")[0]) == shown
    shutil.move("old", "runs")
    # another image in the same file
    shutil.copy("images/ash/0.png", path)
    assert run_main("eval", "m.onnx") == 1
    assert "the data have changed since the training" in capsys.readouterr().err


def first_file(part: Subset) -> str:
    return str(part.dataset.samples[part.indices[0]][0])
