"""Regions of CUDA shared memory over a stand-in for the device's memory: what is refused, and when it is closed."""

from __future__ import annotations

import base64
import gc
import weakref
from typing import Any, ClassVar

import numpy as np
import pytest
from rows import rows

from ox.errors import DeviceError, ServeError
from ox.serve.protocol.v2 import cuda_region
from ox.serve.protocol.v2.cuda_region import CudaRegion
from ox.serve.protocol.v2.shared_memory import OFFSET, REGION, SIZE, Regions

HANDLE = base64.b64encode(bytes(range(64))).decode()


class Memory:
    """In the place of `IpcMemory`: the bytes 0 to 99 of the handle 0, 1, 2 ..."""

    made: ClassVar[list[weakref.ref[Memory]]] = []

    def __init__(self, handle: bytes, device: int) -> None:
        if device:
            raise DeviceError(f"there is no cuda:{device}", expected="one of 1 devices", got=f"cuda:{device}")
        assert handle == bytes(range(64))
        self.bytes, self.size = bytearray(range(100)), 100
        self.broken = False
        Memory.made.append(weakref.ref(self))

    def read(self, offset: int, data: np.ndarray[Any, Any]) -> None:
        if self.broken:
            raise DeviceError("CUDA memory of another process cannot be read", got="cudaErrorIllegalAddress")
        data[:] = self.bytes[offset : offset + len(data)]

    def write(self, offset: int, data: bytes | memoryview) -> None:
        if self.broken:
            raise DeviceError("CUDA memory of another process cannot be written", got="cudaErrorIllegalAddress")
        self.bytes[offset : offset + len(data)] = data


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_region, "cupy", lambda: None)
    monkeypatch.setattr(cuda_region, "IpcMemory", Memory)
    Memory.made.clear()


@pytest.fixture
def regions(device: None) -> Regions:
    made = Regions(2, 1000)
    made.add(CudaRegion("r", HANDLE, 0, 50))
    return made


def test_read_and_write(regions: Regions) -> None:
    place = regions.slice({REGION: "r", SIZE: 8, OFFSET: 42}, "output 'y'")
    assert place.read().tolist() == list(range(42, 50))
    place.write(b"ab", "y")
    assert regions.slice({REGION: "r", SIZE: 4, OFFSET: 41}, "input 'x'").read().tolist() == [41, *b"ab", 44]
    assert place.parameters(2) == {REGION: "r", SIZE: 2, OFFSET: 42}
    with pytest.raises(ServeError, match="beyond the end of shared memory region 'r'"):
        regions.slice({REGION: "r", SIZE: 8, OFFSET: 43}, "input 'x'")
    with pytest.raises(ServeError, match="too small"):
        place.write(bytes(9), "y")


def test_kinds_are_apart(regions: Regions) -> None:
    assert regions.status() == {}
    assert regions.status(kind=CudaRegion) == {"r": {"name": "r", "device_id": 0, "byte_size": 50}}
    assert regions.status("r", CudaRegion) == regions.status(kind=CudaRegion)
    with pytest.raises(ServeError, match="no shared memory region 'r'") as caught:
        regions.status("r")
    assert caught.value.status == 404
    regions.unregister("r")  # those of the system
    regions.unregister()
    assert regions.status("r", CudaRegion)
    with pytest.raises(ServeError, match="there is a shared memory region 'r' already") as caught:
        regions.register("r", "/frames", 0, 1)
    assert caught.value.status == 409
    regions.unregister("never was", CudaRegion)
    regions.unregister("r", CudaRegion)
    with pytest.raises(ServeError, match="no CUDA shared memory region 'r'") as caught:
        regions.status("r", CudaRegion)
    assert caught.value.status == 404


def test_taken_and_too_many(regions: Regions) -> None:
    with pytest.raises(ServeError, match="already") as caught:
        regions.add(CudaRegion("r", HANDLE, 0, 1))
    assert caught.value.status == 409
    regions.add(CudaRegion("s", HANDLE, 0, 1))
    with pytest.raises(ServeError, match="too many") as caught:
        regions.add(CudaRegion("t", HANDLE, 0, 1))
    assert caught.value.status == 429
    with pytest.raises(ServeError, match="needs a name"):
        regions.add(CudaRegion("", HANDLE, 0, 1))


@rows(
    ("handle", "device_id", "byte_size", "words"),
    [("AAAA", 0, 1, "'raw_handle' is wrong"), ("?", 0, 1, "'raw_handle' is wrong"), (None, 0, 1, "'raw_handle'"),
     (HANDLE[:-4], 0, 1, "64 bytes of a cudaIpcMemHandle_t"), (HANDLE, -1, 1, "'device_id' is wrong"),
     (HANDLE, True, 1, "'device_id' is wrong"), (HANDLE, "0", 1, "'device_id' is wrong"),
     (HANDLE, 1, 1, "region 'n' cannot be opened: there is no cuda:1"), (HANDLE, 0, 0, "'byte_size' is wrong"),
     (HANDLE, 0, 1.5, "'byte_size' is wrong"), (HANDLE, 0, 101, "is too small; expected at most 100 bytes")],
)  # fmt: skip
@pytest.mark.usefixtures("device")
def test_what_is_none(handle: Any, device_id: Any, byte_size: Any, words: str) -> None:
    with pytest.raises(ServeError) as caught:
        CudaRegion("n", handle, device_id, byte_size)
    assert caught.value.status == 400 and words in caught.value.one_line()


@pytest.mark.parametrize(
    ("what", "got"),
    [("CuPy is not installed, and it is what runs on cuda", "No module named 'cupy'"),
     ("CuPy finds no CUDA device", "cudaErrorInsufficientDriver: the driver is too old")],
)  # fmt: skip
def test_without_cuda_it_says_what_is_missing(what: str, got: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise DeviceError(what, got=got, hint="a driver")

    monkeypatch.setattr(cuda_region, "cupy", missing)
    with pytest.raises(ServeError) as caught:
        CudaRegion("n", HANDLE, 0, 1)
    assert caught.value.status == 501
    assert f"no CUDA shared memory; got {what}: {got}" in caught.value.one_line()


def test_memory_is_closed_when_the_last_request_is_answered(regions: Regions) -> None:
    (memory,) = Memory.made
    in_use = regions.slice({REGION: "r", SIZE: 8}, "output 'y'")
    regions.unregister(kind=CudaRegion)
    gc.collect()
    in_use.write(b"ab", "y")
    assert memory() is not None
    del in_use
    gc.collect()
    assert memory() is None


def test_a_server_that_stops_closes_all(regions: Regions) -> None:
    (memory,) = Memory.made
    regions.close()
    gc.collect()
    assert memory() is None and regions.status(kind=CudaRegion) == {}


def test_a_device_that_fails(regions: Regions) -> None:
    place = regions.slice({REGION: "r", SIZE: 8}, "input 'x'")
    memory = Memory.made[0]()
    assert memory is not None
    memory.broken = True
    for use in (place.read, lambda: place.write(b"ab", "y")):
        with pytest.raises(ServeError, match="region 'r': CUDA memory of another process cannot be") as caught:
            use()
        assert caught.value.status == 500
