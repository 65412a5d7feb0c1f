"""Settings of a model on the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ox.errors import ArgumentError
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.config.placement import Placement

MOST = 1 << 20
# largest values of the integer options; the smallest is 1 (max_rows: 0). Each instance is an operating system thread
# with its own memory
COUNTS = {
    "max_rows": MOST, "instances": 1024, "threads": 1024, "max_queue": MOST, "priority_levels": MOST,
    "default_priority": MOST, "max_graphs": MOST,
}  # fmt: skip


@dataclass(frozen=True)
class ModelConfig:
    """Settings of a model. Settings that are None are measured when the model is loaded.

    Args:
        device: "cpu", "cuda", "cuda:1", "cuda:0,cuda:1" (instances take them in turn), "tensorrt", "tensorrt:1" or
            "auto".
        max_rows: largest batch size, in samples; None: measured. 0: the model is never batched, and its
            first dimension is like any other.
        max_wait_ms: how long a free instance waits for a fuller batch, in milliseconds.
        deadline_ms: default deadline in milliseconds for requests that set none; includes the time in the queue.
        instances: concurrent runs of the model, one thread each; None: measured, or one for each GPU of `device`.
        threads: ONNX Runtime threads of one run; None: measured.
        max_queue: largest queue, in samples.
        pad: dynamic dimensions and the value that pads them to the longest request of a batch; an input's name as key
            gives the value of this input.
        mask: an input that is 1 for data and 0 for padding; the server creates it for clients that do not send it.
        priority_levels: the lowest priority of a request; 1 is the highest.
        default_priority: the priority of requests that set none, or 0.
        weight: this model's share of CPU time while several models have work.
        load_timeout_s: time limit in seconds for loading, verifying and measuring the model.
        max_dims: largest sizes of dynamic dimensions, by name; limits of other dimensions are measured when the model
            is loaded.
        dtype: "float16": a float32 file is converted when it is loaded; its inputs and outputs stay float32.
        max_graphs: the most CUDA graphs of a model with enable_cuda_graph: one for each batch size and each length that
            is padded to.
        cuda: options of ONNX Runtime's CUDA provider by name, see `CudaOptions`; only for models on a GPU.
        generation: options of models that generate texts by name, see `GenerationOptions`. False: a model that looks
            like one answers with the tensors of its file; True: it must generate texts. Otherwise its file decides.

    Raises:
        ArgumentError: a value is out of range, or two values do not fit each other.
    """

    device: str = "cpu"
    max_rows: int | None = None
    max_wait_ms: float = 0.0
    deadline_ms: float = 10_000.0
    instances: int | None = None
    threads: int | None = None
    max_queue: int = 1024
    pad: Mapping[str, float] = field(default_factory=dict, hash=False)
    mask: str | None = None
    priority_levels: int = 10
    default_priority: int = 5
    weight: float = 1.0
    load_timeout_s: float = 120.0
    max_dims: Mapping[str, int] = field(default_factory=dict, hash=False)
    dtype: str | None = None
    max_graphs: int = 256
    cuda: Mapping[str, Any] = field(default_factory=dict, hash=False)
    generation: Mapping[str, Any] | bool = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        placement = Placement.parse(self.device)
        for name, most in COUNTS.items():
            value = getattr(self, name)
            if value is None and name in ("max_rows", "instances", "threads"):
                continue
            least = 0 if name == "max_rows" else 1
            if type(value) is not int or not least <= value <= most:
                raise ArgumentError(f"{name} is out of range", expected=f"{least} to {most:,}", got=repr(value))
        for name, limit in (("max_wait_ms", MOST), ("deadline_ms", 1e9), ("weight", 1e6), ("load_timeout_s", 1e6)):
            value = getattr(self, name)
            if not _is_number(value) or not 0 <= value <= limit or (value == 0 and name != "max_wait_ms"):
                expected = f"{'0' if name == 'max_wait_ms' else 'more than 0'}, at most {limit:g}"
                raise ArgumentError(f"{name} is out of range", expected=expected, got=repr(value))
        if self.max_wait_ms >= self.deadline_ms:
            raise ArgumentError(
                "max_wait_ms must be shorter than deadline_ms",
                expected=f"less than {self.deadline_ms:g}",
                got=f"{self.max_wait_ms:g}",
            )
        if self.default_priority > self.priority_levels:
            got, expected = str(self.default_priority), f"1 to {self.priority_levels}, the priority_levels"
            raise ArgumentError("default_priority is out of range", expected=expected, got=got)
        if not isinstance(self.pad, Mapping) or not all(
            isinstance(name, str) and _is_number(value) for name, value in self.pad.items()
        ):
            raise ArgumentError("pad is not a dict of values", expected='{"tokens": 0}', got=repr(self.pad))
        if not isinstance(self.max_dims, Mapping) or not all(
            isinstance(name, str) and type(most) is int and most > 0 for name, most in self.max_dims.items()
        ):
            raise ArgumentError("max_dims is not a dict of sizes", expected='{"tokens": 512}', got=repr(self.max_dims))
        if self.dtype not in (None, "float16"):
            hint = "ox quantize for other types"
            raise ArgumentError("unknown dtype", expected="float16", got=repr(self.dtype)[:80], hint=hint)
        if not isinstance(self.cuda, Mapping):
            raise ArgumentError("cuda is not a dict of options", expected='{"use_tf32": False}', got=repr(self.cuda))
        if not isinstance(self.generation, Mapping | bool):
            expected = "options such as max_texts = 8, true for none, or false for tensors"
            raise ArgumentError("generation is not a table of options", expected=expected, got=repr(self.generation))
        GenerationOptions.from_table(self.generation)
        if CudaOptions.from_table(self.cuda).enable_cuda_graph and (self.instances or len(placement.numbers)) > 1:
            # cudaStreamCaptureModeGlobal: calls of other threads disturb a capture
            raise ArgumentError(
                "a model with enable_cuda_graph has one instance",
                expected="instances = 1, because ONNX Runtime captures graphs in one thread only",
                got=f"instances = {self.instances or len(placement.numbers)}",
            )
        if self.cuda and self.device == "cpu":
            got = f"device cpu, and {', '.join(self.cuda)}"
            hint = 'device = "cuda", or without these options'
            raise ArgumentError("options of cuda are for models on a GPU", expected="cuda or auto", got=got, hint=hint)
        if CudaOptions.from_table(self.cuda).enable_cuda_graph and placement.kind == "tensorrt":
            raise ArgumentError("TensorRT's runs are not captured", expected="device = cuda", got="enable_cuda_graph")
        if self.mask is not None and not (isinstance(self.mask, str) and self.pad):
            hint = 'pad = {"tokens": 0}'
            raise ArgumentError("mask must be the name of an input, and needs pad", got=repr(self.mask), hint=hint)

    def updated(self, table: Mapping[str, Any], where: str) -> ModelConfig:
        """These options with the values of a settings file for one model.

        Raises:
            ArgumentError: an unknown key, or a value out of range.
        """
        known = {entry.name for entry in fields(self)}
        unknown = next((name for name in table if name not in known), None)
        if unknown is not None:
            raise ArgumentError(f"unknown setting '{unknown}'", where=where, expected=", ".join(sorted(known)))
        try:
            return replace(self, **table)
        except ArgumentError as error:
            error.where = where
            raise


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
