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
from collections.abc import Callable
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


def compiler() -> str | None:
    """The one whose kernels a wheel that is built here gets."""
    command = shlex.split(os.environ.get("CXX", "")) or ["g++", "clang++", "c++"]
    levels = sys.platform == "linux" and platform.machine() in prebuilt_kernels.LEVELS
    glibc = platform.libc_ver()[0] == "glibc"
    return next(filter(None, map(shutil.which, command)), None) if levels and glibc else None


Build = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """What pip calls to build the checkout: `build("wheel", folder)`; hatchling is installed once, and not for each."""
    home = tmp_path_factory.mktemp("hatchling")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--target", home, "hatchling", cwd=home)

    def call(what: str, out: Path, source: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
        code = f"from hatchling import build; build.build_{what}({str(out)!r})"
        return run(sys.executable, "-c", code, cwd=source, PYTHONPATH=str(home), **environment)

    return call


@pytest.fixture(scope="module")
def wheel(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its kernels are less optimized, which takes a third of the time."""
    out = tmp_path_factory.mktemp("wheel")
    script = out / "compiler"
    script.write_text(f'#!/bin/sh\nexec {compiler()} "$@" -O1\n')
    script.chmod(0o755)
    build("wheel", out, **({"CXX": str(script)} if compiler() else {}))
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh one with only ox in it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    install = ["--python", folder / "bin" / "python", "install", "--quiet", "--no-deps", wheel]
    run(sys.executable, "-m", "pip", *install, cwd=folder)
    return folder


# What ox depends on is borrowed from the folders of this environment.
BORROWED = os.pathsep.join(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))


@pytest.mark.slow
def test_the_wheel_is_whole(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wheel.name.startswith("ox_onnx-")
    for folder in (ROOT / "ox", ROOT / "cli" / "ox_cli", ROOT / "models" / "ox_models"):
        files = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".so")]
        assert {path.relative_to(folder.parent).as_posix() for path in files} <= names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ox", "ox_cli", "ox_models"}
    assert any(name.endswith("/licenses/LICENSE") for name in names)


@pytest.fixture
def compiled_wheel(wheel: Path) -> Path:
    if compiler() is None:
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
@pytest.mark.usefixtures("compiled_wheel")
def test_the_kernels_of_the_wheel_run(environment: Path, tmp_path: Path) -> None:
    """Where nothing can be compiled or written."""
    python, files = environment / "bin" / "python", [environment, *environment.rglob("*")]
    modes = {path: path.stat().st_mode for path in files if not path.is_symlink()}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    times = {path: path.stat().st_mtime_ns for path in files}
    alone = {
        "PYTHONPATH": BORROWED, "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/nowhere", "CXX": "",
        "OX_KERNELS": "", "OX_CACHE": str(tmp_path / "cache"),
    }  # fmt: skip
    code = (
        "import ox; from ox.kernels import kernels\n"
        "print(float(ox.ones(300, 300).matmul(ox.ones(300, 300)).sum()), kernels().origin, kernels().path)"
    )
    said = run(python, "-c", code, cwd=tmp_path, **alone).stdout
    assert said.startswith(f"{300**3:.1f} prebuilt for ") and str(environment) in said
    shown = run(python, "-m", "ox_cli", "doctor", cwd=tmp_path, **alone).stdout
    assert "\nkernels   prebuilt for " in shown and f"· {environment}" in shown
    assert {path: path.stat().st_mtime_ns for path in [environment, *environment.rglob("*")]} == times
    assert not (tmp_path / "cache").exists()
    for path, mode in modes.items():
        path.chmod(mode)


@pytest.mark.slow
def test_a_wheel_without_a_compiler_is_for_every_machine(build: Build, tmp_path: Path) -> None:
    """And says so."""
    done = build("wheel", tmp_path, PATH="/nowhere", CXX="")
    (built,) = tmp_path.glob("*.whl")
    assert built.name.endswith("-py3-none-any.whl")
    assert not any("prebuilt/" in name for name in zipfile.ZipFile(built).namelist())
    assert "this wheel is without compiled kernels: no C++ compiler is installed" in done.stdout + done.stderr


@pytest.mark.slow
def test_kernels_that_were_asked_for_are_there_or_it_is_an_error(build: Build, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="there are kernels for x86_64 and aarch64, not for riscv64"):
        build("wheel", tmp_path, OX_WHEEL_MACHINE="riscv64")
    assert not list(tmp_path.glob("*.whl"))


@pytest.mark.slow
def test_only_a_wheel_compiles(build: Build, tmp_path: Path) -> None:
    """An editable install and an sdist call no compiler."""
    (tmp_path / "compiler").write_text(f"#!/bin/sh\ntouch {tmp_path}/called\nexit 1\n")
    (tmp_path / "compiler").chmod(0o755)
    seen = {"CXX": str(tmp_path / "compiler")}
    build("editable", tmp_path / "editable", **seen)
    build("sdist", tmp_path, **seen)
    (sdist,) = tmp_path.glob("*.tar.gz")
    assert not (tmp_path / "called").exists()
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        archive.extractall(tmp_path / "source", filter="data")
    assert {"scripts/wheel_hook.py", "scripts/prebuilt_kernels.py", "scripts/elf.py"} <= names
    assert {f"ox/kernels/source/{path.name}" for path in (ROOT / "ox/kernels/source").iterdir()} <= names
    # and a wheel does, whose compiler fails: it is one without kernels
    (source,) = (tmp_path / "source").iterdir()
    build("wheel", tmp_path, source, **seen)
    assert [path.name.endswith("-py3-none-any.whl") for path in tmp_path.glob("*.whl")] == [True]
    assert (tmp_path / "called").exists() or compiler() is None


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(environment: Path, tmp_path: Path) -> None:
    python, ox = environment / "bin" / "python", environment / "bin" / "ox"
    assert run(ox, "--version", cwd=tmp_path, PYTHONPATH=BORROWED).stdout.startswith("ox 0.")
    assert "CPUExecutionProvider, loads" in run(ox, "doctor", cwd=tmp_path, PYTHONPATH=BORROWED).stdout
    where = "import ox, ox_models; print(ox.__file__, ox_models.__file__)"
    for place in run(python, "-c", where, cwd=tmp_path, PYTHONPATH=BORROWED).stdout.split():
        assert Path(place).is_relative_to(environment)
    digits = "from ox_models.digits_data import split; print(*(len(part.labels) for part in split()))"
    assert run(python, "-c", digits, cwd=tmp_path, PYTHONPATH=BORROWED).stdout == "1149 288 360\n"


def test_a_missing_runtime_names_the_extras() -> None:
    code = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "import ox\n"
        "from ox.devices.onnxruntime.runtime import onnxruntime\n"
        "from ox.errors import DeviceError\n"
        "try: onnxruntime()\n"
        "except DeviceError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.startswith("ONNX Runtime is not installed")
    assert "pip install" in done.stdout and "[cpu]" in done.stdout
    assert "the extra cuda13 or cuda12" in done.stdout


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
