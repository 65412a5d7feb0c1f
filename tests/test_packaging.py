"""What pip installs is whole, and works outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*command: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in `cwd`, blind to the checkout; its output on failure."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_is_whole(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wheel.name.startswith("ox_onnx-")
    for expected in (
        "ox/__init__.py",
        "ox/py.typed",
        "ox/serve/protocol/grpc/proto/services.desc",
        "ox_cli/main.py",
        "ox_cli/py.typed",
        "ox_models/__init__.py",
        "ox_models/py.typed",
        "ox_models/data/digits.npz",
        "ox_models/data/kjv.txt.bz2",
        "ox_models/data/kjv_wordpiece.json",
        "ox_models/data/auto_mpg.csv",
        "ox_models/data/breast_cancer.csv",
        "ox_models/data/seattle_weather.csv",
        "ox_models/data/ATTRIBUTION.txt",
    ):
        assert expected in names, f"{expected} is missing"
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ox", "ox_cli", "ox_models"}
    assert any(name.endswith("/licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_wheel_has_every_module_of_the_checkout(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, base in (("ox", ROOT), ("ox_cli", ROOT / "cli"), ("ox_models", ROOT / "models")):
        for path in (base / folder).rglob("*.py"):
            assert path.relative_to(base).as_posix() in names


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """In a fresh environment with only ox in it; what it depends on is borrowed from this one's folders."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, cwd=tmp_path)
    ox = tmp_path / "venv" / "bin" / "ox"
    borrowed = os.pathsep.join(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    assert run(ox, "--version", cwd=tmp_path, PYTHONPATH=borrowed).stdout.startswith("ox 0.")
    assert "CPUExecutionProvider, loads" in run(ox, "doctor", cwd=tmp_path, PYTHONPATH=borrowed).stdout
    where = "import ox, ox_models; print(ox.__file__, ox_models.__file__)"
    for place in run(python, "-c", where, cwd=tmp_path, PYTHONPATH=borrowed).stdout.split():
        assert Path(place).is_relative_to(tmp_path / "venv")
    digits = "from ox_models.digits_data import split; print(*(len(part.labels) for part in split()))"
    assert run(python, "-c", digits, cwd=tmp_path, PYTHONPATH=borrowed).stdout == "1149 288 360\n"


def test_a_missing_runtime_names_the_extras() -> None:
    code = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "import ox\n"
        "from ox.devices.runtime import onnxruntime\n"
        "from ox.errors import DeviceError\n"
        "try: onnxruntime()\n"
        "except DeviceError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.startswith("ONNX Runtime is not installed")
    for extra in ("cpu", "cuda13", "cuda12"):
        assert f"ox-onnx[{extra}]" in done.stdout


def test_the_base_install_names_no_runtime() -> None:
    """The two ONNX Runtime distributions overwrite each other's files: only extras may ask for one."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert not [name for name in project["project"]["dependencies"] if name.startswith("onnxruntime")]
    extras = project["project"]["optional-dependencies"]
    assert {name for name, needs in extras.items() if any(need.startswith("onnxruntime") for need in needs)} == {
        "cpu",
        "cuda12",
        "cuda13",
    }
    gpu = [{"extra": "cuda13"}, {"extra": "cuda12"}]
    assert project["tool"]["uv"]["conflicts"] == [[{"extra": "cpu"}, *gpu], [{"extra": "files"}, *gpu]]


def test_the_digits_are_the_original_ones() -> None:
    """Against scikit-learn's copy, where it is installed."""
    datasets = pytest.importorskip("sklearn.datasets")
    from ox_models.digits_data import load_digits

    images, labels = load_digits()
    original = datasets.load_digits()
    assert (images == original.images).all()
    assert (labels == original.target).all()


def test_the_split_is_whole_and_disjoint() -> None:
    import numpy as np

    from ox_models.digits_data import load_digits, split

    images, _ = load_digits()
    parts = split()
    together = np.concatenate([part.images for part in parts])
    assert together.shape == (1797, 1, 8, 8)
    assert together.dtype == np.float32
    everything = sorted(image.tobytes() for image in images.astype(np.float32) / 16)
    assert sorted(image.tobytes() for image in together) == everything
    assert [len(part.labels) for part in parts] == [1149, 288, 360]
    assert all(set(part.labels.tolist()) == set(range(10)) for part in parts)
