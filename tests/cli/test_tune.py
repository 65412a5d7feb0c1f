"""`ox tune serve` on the command line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ox.serve.tuning import tune
from ox_cli.main import main


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32), "w")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", s]) for n, s in (("x", 4), ("y", 3))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight])
    path = tmp_path / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def test_it_writes_settings_and_a_chart(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "SIZES", (1, 4))
    monkeypatch.setattr(tune, "CLIENTS", (1,))
    out = model.with_name("best.toml")
    arguments = ["tune", "serve", str(model), "--out", str(out), "--seconds", "2", "--clients", "4", "--device", "cpu"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "[models.tiny]" in said and "samples/s" in said and "←" in said
    assert set(tomllib.loads(out.read_text())["models"]["tiny"]) == {"instances", "threads", "max_rows", "max_wait_ms"}
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert main(arguments) == 1
    assert "exists already" in capsys.readouterr().err


def test_what_is_wrong_is_said_first(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "serve", str(model), "--chart", "curve.txt"]) == 1
    assert "unknown file type" in capsys.readouterr().err
    out = model.with_name("t.toml")
    for files in (["--out", str(out), "--chart", "/nonexist/x.png"], ["--out", "/nonexist/t.toml"]):
        assert main(["tune", "serve", str(model), "--seconds", "600", *files]) == 1
        said = capsys.readouterr().err
        assert "cannot be written" in said and " try " in said and not out.exists()
    assert main(["tune", "serve", "nothing.onnx"]) == 1
    assert "no file" in capsys.readouterr().err
