"""`ox bench` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from rows import rows

from ox_cli.main import main


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from ox.serve import ModelConfig, Server

    path = tmp_path_factory.mktemp("models") / "double.onnx"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    with Server([path], options=ModelConfig(device="cpu")) as server:
        yield server.url


def test_figures_and_files(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4)))
    files = ["--json-out", str(tmp_path / "out.json"), "--chart", str(tmp_path / "out.png")]
    line = ["bench", url, "--model", "double", "--concurrency", "2", "--seconds", "0.2", "--warmup", "0.1", "--check"]
    assert main([*line, "--data", str(tmp_path / "x.npz"), *files]) == 0
    assert "double at http://" in capsys.readouterr().out
    figures = json.loads((tmp_path / "out.json").read_text())
    (step,) = figures["steps"]
    assert step["clients"] == 2 and step["answered"] > 0 and step["failed"] == 0
    assert (tmp_path / "out.png").stat().st_size > 1000


def test_figures_on_standard_output(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one JSON object; or as a table, whose figures are whole in any width."""
    line = ["bench", url, "--model", "double", "--concurrency", "1,2", "--seconds", "0.1", "--warmup", "0"]
    assert main([*line, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [step["clients"] for step in figures["steps"]] == [1, 2] and figures["model"] == "double"
    monkeypatch.setenv("COLUMNS", "30")
    assert main(line) == 0
    shown = capsys.readouterr().out
    (header,) = [row.split() for row in shown.splitlines() if "requests/s" in row]
    assert header == ["clients", "requests/s", "p50", "p90", "p99", "p99.9", "max", "correct", "failed"]
    assert [len(row.split()) for row in shown.splitlines() if row.split()[:1] in (["1"], ["2"])] == [9, 9]
    assert "…" not in shown


@rows(
    ("arguments", "words", "code"),
    [
        (["--concurrency", "many"], "not a list of numbers", 2),
        (["--concurrency", ","], "not a list of numbers", 2),
        (["--rate", "1,,2"], "not a list of numbers", 2),
        (["--json-out", "/nonexist/x.json", "--seconds", "600"], "cannot be written", 1),
        (["--chart", "/nonexist/x.png", "--seconds", "600"], "cannot be written", 1),
        (["--json-out", "/", "--seconds", "600"], "it is not a file", 1),
        (["--shape", "x"], "must be a name and sizes", 2),
        (["--shape", "x=a"], "must be a name and sizes", 2),
        (["--chart", "x.txt"], "unknown file type", 1),
        (["--text"], "no model that generates text", 1),
        (["--text", "--max-tokens", "0"], "1 to 1,048,576\n", 1),
        (["--text", "--check"], "check is for tensors, and text is asked for", 1),
        (["--text", "--no-binary"], "binary is for tensors", 1),
        (["--text", "--shape", "a=1"], "shapes is for tensors", 1),
        (["--max-tokens", "5"], "max_tokens is for texts, and tensors are asked for", 1),
        (["--text", "--data", "prompts.txt", "--prompt-words", "5"], "prompt_words is for random inputs", 1),
        (["--data", "none.npz", "--rows", "5"], "rows is for random inputs, and there are data", 1),
        (["--model", "none"], "the request for model none failed", 1),
        (["--model", "double", "--shape", "x=1,5"], "does not fit", 1),
        (["--model", "double", "--data", "none.npz"], "cannot be read", 1),
    ],
)
def test_what_cannot_be_done(
    url: str, arguments: list[str], words: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", url, *arguments]) == code
    assert words in capsys.readouterr().err
