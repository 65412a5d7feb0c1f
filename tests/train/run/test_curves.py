"""The pictures of runs: what is marked, which epochs have ticks, and that no label lies on another or on a curve."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows

from ox import nn, train
from ox.train.predictions import Predictions, predict
from ox.train.run import curves

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def blank_curves() -> None:
    """Here they are drawn."""


def history(
    count: int, accuracy: bool = True, metrics: tuple[str, ...] = (), scale: float = 1.0
) -> list[dict[str, Any]]:
    rows = []
    for epoch in range(1, count + 1):
        loss = scale * (2 * math.exp(-4 * epoch / count) + 0.2)
        right = 1 - 0.3 * loss / scale if accuracy else None
        row = {"epoch": epoch, "step": 10 * epoch, "loss": loss, "accuracy": right, "lr": 0.1, "seconds": 1.0}
        row |= {"validation_loss": loss + 0.2 * scale * (epoch / count) ** 2, "validation_accuracy": right}
        rows.append(row | {f"validation_{name}": loss for name in metrics})
    return rows


def held_back(count: int = 50) -> Predictions:
    truth = np.random.RandomState(0).randn(count)
    return Predictions("test", count, truth, truth + 0.1)


GAPS = history(12, metrics=("f1",))
for _number in (2, 3, 11):
    GAPS[_number]["validation_f1"] = None
WITHOUT = [row | {"validation_loss": None, "validation_accuracy": None} for row in history(7)]
CASES: dict[str, tuple[list[dict[str, Any]], Predictions | None]] = {
    "classes": (history(10), None),
    "numbers": (history(10, accuracy=False, scale=4000.0), held_back()),
    "one epoch": (history(1), None),
    "one epoch of numbers": (history(1, accuracy=False), held_back()),
    "two hundred": (history(200), None),
    "not finite": (GAPS, None),
    "no validation data": (WITHOUT, None),
    "tiny losses": (history(10, scale=1e-6), None),
    "equal losses": ([row | {"validation_loss": None, "loss": 1000 + row["loss"] / 1000} for row in history(10)], None),
    "large losses": (history(10, scale=1e5), None),
    "several metrics": (history(137, False, ("mae", "rmse", "r2", "a_metric_with_a_long_name")), held_back()),
}


@rows("name", CASES)
def test_no_label_lies_on_another_or_on_a_curve(name: str) -> None:
    rows, predictions = CASES[name]
    figure = curves.picture(rows, rows[len(rows) // 2], "a-recipe-of-mine-0001", "test set: loss 0.1234", predictions)
    figure.draw_without_rendering()
    panels = [axes for axes in figure.axes if axes.get_visible()]
    words = [text for axes in panels for text in (axes.title, axes._left_title, axes._right_title)]
    words += [*figure.texts, *figure.legends, *(axes.xaxis.label for axes in panels)]
    if figure._suptitle is not None and figure._suptitle not in words:
        words.append(figure._suptitle)
    boxes = [box for box in (word.get_window_extent() for word in words) if box.width and box.height]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    for box, axes in itertools.product(boxes, panels):
        assert not box.shrunk(0.98, 0.9).overlaps(axes.get_window_extent()), "a label lies where curves are"
    for axes in panels:
        low, high = axes.get_ylim()
        shown = [tick.label1 for tick in axes.yaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        numbers = [text.get_window_extent() for text in (*shown, axes.yaxis.get_offset_text())]
        for number in filter(lambda box: box.width, numbers):
            assert number.x0 > 0 and not any(number.overlaps(other) for other in boxes)
            assert not any(number.overlaps(other.get_window_extent()) for other in panels if other is not axes)
        ticks = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        assert not any(one.overlaps(other) for one, other in itertools.pairwise(ticks))


def test_each_panel_says_what_the_best_epoch_came_to() -> None:
    rows = history(9, accuracy=False, metrics=("mae",))
    figure = curves.picture(rows, rows[4], predictions=held_back())
    titles = [(axes.get_title("left"), axes.get_title("right")) for axes in figure.axes]
    assert titles[0] == ("loss", f"best: epoch 5, {rows[4]['validation_loss']:.4g}")
    assert titles[1] == ("mae", f"best: epoch 5, {rows[4]['validation_mae']:.4g}")
    assert titles[2] == ("predicted", "test set, 50 samples")
    (without,) = {axes.get_title("right")[:15] for axes in curves.picture(WITHOUT, WITHOUT[-1]).axes}
    assert without == "last: epoch 7, "


@rows("last", [1, 2, 5, 9, 12, 13, 14, 30, 97, 100, 101, 137, 200, 999, 1000, 12345])
def test_first_and_last_epoch_have_a_tick(last: int) -> None:
    ticks = curves.epoch_ticks(1, last)
    assert ticks[0] == 1 and ticks[-1] == last and ticks == sorted(set(ticks)) and len(ticks) <= 13
    assert min(np.diff(ticks), default=last) >= last / 25


def test_an_epoch_without_a_finite_number_is_marked() -> None:
    figure = curves.picture(GAPS, GAPS[5])
    lines = {line.get_label(): line for line in figure.axes[2].get_lines()}
    assert list(lines["NaN or infinite"].get_xdata()) == [3, 4, 12]
    assert np.isnan(lines["validation"].get_ydata()[[2, 3, 11]]).all()


def numbers(outputs: int = 1) -> train.Trainer:
    x = np.random.RandomState(0).randn(60, 3).astype(np.float32)
    y = x[:, :1] * np.ones((1, outputs), np.float32)
    return train.Trainer(nn.Linear(3, outputs), nn.MSELoss(), None, (x, y), (x, y), epochs=2, lr=0.1)


def test_a_run_of_numbers_draws_what_was_predicted(tmp_path: Path) -> None:
    trainer = numbers()
    trainer.fit(tmp_path / "run")
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(PNG)
    found = predict(trainer, trainer.model, trainer.data.validation, "validation")
    assert found is not None and found.count == 60
    assert np.allclose(found.truth, trainer.data.validation.tensors[1].numpy()[:, 0])
    assert np.allclose(found.predicted, trainer.model(trainer.data.validation.tensors[0]).detach().numpy()[:, 0])


def test_a_run_of_classes_is_drawn(whole: train.Run) -> None:
    assert whole.curves.read_bytes().startswith(PNG)


def test_predictions_of_what_is_not_numbers() -> None:
    x = np.zeros((20, 3), np.float32)
    trainer = train.Trainer(nn.Linear(3, 2), nn.CrossEntropyLoss(), None, (x, np.zeros(20, np.int64)), epochs=1)
    assert predict(trainer, trainer.model, trainer.data.validation, "validation") is None
    several = predict(numbers(2), (two := numbers(2)).model, two.data.validation, "validation")
    assert several is not None and len(several.truth) == 120 and several.count == 60


def test_runs_lists_numbers_beside_classes_without_blanks(tmp_path: Path, monkeypatch, capsys) -> None:
    from ox_cli.main import main

    monkeypatch.chdir(tmp_path)
    numbers().fit("runs/plain")
    x = np.random.RandomState(0).randn(60, 3).astype(np.float32)
    y = x[:, :1] * 2
    train.Trainer(
        nn.Linear(3, 1), nn.MSELoss(), None, (x, y), (x, y), (x, y), epochs=1, metrics=["mae", "r2"]
    ).fit("runs/metrics")  # fmt: skip
    train.Trainer(nn.Linear(3, 1), nn.MSELoss(), None, (x, y), None, epochs=1).fit("runs/alone")
    assert main(["runs"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert "score" in head
    shown = {line.split()[0]: line for line in lines}
    assert "–" in shown["plain"] and " mae " in shown["metrics"] and shown["metrics"].count("mae") == 2
    assert shown["alone"].count("–") == 3
