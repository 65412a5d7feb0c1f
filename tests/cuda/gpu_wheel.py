"""A wheel for tests of what a run on a GPU installs."""

from __future__ import annotations

import zipfile
from pathlib import Path


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
