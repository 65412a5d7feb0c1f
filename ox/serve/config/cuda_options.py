"""Options of ONNX Runtime's CUDA provider for one model, under its own names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ox.errors import ArgumentError
from ox.serve.config.request_limits import SIZE, UNITS

# The values of Triton's parameters, which are the numbers of ONNX Runtime's enumerations.
STRATEGIES = {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"}
SEARCHES = {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"}
SWITCHES = {"1": True, "true": True, "0": False, "false": False}
LEAST, MOST = 1 << 20, 1 << 50  # bytes
MOST_BITS, MOST_MS = (1 << 16) - 1, (1 << 31) - 1
NEEDED = {
    "tunable_op_tuning_enable": "tunable_op_enable",
    "tunable_op_max_tuning_duration_ms": "tunable_op_tuning_enable",
}


@dataclass(frozen=True)
class CudaOptions:
    """Options of the CUDA provider; None leaves ONNX Runtime's default, but for `use_tf32`. Source: ONNX Runtime,
    "CUDA Execution Provider", Configuration Options.

    Args:
        gpu_mem_limit: the most bytes of the arena of each session, from which runs and weights allocate; cuDNN and
            CUDA itself take more. Default: no limit.
        arena_extend_strategy: how the arena grows: "kNextPowerOfTwo" (default) or "kSameAsRequested".
        cudnn_conv_algo_search: how algorithms of convolutions are chosen: "EXHAUSTIVE" (default), "HEURISTIC" or
            "DEFAULT".
        use_tf32: whether products and convolutions of float32 may use TF32 (default: no; ONNX Runtime's: yes), whose
            results are held to the tolerance of float16.
        prefer_nhwc: whether convolutions and pools compute with channels last (default: no); ONNX Runtime turns their
            inputs and outputs around.
        cudnn_conv_use_max_workspace: whether cuDNN may take as much memory as its fastest algorithm wants (default:
            yes).
        sdpa_kernel: the sum of the bits of kernels of attention that may be used: 1 flash attention, 2 memory-efficient
            attention, 4 TensorRT's, 8 cuDNN's, 16 none of them. 0 (default) leaves it to ONNX Runtime.
        tunable_op_enable: whether operators that have several kernels use what has been measured (default: no).
        tunable_op_tuning_enable: whether they are measured, at the first run of each shape (default: no).
        tunable_op_max_tuning_duration_ms: the most milliseconds that one of them is measured; 0 (default): no limit.
        enable_cuda_graph: each size of batch is captured once as a CUDA graph, and replayed.
    """

    gpu_mem_limit: int | None = None
    arena_extend_strategy: str | None = None
    cudnn_conv_algo_search: str | None = None
    use_tf32: bool | None = None
    prefer_nhwc: bool | None = None
    cudnn_conv_use_max_workspace: bool | None = None
    sdpa_kernel: int | None = None
    tunable_op_enable: bool | None = None
    tunable_op_tuning_enable: bool | None = None
    tunable_op_max_tuning_duration_ms: int | None = None
    enable_cuda_graph: bool = False

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> CudaOptions:
        """Options from a settings file, the command line or Triton's parameters, which are texts.

        Raises:
            ArgumentError: an unknown option, or a value that is none of its own.
        """
        known = [field.name for field in fields(cls)]
        unknown = next((name for name in table if name not in known), None)
        if unknown is not None:
            raise ArgumentError(f"unknown option of cuda: '{unknown}'", expected=", ".join(known))
        options = cls(**{name: READERS[name](name, value) for name, value in table.items()})
        for name, needed in NEEDED.items():
            if getattr(options, name) and not getattr(options, needed):
                what = f"the option {name} of cuda does nothing without {needed}"
                raise ArgumentError(what, expected=f"{needed} = true beside it", got=f"{name} alone")
        return options


def parse_cuda(texts: Iterable[str]) -> dict[str, str]:
    """Options from texts such as "gpu_mem_limit=4GiB". The last of one name counts.

    Raises:
        ArgumentError: no such option, or a wrong value.
    """
    table = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ArgumentError("that sets no option", where=f"--cuda {text[:80]}", expected="NAME=VALUE")
        table[name.strip()] = value.strip()
    CudaOptions.from_table(table)
    return table


def _wrong(name: str, expected: str, value: Any) -> ArgumentError:
    return ArgumentError(f"the option {name} of cuda is wrong", expected=expected, got=repr(value)[:80])


def _bytes(name: str, value: Any) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", value.lower()) if isinstance(value, str) else None
    if found is not None and found[2] in UNITS[SIZE]:
        value = int(float(found[1]) * UNITS[SIZE][found[2]])
    if type(value) is not int or not LEAST <= value <= MOST:
        raise _wrong(name, f"{LEAST:,} to {MOST:,} bytes, or a text such as '4GiB'", value)
    return value


def _switch(name: str, value: Any) -> bool:
    found = value if isinstance(value, bool) else SWITCHES.get(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise _wrong(name, "true or false", value)
    return found


def _bits(name: str, value: Any) -> int:
    return _count(name, value, MOST_BITS)


def _milliseconds(name: str, value: Any) -> int:
    return _count(name, value, MOST_MS)


def _count(name: str, value: Any, most: int) -> int:
    if isinstance(value, str) and re.fullmatch(r"\d{1,10}", value, re.ASCII):
        value = int(value)
    if type(value) is not int or not 0 <= value <= most:
        raise _wrong(name, f"a whole number, 0 to {most:,}", value)
    return value


def _strategy(name: str, value: Any) -> str:
    return _one_of(STRATEGIES, name, value)


def _search(name: str, value: Any) -> str:
    return _one_of(SEARCHES, name, value)


def _one_of(numbers: Mapping[str, str], name: str, value: Any) -> str:
    found = numbers.get(value, value) if isinstance(value, str) else None
    if found not in numbers.values():
        raise _wrong(name, " or ".join(numbers.values()), value)
    return str(found)


READERS: dict[str, Callable[[str, Any], Any]] = {
    "gpu_mem_limit": _bytes,
    "arena_extend_strategy": _strategy,
    "cudnn_conv_algo_search": _search,
    "use_tf32": _switch,
    "prefer_nhwc": _switch,
    "cudnn_conv_use_max_workspace": _switch,
    "sdpa_kernel": _bits,
    "tunable_op_enable": _switch,
    "tunable_op_tuning_enable": _switch,
    "tunable_op_max_tuning_duration_ms": _milliseconds,
    "enable_cuda_graph": _switch,
}
