"""Models that are tried in a process of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ox.errors import LoadError
from ox.serve.engine import probe as module
from ox.serve.engine.probe import probe
from ox.serve.options import Options

F = TensorProto.FLOAT
ENDS: tuple[Any, Any] = ({"x": (F, ["batch", 4])}, {"y": (F, ["batch", 4])})
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's data")


@LINUX
@pytest.mark.slow
def test_what_grows_past_its_limit(build: Any) -> None:
    """80 MB of weights, which ONNX Runtime rearranges."""
    shapes = {"w": (4, 2_500_000), "v": (2_500_000, 4)}
    weights = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    path = build("m", [("MatMul", ["x", "w"], ["h"], {}), ("MatMul", ["h", "v"], ["y"], {})], *ENDS, weights)
    with pytest.raises(LoadError, match="grows past its memory limit") as caught:
        probe(path, Options("cpu", instances=1), 50)
    assert caught.value.expected == "at most 50 MiB (memory_mib)"


@pytest.mark.slow
def test_what_fits_and_what_is_refused(mlp: Path, build: Any) -> None:
    probe(mlp, Options("cpu"), 200)
    with pytest.raises(LoadError) as caught:
        probe(build("odd", [("Frobnicate", ["x"], ["y"], {})], *ENDS), Options("cpu"), 200)
    assert "Frobnicate" in str(caught.value.got) and caught.value.hint is not None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os.abort()", "brings its process down"),
        ("raise ValueError('that way')", "ValueError: that way"),
        ("", "brings its process down"),
        ("print('nothing of the kind')", "cannot be tried"),
        ("import time; time.sleep(60)", "takes too long"),
        ("""print('{"grown_mib": 300}')""", "300 MiB"),
    ],
)
def test_whatever_becomes_of_the_process(mlp: Path, monkeypatch: pytest.MonkeyPatch, code: str, words: str) -> None:
    monkeypatch.setattr(module, "COMMAND", (sys.executable, "-c", code))
    monkeypatch.setattr(module, "LONGEST_S", 5.0 if "sleep" not in code else 0.2)
    with pytest.raises(LoadError) as caught:
        probe(mlp, Options("cpu"), 200)
    assert words in str(caught.value)
