"""Formulas that write themselves down as the text of a kernel."""

from __future__ import annotations

import pytest

from ox.devices.gpu.expression import Trace


def test_numbers_are_computed_before_elements_meet_them() -> None:
    trace = Trace()
    beta, g = trace.number("beta"), trace.element("g")
    made = g * (1 - beta) + g * (1 - beta) * 2
    assert trace.of_numbers == ["const double t1 = (double)1.0 - beta;", "const double t3 = (double)1.0 - beta;"]
    assert trace.of_elements[0] == "const C t2 = g * n0;" and trace.passed == {"t1": 0, "t3": 1}
    assert trace.of_elements[-1] == f"const C {trace.of_element(made)} = t2 + t5;"


def test_a_choice_by_elements() -> None:
    trace = Trace()
    p = trace.element("p")
    trace.where(p > 0, trace.sqrt(p), trace.maximum(-p, 0))
    assert trace.of_elements[0] == "const bool t1 = p > (C)0.0;"
    assert trace.of_elements[-1] == "const C t5 = (t1 ? t2 : t4);"


def test_what_kernels_do_not_have() -> None:
    trace = Trace()
    p, n = trace.element("p"), trace.number("n")
    with pytest.raises(TypeError, match="branch"):
        bool(p > n)
    with pytest.raises(TypeError, match="inf"):
        p + float("inf")
    with pytest.raises(TypeError, match="number of elements"):
        trace.of_number(p)
    with pytest.raises(AttributeError):
        trace.fft(p)
