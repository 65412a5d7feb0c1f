"""pytest -p on_host_cuda: tests marked `gpu` run with the real CuPy, without a device.

OX_KERNEL_SOURCES: a folder that takes the sources of all kernels.
"""

from __future__ import annotations

import os
from pathlib import Path

import host_cuda
import pytest

host_cuda.install(Path(os.environ["OX_KERNEL_SOURCES"]) if "OX_KERNEL_SOURCES" in os.environ else None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name == "test_a_real_gpu":
            item.add_marker(pytest.mark.skip(reason="host_cuda has no management library of NVIDIA"))
