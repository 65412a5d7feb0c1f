"""ONNX Runtime as it is imported."""

from __future__ import annotations

import os

import pytest

from ox.devices.onnxruntime.runtime import onnxruntime


@pytest.mark.parametrize(("given", "then"), [(None, "1"), ("0", "0")])
def test_it_sends_no_usage_data_unless_that_is_wanted(
    given: str | None, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    if given is not None:
        monkeypatch.setenv("ORT_DISABLE_TELEMETRY", given)
    onnxruntime()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == then
