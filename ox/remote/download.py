"""Copies of remote models in the cache: complete, or not there."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ox import temporary_files
from ox.cache_folder import cache_folder
from ox.errors import LoadError
from ox.remote.address import Address, is_address, parse
from ox.remote.file_systems import FileSystem, open_address, store_errors

BESIDE = (".data", "_data")  # what is added to a file's name for its external data
MOST_FILES = 10_000
LONGEST_NAME = 255
TAGS = ("ETag", "etag", "md5Hash", "blob_id", "generation", "LastModified", "mtime", "created")
TEMPORARY = ".downloading-"


@dataclass(frozen=True)
class RemoteFile:
    """A file of a store: where it lies there, its size, and what changes when its content does."""

    path: str
    size: int
    tag: str


@dataclass(frozen=True)
class Listing:
    """The files at an address, by the names that they get here; `single` is the one that the address names, if it is
    not that of a folder."""

    files: dict[str, RemoteFile]
    single: str | None


def local_copies(paths: Sequence[Any], show: Callable[[str], None] | None = None) -> list[Any]:
    """The paths, with a local copy in place of each address. See `local_copy`."""
    return [local_copy(path, show) if is_address(path) else path for path in paths]


def local_copy(address: str, show: Callable[[str], None] | None = None) -> Path:
    """The file or folder at an address, in the cache; downloaded unless this version of it is there.

    A file comes with its external data (``.data`` or ``_data`` added to its name). Files whose names begin with a dot
    are left out. The copy is made under a temporary name and renamed when it is complete and of the right size.

    Args:
        address: ``s3://``, ``gs://``, ``hf://`` or ``mlflow:``.
        show: called with one line before a download.

    Raises:
        ArgumentError: it is no address that can be read.
        LoadError: there is nothing, it may not be read, a library is missing, or the copy is not complete.
    """
    parsed = parse(address)
    with store_errors(parsed):
        system, root = open_address(parsed)
        listing = _listed(parsed, system, root)
        folder = _place(parsed, listing)
        if not _complete(folder, listing):
            if show is not None:
                count, size = len(listing.files), sum(file.size for file in listing.files.values())
                show(f"downloading {parsed}: {count} file{'s'[: count > 1]}, {size / 1e6:,.1f} MB")
            _download(parsed, system, listing, folder)
    return folder if listing.single is None else folder / listing.single


def _listed(address: Address, system: FileSystem, root: str) -> Listing:
    """What lies at an address.

    Raises:
        LoadError: nothing or too much, or a file whose name cannot be one here.
        Exception: of the store's library.
    """
    about = system.info(root)
    single = root.rpartition("/")[2] if about["type"] == "file" else None
    if single is not None:
        found, above = {root: about}, root.removesuffix(single)
        for suffix in BESIDE:
            with suppress(FileNotFoundError):
                found[f"{root}{suffix}"] = system.info(f"{root}{suffix}")
    else:
        found, above = system.find(root, detail=True), f"{root}/"
    files: dict[str, RemoteFile] = {}
    for path, entry in found.items():
        name = path.removeprefix(above)
        marks_folder = not name or name.endswith("/")  # an empty object, which consoles of stores make
        parts = name.removesuffix("/").split("/") if name else []
        if not path.startswith(above) or not all(map(_is_name, parts)):
            raise LoadError(f"{address} holds a file whose name cannot be one here", where="", got=ascii(name[:200]))
        if not marks_folder and not any(part.startswith(".") for part in parts):
            files[name] = RemoteFile(path, int(entry["size"] or 0), _tag(entry))
    if not 0 < len(files) <= MOST_FILES:
        raise LoadError(f"{address} is not a model", where="", expected=f"1 to {MOST_FILES:,} files",
                        got=f"{len(files):,} files")  # fmt: skip
    return Listing(files, single)


def _is_name(part: str) -> bool:
    """Whether a part of a path can be a file's name, and only that. An empty part would make the path absolute."""
    allowed = part.isprintable() and "\\" not in part and part not in ("", ".", "..")
    return allowed and len(part.encode()) <= LONGEST_NAME


def _tag(entry: dict[str, Any]) -> str:
    return next((f"{tag}={entry[tag]}" for tag in TAGS if entry.get(tag)), "")


def _place(address: Address, listing: Listing) -> Path:
    """The folder of this version: its name says what it was copied from."""
    digest = hashlib.sha256(str(address).encode())
    for name, file in sorted(listing.files.items()):
        digest.update(repr((name, file)).encode())
    return cache_folder("models") / digest.hexdigest()[:32]


def _complete(folder: Path, listing: Listing) -> bool:
    try:
        return all((folder / name).stat().st_size == file.size for name, file in listing.files.items())
    except OSError:
        return False


def _download(address: Address, system: FileSystem, listing: Listing, folder: Path) -> None:
    """Makes `folder`.

    Raises:
        LoadError: a file came in part, or the files changed meanwhile.
        Exception: of the store's library, or of the disk.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # somebody else could change what is checked
    if hasattr(os, "getuid") and folder.parent.stat().st_uid != os.getuid():
        raise LoadError("the cache belongs to another user", where="", got=str(folder.parent),
                        hint="OX_CACHE names another folder")  # fmt: skip
    with temporary_files.folder(TEMPORARY, folder.parent) as temporary:
        made = temporary / "files"
        made.mkdir()
        for name, file in listing.files.items():
            target = made / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():  # on a disk that does not tell upper case from lower case
                raise LoadError(f"{address} holds two files whose names are one here", where="", got=ascii(name[:200]))
            system.get_file(file.path, str(target))
            if (size := target.stat().st_size) != file.size:
                raise LoadError(f"{address} was downloaded only in part", where="", expected=f"{file.size:,} bytes",
                                got=f"{size:,} bytes of {name}", hint="try again")  # fmt: skip
        if _listed(address, *open_address(address)) != listing:
            raise LoadError(f"{address} changed while it was downloaded", where="", hint="try again")
        shutil.rmtree(folder, ignore_errors=True)  # one that is not complete
        try:
            made.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process was faster
                raise
