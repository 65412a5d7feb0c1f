"""Training on a Ray cluster of two nodes, one of which fails in mid-epoch: the weights are those of a calm run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loops import EPOCHS, Loop

import ox
from ox import tolerance

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(run_script: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the runs reported, by name; `folder` has their last checkpoints."""
    folder = tmp_path_factory.mktemp("cluster")
    lines = run_script("cluster_training.py", folder)
    return {line["name"]: line for line in lines} | {"folder": folder}


def test_another_node_comes(results: dict[str, Any], tmp_path: Path) -> None:
    """Bit for bit: two ranks without Ray train the same."""
    code = "from ox import distributed; distributed.init_process_group(); import loops; loops.trainer({}).fit('plain')"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path]))}
    ranks = [Path(sys.executable).with_name("mpiexec"), "-n", "2", sys.executable, "-c", code]
    subprocess.run(ranks, env=env, cwd=tmp_path, check=True, timeout=120)
    folder: Path = results["folder"]
    assert (folder / "same.hangs").exists() and results["same"]["metrics"]["epoch"] == EPOCHS
    for name in ("last", "best"):
        disturbed = ox.load(folder / "same" / "checkpoints" / f"{name}.safetensors")
        plain = ox.load(tmp_path / "plain" / "checkpoints" / f"{name}.safetensors")
        for part in ("model", "optimizer"):
            assert str(disturbed[part]) == str(plain[part])
        for key, value in plain["model"].items():
            assert np.array_equal(disturbed["model"][key].numpy(), value.numpy()), key


def test_no_other_node_comes(results: dict[str, Any]) -> None:
    """Within the table: one process trains the same with the same global batch."""
    folder: Path = results["folder"]
    assert (folder / "fewer.hangs").exists()
    assert results["fewer"]["metrics"] == {"epoch": EPOCHS, "ranks": 1}
    loop = Loop()
    for _ in loop.epochs({}):
        pass
    disturbed = ox.load(folder / "fewer" / "state.ox")["model"]
    for key, value in loop.net.state_dict().items():
        assert tolerance.compare(disturbed[key].numpy(), value.numpy()).ok, key
