"""What lists and comparisons say of runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ox import train
from ox.errors import ArgumentError
from ox.train.run.summary import FINISHED, STOPPED, TRAINING, config_differences, plot, save_figure, summarize
from ox_cli.main import main


@pytest.fixture
def two(two_runs: Path, page: Path, monkeypatch: pytest.MonkeyPatch) -> list[train.Run]:
    monkeypatch.chdir(page.parent)
    shutil.copytree(two_runs, "runs")
    return [train.find(run) for run in sorted(Path("runs").iterdir())]


def test_a_finished_run(two: list[train.Run]) -> None:
    found = summarize(two[1])
    result = two[1].result
    assert result is not None
    assert found.state == FINISHED and len(found.history) == 3
    assert found.best == result["best"]
    figures = found.figures()
    assert figures["test accuracy"] == result["held_back"]["accuracy"]
    assert figures["validation loss"] == result["best"]["validation_loss"]
    assert result["held_back"]["count"] and not {"validation count", "test count", "test correct"} & figures.keys()


def test_a_run_that_was_stopped_and_one_that_is_trained(two: list[train.Run]) -> None:
    run = two[0]
    best = summarize(run).best
    (run.folder / "result.json").unlink()
    found = summarize(run)
    assert (found.state, found.best, found.held_back) == (STOPPED, best, None)
    code = f"from ox import train\nwith train.find({str(run.folder)!r}).lock(): print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert summarize(run).state == TRAINING
        other.communicate("\n", timeout=300)
    assert summarize(run).state == STOPPED


def test_only_what_differs_is_compared(two: list[train.Run]) -> None:
    told = config_differences(two)
    assert told["options.lr"] == ["0.05", "0.01"]
    assert told["options.seed"] == ["0", "5"]
    assert not {"options.batch_size", "run.name", "versions.numpy"} & told.keys()


def test_a_plot_of_a_metric(two: list[train.Run], tmp_path: Path) -> None:
    summaries = [summarize(run) for run in two]
    figure = plot(summaries, "validation_accuracy")
    lines = figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == [run.name for run in two]
    expected = [row["validation_accuracy"] for row in summaries[1].history]
    np.testing.assert_array_equal(lines[1].get_ydata(), expected)
    save_figure(figure, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as drawn:
        assert drawn.size[0] > 500
    with pytest.raises(ArgumentError, match="none of these runs has a metric 'nothing'") as caught:
        plot(summaries, "nothing")
    assert "validation_loss" in str(caught.value)
    with pytest.raises(ArgumentError, match="cannot be written as"):
        save_figure(figure, tmp_path / "a.exe")


def test_the_commands(two: list[train.Run], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "points-0001", "points-0002"]
    assert main(["runs", "list", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["epochs"] for row in rows] == [2, 3] and rows[0]["state"] == FINISHED
    assert rows[0]["held_back_accuracy"] == two[0].result["held_back"]["accuracy"]  # the key of result.json
    assert main(["runs", "compare", "points-0001", "points-0002"]) == 0
    assert "options.lr" in capsys.readouterr().out
    assert main(["runs", "plot", "points-0001", "-o", "one.svg"]) == 0
    assert Path("one.svg").read_text().startswith("<?xml")
    assert main(["runs", "report", "points-0001", "-o", "one.html"]) == 0
    assert Path("one.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["compare", "points-0001"], "needs two or more runs", 2),
        (["compare", "points-0001", "nowhere"], "nowhere is not a run", 1),
        (["plot", "points-0001", "--metric", "nothing"], "has a metric 'nothing'", 1),
        (["list", "--out", "elsewhere"], "no run in elsewhere", 1),
        (["report", "nowhere"], "nowhere is not a run", 1),
    ],
)
def test_wrong_commands(
    two: list[train.Run], arguments: list[str], said: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", *arguments]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("metrics.jsonl", '{"epoch": "x", "validation_loss": null}'),
        ("result.json", '{"best": [1, 2]}'),
        ("result.json", '{"best": {"epoch": 1}, "held_back": 3}'),
    ],
)
def test_a_damaged_run_hides_no_other(
    two: list[train.Run], file: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = two[1].folder.rename(two[1].folder.with_name("bad\x1b[31m"))
    (damaged / file).write_text(text)
    assert main(["runs"]) == 0
    out, err = capsys.readouterr()
    assert "points-0001" in out and "\x1b" not in out + err
    assert "skipped" in err and f"{file} is damaged" in err
    for command in (["compare", "points-0001"], ["plot"], ["report"]):
        assert main(["runs", *command, str(damaged)]) == 1
        assert "is damaged" in capsys.readouterr().err


def test_names_are_no_markup(two: list[train.Run], capsys: pytest.CaptureFixture[str]) -> None:
    two[1].folder.rename(two[1].folder.with_name("[red]points"))
    assert main(["runs"]) == 0
    assert "[red]points" in capsys.readouterr().out
