"""What pip installs is whole, and works outside the checkout."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import elf
import prebuilt_kernels
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
        "ox_models/data/kjv_bpe.json",
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


def kernels_compile_here() -> bool:
    """Whether a wheel that is built here gets compiled kernels."""
    command = shlex.split(os.environ.get("CXX", "")) or ["g++", "clang++", "c++"]
    return (
        sys.platform == "linux"
        and platform.machine() in prebuilt_kernels.LEVELS
        and platform.libc_ver()[0] == "glibc"
        and any(shutil.which(name) for name in command)
    )


@pytest.fixture
def compiled_wheel(wheel: Path) -> Path:
    if not kernels_compile_here():
        pytest.skip("no C++ compiler, or a machine without levels")
    return wheel


@pytest.mark.slow
def test_the_wheel_has_kernels_for_every_processor(compiled_wheel: Path, tmp_path: Path) -> None:
    """Of its kind of machine; no Python ABI, and no newer glibc than its name says."""
    zipfile.ZipFile(compiled_wheel).extractall(tmp_path)
    machine, folder = platform.machine(), tmp_path / "ox" / "kernels" / "prebuilt"
    found = re.search(rf"-py3-none-manylinux_2_(\d+)_{machine}\.whl$", compiled_wheel.name)
    assert found is not None, compiled_wheel.name
    levels = {f"{level.name}.so" for level in prebuilt_kernels.LEVELS[machine]}
    assert {path.name for path in folder.iterdir()} == {"index.json", *levels}
    assert all(elf.read(folder / name).glibc <= (2, int(found[1])) for name in levels)
    (information,) = tmp_path.glob("*.dist-info/WHEEL")
    assert "Root-Is-Purelib: false" in information.read_text()
    assert compiled_wheel.stat().st_size < 6 << 20


@pytest.mark.slow
def test_the_kernels_of_the_wheel_run(compiled_wheel: Path, tmp_path: Path) -> None:
    """Where nothing can be compiled or written."""
    place = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", place, compiled_wheel, cwd=tmp_path)
    for path in [place, *place.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    files = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    borrowed = os.pathsep.join(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    environment = {
        "PYTHONPATH": f"{place}{os.pathsep}{borrowed}", "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/nowhere", "CXX": "",
        "OX_KERNELS": "", "OX_CACHE": str(tmp_path / "cache"),
    }  # fmt: skip
    code = (
        "import ox; from ox.kernels import kernels\n"
        "print(float(ox.ones(300, 300).matmul(ox.ones(300, 300)).sum()), kernels().origin, kernels().path)"
    )
    said = run(sys.executable, "-c", code, cwd=tmp_path, **environment).stdout
    assert said.startswith(f"{300**3:.1f} prebuilt for ") and str(place) in said
    shown = run(sys.executable, "-m", "ox_cli", "doctor", cwd=tmp_path, **environment).stdout
    assert "\nkernels   prebuilt for " in shown and f"· {place}" in shown
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == files and not (tmp_path / "cache").exists()
    for path in [place, *place.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)


@pytest.mark.slow
def test_a_wheel_without_a_compiler_is_for_every_machine(tmp_path: Path) -> None:
    """And says so."""
    command = [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--wheel-dir", tmp_path, ROOT]
    done = run(*command, cwd=tmp_path, PATH="/nowhere", CXX="", PIP_QUIET="0", PIP_VERBOSE="0")
    (built,) = tmp_path.glob("*.whl")
    assert built.name.endswith("-py3-none-any.whl")
    assert not any("prebuilt/" in name for name in zipfile.ZipFile(built).namelist())
    assert "this wheel is without compiled kernels: no C++ compiler is installed" in done.stdout + done.stderr


@pytest.mark.slow
def test_kernels_that_were_asked_for_are_there_or_it_is_an_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT]
    with pytest.raises(AssertionError, match="there are kernels for x86_64 and aarch64, not for riscv64"):
        run(*command, cwd=tmp_path, OX_WHEEL_MACHINE="riscv64")
    assert not list(tmp_path.glob("*.whl"))


@pytest.mark.slow
def test_only_a_wheel_compiles(tmp_path: Path) -> None:
    """An editable install and an sdist call no compiler."""
    (tmp_path / "compiler").write_text(f"#!/bin/sh\ntouch {tmp_path}/called\nexit 1\n")
    (tmp_path / "compiler").chmod(0o755)
    venv.create(tmp_path / "venv", with_pip=False)
    python, seen = tmp_path / "venv" / "bin" / "python", {"CXX": str(tmp_path / "compiler")}
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    run(*pip, "--no-deps", "--editable", ROOT, cwd=tmp_path, **seen)
    run(*pip, "hatchling", cwd=tmp_path)
    code = f"from hatchling.build import build_sdist; build_sdist({str(tmp_path)!r})"
    run(python, "-c", code, cwd=ROOT, **seen)
    (sdist,) = tmp_path.glob("*.tar.gz")
    assert not (tmp_path / "called").exists()
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"scripts/wheel_hook.py", "scripts/prebuilt_kernels.py", "scripts/elf.py"} <= names
    assert {f"ox/kernels/source/{path.name}" for path in (ROOT / "ox/kernels/source").iterdir()} <= names
    # and a wheel does, whose compiler fails: it is one without kernels
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, sdist, cwd=tmp_path, **seen)
    assert [path.name.endswith("-py3-none-any.whl") for path in tmp_path.glob("*.whl")] == [True]
    assert (tmp_path / "called").exists() or not kernels_compile_here()


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
