"""`ox serve --engine`: options that an engine does not have are refused, before anything is loaded."""

from __future__ import annotations

import pytest
from rows import rows

from ox_cli.main import main

REFUSED = {
    "--engine rays": "no such engine",
    "--replicas 2": "--engine own does not take --replicas",
    "--ray auto": "--engine own does not take --ray",
    "--engine ray --workers 2": "--engine ray does not take --workers",
    "--engine ray --uds socket --rate 5": "--engine ray does not take --uds, --rate",
}


@pytest.mark.parametrize("options", REFUSED)
def test_refused(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "model.onnx", *options.split()]) == 2
    assert REFUSED[options] in capsys.readouterr().err


@rows("replicas", ["0", "2:1", "1:", "some", "1:2:3", "-1"])
def test_replicas(replicas: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray.train", reason='Ray is not installed: pip install "ox-onnx[ray]"')
    assert main(["serve", "model.onnx", "--engine", "ray", f"--replicas={replicas}"]) == 2
    assert "--replicas is a number or a range" in capsys.readouterr().err


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray.train", reason='Ray is not installed: pip install "ox-onnx[ray]"')
    assert main(["serve", "model.onnx", "--engine", "ray", "--ray", "127.0.0.1:1"]) == 1
    assert "nobody answers at 127.0.0.1:1" in capsys.readouterr().err
