"""What the machine has: the interpreter's packages, a folder of wheels, tools, and the variables of every step."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = "packages"  # the folder that takes the wheels, in that of the run
FOR_TESTS = ("pytest", "hypothesis")
HELPFUL = ("pytest-xdist",)


def needed() -> list[str]:
    """The distributions that ox itself needs, by the names of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [line for line in project["dependencies"] if "sys_platform" not in line]
    return [re.split(r"[\s<>=!~;\[]", line)[0] for line in lines]


def installed(name: str, folder: Path) -> bool:
    """Whether a distribution is in this environment or in the folder of wheels."""
    if any(metadata.distributions(name=name, path=[str(folder / PACKAGES)])):
        return True
    return any(metadata.distributions(name=name))


def missing(names: Iterable[str], folder: Path) -> list[str]:
    return [name for name in names if not installed(name, folder)]


def missing_text(names: Iterable[str], folder: Path) -> str:
    """What is not installed, and what to do; "" where all is there."""
    absent = missing(names, folder)
    if not absent:
        return ""
    return f"not installed: {', '.join(absent)} (pip install, or GPU_WHEELS=FOLDER of their wheels)"


class WheelsError(Exception):
    """A folder of wheels that cannot be installed."""


def install(wheels: Path, folder: Path, seconds: float | None = None) -> list[str]:
    """Install wheels of what is missing into the run's folder, without an index. Returns their names.

    What the environment has stays as it is: its numpy and its CUDA fit together.

    Raises:
        WheelsError: the folder has no wheels, or pip refuses one, or has not ended after so many seconds.
    """
    files = sorted(wheels.glob("*.whl"))
    if not files:
        raise WheelsError(f"{wheels}: no wheels there; expected files NAME-VERSION-...whl (pip download -d {wheels})")
    new = [file for file in files if not installed(file.name.split("-")[0].replace("_", "-"), folder)]
    if not new:
        return []
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    words += ["--target", str(folder / PACKAGES), *map(str, new)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise WheelsError(f"{wheels}: {error}") from None
    if done.returncode:
        raise WheelsError(f"{wheels}: {done.stderr.strip()[-500:]}")
    return [file.name.split("-")[0] for file in new]


SUMS = "SHA256SUMS"  # the list of a folder of parts, as the program sha256sum writes it
PART = re.compile(r"(.+)\.\d+")  # FILE.00, FILE.01, as the program split names them


def join(parts: Path, target: Path) -> list[str]:
    """Put files together, whose parts are copied into a folder one after the other. Returns what is still missing.

    Args:
        parts: the folder, with a list of all parts and their SHA-256 in SUMS.
        target: takes the files that are complete.

    Raises:
        WheelsError: there is no list, or a part is another one than it says.
    """
    try:
        lines = (parts / SUMS).read_text().splitlines()
    except OSError as error:
        raise WheelsError(
            f"{parts}: expected a list of the parts, {SUMS} (sha256sum FILE.* > {SUMS}): {error}"
        ) from None
    files: dict[str, list[tuple[str, str]]] = {}
    for line in lines:
        digest, _, name = line.partition(" ")
        name = name.lstrip(" *")
        found = PART.fullmatch(name)
        if found is None or "/" in name or len(digest) != 64:
            raise WheelsError(f"{parts / SUMS}: expected lines such as 'SHA-256  NAME.whl.00'; got {line[:120]!r}")
        files.setdefault(found[1], []).append((name, digest))
    missing = [name for listed in files.values() for name, _ in listed if not (parts / name).exists()]
    target.mkdir(exist_ok=True)
    for file, listed in files.items():
        if any(name in missing for name, _ in listed):
            continue
        with (target / file).open("wb") as whole:
            for name, digest in sorted(listed):
                data = (parts / name).read_bytes()
                if hashlib.sha256(data).hexdigest() != digest.lower():
                    raise WheelsError(f"{parts / name} is not the part of {SUMS}: copy it again")
                whole.write(data)
    return missing


def tool(name: str) -> str | None:
    """A program of CUDA's toolkit: on the PATH, or in the folder of CUDA_HOME, CUDA_PATH or the usual one."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [str(Path(home) / "bin") for home in homes if home]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def variables(folder: Path, stand_in: str | None) -> dict[str, str]:
    """The environment of every step."""
    paths = [ROOT, ROOT / "cli", ROOT / "models", ROOT / "scripts", ROOT / "tests" / "cuda", folder / PACKAGES]
    if stand_in:
        paths.append(Path(sys.prefix) / "cuda-packages")
    path = os.pathsep.join([*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])])
    made = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "GPU_STAND_IN": stand_in or ""}
    # PyTorch's profiler starts hundreds of times. It keeps CUPTI, whose end and new start CUDA graphs may not survive.
    made |= {"TEARDOWN_CUPTI": "0", "DISABLE_CUPTI_LAZY_REINIT": "1"}
    made.pop("CUDA_LAUNCH_BLOCKING", None)  # with which each launch waits
    for name in [name for name in made if name.startswith("PYTEST_XDIST")]:  # of a worker that tries this
        del made[name]
    return made
