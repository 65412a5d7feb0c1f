"""System shared memory: regions that a client made, named and filled, and reads its answers from.

Nothing is mapped. Whoever made a region may cut it short at any moment, and the next touch of such a mapping kills the
process; `pread` just comes back with less. It costs one copy, and what was checked can then not change any more.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ox.errors import ServeError
from ox.graph.contract import Array
from ox.serve.v2.document import quote

FOLDER = "/dev/shm"  # where POSIX keeps shared memory on Linux
REGION, SIZE, OFFSET = "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"
LARGEST = 1 << 62


class Region:
    """A part of a shared memory object. It stays open until the last request that uses it has been answered."""

    def __init__(self, name: str, key: str, offset: int, byte_size: int) -> None:
        self.name, self.key, self.offset, self.byte_size = name, key, offset, byte_size
        self._file = _open(key)
        weakref.finalize(self, os.close, self._file)
        state = os.fstat(self._file)
        if not stat.S_ISREG(state.st_mode):
            raise ServeError(f"{quote(key)} is no shared memory", hint="a key that shm_open made")
        if offset + byte_size > state.st_size:
            got = f"{state.st_size} bytes; offset {offset} and byte_size {byte_size}"
            raise ServeError(f"the shared memory {quote(key)} is too small", expected=f"{offset + byte_size}", got=got)

    def status(self) -> dict[str, Any]:
        """The protocol's description of it."""
        return {"name": self.name, "key": self.key, "offset": self.offset, "byte_size": self.byte_size}

    def read(self, offset: int, data: Array) -> None:
        """Fills `data` with its bytes from `offset` on.

        Raises:
            ServeError: its owner has made it smaller.
        """
        done = 0
        while done < len(data):  # one call takes 2 GiB at most
            count = os.preadv(self._file, [data.data[done:]], self.offset + offset + done)
            if not count:
                raise self._cut()
            done += count

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Puts bytes into it.

        Raises:
            ServeError: its owner has made it smaller, or the machine's shared memory is full.
        """
        if self.offset + offset + len(data) > os.fstat(self._file).st_size:
            raise self._cut()  # to write there would make it larger again
        try:
            while data:
                count = os.pwrite(self._file, data, self.offset + offset)
                data, offset = data[count:], offset + count
        except OSError as error:
            raise ServeError(
                f"shared memory region {quote(self.name)} cannot be written", status=507, got=error.strerror
            ) from None

    def _cut(self) -> ServeError:
        hint = "registering it again"
        return ServeError(f"shared memory region {quote(self.name)} is smaller than when it was registered", hint=hint)


class Window(NamedTuple):
    """Where in a region one tensor lies."""

    regions: Regions
    region: Region
    offset: int
    size: int

    def read(self) -> Array:
        """A copy of the bytes.

        Raises:
            ServeError: there are fewer, or requests hold as many copies as they may (503).
        """
        self.regions.hold(self.size)
        data = np.empty(self.size, np.uint8)
        weakref.finalize(data, self.regions.released.append, self.size)
        self.region.read(self.offset, data)
        return data

    def write(self, data: bytes | memoryview, output: str) -> None:
        """Puts an output's bytes there.

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
        """How the answer says where an output of `size` bytes is."""
        place = {REGION: self.region.name, SIZE: size}
        return place | {OFFSET: self.offset} if self.offset else place


class Regions:
    """The regions that clients have registered.

    Args:
        most: how many there may be; each holds a file open.
        held: the most bytes that requests copy from them at one time.
    """

    def __init__(self, most: int, held: int) -> None:
        self._regions: dict[str, Region] = {}
        self._most, self._most_held, self._held = most, held, 0
        self.released: deque[int] = deque()  # sizes of copies that are gone, told by whatever thread let go of them

    def hold(self, size: int) -> None:
        """Counts a copy that is about to be made.

        Raises:
            ServeError: there are too many bytes of them (503), or this one alone is too large (413).
        """
        while self.released:
            self._held -= self.released.popleft()
        if self._held + size > self._most_held:
            if size > self._most_held:
                expected = f"at most {self._most_held} bytes (--limit buffered)"
                raise ServeError("a tensor in shared memory is too large", status=413, expected=expected, got=str(size))
            what = "requests hold as much of shared memory as they may (--limit buffered)"
            raise ServeError(what, status=503, hint="again in a moment")
        self._held += size

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Opens a region.

        Raises:
            ServeError: the name is taken (409), the key is none, the object is missing (404), closed to us (403) or
                too small, or there are too many.
        """
        if type(name) is not str or not 0 < len(name) <= 256:
            raise ServeError("a shared memory region needs a name", expected="up to 256 characters", got=quote(name))
        for label, value in (("offset", offset), ("byte_size", byte_size)):
            if type(value) is not int or not 0 <= value < LARGEST:
                raise ServeError(f"'{label}' is wrong", expected="bytes, a whole number", got=quote(value))
        if not byte_size:
            raise ServeError("'byte_size' is wrong", expected="at least 1", got="0")
        if name in self._regions:
            hint = "another name, or unregistering it first"
            raise ServeError(f"there is a shared memory region {quote(name)} already", status=409, hint=hint)
        if len(self._regions) >= self._most:
            raise ServeError(
                "too many shared memory regions", status=429, expected=f"at most {self._most} (--limit regions)"
            )
        self._regions[name] = Region(name, key, offset, byte_size)

    def unregister(self, name: str = "") -> None:
        """Forgets a region, or all of them. One that is not there is no error, as with Triton."""
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def status(self, name: str = "") -> dict[str, dict[str, Any]]:
        """One region, or all of them, by name.

        Raises:
            ServeError: there is none of that name (404).
        """
        regions = [self._find(name)] if name else self._regions.values()
        return {region.name: region.status() for region in regions}

    def window(self, parameters: Mapping[str, Any], tensor: str) -> Window:
        """What a tensor's parameters point at; `tensor` is how messages call it: "input 'x'".

        Raises:
            ServeError: there is no such region (404), the numbers are none, or it ends before they do.
        """
        name = parameters.get(REGION)
        if type(name) is not str:
            raise ServeError(f"{tensor} has a wrong {REGION}", expected="the name of a region", got=quote(name))
        size, offset = parameters.get(SIZE), parameters.get(OFFSET, 0)
        for label, value in ((SIZE, size), (OFFSET, offset)):
            if type(value) is not int or not 0 <= value < LARGEST:
                raise ServeError(f"{tensor} has a wrong {label}", expected="bytes, a whole number", got=quote(value))
        region = self._find(name)
        assert isinstance(size, int)
        if offset + size > region.byte_size:
            raise ServeError(
                f"{tensor} lies beyond the end of shared memory region {quote(name)}",
                expected=f"at most {region.byte_size} bytes",
                got=f"offset {offset} and byte_size {size}",
            )
        return Window(self, region, offset, size)

    def _find(self, name: str) -> Region:
        region = self._regions.get(name)
        if region is None:
            known = ", ".join(map(quote, list(self._regions)[:20])) or "none is registered"
            raise ServeError(f"there is no shared memory region {quote(name)}", status=404, expected=known)
        return region


def _open(key: str) -> int:
    """The shared memory object of that key: a file directly in `FOLDER`, and no link."""
    name = key.removeprefix("/") if type(key) is str else ""
    if not 0 < len(name.encode("utf-8", "replace")) < 256 or name in (".", "..") or "/" in name or "\0" in name:
        raise ServeError("that is no key of shared memory", expected="a name such as '/frames'", got=quote(key))
    # O_NONBLOCK: a pipe of that name may not hold the server up
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
