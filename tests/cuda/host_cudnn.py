"""Stands for the module `cudnn` of nvidia-cudnn-frontend on host_cuda: graphs of convolutions, attention and norms,
computed by NumPy in device memory, at once or whenever a CUDA graph that was captured of them is launched. It refuses
what cuDNN refuses, and work that is done in another order.

During a capture it makes no handle and no plan: the real one allocates, loads code and may wait then. A graph of CUDA
holds kernels that belong to the plan and to the handle, which have to live on."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import ref

import host_cuda
import ml_dtypes
import numpy as np
from host_cudnn_math import (
    convolved,
    normalized,
    of_shared,
    per_head,
    places_of,
    scores_of,
    spread,
    weighted,
    weights_of,
)  # fmt: skip

Ints = Sequence[int]
Float = np.ndarray[Any, Any]


class cudnnGraphNotSupportedError(Exception):
    pass


class data_type(enum.Enum):
    FLOAT = np.dtype(np.float32)
    HALF = np.dtype(np.float16)
    BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


norm_forward_phase = enum.Enum("norm_forward_phase", "INFERENCE TRAINING")
scalar_type = enum.Enum("scalar_type", "RUNTIME_PARAM COMPILE_TIME_CONST")
heur_mode = enum.Enum("heur_mode", "A B FALLBACK")
numerical_note = enum.Enum(
    "numerical_note", "TENSOR_CORE DOWN_CONVERT_INPUTS REDUCED_PRECISION_REDUCTION NONDETERMINISTIC"
)


class Log:
    """What was asked of the library: graphs that were built, with the notes that they refuse, and what ran."""

    def __init__(self) -> None:
        self.built: list[tuple[str, list[Any]]] = []
        self.runs: list[str] = []
        self.strides: list[list[Ints]] = []  # of the tensors of each run
        self.streams: list[int] = []
        self.refuses: Callable[[pygraph], Exception | None] = lambda graph: None


log = Log()


def backend_version() -> int:
    return 92801


class Handle:
    stream = 0


def create_handle() -> Handle:
    host_cuda.refuse_in_capture()
    return Handle()


def set_stream(handle: Handle, stream: int) -> None:
    handle.stream = stream
    log.streams.append(stream)


class Tensor:
    """A tensor of a graph; a result has its sizes from the operation until others are set."""

    def __init__(self, dim: Ints, stride: Ints | None, data_type: Any, name: str, made: bool) -> None:
        self.dim, self.stride, self.data_type, self.name, self.made = list(dim), stride, data_type, name, made
        self.is_output = False

    def set_output(self, value: bool) -> Tensor:
        self.is_output = value
        return self

    def set_data_type(self, kind: data_type) -> Tensor:
        self.data_type = data_type(kind)
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        assert not self.dim or self.dim == dim, f"{self.name}: {self.dim} is said to be {dim}"
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.stride = stride
        return self

    def at(self, address: int) -> Float:
        """Its memory."""
        kind = self.data_type.value
        assert self.stride is not None and len(self.stride) == len(self.dim)
        assert address % 16 == 0, f"{self.name} is not aligned"  # CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER
        count = sum((n - 1) * s for n, s in zip(self.dim, self.stride, strict=True)) + 1
        memory = np.frombuffer((ctypes.c_char * (count * kind.itemsize)).from_address(address), kind)
        steps = [s * kind.itemsize for s in self.stride]
        return np.lib.stride_tricks.as_strided(memory, self.dim, steps)


class pygraph:
    """A graph of one operation, or of a convolution and a bias."""

    def __init__(
        self, *, io_data_type: Any, intermediate_data_type: Any, compute_data_type: Any, handle: Handle
    ) -> None:
        assert io_data_type and intermediate_data_type is compute_data_type is data_type.FLOAT
        assert isinstance(handle, Handle)
        self.handle, self.tensors, self.steps = handle, [], []  # type: tuple[Handle, list[Tensor], list[Any]]
        self.kind, self.stage, self.refused = "", 0, []  # type: tuple[str, int, list[Any]]

    def tensor(self, *, dim: list[int], stride: list[int], data_type: data_type, name: str) -> Tensor:
        assert len(dim) == len(stride) and min(dim) > 0
        self.tensors.append(Tensor(dim, stride, data_type, name, made=False))
        return self.tensors[-1]

    def _result(self, dim: Ints, kind: str, compute: Callable[[dict[Tensor, Float]], Float]) -> Tensor:
        made = Tensor(dim, None, data_type.FLOAT, kind, made=True)
        self.tensors.append(made)
        self.steps.append((made, compute))
        self.kind += kind
        return made

    def conv_fprop(self, *, image: Tensor, weight: Tensor, compute_data_type: data_type, **window: list[int]) -> Tensor:
        _check_window(image, **window)
        places = places_of(image.dim[2:], weight.dim[2:], **window)
        if image.dim[1] % weight.dim[1] or weight.dim[0] % (image.dim[1] // weight.dim[1]):
            raise cudnnGraphNotSupportedError("channels do not fit")
        return self._result(
            [image.dim[0], weight.dim[0], *places], "forward",
            lambda given: convolved(given[image], given[weight], places, **window),
        )  # fmt: skip

    def conv_dgrad(self, *, loss: Tensor, filter: Tensor, compute_data_type: data_type, **window: list[int]) -> Tensor:
        _check_window(loss, **window)
        made = self._result([], "data", lambda given: spread(given[loss], given[filter], made.dim, **window))
        return made

    def conv_wgrad(self, *, image: Tensor, loss: Tensor, compute_data_type: data_type, **window: list[int]) -> Tensor:
        _check_window(image, **window)
        made = self._result([], "weights", lambda given: weighted(given[image], given[loss], made.dim, **window))
        return made

    def bias(self, *, input: Tensor, bias: Tensor, compute_data_type: data_type) -> Tensor:
        assert input.made and not input.is_output and bias.dim == [1, input.dim[1], *[1] * (len(input.dim) - 2)]
        return self._result(input.dim, "+bias", lambda given: given[input] + given[bias])

    def sdpa(
        self, *, q: Tensor, k: Tensor, v: Tensor, generate_stats: bool, attn_scale: float, use_causal_mask: bool,
        compute_data_type: data_type,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        _check_attention(q, k, v)
        y = self._result(
            [*q.dim[:3], v.dim[3]], "attention",
            lambda given: weights_of(given[q], given[k], attn_scale, use_causal_mask)[0] @ per_head(given[v], q.dim[1]),
        )  # fmt: skip
        logs = self._result(
            [*q.dim[:3], 1], "", lambda given: weights_of(given[q], given[k], attn_scale, use_causal_mask)[1]
        )
        assert generate_stats
        return y, logs

    def sdpa_backward(
        self, *, q: Tensor, k: Tensor, v: Tensor, o: Tensor, dO: Tensor, stats: Tensor, attn_scale: float,
        use_causal_mask: bool, use_deterministic_algorithm: bool, compute_data_type: data_type,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        _check_attention(q, k, v)
        assert stats.data_type is data_type.FLOAT and stats.dim == [*q.dim[:3], 1] and o.dim == dO.dim
        assert use_deterministic_algorithm

        def found(given: dict[Tensor, Float]) -> tuple[Float, Float, Float]:
            heads = q.dim[1]
            keys, values = per_head(given[k], heads), per_head(given[v], heads)
            weights = np.exp(scores_of(given[q], keys, attn_scale, use_causal_mask) - given[stats])
            g = given[dO]
            to_scores = weights * (g @ values.swapaxes(-1, -2) - (g * given[o]).sum(-1, keepdims=True)) * attn_scale
            to_keys, to_values = to_scores.swapaxes(-1, -2) @ given[q], weights.swapaxes(-1, -2) @ g
            return to_scores @ keys, of_shared(to_keys, k.dim[1]), of_shared(to_values, v.dim[1])

        one, two, three = (
            self._result(x.dim, "attention gradient" if not i else "", lambda given, i=i: found(given)[i])
            for i, x in enumerate((q, k, v))
        )
        return one, two, three

    def tensor_scalar(self, value: float, scalar_type: Any) -> float:
        assert isinstance(value, float) and scalar_type.name == "RUNTIME_PARAM"
        return value

    def layernorm(
        self, *, norm_forward_phase: Any, input: Tensor, scale: Tensor, bias: Tensor, epsilon: float,
        compute_data_type: data_type,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        _check_rows([input], [scale, bias])
        y = self._result(
            input.dim, "layer norm",
            lambda given: normalized(given[input], epsilon, True)[0] * given[scale] + given[bias],
        )  # fmt: skip
        return y, *self._statistics(input, epsilon, norm_forward_phase, {"mean": 1, "inverse": 2})

    def rmsnorm(
        self, *, norm_forward_phase: Any, input: Tensor, scale: Tensor, bias: None, epsilon: float,
        compute_data_type: data_type,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        _check_rows([input], [scale])
        y = self._result(
            input.dim, "rms norm", lambda given: normalized(given[input], epsilon, False)[0] * given[scale]
        )
        return y, *self._statistics(input, epsilon, norm_forward_phase, {"inverse": 2})

    def _statistics(self, input: Tensor, epsilon: float, phase: Any, parts: dict[str, int]) -> list[Tensor | None]:
        if phase is norm_forward_phase.INFERENCE:
            return [None for _ in parts]
        assert phase is norm_forward_phase.TRAINING
        return [
            self._result(
                [input.dim[0], 1], f", {name}", lambda given, i=i: normalized(given[input], epsilon, len(parts) > 1)[i]
            )
            for name, i in parts.items()
        ]

    def layernorm_backward(
        self, *, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor, inv_variance: Tensor,
        compute_data_type: data_type,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        return self._norm_gradient("layer norm gradient", grad, input, scale, mean, inv_variance)

    def rmsnorm_backward(
        self, *, grad: Tensor, input: Tensor, scale: Tensor, inv_variance: Tensor, has_dbias: bool,
        compute_data_type: data_type,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        assert has_dbias is False
        return *self._norm_gradient("rms norm gradient", grad, input, scale, None, inv_variance), None

    def _norm_gradient(
        self, kind: str, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor | None, inverse: Tensor
    ) -> tuple[Tensor, ...]:
        kept = [inverse] if mean is None else [mean, inverse]
        _check_rows([grad, input], [scale], kept)

        def found(given: dict[Tensor, Float]) -> tuple[Float, ...]:
            g, x = given[grad], given[input]
            normal = (x if mean is None else x - given[mean]) * given[inverse]
            scaled = g * given[scale]
            to_x = scaled - normal * (scaled * normal).mean(1, keepdims=True)
            if mean is not None:
                to_x -= scaled.mean(1, keepdims=True)
            return to_x * given[inverse], (g * normal).sum(0, keepdims=True), g.sum(0, keepdims=True)

        made = (input, scale) if mean is None else (input, scale, scale)
        return tuple(
            self._result(x.dim, "" if i else kind, lambda given, i=i: found(given)[i]) for i, x in enumerate(made)
        )

    def _step(self, number: int) -> None:
        assert self.stage == number - 1, f"step {number} after {self.stage}"
        self.stage = number

    def validate(self) -> None:
        self._step(1)
        assert all(x.dim and x.stride for x in self.tensors if not x.made or x.is_output)

    def build_operation_graph(self) -> None:
        self._step(2)

    def create_execution_plans(self, modes: list[Any]) -> None:
        self._step(3)
        assert all(isinstance(mode, heur_mode) for mode in modes)

    def deselect_numeric_notes(self, notes: list[Any]) -> None:
        assert self.stage == 3 and all(isinstance(note, numerical_note) for note in notes)
        self.refused = notes

    def check_support(self) -> None:
        self._step(4)
        error = log.refuses(self)
        if error is not None:
            raise error

    def build_plans(self) -> None:
        host_cuda.refuse_in_capture()
        self._step(5)
        log.built.append((self.kind, self.refused))

    def get_workspace_size(self) -> int:
        assert self.stage == 5
        return 64

    def get_execution_plan_count(self) -> int:
        return 3

    def build_plan_at_index(self, index: int) -> None:
        host_cuda.refuse_in_capture()
        if index == 1:
            raise cudnnGraphNotSupportedError("not on this device")

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return 64 + index

    def execute(self, memory: dict[Tensor, int], workspace: int, *, handle: Handle) -> None:
        self._submit(memory, workspace, handle, "")

    def execute_plan_at_index(self, memory: dict[Tensor, int], workspace: int, index: int, *, handle: Handle) -> None:
        self._submit(memory, workspace, handle, f" by way {index}")

    def _submit(self, memory: dict[Tensor, int], workspace: int, handle: Handle, way: str) -> None:
        import cupy

        assert handle is self.handle and handle.stream == cupy.cuda.get_current_stream().ptr and self.stage == 5
        assert set(memory) == {x for x in self.tensors if not x.made or x.is_output}
        assert {host_cuda.device_of(address) for address in (*memory.values(), workspace)} == {cupy.cuda.Device().id}
        host_cuda.submit(partial(_run, ref(self), ref(handle), memory, workspace, way))

    def compute(self, memory: dict[Tensor, int], workspace: int) -> None:
        """Do the work, in the memory at these addresses."""
        np.frombuffer((ctypes.c_char * 64).from_address(workspace), np.uint8)[:] = 255
        given: dict[Tensor, Any] = {x: x.at(memory[x]).astype(np.float64) for x in self.tensors if not x.made}
        for made, compute in self.steps:
            given[made] = compute(given)
            assert list(given[made].shape) == made.dim, f"{self.kind}: {given[made].shape} for {made.dim}"
        for x in self.tensors:
            if x.is_output:
                x.at(memory[x])[...] = given[x].astype(x.data_type.value)


def _run(graph: ref[pygraph], handle: ref[Handle], memory: dict[Tensor, int], workspace: int, way: str) -> None:
    plan = graph()
    assert plan is not None and handle() is not None, "a CUDA graph runs a plan of cuDNN that is gone"
    plan.compute(memory, workspace)
    log.runs.append(plan.kind + way)
    log.strides.append([tuple(x.stride or ()) for x in memory])


def _check_window(image: Tensor, pre_padding: Ints, post_padding: Ints, stride: Ints, dilation: Ints) -> None:
    rank = len(image.dim) - 2
    assert rank in (2, 3) and {len(x) for x in (pre_padding, post_padding, stride, dilation)} == {rank}
    assert min(*pre_padding, *post_padding) >= 0 and min(*stride, *dilation) > 0


def _check_attention(q: Tensor, k: Tensor, v: Tensor) -> None:
    assert all(x.stride is not None and x.stride[-1] == 1 for x in (q, k, v))
    if any(x.dim[3] % 8 or x.dim[3] > 128 or x.data_type is data_type.FLOAT for x in (q, k, v)):
        raise cudnnGraphNotSupportedError("head sizes are multiples of 8, up to 128; types are halves")


def _check_rows(rows: list[Tensor], weights: list[Tensor], statistics: Sequence[Tensor] = ()) -> None:
    count, columns = rows[0].dim
    assert all(x.dim == [count, columns] and x.stride == [columns, 1] for x in rows)
    assert all(x.dim == [1, columns] for x in weights)
    assert len({x.data_type for x in (*rows, *weights)}) == 1
    assert all(x.dim == [count, 1] and x.data_type is data_type.FLOAT for x in statistics)
