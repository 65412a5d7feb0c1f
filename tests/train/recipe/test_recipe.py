"""Pages: which are recipes, and what is said of those that are not."""

from __future__ import annotations

import numbers
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ox import train
from ox.errors import ArgumentError, RecipeError
from ox.train.recipe.recipe import read
from ox.train.recipe.source_lines import definition
from ox.train.run.train_config import TrainConfig


def test_a_name_and_a_path(page: Path) -> None:
    assert "digits" in train.available()
    assert "digits_data" not in train.available()
    digits = train.load("digits")
    assert (digits.name, digits.labels, digits.shareable) == ("digits", list("0123456789"), True)
    points = train.load(page)
    assert (points.name, points.shareable) == ("points", False)
    assert points.defaults == {"epochs": 3, "batch_size": 16, "lr": 0.05, "seed": 0}
    assert list(points.inputs) == ["point"]


def test_a_page_finds_its_neighbours(variant, tmp_path: Path) -> None:
    (tmp_path / "widths_of_points.py").write_text("WIDTH = 16\n")
    path = variant(
        "wide", ("import ox\n", "import ox\nfrom widths_of_points import WIDTH\n"), ("(2, 16)", "(2, WIDTH)")
    )
    assert train.load(path).model()[0].weight.shape == (16, 2)


def test_a_page_named_as_a_module_of_pythons_own(page: Path) -> None:
    """NumPy imports `numbers`, and processes started later (workers of a loader, say) have this one's `sys.path`."""
    train.load(page.rename(page.with_name("numbers.py")))
    assert str(page.parent) in sys.path
    code = f"import sys; sys.path[:] = {sys.path!r}; import numpy, numbers; print(numbers.__file__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert said.stdout.strip() == numbers.__file__


