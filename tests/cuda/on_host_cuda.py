"""pytest -p on_host_cuda: tests marked `gpu` run with the real CuPy, without a device."""

from __future__ import annotations

import host_cuda
import pytest

host_cuda.install()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name == "test_a_real_gpu":
            item.add_marker(pytest.mark.skip(reason="host_cuda has no management library of NVIDIA"))
