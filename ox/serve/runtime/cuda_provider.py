"""What a session on a GPU is made with, and how its runs are ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import count
from types import ModuleType
from typing import Any

from ox.devices.gpu.cupy_device import which
from ox.devices.machine import Driver
from ox.errors import DeviceError
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.config.placement import Placement

# Of no graph: the run option by which a run is not captured as a graph of the device.
NO_GRAPH = -1
# Numbers of graphs, of the whole process: ONNX Runtime replays a graph with the addresses that it was captured with.
graphs = count(1)


def check_numbers(placement: Placement, driver: Driver) -> None:
    """Whether the driver has the GPUs of a model.

    Raises:
        DeviceError: one of them does not exist.
    """
    there = [f"cuda:{number} ({name})" for number, name in enumerate(driver.devices)]
    for number in placement.numbers:
        if number >= len(there):
            got = f"cuda:{number}"
            raise DeviceError(f"there is no {got}", expected=", ".join(there), got=got, hint=which())


def provider_options(options: CudaOptions, stream: int | None, number: int = 0) -> dict[str, str]:
    """Options of ONNX Runtime's CUDA provider, as texts.

    Args:
        options: those of the model; what is None keeps ONNX Runtime's default, but for TF32, which it would use.
        stream: the address of the CUDA stream on which runs, and their copies, are ordered; None for ONNX Runtime's.
        number: of the GPU.
    """
    given = {"use_tf32": False} | {name: value for name, value in asdict(options).items() if value is not None}
    texts = {name: str(int(value)) if isinstance(value, bool | int) else value for name, value in given.items()}
    if stream is not None:  # copies on another stream would race with those of the buffers
        texts |= {"user_compute_stream": str(stream), "do_copy_in_default_stream": "1"}
    return {"device_id": str(number), **texts}


def run_options(runtime: ModuleType, graph: int = NO_GRAPH, waits: bool = True) -> Any:
    """RunOptions of ONNX Runtime for a run: the graph that it is captured as, and whether it waits for its end."""
    options = runtime.RunOptions()
    options.log_severity_level = 4  # a stopped run is not an error for the log
    # ONNX Runtime 1.32 looks for it in each run with bound buffers, and raises and catches an error where it is
    # missing: 34 µs instead of 3 for a small model.
    options.add_run_config_entry("gpu_graph_id", str(graph))
    if not waits:
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options


class DeviceControl:
    """What ends the runs of one batch on a GPU: RunOptions of ONNX Runtime for each way that the batch may be run.

    Args:
        make: makes RunOptions, given the graph and whether the run waits for the device at its end.
    """

    def __init__(self, make: Callable[[int, bool], Any]) -> None:
        self._make, self._terminate = make, False
        self._made: dict[tuple[int, bool], Any] = {}

    def options(self, graph: int = NO_GRAPH, waits: bool = True) -> Any:
        """The RunOptions of a run."""
        made = self._made.get((graph, waits))
        if made is None:
            made = self._made[graph, waits] = self._make(graph, waits)
            if self._terminate:  # it was ended from another thread before these were there
                made.terminate = True
        return made

    @property
    def terminate(self) -> bool:
        return self._terminate

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._terminate = value
        for made in list(self._made.values()):
            made.terminate = value
