"""The switches of `ox.backends.cudnn`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import ox
from ox.devices.gpu import cudnn_settings
from ox.devices.gpu.cudnn_settings import Settings


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(cudnn_settings, "_current", Settings())
    yield ox.backends.cudnn


def test_a_switch_sets_what_kernels_read(switches: Any) -> None:
    assert switches.enabled and switches.deterministic and not switches.allow_tf32 and not switches.benchmark
    switches.enabled, switches.benchmark, switches.benchmark_limit = False, 1, 3
    assert cudnn_settings.current() == Settings(enabled=False, benchmark=True, benchmark_limit=3)
    switches.allow_tf32 = True
    assert switches.fp32_precision == "tf32"
    switches.fp32_precision = "ieee"
    assert not switches.allow_tf32
    with pytest.raises(ox.errors.ArgumentError, match="no such precision"):
        switches.fp32_precision = "half"


def test_a_block_has_switches_of_its_own(switches: Any) -> None:
    with pytest.raises(ZeroDivisionError), switches.flags(enabled=True, fp32_precision="ieee"):
        assert cudnn_settings.current() == Settings(deterministic=False)
        switches.benchmark = True
        raise ZeroDivisionError
    assert cudnn_settings.current() == Settings()
    with switches.flags():
        assert not switches.enabled and switches.allow_tf32  # PyTorch's defaults of this function
    with pytest.raises(ox.errors.ArgumentError, match="no such precision"):
        switches.flags(fp32_precision="half")
