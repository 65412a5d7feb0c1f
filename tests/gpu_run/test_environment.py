"""What `make gpu` finds on a machine: packages, wheels, tools."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from gpu_run import environment
from gpu_run.environment import WheelsError


def wheel(folder: Path, name: str) -> Path:
    """A wheel of one empty module."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{name}.py", "NAME = 1\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return file


def test_what_ox_needs_is_what_the_project_says() -> None:
    names = environment.needed()
    assert {"numpy", "onnx", "typer", "httptools"} <= {*names} and not any(set(name) & set(">=;[ ") for name in names)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert environment.missing_text(["numpy", "pytest"], tmp_path) == ""
    text = environment.missing_text(["numpy", "no-such-package"], tmp_path)
    assert text == "not installed: no-such-package (pip install, or GPU_WHEELS=FOLDER of their wheels)"


def test_wheels_are_installed_for_the_run(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "ox_test_module")
    wheel(tmp_path / "wheels", "numpy")  # which stays as it is
    assert environment.install(tmp_path / "wheels", tmp_path) == ["ox_test_module"]
    assert environment.missing(["ox-test-module"], tmp_path) == []
    assert [path.name for path in (tmp_path / environment.PACKAGES).glob("*.py")] == ["ox_test_module.py"]
    assert environment.install(tmp_path / "wheels", tmp_path) == []
    words = [sys.executable, "-c", "import ox_test_module, numpy; print(ox_test_module.NAME, numpy.__version__ > '1')"]
    variables = environment.variables(tmp_path, None)
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "1 True"


def test_wheels_that_cannot_be_installed(tmp_path: Path) -> None:
    with pytest.raises(WheelsError, match="no wheels there"):
        environment.install(tmp_path, tmp_path)
    (tmp_path / "broken_wheel-1.0-py3-none-any.whl").write_text("this is no archive")
    with pytest.raises(WheelsError, match="broken_wheel"):
        environment.install(tmp_path, tmp_path)


def test_a_tool_of_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.tool("ox-no-such-tool") is None
    program = tmp_path / "bin" / "ox-no-such-tool"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert environment.tool("ox-no-such-tool") == str(program)


def test_every_step_finds_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")  # with it, counts and times would be others
    variables = environment.variables(tmp_path, "host_cuda")
    paths = variables["PYTHONPATH"].split(os.pathsep)
    assert str(environment.ROOT) in paths and str(environment.ROOT / "tests" / "cuda") in paths
    assert variables["GPU_STAND_IN"] == "host_cuda" and "CUDA_LAUNCH_BLOCKING" not in variables
    assert environment.variables(tmp_path, None)["GPU_STAND_IN"] == ""
