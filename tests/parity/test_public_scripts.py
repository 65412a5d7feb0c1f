"""Whole training scripts in the style of public repositories: as they are under PyTorch, and as `ox port` writes them.

Each file of `public/` is run as a program, in an empty folder and without arguments, and what it prints is compared:
the words must be the same, and the numbers equal to rounding. ox draws PyTorch's random numbers meanwhile, so that a
script starts from the same weights with nothing but its own `torch.manual_seed`; a `torch.Size` prints as a tuple,
`torch.float32` as float32. The `model` and `example` (a tensor or a tuple of them) that a script leaves behind are
exported and compared with ONNX Runtime.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ox
from ox.porting import port

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
torch.set_num_threads(1)  # its threads spin, and take many times as long where they must share their cores

SCRIPTS = sorted((Path(__file__).parent / "public").glob("*.py"))
EXCEPTIONS: dict[str, str] = {}  # a script that does not run unchanged, and why
DIMS: dict[str, dict[str, list[str | int]]] = {  # the sizes of an export that has another first dimension than a batch
    "gat": {"x": ["nodes", 6], "adj": ["nodes", "nodes"]},
    "gcn": {"x": [30, 9], "edge_index": [2, "edges"]},
    "swin": {"x": [2, 3, 16, 16]},  # int(x.shape[0] / 4.0) is a number to Python, in PyTorch's exporter as in ox's
}
SIZE = re.compile(r"torch\.Size\(\[(.*?)\]\)")
DTYPE = re.compile(r"\b(?:torch|ox)\.(b?float|u?int|bool)|dtype\('?(\w+)'?\)")
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)(?!\w)")


def printed(path: Path) -> tuple[str, dict[str, Any]]:
    """What a script prints when it is run as a program, and the names that it leaves behind."""
    stream = io.StringIO()
    state = np.random.get_state()
    try:
        with contextlib.redirect_stdout(stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch's own
            names = runpy.run_path(str(path), run_name="__main__")
    finally:
        np.random.set_state(state)
    return stream.getvalue(), names


def words(text: str) -> str:
    shapes = SIZE.sub(lambda size: str(tuple(map(int, re.findall(r"\d+", size[1])))), text)
    # a longer dtype breaks a line elsewhere, and `1.  ]` is wider where a neighbour has one digit more
    return " ".join(NUMBER.sub("#", DTYPE.sub(r"\1\2", shapes)).split()).replace("# ]", "#]")


def numbers(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


def proven(model: Any, example: Any, dims: Any = None) -> None:
    """Exports a script's trained model; `save` runs the file in ONNX Runtime and compares it with the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an `assert` on values is not in the file
        ox.export.save(model.eval(), "model.onnx", example, dims=dims)


def moves_over(script: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ported = port(script.read_bytes(), str(script))
    assert ported.imports, "nothing of PyTorch is imported"
    assert not [each for each in ported.missing if not each.guarded], ported.missing
    for library in ("torch", "ox"):
        (folder / library).mkdir()
    path = folder / "ox" / script.name
    path.write_bytes(ported.data)
    monkeypatch.setattr(sys, "argv", [script.name])
    monkeypatch.chdir(folder / "torch")
    expected, _ = printed(script)
    monkeypatch.chdir(folder / "ox")
    with ox.random.torch_compatible(True):
        got, names = printed(path)
    assert words(got) == words(expected)
    assert len(numbers(expected)) > 5, "too little is printed to compare"
    np.testing.assert_allclose(numbers(got), numbers(expected), rtol=2e-3, atol=1e-3)
    if "model" in names:
        proven(names["model"], names["example"], DIMS.get(script.stem))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_public_script_moves_over(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if script.stem in EXCEPTIONS:
        request.applymarker(pytest.mark.xfail(reason=EXCEPTIONS[script.stem], strict=True))
    moves_over(script, tmp_path, monkeypatch)


def test_there_are_at_least_40_scripts() -> None:
    assert len(SCRIPTS) >= 40


def test_every_exception_names_a_script() -> None:
    assert not (set(EXCEPTIONS) | set(DIMS)) - {script.stem for script in SCRIPTS}
