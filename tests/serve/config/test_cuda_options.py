"""Options of the CUDA provider: from settings files, the command line and Triton's parameters; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from rows import rows

from ox.errors import ArgumentError
from ox.serve import ModelConfig
from ox.serve.config.cuda_options import CudaOptions, parse_cuda
from ox_cli.main import main


@rows(
    ("table", "options"),
    [
        ({}, CudaOptions()),
        ({"gpu_mem_limit": 1 << 30, "use_tf32": False}, CudaOptions(gpu_mem_limit=1 << 30, use_tf32=False)),
        ({"gpu_mem_limit": "1.5GiB"}, CudaOptions(gpu_mem_limit=3 << 29)),
        ({"gpu_mem_limit": "4294967296", "arena_extend_strategy": "1", "cudnn_conv_algo_search": "2"},
         CudaOptions(4 << 30, "kSameAsRequested", "DEFAULT")),
        ({"arena_extend_strategy": "kNextPowerOfTwo", "cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0"},
         CudaOptions(None, "kNextPowerOfTwo", "HEURISTIC", False)),
        ({"enable_cuda_graph": "true"}, CudaOptions(enable_cuda_graph=True)),
        ({"prefer_nhwc": True, "cudnn_conv_use_max_workspace": "0", "sdpa_kernel": "18"},
         CudaOptions(prefer_nhwc=True, cudnn_conv_use_max_workspace=False, sdpa_kernel=18)),
        ({"tunable_op_enable": "1", "tunable_op_tuning_enable": True, "tunable_op_max_tuning_duration_ms": 50},
         CudaOptions(
             tunable_op_enable=True, tunable_op_tuning_enable=True, tunable_op_max_tuning_duration_ms=50)),
        ({"tunable_op_tuning_enable": False}, CudaOptions(tunable_op_tuning_enable=False)),
    ],
)  # fmt: skip
def test_what_is_read(table: dict[str, Any], options: CudaOptions) -> None:
    assert CudaOptions.from_table(table) == options
    assert ModelConfig("cuda", cuda=table).cuda == table


@rows(
    ("table", "words"),
    [
        ({"cudnn_conv_algo": "DEFAULT"}, "expected gpu_mem_limit, arena_extend_strategy"),
        ({"gpu_mem_limit": 0}, "expected 1,048,576 to"),
        ({"gpu_mem_limit": "4 elephants"}, "gpu_mem_limit"),
        ({"gpu_mem_limit": True}, "gpu_mem_limit"),
        ({"arena_extend_strategy": "kPowerOfTwo"}, "expected kNextPowerOfTwo or kSameAsRequested; got 'kPowerOfTwo'"),
        ({"arena_extend_strategy": 1}, "arena_extend_strategy"),
        ({"cudnn_conv_algo_search": "heuristic"}, "expected EXHAUSTIVE or HEURISTIC or DEFAULT"),
        ({"use_tf32": "maybe"}, "expected true or false"),
        ({"enable_cuda_graph": 2}, "enable_cuda_graph"),
        ({"prefer_nhwc": 1}, "expected true or false"),
        ({"sdpa_kernel": -1}, "expected a whole number, 0 to 65,535; got -1"),
        ({"sdpa_kernel": "flash"}, "sdpa_kernel"),
        ({"sdpa_kernel": True}, "sdpa_kernel"),
        ({"tunable_op_tuning_enable": True}, "does nothing without tunable_op_enable"),
        ({"tunable_op_max_tuning_duration_ms": 5, "tunable_op_enable": True}, "without tunable_op_tuning_enable"),
        ({"tunable_op_max_tuning_duration_ms": 1.5}, "a whole number, 0 to 2,147,483,647"),
    ],
)
def test_what_is_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        ModelConfig("cuda", cuda=table)
    assert words in caught.value.one_line() and next(iter(table)) in caught.value.what


def test_a_model_on_the_cpu_has_none() -> None:
    with pytest.raises(ArgumentError, match="options of cuda are for models on a GPU") as caught:
        ModelConfig("cpu", cuda={"use_tf32": False})
    assert "device cpu, and use_tf32" in caught.value.one_line()
    with pytest.raises(ArgumentError, match="not a dict"):
        ModelConfig("cuda", cuda=["use_tf32"])  # type: ignore[arg-type]


def test_graphs_are_captured_by_one_instance() -> None:
    with pytest.raises(ArgumentError, match="enable_cuda_graph has one instance") as caught:
        ModelConfig("cuda", instances=2, cuda={"enable_cuda_graph": True})
    assert "got instances = 2" in caught.value.one_line()
    assert ModelConfig("cuda", instances=1, cuda={"enable_cuda_graph": True}).instances == 1
    assert ModelConfig("cuda", instances=2, cuda={"enable_cuda_graph": False}).instances == 2


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_cuda(["use_tf32=0", "gpu_mem_limit = 2GiB", "use_tf32=1"]) == {
        "use_tf32": "1",
        "gpu_mem_limit": "2GiB",
    }
    with pytest.raises(ArgumentError, match="sets no option"):
        parse_cuda(["use_tf32"])
    assert main(["serve", "m.onnx", "--device", "cuda", "--cuda", "use_tf32=maybe"]) != 0
    assert "the option use_tf32 of cuda is wrong" in capsys.readouterr().err
    assert main(["serve", "m.onnx", "--device", "cpu", "--cuda", "use_tf32=1"]) != 0
    assert "options of cuda are for models on a GPU" in capsys.readouterr().err
