"""The update of a `Formula` on a GPU: two launches for all parameters of a group.

The first one, of a thread for each parameter, counts the step and computes the numbers that depend on it; the second
one updates all elements. The text of both is what the formula writes when it runs on `ox.devices.gpu.expression`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.core.multi_tensor import count_kernel_write
from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.expression import Trace
from ox.devices.gpu.kernels import THREADS, functions
from ox.devices.gpu.multi_tensor import beside, grid, is_on_device, kind_of, table
from ox.devices.gpu.skip_flag import skip_flag
from ox.dtypes import float64
from ox.sparse.tensor import SparseTensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ox.optim.formula import Formula
    from ox.tensors.tensor import Tensor


@dataclass(frozen=True)
class Source:
    """The text of the two kernels, and how many numbers the first one hands on for each parameter."""

    text: str
    numbers: int


NAMES = ("ox_step_numbers", "ox_step")
KIND_BITS = 2  # of an element type, in the number that holds those of a line


def takes(p: Tensor) -> bool:
    """Whether a parameter and its gradient are arrays on a GPU of types that kernels have."""
    grad: Any = p.grad
    return (
        is_on_device(p.array)
        and not isinstance(grad, SparseTensor)
        and is_on_device(grad.array)
        and kind_of(p.array) is not None
        and kind_of(grad.array) is not None
        and p.array.size > 0
    )


def update(optimizer: Formula, params: Sequence[Tensor], group: Any, settings: Mapping[str, Any]) -> bool:
    """Update parameters that `takes` took. Whether the formula can be written as a kernel; if not, nothing was done.

    Args:
        settings: what the formula sees as its group.
    """
    held = [optimizer._state_of(p, group) for p in params]
    wide = any(float64 in (p.array.dtype, p.grad.array.dtype) for p in params)  # type: ignore[union-attr]
    found = source(optimizer, group, settings, "double" if wide else "float")
    if found is None:
        return False
    moments, scalars = list(optimizer._moments(settings)), _scalars(optimizer, settings)  # type: ignore[arg-type]
    _bring(held, scalars)
    lines, gradients = [], []
    for p, state in zip(params, held, strict=True):
        tensors: list[Any] = [p, *[state[key] for key in moments]]
        for tensor in tensors:
            if not tensor.array.flags.c_contiguous:
                tensor.array = cupy().ascontiguousarray(tensor.array)
        gradients.append(cupy().ascontiguousarray(p.grad.array))  # type: ignore[union-attr]
        arrays = [p.array, gradients[-1], *[tensor.array for tensor in tensors[1:]]]
        kinds = sum((kind_of(array) or 0) << KIND_BITS * i for i, array in enumerate(arrays))
        places = [array.data.ptr for array in arrays] + [state[key].array.data.ptr for key in scalars]
        lines.append([*places, kinds, p.array.size])
    _launch(found, lines, [float(group.tensors[key].array) for key in sorted(group.tensors)])
    name = f"{type(optimizer).__name__}.step"
    for p, state in zip(params, held, strict=True):
        for tensor in (p, *[state[key] for key in (*moments, *scalars)]):
            count_kernel_write(tensor, name)
    return True


def _launch(source: Source, lines: list[list[int]], numbers: list[float]) -> None:
    kernels, lines_there, flag = functions(source.text, NAMES), table(lines), skip_flag()
    count = len(lines)
    space = cupy().empty(count * source.numbers, np.float64)
    found = 0 if flag is None else beside(flag, space)
    blocks = (-(-count // THREADS),)
    kernels["ox_step_numbers"](blocks, (THREADS,), (lines_there, count, found, space, *map(np.float64, numbers)))
    kernels["ox_step"](grid([line[-1] for line in lines]), (THREADS,), (lines_there, found, space))


def _scalars(optimizer: Formula, settings: Mapping[str, Any]) -> list[str]:
    return [*(["step"] if optimizer._counts else []), *optimizer._starts(settings)]  # type: ignore[arg-type]


def _bring(states: Sequence[dict[str, Any]], names: list[str]) -> None:
    """State of no dimensions that is still on the host, to the GPU in one copy."""
    left = [state[name] for state in states for name in names if not is_on_device(state[name].array)]
    if left:
        there = cupy().asarray(np.array([float(tensor.array) for tensor in left], np.float32))
        for i, tensor in enumerate(left):
            tensor.array = there[i : i + 1].reshape(())


def source(optimizer: Formula, group: Any, settings: Mapping[str, Any], computed: str) -> Source | None:
    """The source of both kernels; None for a formula that does something which kernels do not have.

    Args:
        settings: what the formula sees as its group.
        computed: the type in which elements are computed.
    """
    trace = Trace()
    moments, starts = list(optimizer._moments(settings)), list(optimizer._starts(settings))  # type: ignore[arg-type]
    fixed = sorted(group.tensors)
    n = SimpleNamespace(**{key: trace.number(f"v_{key}") for key in [*fixed, *starts]})
    before = {key: trace.element(f"s_{key}") for key in moments}
    after: dict[str, Any] = dict(before)
    try:
        if optimizer._counts:
            optimizer._derive(trace, n, trace.number("step"))
        kept = {key: trace.of_number(getattr(n, key)) for key in starts}
        made = optimizer._full_update(trace, trace.element("p"), trace.element("g"), after, n, settings)  # type: ignore[arg-type]
        stored = {"p": made, **{f"s_{key}": after[key] for key in moments if after[key] is not before[key]}}
        results = {name: trace.of_element(value) for name, value in stored.items()}
    except (TypeError, AttributeError):
        return None
    names = ["p", "g", *[f"s_{key}" for key in moments]]
    scalars = _scalars(optimizer, settings)
    places = {key: f"line[{i}]" for i, key in enumerate([*names, *scalars, "kinds", "size"])}
    text = "\n".join(
        [
            f'#include "device_numbers.h"\ntypedef {computed} C;\nconstexpr int LINE = {len(places)};',
            *_numbers_kernel(trace, fixed, places, kept, optimizer._counts),
            *_elements_kernel(trace, names, places, results),
            "",
        ]
    )
    return Source(text, len(trace.passed))


def _numbers_kernel(
    trace: Trace, fixed: list[str], places: dict[str, str], kept: dict[str, str], counts: bool
) -> list[str]:
    """Lines of the first kernel.

    Args:
        kept: what becomes of the state of no dimensions.
    """
    parameters = "".join(f", double v_{key}" for key in fixed)
    step = places.get("step", "")
    count = [
        f"const double step = (double)(*(float*){step} + 1.0f);",
        f"*(float*){step} = (float)step;",
    ]
    return [
        f'extern "C" __global__ void {NAMES[0]}(const long long* table, long long count, const float* found, '
        f"double* numbers{parameters}) {{",
        "const long long t = blockIdx.x * (long long)blockDim.x + threadIdx.x;",
        "if (t >= count || (found && *found != 0.0f)) return;",
        "const long long* line = table + LINE * t;",
        *(count if counts else []),
        *[f"const double v_{key} = (double)*(const float*){places[key]};" for key in kept],
        *trace.of_numbers,
        *[f"numbers[t * {len(trace.passed)} + {i}] = {name};" for name, i in trace.passed.items()],
        *[f"*(float*){places[key]} = (float){value};" for key, value in kept.items()],
        "}",
    ]


def _elements_kernel(trace: Trace, names: list[str], places: dict[str, str], results: dict[str, str]) -> list[str]:
    """Lines of the second kernel: names of arrays, and what becomes of some of them."""
    mask = (1 << KIND_BITS) - 1
    kinds = {name: f"kind_{name}" for name in names}
    return [
        f'extern "C" __global__ void {NAMES[1]}(const long long* table, const float* found, const double* numbers) {{',
        "if (found && *found != 0.0f) return;",
        "const long long* line = table + LINE * (long long)blockIdx.x;",
        f"numbers += {len(trace.passed)} * (long long)blockIdx.x;",
        *[f"const C n{i} = (C)numbers[{i}];" for i in trace.passed.values()],
        *[
            f"const int {kinds[name]} = (int)({places['kinds']} >> {KIND_BITS * i}) & {mask};"
            for i, name in enumerate(names)
        ],
        f"TENSOR_ELEMENTS(i, {places['size']}) {{",
        *[f"const C {name} = load_number<C>({places[name]}, {kinds[name]}, i);" for name in names],
        *trace.of_elements,
        *[f"store_number<C>({places[name]}, {kinds[name]}, i, {value});" for name, value in results.items()],
        "}",
        "}",
    ]
