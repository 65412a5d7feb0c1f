"""The kind of a file that is no file of weights, from its first bytes."""

from __future__ import annotations

import codecs
import os

_KINDS = (
    (b"version https://git-lfs", "a pointer of Git LFS, not the file itself", "git lfs pull"),
    (b"\x93NUMPY", "an array of NumPy", "numpy.load, and ox.from_numpy"),
    (b"\x89HDF", "an HDF5 file, as Keras writes", "h5py reads it"),
    (b"\x1f\x8b", "a file packed with gzip", "gunzip, and ox.load of what comes out"),
    (b"BZh", "a file packed with bzip2", "bunzip2, and ox.load of what comes out"),
    (b"\x28\xb5\x2f\xfd", "a file packed with zstd", "unzstd, and ox.load of what comes out"),
    (b"GGUF", "a GGUF file, as llama.cpp reads", "the safetensors file of the same weights"),
    (b"\x89PNG", "a picture", "ox.vision.datasets.read_image"),
    (b"\xff\xd8\xff", "a picture", "ox.vision.datasets.read_image"),
)
_TAR = "with a PyTorch that reads it: torch.save(torch.load(path), 'weights.pt'); or the files inside, unpacked"
_ANEW = "an earlier checkpoint, or the file anew from where it came"


def kind(path: str) -> tuple[str, str]:
    """What it is, for an error's "got", and what to try."""
    with open(path, "rb") as file:
        start = file.read(512)
        size = file.seek(0, os.SEEK_END)
    if not start:
        return "an empty file", _ANEW
    for magic, what, hint in _KINDS:
        if start.startswith(magic):
            return what, hint
    if start[257:262] == b"ustar":
        return "a tar archive, as PyTorch 0.1 wrote", _TAR
    if start.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "a page of the web (HTML), which often is a failed download", "the file's own address"
    if path.endswith(".onnx") or (
        start[0] == 8 and start[1:2] <= b"\x10" and start[2:3] in (b"\x12", b"\x3a", b"\x42")
    ):
        return "an ONNX file", "ox.export.load"
    if not start.strip(b"\0"):
        return f"{size:,} bytes that begin with zeros", _ANEW
    if _is_text(start):
        line = next(iter(start.decode(errors="ignore").strip().splitlines()), "")
        return f"a text file, which begins {line[:60]!r}", "ox.load reads weights; json, csv or open read text"
    return "a file that is cut, damaged or of another kind: its header does not fit it", _ANEW


def _is_text(start: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return all(c.isprintable() or c in "\t\r\n" for c in text)
