"""pytest -p on_strict_numpy: tests marked `gpu` run with a stand-in for CuPy, without a device."""

from __future__ import annotations

from pathlib import Path

import pytest
import strict_numpy

TESTS = Path(__file__).resolve().parents[1]
BEYOND = {
    "devices/gpu/test_captured_cudnn.py": "CUDA graphs",
    "devices/gpu/test_cublas.py": "cuBLAS",
    "amp/test_cuda.py::test_a_collapsed_scale": "kernels",
    "devices/gpu/test_attention.py": "kernels",
    "devices/gpu/test_top_k.py": "kernels",
    "devices/gpu/test_segment_copy.py": "kernels",
    "devices/gpu/test_cuda_graph.py": "CUDA graphs",
    "devices/gpu/test_kernel_table.py": "kernels",
    "devices/gpu/test_kernels.py": "kernels",
    "devices/gpu/test_recurrent.py": "kernels",
    "devices/gpu/test_sort.py": "kernels",
    "devices/gpu/test_windows.py": "kernels",
    "devices/gpu/test_cudnn.py": "kernels",
    "devices/gpu/test_cudnn_norm.py": "kernels",
    "devices/gpu/test_device_checks.py": "kernels",
    "devices/onnxruntime/test_device_code.py": "libraries",
    "optim/test_device_update.py": "kernels",
    "engines/native/cuda": "kernels",
    "compiler/test_gpu.py": "kernels and CUDA graphs",
    "cuda/test_threads_that_meet.py": "kernels",
    "cuda/test_serving_gpu.py": "counters",
    "cuda/test_step_counts.py::test_a_step[captured": "kernels and CUDA graphs",
    "core/test_lazy.py::test_cuda_names_on_a_device": "memory pool",
    "devices/gpu/test_cupy_device.py::test_memory_comes_back": "memory pool",
    "devices/gpu/test_memory.py": "memory pool",
    "devices/gpu/test_recorded_memory.py": "memory pool",
    "serve/runtime/test_device_buffers.py": "memory of the host",
    "serve/runtime/test_padded_buffers.py": "memory of the host",
    "serve/text/test_on_gpu.py": "memory of the host",
    "serve/tuning/test_gpu_trial.py": "memory of the host",
    "serve/generation/gpu": "memory of the host",
    "serve/generation/test_bfloat16_decoder.py": "memory of the host",
    "serve/runtime/test_shared_weights.py": "memory of the host",
    "serve/runtime/test_tensorrt.py": "memory of the host",
    "serve/runtime/test_tf32.py": "memory of the host",
    "serve/runtime/test_models_on_gpus.py": "memory of the host",
    "gpu_run/test_cuda_serving.py": "memory of the host",
    "serve/protocol/test_cuda_shared_memory.py": "memory of other processes",
    "serve/telemetry/test_gpu.py": "NVIDIA's management library",
}

strict_numpy.install()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place = f"{item.path.relative_to(TESTS).as_posix()}::{item.name}"
        for path, what in BEYOND.items():
            if place.startswith(path):
                item.add_marker(pytest.mark.skip(reason=f"the stand-in has no {what}"))
