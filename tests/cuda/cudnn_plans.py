"""Builds the plans of ox's graphs with the real cuDNN for a GPU that is not there, and prints a line of JSON for each:
its name and what was wrong, or null. Run as a process of its own, with the number of a compute capability."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convolution_cases import CONVOLUTIONS
from nvrtc import FOLDERS

from ox.devices.gpu import cudnn_conv
from ox.devices.gpu.cudnn import Plan
from ox.devices.gpu.cudnn_graphs import Attention, Graph, Normalization, row_major
from ox.devices.gpu.cudnn_settings import Settings
from ox.devices.gpu.windows import at_rank, window
from ox.dtypes import bfloat16, float16, float32

# multiprocessors, and bytes of shared memory that a block may ask for: A100, H100, B200
DEVICES = {80: (108, 166_912), 90: (132, 232_448), 100: (148, 232_448)}
MISSING = 77  # the exit code where a package is not installed


def load(folder: Path) -> Any:
    """The module `cudnn`, with its libraries and a driver without a device."""
    driver = folder / "libcuda.so.1"
    source = Path(__file__).with_name("driver_without_device.c")
    command = ["gcc", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", os.fspath(driver), os.fspath(source)]
    subprocess.run(command, check=True)
    ctypes.CDLL(os.fspath(driver), ctypes.RTLD_GLOBAL)
    for name in ("libnvrtc-builtins.so.*", "libnvrtc.so.*", "libcublasLt.so.*", "libcublas.so.*", "libcudnn.so.*"):
        found = [file for path in FOLDERS for file in Path(path).glob(f"nvidia/*/lib/{name}")]
        if not found:
            leave(f"no wheel has {name}")
        ctypes.CDLL(os.fspath(found[0]), ctypes.RTLD_GLOBAL)
    try:
        import cudnn

        cudnn.backend_version()
    except (ImportError, RuntimeError) as error:
        leave(str(error))
    return cudnn


def leave(what: str) -> None:
    print(what)
    sys.exit(MISSING)


def properties(capability: int) -> str:
    """What cuDNN wants to know of a device, in the form in which it writes that down itself."""
    processors, shared = DEVICES[capability]
    return json.dumps({
        "maxGridSize": [2**31 - 1, 65_535, 65_535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65_536,
        "multiProcessorCount": processors, "smCountOrigin": 0, "warpSize": 32, "maxSharedMemoryPerBlock": 49_152,
        "maxSharedMemoryPerBlockOptin": shared, "reservedSharedMemoryPerBlock": 1024,
        "oversizedSharedMemoryPerBlock": 0, "maxRegistersPerSM": 65_536, "maxCtasPerSM": 32,
        "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
        "supportCoopLaunch": 1, "totalGlobalMem": 80 << 30, "smClockRateKHz": 1_980_000, "memClockRateKHz": 2_619_000,
        "memoryBusWidth": 5120, "l2CacheSize": 50 << 20, "cudaDeviceId": 0, "deviceVer": capability * 10,
        "driverVer": 13_000, "deviceName": "a GPU",
    })  # fmt: skip


def graphs() -> Iterator[tuple[str, Graph]]:
    for dtype in (float32, float16, bfloat16):
        for i, (data, weights, settings) in enumerate(CONVOLUTIONS):
            rank = len(data) - 2
            given = {key: [n] * rank if isinstance(n, int) else [*n] for key, n in settings.items()}
            pads = given.get("padding", []) * 2
            steps = {"strides": given.get("stride"), "dilations": given.get("dilation"), "pads": pads}
            found = window(data[2:], weights[2:], steps)
            assert found is not None
            shapes = data, weights, (data[0], weights[0], *at_rank(found.places, rank))
            for last in (False, True) if dtype != float32 and rank > 1 else (False,):
                name = f"conv {i} {dtype}{' channels last' * last}"
                yield f"{name} with bias", cudnn_conv.convolution("forward", *shapes, dtype, found, True, last)
                for kind in ("forward", "data", "weights"):
                    yield f"{name} {kind}", cudnn_conv.convolution(kind, *shapes, dtype, found, False, last)
    for dtype, shared in ((float16, 4), (bfloat16, 2)):
        q, k = row_major((2, 4, 100, 64), dtype), row_major((2, shared, 77, 64), dtype)
        logs = row_major((2, 4, 100, 1), float32)
        yield f"attention {dtype}", Attention(q, k, k, q, logs, 0.125, True)
        yield f"attention gradient {dtype}", Attention(q, k, k, q, logs, 0.125, True, q)
    for dtype in (float32, float16, bfloat16):
        for kind in ("layer", "rms"):
            name = f"{kind} norm {dtype}"
            yield name, Normalization(kind, 1000, 5001, dtype, 1e-5)
            yield f"{name} in training", Normalization(kind, 1000, 5001, dtype, 1e-5, statistics=True)
            yield f"{name} gradient", Normalization(f"{kind} gradient", 1000, 5001, dtype)
    # of this length cuDNN has more ways, which it tries for seconds where there is no device
    yield "layer norm of whole vectors", Normalization("layer", 1000, 4096, bfloat16, 1e-5, statistics=True)
    yield "layer norm gradient of whole vectors", Normalization("layer gradient", 1000, 4096, bfloat16)


def main(capability: int, folder: Path) -> None:
    cudnn = load(folder)
    device = cudnn.create_device_properties(properties(capability))
    for name, graph in graphs():
        problem = None
        try:
            Plan(cudnn, graph, Settings(), device_property=device, sm_version=capability)
        except (RuntimeError, cudnn.cudnnGraphNotSupportedError) as error:
            problem = str(error)[:2000]
        print(json.dumps([name, problem]), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
