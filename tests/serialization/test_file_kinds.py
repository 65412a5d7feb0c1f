"""A file that holds no weights is named by what it is."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import LoadError


def tar() -> bytes:
    with tarfile.open(fileobj=(made := io.BytesIO()), mode="w") as archive:
        archive.addfile(tarfile.TarInfo("storages"))
    return made.getvalue()


def array() -> bytes:
    np.save(made := io.BytesIO(), np.arange(3))
    return made.getvalue()


KINDS = {
    "empty": (b"", "an empty file", "anew"),
    "text": (b"lr = 0.1\nepochs = 3\n", "a text file, which begins 'lr = 0.1'", "json"),
    "long text": ("naïve ☂\n".encode() * 100, "a text file, which begins 'naïve ☂'", "json"),
    "blank": (b"\n\n", "a text file", "json"),
    "page": (b"<!DOCTYPE html><html>404</html>", "HTML", "address"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS", "git lfs pull"),
    "tar": (tar(), "a tar archive", "torch.load"),
    "npy": (array(), "an array of NumPy", "numpy.load"),
    "gzip": (b"\x1f\x8b\x08\0\0\0\0\0", "gzip", "gunzip"),
    "zeros": (bytes(1000), "1,000 bytes that begin with zeros", "anew"),
    "noise": (b"\x80\xff\x03" * 30, "its header does not fit it", "anew"),
    "half a character": (b"  \xc3", "a text file", "json"),
    "cut": (b"\x20\0\0\0\0\0\0\0{\"w\": {", "its header does not fit it", "anew"),
}  # fmt: skip


@rows("case", KINDS)
def test_kinds(tmp_path: Path, case: str) -> None:
    content, got, hint = KINDS[case]
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(LoadError, match="cannot be read") as caught:
        ox.load(tmp_path / "x.pt")
    assert got in caught.value.got and hint in caught.value.hint
    assert "Error while" not in str(caught.value)


def test_an_onnx_file(tmp_path: Path) -> None:
    ox.export.save(ox.nn.Linear(2, 1), tmp_path / "x.onnx", ox.ones(1, 2))
    (tmp_path / "x.onnx").rename(tmp_path / "x.pt")
    with pytest.raises(LoadError) as caught:
        ox.load(tmp_path / "x.pt")
    assert caught.value.got == "an ONNX file" and caught.value.hint == "ox.export.load"
