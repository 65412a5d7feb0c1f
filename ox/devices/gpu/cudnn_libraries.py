"""Which libraries of cuDNN this process has loaded: two versions do not work together.

ONNX Runtime, CuPy, PyTorch and cuDNN's own frontend each load cuDNN, from a wheel or from the system, and cuDNN loads
its parts (libcudnn_graph and others) by name, from wherever the loader finds them.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MAPS = Path("/proc/self/maps")
LIBRARY = re.compile(r"libcudnn(?:_\w+)?\.so\.9(?:\.\d+)*")  # a process may have cuDNN 8 beside it
VERSION = re.compile(r"\.so\.(\d+\.\d+[.\d]*)")
HINT = "one nvidia-cudnn package, and no other cuDNN in LD_LIBRARY_PATH or among the system's libraries"


def conflict(maps: Path = MAPS) -> str | None:
    """That cuDNN is loaded in different versions, with a file of each; None where it is not, or where the system does
    not say what is loaded (it is not Linux).

    Args:
        maps: the list of files that the process has in memory.
    """
    folders: dict[Path, dict[str | None, Path]] = {}  # a file of each version; the main library rather than a part
    for path in _loaded(maps):
        versions = folders.setdefault(path.parent, {})
        version = _version(path)
        if version not in versions or path.name.startswith("libcudnn.so"):
            versions[version] = path
    for versions in folders.values():
        if len(versions) > 1:
            versions.pop(None, None)  # parts whose names do not say: they are beside the main library
    files = sorted((path, version) for versions in folders.values() for version, path in versions.items())
    different = {version for _, version in files}
    if len(files) < 2 or (len(different) == 1 and None not in different):
        return None
    each = (f"{version or 'of an unknown version'} ({path})" for path, version in files)
    return f"this process has loaded cuDNN {' and '.join(each)}"


def _loaded(maps: Path) -> list[Path]:
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except OSError:
        return []
    paths = {fields[5].removesuffix(" (deleted)") for line in lines if len(fields := line.split(maxsplit=5)) == 6}
    return sorted(Path(path) for path in paths if LIBRARY.fullmatch(os.path.basename(path)))


def _version(path: Path) -> str | None:
    """From the library, which is loaded already; of a part of cuDNN, from the name of its file."""
    if path.name.startswith("libcudnn.so"):
        with suppress(OSError, AttributeError):
            get: Callable[[], int] = ctypes.CDLL(str(path), os.RTLD_NOW | os.RTLD_NOLOAD).cudnnGetVersion
            return version_text(get())
    match = VERSION.search(path.name)
    return None if match is None else ".".join(match[1].split(".")[:3])


def version_text(number: int) -> str:
    """ "9.28.1" of 92801, "8.9.7" of 8907: before cuDNN 9, minor versions had one digit."""
    major = 10_000 if number >= 10_000 else 1_000
    return f"{number // major}.{number % major // 100}.{number % 100}"
