"""Norms by cuDNN: on a GPU with it, or on what stands for both (tests/cuda/host_cudnn.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gpu_and_cpu import compare, random

import ox
from ox import nn, tolerance
from ox.core.operator import OPS
from ox.devices.gpu import cudnn_norm
from ox.devices.gpu.cudnn_norm import LONG_ROW

F = nn.functional
HALVES = [ox.float16, ox.bfloat16]
TYPES = [ox.float32, *HALVES]
LAYER_STEP = ["layer norm, mean, inverse", "layer norm gradient"]
RMS_STEP = ["rms norm", "rms norm, inverse", "rms norm gradient"]

NORMS: list[tuple[tuple[int, ...], Callable[..., Any]]] = [
    ((64,), lambda x, w, b: F.layer_norm(x, (64,), w, b)),
    ((65,), lambda x, w, b: F.layer_norm(x, (65,), w, b, eps=0.1) * w),
    ((16, 8), lambda x, w, b: F.layer_norm(x, (16, 8), w) + b),
    ((64,), lambda x, w, b: F.layer_norm(x, (64,)) * w + b),
    ((64,), lambda x, w, b: F.rms_norm(x, (64,), w) + b),
    ((16, 8), lambda x, w, b: F.rms_norm(x, (16, 8), w, eps=0.1) + b),
]


@pytest.mark.gpu
@pytest.mark.usefixtures("cudnn_or_stand_in")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("shape", "work"), NORMS, ids=range(len(NORMS)))
def test_norm(shape: tuple[int, ...], work: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn_norm, "LONG_ROW", 64)
    x = random(2, 3, *shape) * 2 + 1
    compare(work, x.to(dtype), random(*shape, dtype=dtype, seed=1), random(*shape, dtype=dtype, seed=2))


@pytest.mark.gpu
@pytest.mark.usefixtures("cudnn_or_stand_in")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_against_own_kernels(kind: Any, dtype: Any) -> None:
    x, g = (random(4, LONG_ROW, dtype=dtype, seed=i).to("cuda") for i in range(2))

    def results() -> list[Any]:
        layer = kind(LONG_ROW).to("cuda", dtype)
        own = x.detach().requires_grad_()
        made = layer(own)
        made.backward(g)
        return [made, own.grad, *[p.grad for p in layer.parameters()], kind(LONG_ROW).to("cuda", dtype)(x)]

    found = results()
    with ox.backends.cudnn.flags(enabled=False):
        wanted = results()
    for a, b in zip(found, wanted, strict=True):
        difference = tolerance.compare(a.detach().cpu().numpy(), b.detach().cpu().numpy())
        assert a.dtype == b.dtype and difference.ok, difference


def step(layer: Any, x: Any) -> None:
    (layer(x.requires_grad_()) ** 2).sum().backward()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_which_rows_are_cudnns(dtype: Any, log: Any) -> None:
    for width in (LONG_ROW - 1, LONG_ROW):
        for layer in (nn.LayerNorm(width), nn.LayerNorm(width, bias=False), nn.RMSNorm(width)):
            step(layer.to("cuda", dtype), random(2, width, dtype=dtype).to("cuda"))
        assert log.runs == ([] if width < LONG_ROW else [*LAYER_STEP, *LAYER_STEP, *RMS_STEP])
    log.runs.clear()
    with ox.no_grad():
        x = random(2, LONG_ROW, dtype=dtype).to("cuda")
        nn.LayerNorm(LONG_ROW).to("cuda", dtype)(x), nn.RMSNorm(LONG_ROW).to("cuda", dtype)(x)
        F.batch_norm(x.reshape(1, 2, -1), None, None, training=True)
    assert [run for run in log.runs if "norm" in run] == ["layer norm", "rms norm"]


@pytest.mark.gpu
def test_plans_are_kept(log: Any) -> None:
    layers: list[Any] = [nn.LayerNorm(LONG_ROW).to("cuda"), nn.RMSNorm(LONG_ROW).to("cuda")]
    for _ in range(3):
        for layer in layers:
            step(layer, random(2, LONG_ROW).to("cuda"))
    assert log.runs == [*LAYER_STEP, *RMS_STEP] * 3
    assert [kind for kind, _ in log.built] == [*LAYER_STEP, RMS_STEP[0], RMS_STEP[2], RMS_STEP[1]]  # once each
    count = len(log.built)
    step(layers[0], random(3, LONG_ROW).to("cuda"))
    assert len(log.built) == count + 2  # another number of rows
    step(nn.LayerNorm(LONG_ROW, eps=0.1).to("cuda"), random(3, LONG_ROW).to("cuda"))
    assert len(log.built) == count + 3  # the gradient has no epsilon


@pytest.mark.gpu
def test_what_is_left_to_other_kernels(log: Any) -> None:
    """Addresses, layouts, types and shapes that cuDNN does not take."""
    norm, rms = F.layer_norm, F.rms_norm
    rows, weights = random(3 * LONG_ROW + 8), random(LONG_ROW + 8, seed=1)

    def apart(shift: int, kind: Any) -> Callable[..., Any]:
        return lambda x, w: kind(x[shift:-8].reshape(-1)[: 2 * LONG_ROW].reshape(2, -1), (LONG_ROW,), w[8:])

    for kind in (norm, rms):
        compare(apart(1, kind), rows, weights)
    compare(lambda x, w: norm(x[8:].reshape(3, -1), (LONG_ROW,), w[1:-7]), rows, weights)
    compare(lambda x, w: rms(x[8:].reshape(3, -1), (LONG_ROW,), w[1:-7]), rows, weights)
    compare(lambda x: rms(x.t(), (LONG_ROW,)), random(LONG_ROW, 2))
    compare(lambda x: norm(x, (LONG_ROW,)), random(2, LONG_ROW, dtype=ox.float64))
    mixed = random(2, LONG_ROW, dtype=ox.float16), random(LONG_ROW)
    compare(lambda x, w: OPS["RMSNormalization"](x, w), *mixed, tolerance=1e-2)
    compare(lambda x, w: OPS["LayerNormalization"](x, w), random(2, LONG_ROW), random(1))
    coarse = OPS["LayerNormalization"](random(2, LONG_ROW).to("cuda"), mixed[1].to("cuda"), stash_type=16, outputs=3)
    assert coarse[1].dtype == ox.bfloat16
    assert F.layer_norm(ox.ones(0, LONG_ROW, device="cuda"), (LONG_ROW,)).shape == (0, LONG_ROW)
    assert not log.runs
    compare(apart(8, norm), rows, weights)
    assert log.runs == LAYER_STEP


@pytest.mark.gpu
def test_a_gradient_in_another_layout_is_left_to_other_kernels(log: Any) -> None:
    for layer, runs in ((F.layer_norm, LAYER_STEP[:1]), (F.rms_norm, RMS_STEP[:1])):
        log.runs.clear()
        compare(lambda x, w, layer=layer: layer(x, (LONG_ROW,), w).t(), random(2, LONG_ROW), random(LONG_ROW, seed=1))
        assert log.runs == runs


@pytest.mark.gpu
def test_what_differs_from_run_to_run_is_left_to_own_kernels(log: Any) -> None:
    import host_cudnn

    def refuses(graph: Any) -> Exception | None:
        several = host_cudnn.numerical_note.NONDETERMINISTIC in graph.refused and graph.kind.endswith("gradient")
        return host_cudnn.cudnnGraphNotSupportedError("not in a fixed order") if several else None

    log.refuses = refuses
    x, w = random(2, LONG_ROW), random(LONG_ROW, seed=1)
    works = [lambda x, w: F.layer_norm(x, (LONG_ROW,), w), lambda x, w: F.rms_norm(x, (LONG_ROW,), w)]
    for work in works:
        compare(work, x, w)
    assert log.runs == [LAYER_STEP[0], RMS_STEP[0]]
    with ox.backends.cudnn.flags(enabled=True, deterministic=False):
        for work in works:
            compare(work, x, w)
    assert log.runs[2:] == [*LAYER_STEP, *RMS_STEP]
