"""NumPy's files of plain arrays, looked at before anything of them is made: sizes first, and never a pickle."""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from ox.errors import LoadError

LIMIT = 1 << 31  # bytes of all arrays of a file together
PICKLED = "the array holds Python objects, as a pickle, and a pickle can run any code"

Array = np.ndarray[Any, Any]


def read_npy(path: str | os.PathLike[str], limit: int | None = None) -> Array | dict[str, Array]:
    """The array of a ``.npy`` file, or the arrays of an ``.npz`` file by name.

    Args:
        limit: bytes that they may take together, 2 GiB by default; a small compressed file may hold gigabytes of zeros.

    Raises:
        LoadError: no such file, a damaged one, arrays of Python objects, or more than `limit`.
    """
    path, limit = Path(path), LIMIT if limit is None else limit
    try:
        with open(path, "rb") as file:
            if file.read(4) == b"PK\x03\x04":
                return _archive(file, path, limit)
            file.seek(0)
            return _array(file, os.fstat(file.fileno()).st_size, path, limit)
    except LoadError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError, MemoryError) as error:
        raise LoadError(
            f"{path} is not a NumPy file of plain arrays", got=str(error).partition(", use allow_pickle")[0]
        ) from error
    except Exception as error:  # a damaged archive or header can end in any error of the parsers
        raise LoadError(
            f"{path} is not a NumPy file of plain arrays", got=f"{type(error).__name__}: {error}"
        ) from error


def _archive(file: IO[bytes], path: Path, limit: int) -> dict[str, Array]:
    with zipfile.ZipFile(file) as archive:
        entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
        total = sum(entry.file_size for entry in entries)
        if total > limit:
            raise LoadError(
                f"{path} is too large when it is unpacked",
                expected=f"at most {limit / 1e6:,.0f} MB",
                got=f"{total / 1e6:,.0f} MB",
            )
        found = {}
        for entry in entries:
            with archive.open(entry) as member:
                found[entry.filename.removesuffix(".npy")] = _array(member, entry.file_size, path, limit)
        return found


def _array(file: IO[bytes], size: int, path: Path, limit: int) -> Array:
    """One array, of a member or a file of `size` bytes."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise LoadError(
            f"{path} is not a NumPy file of plain arrays", got=PICKLED,
            hint="np.save(path, array.astype('float32')), where it holds numbers",
        )  # fmt: skip
    needed, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if needed > limit or needed > there:
        raise LoadError(
            f"{path} has fewer bytes than its header declares"
            if needed > there
            else f"{path} is too large when it is unpacked",
            expected=f"{dtype} {list(shape)}: {needed:,} bytes" if needed > there else f"at most {limit:,} bytes",
            got=f"{max(there, 0):,} bytes" if needed > there else f"{needed:,} bytes",
        )
    flat = np.frombuffer(file.read(needed), dtype)
    return flat.reshape(shape, order="F" if fortran else "C")
