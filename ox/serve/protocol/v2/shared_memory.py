"""Shared memory: regions that clients create, fill with inputs and read outputs from, of the system or of a GPU.

Regions of the system are not mapped. A client can truncate a region at any time, and an access to such a mapping kills
the process (SIGBUS); `pread` returns fewer bytes. The copy also keeps checked data from changing.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ox.errors import ServeError
from ox.graph.contract import Array
from ox.serve.protocol.v2.cuda_region import CudaRegion
from ox.serve.protocol.v2.document import quote

FOLDER = "/dev/shm"  # POSIX shared memory on Linux
REGION, SIZE, OFFSET = "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"
MAX_OFFSET = 1 << 62
AnyRegion: TypeAlias = "Region | CudaRegion"


class Region:
    """A part of a shared memory object. Its file stays open until the last request that uses it is answered."""

    words = "shared memory"

    def __init__(self, name: str, key: str, offset: int, byte_size: int) -> None:
        self.name, self.key, self.offset, self.byte_size = name, key, offset, byte_size
        self._file = _open(key)
        weakref.finalize(self, os.close, self._file)
        state = os.fstat(self._file)
        if not stat.S_ISREG(state.st_mode):
            raise ServeError(f"{quote(key)} is not a shared memory object", hint="a key that shm_open made")
        if offset + byte_size > state.st_size:
            got = f"{state.st_size} bytes; offset {offset} and byte_size {byte_size}"
            raise ServeError(f"the shared memory {quote(key)} is too small", expected=f"{offset + byte_size}", got=got)

    def status(self) -> dict[str, Any]:
        """The region in the protocol's format."""
        return {"name": self.name, "key": self.key, "offset": self.offset, "byte_size": self.byte_size}

    def read(self, offset: int, data: Array) -> None:
        """Reads bytes from `offset` on into `data`.

        Raises:
            ServeError: the client has truncated it.
        """
        done = 0
        while done < len(data):  # one call reads 2 GiB at most
            count = os.preadv(self._file, [data.data[done:]], self.offset + offset + done)
            if not count:
                raise self._truncated_error()
            done += count

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Writes bytes from `offset` on.

        Raises:
            ServeError: the client has truncated it, or the machine's shared memory is full.
        """
        if self.offset + offset + len(data) > os.fstat(self._file).st_size:
            raise self._truncated_error()  # a write would extend the file
        try:
            while data:
                count = os.pwrite(self._file, data, self.offset + offset)
                data, offset = data[count:], offset + count
        except OSError as error:
            raise ServeError(
                f"shared memory region {quote(self.name)} cannot be written", status=507, got=error.strerror
            ) from None

    def _truncated_error(self) -> ServeError:
        hint = "registering it again"
        return ServeError(f"shared memory region {quote(self.name)} is smaller than when it was registered", hint=hint)


class RegionSlice(NamedTuple):
    """The place of one tensor in a region."""

    regions: Regions
    region: AnyRegion
    offset: int
    size: int

    def read(self) -> Array:
        """Copies the bytes.

        Raises:
            ServeError: the region was truncated, or all copies together exceed the limit (503).
        """
        self.regions.reserve(self.size)
        data = np.empty(self.size, np.uint8)
        weakref.finalize(data, self.regions.freed_sizes.append, self.size)
        self.region.read(self.offset, data)
        return data

    def write(self, data: bytes | memoryview, output: str) -> None:
        """Writes the bytes of an output.

        Raises:
            ServeError: they do not fit.
        """
        if len(data) > self.size:
            raise ServeError(
                f"the shared memory for output '{output}' is too small",
                expected=f"{SIZE} of at least {len(data)}",
                got=str(self.size),
            )
        self.region.write(self.offset, data)

    def parameters(self, size: int) -> dict[str, Any]:
        """The response parameters of an output of `size` bytes."""
        place = {REGION: self.region.name, SIZE: size}
        return place | {OFFSET: self.offset} if self.offset else place


class Regions:
    """The regions that clients have registered: names are those of both kinds together, as in Triton.

    Args:
        max_regions: the limit of regions; each holds an open file, or an open handle of a GPU's memory.
        max_copied_bytes: the limit of bytes copied for requests in progress.
    """

    def __init__(self, max_regions: int, max_copied_bytes: int) -> None:
        self._regions: dict[str, AnyRegion] = {}
        self._max_regions, self._max_copied_bytes, self._copied_bytes = max_regions, max_copied_bytes, 0
        self.freed_sizes: deque[int] = deque()  # sizes of freed copies, appended by any thread

    def reserve(self, size: int) -> None:
        """Counts a copy before it is created.

        Raises:
            ServeError: the limit is reached (503), or this copy alone exceeds it (413).
        """
        while self.freed_sizes:
            self._copied_bytes -= self.freed_sizes.popleft()
        if self._copied_bytes + size > self._max_copied_bytes:
            if size > self._max_copied_bytes:
                expected = f"at most {self._max_copied_bytes} bytes (--limit buffered)"
                raise ServeError("a tensor in shared memory is too large", status=413, expected=expected, got=str(size))
            what = "requests use too much shared memory (--limit buffered)"
            raise ServeError(what, status=503, hint="again in a moment")
        self._copied_bytes += size

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Opens and registers a region.

        Raises:
            ServeError: the name exists (409), invalid key, no such object (404), no permission (403), the object is
                too small, or too many regions (429).
        """
        self._check(name, offset, byte_size)
        self._regions[name] = Region(name, key, offset, byte_size)

    def add(self, region: CudaRegion) -> None:
        """Registers a region that is open already.

        Raises:
            ServeError: the name is wrong or exists (409), or too many regions (429).
        """
        self._check(region.name, 0, region.byte_size)
        self._regions[region.name] = region

    def _check(self, name: str, offset: int, byte_size: int) -> None:
        if type(name) is not str or not 0 < len(name) <= 256:
            raise ServeError("a shared memory region needs a name", expected="up to 256 characters", got=quote(name))
        for label, value in (("offset", offset), ("byte_size", byte_size)):
            if type(value) is not int or not 0 <= value < MAX_OFFSET:
                raise ServeError(f"'{label}' is wrong", expected="bytes, a whole number", got=quote(value))
        if not byte_size:
            raise ServeError("'byte_size' is wrong", expected="at least 1", got="0")
        if name in self._regions:
            hint = "another name, or unregistering it first"
            raise ServeError(f"there is a shared memory region {quote(name)} already", status=409, hint=hint)
        if len(self._regions) >= self._max_regions:
            raise ServeError(
                "too many shared memory regions", status=429, expected=f"at most {self._max_regions} (--limit regions)"
            )

    def unregister(self, name: str = "", kind: type[AnyRegion] = Region) -> None:
        """Unregisters a region of a kind, or all of the kind. An unknown name is not an error, as in Triton."""
        for each in self._names(kind):
            if name in ("", each):
                del self._regions[each]

    def close(self) -> None:
        """Unregisters all regions."""
        self._regions.clear()

    def status(self, name: str = "", kind: type[AnyRegion] = Region) -> dict[str, dict[str, Any]]:
        """The status of one region of a kind, or of all, by name.

        Raises:
            ServeError: unknown name (404).
        """
        names = [self._find(name, kind).name] if name else self._names(kind)
        return {each: self._regions[each].status() for each in names}

    def slice(self, parameters: Mapping[str, Any], tensor: str) -> RegionSlice:
        """The slice that a tensor's parameters describe; `tensor` names it in errors: "input 'x'".

        Raises:
            ServeError: unknown region (404), invalid numbers, or a slice beyond its end.
        """
        name = parameters.get(REGION)
        if type(name) is not str:
            raise ServeError(f"{tensor} has a wrong {REGION}", expected="the name of a region", got=quote(name))
        size, offset = parameters.get(SIZE), parameters.get(OFFSET, 0)
        for label, value in ((SIZE, size), (OFFSET, offset)):
            if type(value) is not int or not 0 <= value < MAX_OFFSET:
                raise ServeError(f"{tensor} has a wrong {label}", expected="bytes, a whole number", got=quote(value))
        region = self._find(name)
        assert isinstance(size, int)
        if offset + size > region.byte_size:
            raise ServeError(
                f"{tensor} is beyond the end of shared memory region {quote(name)}",
                expected=f"at most {region.byte_size} bytes",
                got=f"offset {offset} and byte_size {size}",
            )
        return RegionSlice(self, region, offset, size)

    def _names(self, kind: type[AnyRegion] | None) -> list[str]:
        """The names of the regions of a kind, or of all."""
        on_gpu = kind is CudaRegion
        return [name for name, each in self._regions.items() if kind is None or isinstance(each, CudaRegion) == on_gpu]

    def _find(self, name: str, kind: type[AnyRegion] | None = None) -> AnyRegion:
        """The region of a name, of that kind if one is given."""
        if name not in self._names(kind):
            known = ", ".join(map(quote, self._names(kind)[:20])) or "none is registered"
            words = (kind or Region).words
            raise ServeError(f"there is no {words} region {quote(name)}", status=404, expected=known)
        return self._regions[name]


def _open(key: str) -> int:
    """Opens the shared memory object of a key: a file directly in `FOLDER`, not a link."""
    name = key.removeprefix("/") if type(key) is str else ""
    if not 0 < len(name.encode("utf-8", "replace")) < 256 or name in (".", "..") or "/" in name or "\0" in name:
        raise ServeError("invalid key of shared memory", expected="a name such as '/frames'", got=quote(key))
    if not hasattr(os, "preadv"):
        raise ServeError("there is no shared memory of POSIX on this system", hint="sending the tensors")
    # O_NONBLOCK: a pipe of that name must not block the server
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(f"{FOLDER}/{name}", flags)
    except FileNotFoundError:
        what = f"there is no shared memory {quote(key)}"
        raise ServeError(
            what, status=404, hint="creating it before it is registered, on the server's machine"
        ) from None
    except (OSError, UnicodeEncodeError) as error:
        status = 403 if isinstance(error, PermissionError) else 400
        got = getattr(error, "strerror", None) or "text that is not Unicode"
        raise ServeError(f"the shared memory {quote(key)} cannot be opened", status=status, got=got) from None