def test_a_page_changed_within_a_second_is_the_new_one(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's bytecode goes by a file's size and its time in whole seconds; and nothing is left beside the page."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    before, status = sorted(page.parent.iterdir()), page.stat()
    assert train.load(page).model()[0].weight.shape == (16, 2)
    page.write_text(page.read_text().replace("16", "24"))
    os.utime(page, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert train.load(page).model()[0].weight.shape == (24, 2)
    assert sorted(page.parent.iterdir()) == before


def test_errors_show_the_lines_that_ran(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Python keeps the lines of files by the names under which it read them, which may be relative."""
    text, shown = page.read_text(), []
    for folder, argument in (("first", "a=1"), ("second", "b=2")):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        Path("it.py").write_text(text.replace("def data():", f"def data({argument}):"))
        shown.append(str(definition(read(Path("it.py"), "it", [Path()]).optional("data"))).partition("   ")[2])
    assert shown == ["def data(a=1):", "def data(b=2):"]


def test_examples_have_a_batch_axis(page: Path) -> None:
    (points,) = train.load(page).examples(3)
    assert points.shape == (3, 2)
    assert points.dtype == np.float32


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(RecipeError) as caught:
        train.load("digit")
    assert str(caught.value.hint).startswith("ox train digits")


def test_a_page_of_that_name_beside_us(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(page.parent)
    with pytest.raises(RecipeError) as caught:
        train.load("points")
    assert "./points.py" in str(caught.value.hint)


def test_no_such_page(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="there is no recipe file"):
        train.load(tmp_path / "nothing.py")


@pytest.mark.parametrize(
    ("name", "missing"),
    [("model()", "def model"), ("data()", "def data"), ("loss", "loss ="), ("defaults", "defaults =")],
)
def test_a_page_that_lacks_something(variant, name: str, missing: str) -> None:
    path = variant(
        "lacking", (missing, missing.replace("=", "").strip() + "_of_another_name" + (" =" if "=" in missing else ""))
    )
    with pytest.raises(RecipeError, match="is not a recipe") as caught:
        train.load(path)
    assert caught.value.got == f"a file without {name}"


def test_a_page_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "text.py").write_text("A letter to my aunt.\n")
    with pytest.raises(RecipeError, match="SyntaxError") as caught:
        train.load(tmp_path / "text.py")
    assert "text.py:1   A letter to my aunt." in str(caught.value.where)
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="cannot be read"):
        train.load(tmp_path / "bytes.py")


def test_a_page_that_fails_names_its_line(variant) -> None:
    with pytest.raises(RecipeError, match="ZeroDivisionError") as caught:
        train.load(variant("failing", ("labels = [", "share = 1 / 0\nlabels = [")))
    assert str(caught.value.where).endswith("share = 1 / 0")


def test_an_unknown_default(variant) -> None:
    with pytest.raises(RecipeError) as caught:
        train.load(variant("typo", ('"batch_size"', '"batchsize"')))
    assert caught.value.hint == "'batch_size'"


def test_functions_that_return_something_else(variant) -> None:
    with pytest.raises(RecipeError, match="did not return a module"):
        train.load(
            variant(
                "one",
                ("return nn.Sequential(", "return list("),
                ("nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2)", ""),
            )
        ).model()
    for number, wrong in enumerate(["part(72)", "(1, 2)", "(part(72), part(0))"]):
        with pytest.raises(RecipeError, match=r"data\(\) in"):
            train.load(variant(f"data{number}", ("part(72), part(32), part(32)", wrong))).data()


def test_two_datasets_are_enough(variant, tmp_path: Path) -> None:
    run = train.train(variant("two", ("part(72), part(32), part(32)", "part(72), part(32)")), out=tmp_path, epochs=1)
    assert run.result["held_back"] is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"epochs": 1.5},
        {"batch_size": -1},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"seed": -1},
        {"seed": 2**63},
        {"limit": 0},
        {"device": "tpu"},
        {"checkpoint_every": -2.0},
    ],
    ids=str,
)
def test_options_out_of_range(page: Path, tmp_path: Path, wrong: dict) -> None:
    with pytest.raises(ArgumentError):
        train.train(page, out=tmp_path / "runs", **wrong)
    assert not (tmp_path / "runs").exists()


def test_flags_go_before_defaults() -> None:
    options = TrainConfig.from_defaults(
        {"epochs": 3, "batch_size": 4, "lr": 0.1, "seed": 0}, epochs=9, lr=None, limit=5
    )
    assert (options.epochs, options.batch_size, options.lr, options.limit) == (9, 4, 0.1, 5)


SGD = "def optimizer(model{}):\n    return ox.optim.SGD(model.parameters())\n\n\ndef data():"


@pytest.mark.parametrize(
    ("change", "what", "line"),
    [
        (
            ("def data():", SGD.format("")),
            "optimizer() in it.py takes other arguments than it will be given",
            "def optimizer(model):",
        ),
        (
            ("def data():", "def optimizer(model, lr):\n    return 1\n\n\ndef data():"),
            "optimizer() in it.py did not return an optimizer",
            "def optimizer(model, lr):",
        ),
        (
            ("def data():", "def scheduler(o, lr):\n    return None\n\n\ndef data():"),
            "scheduler() in it.py takes other arguments than it will be given",
            "def scheduler(o, lr):",
        ),
        (
            ("def model():", "def scheduler(o, lr, steps):\n    return None\n\n\ndef model():"),
            "scheduler() in it.py did not return a scheduler",
            "def scheduler(o, lr, steps):",
        ),
        (
            ("return nn.Seq", "return 1 / 0, nn.Seq"),
            "model() in it.py stops with ZeroDivisionError",
            "return 1 / 0, nn.",
        ),
        (("return part(72)", "return {}[1], part(72)"), "data() in it.py stops with KeyError", "return {}[1], part"),
    ],
    ids=lambda value: value.split("() ")[0] if isinstance(value, str) else "",
)
def test_a_function_that_fails_names_its_line_and_leaves_no_folder(
    variant, tmp_path: Path, change: tuple[str, str], what: str, line: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        train.train(variant("it", change), out=tmp_path / "runs")
    assert caught.value.what == what
    assert str(caught.value.where).startswith("it.py:")
    assert line in str(caught.value.where)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("change", "what", "line"),
    [
        (
            ("return points + 0.1", "return None; points + 0.1"),
            "augment() in it.py did not return a batch",
            "def augment",
        ),
        (
            ("return points + 0.1", "return batch[7] + 0.1"),
            "augment() in it.py stops with IndexError",
            "return batch[7]",
        ),
        (
            ("def model():", "def sample(model):\n    return 1 / 0\n\n\ndef model():"),
            "sample() in it.py stops with ZeroDivisionError",
            "return 1 / 0",
        ),
        (
            ("loss = nn.CrossEntropyLoss()", "def loss(outputs):\n    return outputs.mean()"),
            "loss() in it.py takes other arguments than it will be given",
            "def loss(outputs):",
        ),
        (
            ("def model():", "def step(model, batch):\n    return nonsense\n\n\ndef model():"),
            "step() in it.py stops with NameError",
            "return nonsense",
        ),
    ],
    ids=lambda value: value.split("() ")[0] if isinstance(value, str) else "",
)
def test_a_function_that_fails_at_work_names_its_line(
    variant, tmp_path: Path, change: tuple[str, str], what: str, line: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        train.train(variant("it", change), out=tmp_path / "runs", epochs=1)
    assert caught.value.what.startswith(what)
    assert line in str(caught.value.where)


def test_a_line_of_a_page_of_this_folder(variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(variant("it", ("return nn.Seq", "return 1 / 0, nn.Seq")).parent)
    with pytest.raises(RecipeError) as caught:
        train.load("it.py").model()
    assert "return 1 / 0, nn." in str(caught.value.where)


def test_labels_of_other_classes(variant, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="do not fit the model's outputs") as caught:
        train.train(variant("it", ('["left", "right"]', '["left", "middle", "right"]')), out=tmp_path, epochs=1)
    assert caught.value.got == "3: left, middle, right"


def test_a_name_that_is_nearly_one_that_ox_looks_for(variant) -> None:
    with pytest.raises(RecipeError, match="'augmnt' in it") as caught:
        train.load(variant("it", ("def augment(", "def augmnt(")))
    assert str(caught.value.hint).startswith("augment;")
    assert "def augmnt(batch, generator):" in str(caught.value.where)
    with pytest.raises(RecipeError, match="'lables'"):
        train.load(variant("it", ("labels = ", "lables = ")))
    with pytest.raises(RecipeError, match="'colate'") as caught:
        train.load(variant("it", ("def augment(", "def colate(samples):\n    return samples\n\n\ndef augment(")))
    assert str(caught.value.hint).startswith("collate;")
    # what other libraries call them, and an option beside `defaults`
    for text, near in [
        ("def training_step(model, batch):\n    pass", "step"), ("def collate_fn(samples):\n    pass", "collate"),
        ("def configure_optimizers(model):\n    pass", "optimizer"), ("epochs = 7", "defaults = {'epochs': 7, ...}"),
    ]:  # fmt: skip
        with pytest.raises(RecipeError, match="is not used") as caught:
            train.load(variant("it", ("def augment(", f"{text}\n\n\ndef augment(")))
        assert str(caught.value.hint).startswith(near)


@pytest.mark.parametrize(
    "own",
    [
        "steps = 100",  # no function, as `step` is one
        "def steps(count):\n    return count",  # which takes other arguments
        "def labelled(points):\n    return points",
        "def sampled(points, count):\n    return points",
        "class Sampler:\n    pass",
        "def _colate(samples):\n    return samples",
        "def colate(samples):\n    return samples\n\n\nCOLLATES = {'c': colate}",
        "__all__ = ['colate']\n\n\ndef colate(samples):\n    return samples",
        "import functools\n\n\n@functools.cache\ndef colate(samples):\n    return samples",
        "def plot(model):\n    return model",
    ],
)
def test_names_of_a_page_s_own_are_its_own(variant, own: str) -> None:
    assert train.load(variant("it", ("def augment(", f"{own}\n\n\ndef augment(")))


def test_a_known_name_of_another_form(variant) -> None:
    for text, expected in [
        ("def scheduler(optimizer):\n    pass", "scheduler(optimizer, lr, steps)"),
        ("def step(model):\n    pass", "step(model, batch) or step(model, batch, optimizers)"),
        ("optimizer = 3", "optimizer(model, lr)"),
        ("def collate(first, second):\n    pass", "collate(samples)"),
    ]:
        with pytest.raises(RecipeError) as caught:
            train.load(variant("it", ("def model(", f"{text}\n\n\ndef model(")))
        assert caught.value.expected == expected


def test_a_loss_that_nothing_calls_is_named(variant) -> None:
    step = "def step(model, batch):\n    return model(batch[0]).sum(), None\n\n\ndef model():"
    assert train.load(variant("it", ("def model():", step))).unused == ["loss is not used: step() does not call it"]
    used = step.replace("model(batch[0]).sum()", "loss(model(batch[0]), batch[1])")
    assert train.load(variant("it", ("def model():", used))).unused == []


def test_a_page_s_own_helpers_may_be_called_nearly_so(variant) -> None:
    assert train.load(variant("it", ("labels = [", "samples = 72\nlabels = ["), ("part(72)", "part(samples)")))


def test_names_of_other_libraries_for_what_a_page_must_have(variant) -> None:
    page = variant("others", ("loss = nn", "criterion = nn"), ("def model()", "def build_model()"))
    with pytest.raises(RecipeError, match="is not a recipe") as caught:
        train.load(page)
    assert caught.value.hint == "rename criterion to loss; rename build_model to model"


LAZY = ("nn.Linear(2, 16), nn.ReLU()", "nn.LazyLinear(16), nn.LazyBatchNorm1d(), nn.ReLU()")


@pytest.mark.parametrize("own_step", [False, True])
def test_lazy_modules_train_resume_and_come_back(variant, tmp_path: Path, own_step: bool) -> None:
    """Also with a step that gives the model something else than the samples."""
    page = variant("lazy", LAZY)
    if own_step:
        step = "    out = model(batch[0][:, [0, 1, 0]])\n    return loss(out, batch[1]), out\n"
        page.write_text(f"{page.read_text()}\n\ndef step(model, batch):\n{step}")
    assert train.Trainer(train.load(page), train.TrainConfig(1, 8, 0.1)).parameters == 114 + 16 * own_step
    run = train.train(page, out=tmp_path / "runs", epochs=2)
    _, model = train.restore(run)
    assert model[0].weight.shape == (16, 3 if own_step else 2)
    longer = train.resume(run.folder, epochs=4)
    whole = train.train(page, out=tmp_path / "whole", epochs=4)
    one, other = (train.run.checkpoint.load(each.last)["model"] for each in (longer, whole))
    assert all(np.array_equal(one[name].array, other[name].array) for name in other)


@pytest.mark.parametrize("which", [1, 2])
def test_what_cannot_be_measured_is_found_before_the_first_step(variant, tmp_path: Path, which: int) -> None:
    parts = ["part(72)", "part(32)", "part(32)"]
    parts[which] = "TensorDataset(part(32).tensors[0])"
    page = variant("lacks", ("part(72), part(32), part(32)", ", ".join(parts)))
    with pytest.raises(RecipeError, match="no target beside its inputs"):
        train.train(page, out=tmp_path / "runs")
    assert not list((tmp_path / "runs").iterdir())
