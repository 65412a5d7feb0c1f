"""Compiled kernels of CuPy and ox, which go from one run to the next in an archive: machines come and go."""

from __future__ import annotations

import tarfile
from pathlib import Path

from gpu_run.results import pack


class KernelCache:
    """A folder in which the steps find and leave compiled kernels.

    Args:
        archive: where they are kept.
        folder: the one, which is new.
    """

    def __init__(self, archive: Path, folder: Path) -> None:
        self.archive, self.folder = archive, folder
        self._packed: list[Path] = []
        folder.mkdir()

    def variables(self) -> dict[str, str]:
        """For the environment of the steps: CuPy's, the driver's, ox's, and that of the stand-in for a GPU."""
        names = ("CUPY_CACHE_DIR", "CUDA_CACHE_PATH", "OX_CACHE", "OX_HOST_CUDA_CACHE")
        return {name: str(self.folder / name.lower()) for name in names}

    def unpack(self) -> str:
        """Bring back what the archive has. Returns what there was to say.

        Raises:
            OSError, tarfile.TarError: it cannot be read.
        """
        if not self.archive.exists():
            return f"{self.archive} is not there yet: kernels are compiled"
        with tarfile.open(self.archive) as archive:
            archive.extractall(self.folder, filter="data")
        self._packed = self._files()
        return f"{len(self._packed)} files of compiled kernels from {self.archive}"

    def pack(self) -> None:
        """Write the archive again, if there are other files than it has."""
        if (files := self._files()) != self._packed:
            self.archive.parent.mkdir(parents=True, exist_ok=True)
            pack(self.folder, files, self.archive)
            self._packed = files

    def _files(self) -> list[Path]:
        return sorted(file for file in self.folder.rglob("*") if file.is_file())
