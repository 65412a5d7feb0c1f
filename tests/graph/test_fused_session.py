"""Fused bodies: one session instead of many calls, the same numbers; a recording and a fork see the operators."""

from __future__ import annotations

import os
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import ox
from ox.core.operator import OPS
from ox.graph import fused_session
from ox.graph.record.recording import record
from ox.ops.elementwise.activation import GeluGradient
from ox.ops.index.gather import IndexAdd
from ox.ops.nn.normalization import LayerNormalizationGradient
from ox.tolerance import compare

FUSED = [name for name, op in OPS.items() if getattr(op, "fused", False)]


def _large() -> tuple[ox.Tensor, ox.Tensor]:
    return ox.randn(64, 1024), ox.randn(64, 1024)


def test_there_are_fused_operators() -> None:
    assert {"ox.GeluGradient", "ox.SoftmaxGradient", "ox.LayerNormalizationGradient"} <= set(FUSED)


@pytest.mark.usefixtures("without_kernels")
def test_a_large_call_is_one_session_with_the_bodys_numbers() -> None:
    g, x = _large()
    fused_session.session.cache_clear()
    got = GeluGradient(g, x)
    assert fused_session.session.cache_info().misses == 1
    assert compare(got.numpy(), GeluGradient.body(g, x).numpy()).ok


@pytest.mark.usefixtures("without_kernels")
def test_long_sums_are_added_in_float64() -> None:
    """ONNX Runtime adds 100,003 numbers one after the other in float32."""
    x = ox.from_numpy((1000 + np.random.default_rng(0).standard_normal((100_003, 3))).astype(np.float32))
    exact, place = x.numpy().astype(np.float64).sum(0), ox.zeros(len(x), dtype=ox.int64)
    sums = {"IndexAdd": IndexAdd(x, place, size=1)[0]}
    statistics = ox.zeros(len(x), 1), ox.ones(len(x), 1)
    sums["LayerNormalizationGradient"] = LayerNormalizationGradient(x, x, ox.ones(3), *statistics)[2]
    for name, result in sums.items():
        np.testing.assert_allclose(result.numpy(), exact, rtol=1e-7, err_msg=name)


def test_a_small_call_is_none() -> None:
    fused_session.session.cache_clear()
    GeluGradient(ox.randn(4, 4), ox.randn(4, 4))
    assert fused_session.session.cache_info().misses == 0


def test_a_recording_sees_the_operators() -> None:
    g, x = _large()
    graph = record(lambda a, b: GeluGradient(a, b), {"g": g, "x": x})
    assert {node.domain for node in graph.nodes} == {""}
    assert "Erf" in {node.op_type for node in graph.nodes}


def _child(pipe: Any) -> None:
    g, x = ox.ones(64, 1024), ox.ones(64, 1024)
    pipe.send(float(GeluGradient(g, x).numpy()[0, 0]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_threads_that_are_gone() -> None:
    parent = float(GeluGradient(ox.ones(64, 1024), ox.ones(64, 1024)).numpy()[0, 0])
    context = get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_child, args=(there,))
    child.start()
    assert here.poll(30), "the child hangs"
    assert np.isclose(here.recv(), parent, rtol=1e-5)
    child.join(120)
    assert child.exitcode == 0
