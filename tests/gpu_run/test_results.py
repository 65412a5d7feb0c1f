"""The files that a run leaves, and the archive of compiled kernels."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from gpu_run import results
from gpu_run.kernel_cache import KernelCache


def test_outputs_are_packed_without_packages_and_what_is_too_large(tmp_path: Path) -> None:
    for name in ("packages", "more"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    with (tmp_path / "trace").open("wb") as file:
        file.truncate(results.MOST_BYTES + 1)
    (tmp_path / "tests.txt").touch()
    results.pack(tmp_path, results.outputs(tmp_path), tmp_path / "all.tgz")
    with tarfile.open(tmp_path / "all.tgz") as archive:
        assert archive.getnames() == ["more/file", "tests.txt"]


def test_kernels_are_packed_again_if_there_are_more(tmp_path: Path) -> None:
    archive = tmp_path / "of" / "kernels.tgz"
    first = KernelCache(archive, tmp_path / "first")
    assert "is not there yet" in first.unpack()
    first.pack()
    assert not archive.exists()
    kernel = Path(first.variables()["CUPY_CACHE_DIR"]) / "a.cubin"
    kernel.parent.mkdir()
    kernel.write_bytes(b"code")
    first.pack()
    written = archive.stat().st_mtime_ns
    second = KernelCache(archive, tmp_path / "second")
    assert second.unpack() == f"1 files of compiled kernels from {archive}"
    assert (Path(second.variables()["CUPY_CACHE_DIR"]) / "a.cubin").read_bytes() == b"code"
    second.pack()
    assert archive.stat().st_mtime_ns == written


@pytest.mark.parametrize("name", ["../outside", "/tmp/ox-outside"])
def test_an_archive_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "kernels.tgz", "w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"code"))
    cache = KernelCache(tmp_path / "kernels.tgz", tmp_path / "kernels")
    if name.startswith("/"):
        cache.unpack()  # below the folder
        assert (cache.folder / name.lstrip("/")).exists() and not Path(name).exists()
    else:
        with pytest.raises(tarfile.TarError, match="outside"):
            cache.unpack()
