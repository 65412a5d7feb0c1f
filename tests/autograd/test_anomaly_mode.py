"""Anomaly detection: which backward made NaN, and which line of the forward it belongs to."""

from __future__ import annotations

from typing import Any

import pytest

import ox
from ox import autograd
from ox.core.mode import MODE
from ox.errors import GradientError


def faulty() -> Any:
    x = ox.tensor([0.0, 1.0], requires_grad=True)
    y = x.sqrt() * 0  # the line
    return (y * 1).sum()


def test_nan_is_silent_without() -> None:
    faulty().backward()
    assert MODE.get().observer is None


def test_a_nan_names_operator_and_forward_line() -> None:
    with autograd.detect_anomaly():
        assert autograd.is_anomaly_enabled()
        assert autograd.is_anomaly_check_nan_enabled()
        loss = faulty()
        with pytest.raises(GradientError, match="SqrtBackward returned NaN as its gradient 0") as caught:
            loss.backward()
    assert "# the line" in caught.value.fields()["forward"]
    assert "loss.backward()" in caught.value.where
    assert not autograd.is_anomaly_enabled()


def test_by_a_flag() -> None:
    autograd.set_detect_anomaly(True)
    try:
        with pytest.raises(GradientError, match="NaN"):
            faulty().backward()
    finally:
        autograd.set_detect_anomaly(False)
    faulty().backward()
    assert MODE.get().observer is None
    with autograd.set_detect_anomaly(True, check_nan=False):
        faulty().backward()
    assert MODE.get().observer is None


@autograd.detect_anomaly()
def test_other_errors_name_the_line_too() -> None:
    x = ox.ones(2, requires_grad=True)
    h = x * 2
    y = h * h  # the line
    h.add_(1)
    with pytest.raises(GradientError, match="in-place") as caught:
        y.sum().backward()
    assert "# the line" in caught.value.fields()["forward"]

    class Odd(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise ZeroDivisionError("mine")

    y = Odd.apply(x)  # that line
    with pytest.raises(ZeroDivisionError) as raised:
        y.sum().backward()
    assert "that line" in raised.value.__notes__[0]


def test_a_graph_from_before() -> None:
    loss = faulty()
    with autograd.detect_anomaly(), pytest.raises(GradientError, match="Sqrt") as caught:
        loss.backward()
    assert "before anomalies were looked for" in caught.value.fields()["forward"]
