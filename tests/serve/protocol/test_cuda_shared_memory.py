"""CUDA shared memory over HTTP and gRPC: a second process hands memory over, and finds outputs in it."""

from __future__ import annotations

import base64
import gc
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from serving_gpu import ServingGpu

from ox.devices.gpu.ipc_memory import IpcMemory
from ox.errors import DeviceError
from ox.serve import ModelConfig, Server
from ox.serve.protocol.grpc.proto import message

pytestmark = pytest.mark.gpu

SIZE, TIMEOUT_S = 8192, 60
REGION = {"shared_memory_region": "r", "shared_memory_byte_size": 32}
OUT = {**REGION, "shared_memory_offset": 64}


class Owner:
    """The other process, and the handle of its memory."""

    def __init__(self) -> None:
        stand_in = ["--host-cuda"] if "host_cuda" in sys.modules else []
        words = [sys.executable, str(Path(__file__).with_name("cuda_owner.py")), str(SIZE), *stand_in]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
        self.timer = threading.Timer(TIMEOUT_S, self.process.kill)
        self.timer.start()
        assert self.process.stdout is not None and self.process.stdin is not None
        self.handle = bytes.fromhex(self.process.stdout.readline())

    def numbers(self, count: int) -> list[float]:
        """The first numbers that are in its memory now."""
        assert self.process.stdout is not None and self.process.stdin is not None
        print(count, file=self.process.stdin, flush=True)
        return [float(word) for word in self.process.stdout.readline().split()]

    def close(self) -> None:
        self.process.communicate()  # its input ends, and so does it; the timer kills it otherwise
        self.timer.cancel()


@pytest.fixture
def owner() -> Iterator[Owner]:
    made = Owner()
    yield made
    made.close()


@pytest.fixture
def twice(build: Any) -> Iterator[Server]:
    """A model that doubles rows of four numbers, on the CPU."""
    ends = (TensorProto.FLOAT, ["batch", 4])
    path = build("twice", [("Add", ["x", "x"], ["y"], {})], {"x": ends}, {"y": ends})
    with Server([path], options=ModelConfig(device="cpu", max_rows=1), manage=True) as server:
        yield server


def register(client: Any, handle: bytes, device_id: int = 0, byte_size: int = SIZE) -> tuple[int, str]:
    body = {
        "raw_handle": {"b64": base64.b64encode(handle).decode()},
        "device_id": device_id,
        "byte_size": byte_size,
    }
    status, _, reply = client.ask("POST", "/v2/cudasharedmemory/region/r/register", json.dumps(body).encode())
    return status, reply.decode()


def test_over_http(owner: Owner, twice: Server, connect: Any) -> None:
    with connect(twice) as client:
        assert register(client, owner.handle) == (200, "")
        listed = [{"name": "r", "device_id": 0, "byte_size": SIZE}]
        assert json.loads(client.ask("GET", "/v2/cudasharedmemory/status")[2]) == listed
        assert json.loads(client.ask("GET", "/v2/cudasharedmemory/region/r/status")[2]) == listed
        assert json.loads(client.ask("GET", "/v2/systemsharedmemory/status")[2]) == []
        assert "cuda_shared_memory" in json.loads(client.ask("GET", "/v2")[2])["extensions"]
        document = {
            "inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": REGION}],
            "outputs": [{"name": "y", "parameters": OUT}],
        }
        status, _, reply = client.ask("POST", "/v2/models/twice/infer", json.dumps(document).encode())
        assert status == 200, reply
        assert json.loads(reply)["outputs"][0]["parameters"] == OUT
        assert owner.numbers(25) == [*range(16), *range(0, 16, 2), 24]
        assert client.ask("POST", "/v2/cudasharedmemory/region/r/unregister")[0] == 200
        status, _, reply = client.ask("POST", "/v2/models/twice/infer", json.dumps(document).encode())
        assert status == 404 and b"no shared memory region 'r'" in reply


def test_over_grpc(owner: Owner, twice: Server) -> None:
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
    with grpc.insecure_channel(f"127.0.0.1:{twice.port}") as channel:

        def call(method: str, **fields: Any) -> Any:
            kind = message(f"inference.{method}Request")
            way = channel.unary_unary(
                f"/inference.GRPCInferenceService/{method}", None, message(f"inference.{method}Response").FromString
            )
            return way(kind(**fields).SerializeToString(), timeout=TIMEOUT_S)

        call("CudaSharedMemoryRegister", name="r", raw_handle=owner.handle, device_id=0, byte_size=SIZE)
        region = call("CudaSharedMemoryStatus").regions["r"]
        assert (region.name, region.device_id, region.byte_size) == ("r", 0, SIZE)
        place = {
            name: {"string_param" if isinstance(value, str) else "int64_param": value} for name, value in OUT.items()
        }
        source = {name: value for name, value in place.items() if name != "shared_memory_offset"}
        x = {"name": "x", "datatype": "FP32", "shape": [2, 4], "parameters": source}
        call("ModelInfer", model_name="twice", inputs=[x], outputs=[{"name": "y", "parameters": place}])
        assert owner.numbers(25) == [*range(16), *range(0, 16, 2), 24]
        call("CudaSharedMemoryUnregister", name="r")
        assert not call("CudaSharedMemoryStatus").regions


def test_what_cannot_be_registered(owner: Owner, twice: Server, connect: Any) -> None:
    with connect(twice) as client:
        status, text = register(client, owner.handle, device_id=7)
        assert status == 400 and "there is no cuda:7" in text
        status, text = register(client, bytes(64))
        assert status == 400 and "the handle of CUDA memory cannot be opened" in text and "cudaError" in text
        status, text = register(client, owner.handle, byte_size=1 << 30)
        assert status == 400 and "is too small; expected at most" in text
        assert register(client, owner.handle)[0] == 200
        status, text = register(client, owner.handle)
        assert status == 409 and "region 'r' already" in text


@pytest.mark.stand_in("a GPU does not show which handles are open")
def test_a_server_that_stops_closes_its_handles(owner: Owner, build: Any, connect: Any) -> None:
    def opened() -> bool:
        gc.collect()
        return f"/dev/shm/ox-host-cuda-{owner.process.pid}" in Path("/proc/self/maps").read_text()

    ends = (TensorProto.FLOAT, ["batch", 4])
    path = build("same", [("Identity", ["x"], ["y"], {})], {"x": ends}, {"y": ends})
    with Server([path], manage=True) as server, connect(server) as client:
        assert register(client, owner.handle)[0] == 200
        assert opened()
    assert not opened()


def test_memory_of_an_own_process_has_no_handle_here(owner: Owner) -> None:
    import cupy

    memory = cupy.cuda.Memory(SIZE)
    with pytest.raises(DeviceError, match="cannot be opened"):
        IpcMemory(cupy.cuda.runtime.ipcGetMemHandle(memory.ptr), 0)


def test_one_copy_and_one_wait_for_a_tensor(owner: Owner, gpu: ServingGpu) -> None:
    memory, data = IpcMemory(owner.handle, 0), np.empty(16, np.uint8)
    with gpu.doing({"to host": 1, "waits": 1, "bytes to host": 16}):
        memory.read(4, data)
    with gpu.doing({"to device": 1, "waits": 1, "bytes to device": 16}):
        memory.write(8, data.data)
    assert data.view(np.float32).tolist() == [1, 2, 3, 4]
    assert owner.numbers(6) == [0, 1, 1, 2, 3, 4]
