"""Models that are tried in a process of their own."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from waiting import wait_until

from ox.errors import LoadError
from ox.serve.config.model_config import ModelConfig
from ox.serve.runtime import probe as module
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.probe import probe

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
    with pytest.raises(LoadError, match="exceeds its memory limit") as caught:
        probe(path, ModelConfig("cpu", instances=1), 50)
    assert caught.value.expected == "at most 50 MiB (memory_mib)"


@pytest.mark.slow
def test_what_fits_and_what_is_refused(mlp: Path, build: Any) -> None:
    probe(mlp, ModelConfig("cpu"), 200)
    with pytest.raises(LoadError) as caught:
        probe(build("odd", [("Frobnicate", ["x"], ["y"], {})], *ENDS), ModelConfig("cpu"), 200)
    assert "Frobnicate" in str(caught.value.got) and caught.value.hint is not None


def test_files_of_a_page_hide_no_modules(mlp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ox train` has the folder of a page on sys.path; there, and where the server was started, may be anything."""
    for name in ("types", "numbers", "numpy", "ctypes"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('the one of the page')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    probe(mlp, ModelConfig("cpu", instances=1), 200)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os.abort()", "crashes its process"),
        ("import os; os.kill(os.getpid(), 15)", "SIGTERM"),
        ("raise ValueError('that way')", "ValueError: that way"),
        ("", "crashes its process"),
        ("print('nothing of the kind')", "cannot be tested"),
        ("""print('{"grown_mib": 300}')""", "300 MiB"),
    ],
)
def test_whatever_becomes_of_the_process(mlp: Path, monkeypatch: pytest.MonkeyPatch, code: str, words: str) -> None:
    monkeypatch.setattr(module, "COMMAND", (sys.executable, "-c", code))
    with pytest.raises(LoadError) as caught:
        probe(mlp, ModelConfig("cpu"), 200)
    assert words in str(caught.value)


def test_an_end_from_outside_ends_the_process(mlp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = tmp_path / "pid"
    pid.touch()
    code = f"import os; open({str(pid)!r}, 'w').write(str(os.getpid()))\nwhile True: pass"
    monkeypatch.setattr(module, "COMMAND", (sys.executable, "-c", code))
    control = LoadControl("m", 5)
    whole = threading.Thread(target=lambda: (wait_until(lambda: pid.read_text()), control.end(control.late())))
    whole.start()
    with pytest.raises(LoadError, match="m takes too long to load") as caught:
        probe(mlp, ModelConfig("cpu"), 200, control)
    whole.join()
    assert caught.value.what == "m takes too long to load"
    assert "testing it in a separate process" in str(caught.value.got)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    with pytest.raises(LoadError, match="m takes too long to load"):  # nothing begins any more
        probe(mlp, ModelConfig("cpu"), 200, control)
