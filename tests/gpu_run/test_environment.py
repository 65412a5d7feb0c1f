"""What `make gpu` finds on a machine: packages, wheels, tools."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_run import environment
from gpu_run.environment import ROOT, WheelsError
from gpu_run.plan import gpu_files
from gpu_wheel import wheel


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


def test_parts_of_a_wheel(tmp_path: Path) -> None:
    parts, target = tmp_path / "parts", tmp_path / "joined"
    parts.mkdir()
    with pytest.raises(WheelsError, match=r"expected a list of the parts, SHA256SUMS"):
        environment.join(parts, target)
    contents = {f"a.whl.{i:02}": f"part {i} ".encode() for i in range(11)} | {"b.whl.00": b"whole"}
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    lines = [f"{digest}  {name}\n" for name, digest in reversed(sums.items())]
    (parts / environment.SUMS).write_text("".join(lines))
    (parts / "b.whl.00").write_bytes(b"whole")
    assert sorted(environment.join(parts, target)) == [name for name in contents if name.startswith("a")]
    assert [file.name for file in target.iterdir()] == ["b.whl"]
    for name, data in contents.items():
        (parts / name).write_bytes(data)
    assert environment.join(parts, target) == []
    assert (target / "a.whl").read_bytes() == b"".join(data for name, data in contents.items() if name[0] == "a")
    (parts / "a.whl.03").write_bytes(b"half")
    with pytest.raises(WheelsError, match=r"a\.whl\.03 is not the part of SHA256SUMS: copy it again"):
        environment.join(parts, target)


@pytest.mark.parametrize("name", ["../a.whl.00", "/tmp/a.whl.00", "a.whl", ""])
def test_a_list_of_parts_names_files_of_its_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / environment.SUMS).write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(WheelsError, match="expected lines such as"):
        environment.join(tmp_path, tmp_path / "joined")


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


ABSENT = (  # modules of extras that no step needs
    "tokenizers", "llguidance", "jinja2", "grpc", "tritonclient", "sklearn", "pandas", "polars", "pyarrow", "torch",
    "einops", "openvino", "h2", "h11", "cryptography", "openai", "jsonschema", "yaml", "fsspec", "s3fs",
    "huggingface_hub", "ray", "optuna", "mpi4py", "skimage",
)  # fmt: skip


def test_tests_of_a_gpu_are_read_without_extras(tmp_path: Path) -> None:
    """A conftest.py that cannot be imported ends the whole step."""
    (tmp_path / "without_extras.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({ABSENT}))\n")
    options = ["-p", "without_extras", "-p", "no:cacheprovider", "-m", "gpu", "-q", "--collect-only"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *gpu_files()],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}",
             "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for folder in ("tests/serve/generation/gpu/", "tests/serve/runtime/", "tests/devices/", "tests/ops/"):
        assert folder in done.stdout
