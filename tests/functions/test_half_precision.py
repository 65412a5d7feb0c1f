"""Functions that square or sum float16 and bfloat16, near the limits of these types, against float64.

The largest float16 is 65504 and the smallest normal one 0.00006: squares of numbers beyond 256 or below 0.008 leave
that range although the result is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from rows import rows

import ox
from ox import nn
from ox.dtypes import DType, bfloat16, float16, float64
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.nn import functional as F

STEP = {float16: 2.0**-11, bfloat16: 2.0**-8}  # of one rounding
R = np.random.default_rng(3)
Float64 = NDArray[np.float64]


def numbers(*shape: int) -> Float64:
    """Between 0.5 and 1.5 with any sign."""
    return (0.5 + R.random(shape)) * R.choice([-1, 1], shape)


def signs(*shape: int) -> Any:
    return ox.from_numpy(R.choice([-1.0, 1.0], shape))


x, y, z = numbers(64, 96), numbers(64, 96), numbers(64, 96)
CLASSES = ox.from_numpy(R.integers(0, 96, 64))
SIGNS, ROW_SIGNS = signs(64, 96), signs(64)

# function of tensors, and its arguments, whose size is changed
CASES: dict[str, tuple[Callable[..., Any], tuple[Float64, ...]]] = {
    "std": (ox.std, (x,)),
    "std over a dimension": (lambda a: a.std(0), (x,)),
    "std_mean": (lambda a: ox.std_mean(a, 1)[1], (x,)),
    "sum": (lambda a: a.abs().sum(1), (x,)),
    "mean": (lambda a: a.abs().mean(), (x,)),
    "nanmean": (lambda a: ox.nanmean(a.abs()), (x,)),
    "nansum": (lambda a: ox.nansum(a.abs(), 1), (x,)),
    "logsumexp": (lambda a: a.logsumexp(1), (x,)),
    "logcumsumexp": (lambda a: a.logcumsumexp(1), (x,)),
    "cumsum": (lambda a: a.abs().cumsum(1), (x,)),
    **{f"norm {p}": (lambda a, p=p: a.norm(p, 1), (x,)) for p in (1, 2, 3, 0.5 + 1, float("inf"), -1)},
    "matrix_norm": (ox.linalg.matrix_norm, (x,)),
    "vector_norm": (ox.linalg.vector_norm, (x,)),
    "vecdot": (lambda a, b: ox.linalg.vecdot(a, b * 0 + 1), (x, y)),
    "dist": (ox.dist, (x, y)),
    "dist 3": (lambda a, b: ox.dist(a, b, 3), (x, y)),
    "renorm": (lambda a: ox.renorm(a, 2, 0, 1.0), (x,)),
    "cdist": (ox.cdist, (x, y)),
    "cdist 3": (lambda a, b: ox.cdist(a, b, 3.0), (x, y)),
    "pdist": (F.pdist, (x,)),
    "pairwise_distance": (F.pairwise_distance, (x, y)),
    "cosine_similarity": (partial(F.cosine_similarity, dim=-1), (np.abs(x), np.abs(y))),
    "normalize": (F.normalize, (x,)),
    "normalize 3": (partial(F.normalize, p=3.0), (x,)),
    "corrcoef": (lambda a: ox.corrcoef(a[:3].abs()), (np.abs(np.cumsum(x, 1)) + x,)),
    "layer_norm": (lambda a: F.layer_norm(a, (96,), eps=0.0), (x,)),
    "rms_norm": (lambda a: F.rms_norm(a, (96,), eps=0.0), (x,)),
    "group_norm": (lambda a: F.group_norm(a, 4, eps=0.0), (x,)),
    "batch_norm": (lambda a: F.batch_norm(a, None, None, training=True, eps=0.0), (x,)),
    "instance_norm": (lambda a: F.instance_norm(a.reshape(8, 8, 96), eps=0.0), (x,)),
    "softmax": (lambda a: F.softmax(a, 1), (x,)),
    "log_softmax": (lambda a: F.log_softmax(a, 1), (x,)),
    "lp_pool": (lambda a: F.lp_pool1d(a, 2.0, 4), (x,)),
    "avg_pool": (lambda a: F.avg_pool1d(a.abs(), 8), (x,)),
    "adaptive_avg_pool": (lambda a: F.adaptive_avg_pool1d(a.abs(), 1), (x,)),
    "triplet_margin_loss": (F.triplet_margin_loss, (x, y, z)),
    "triplet_margin_with_distance_loss": (F.triplet_margin_with_distance_loss, (x, y, z)),
    "cosine_embedding_loss": (lambda a, b: F.cosine_embedding_loss(a, b, ROW_SIGNS.to(a.dtype)), (x, -np.abs(y))),
    "cosine_embedding_loss, target of float64": (
        lambda a, b: F.cosine_embedding_loss(a, b, ROW_SIGNS), (x, -np.abs(y)),
    ),
    "l1_loss": (F.l1_loss, (x, y)),
    "smooth_l1_loss": (F.smooth_l1_loss, (x, y)),
    "huber_loss": (partial(F.huber_loss, delta=0.001), (x, y)),
    "hinge_embedding_loss": (lambda a: F.hinge_embedding_loss(a.abs(), SIGNS.to(a.dtype)), (x,)),
    "margin_ranking_loss": (lambda a, b: F.margin_ranking_loss(a, b, SIGNS.to(a.dtype)), (x, y)),
    "soft_margin_loss": (lambda a: F.soft_margin_loss(a, SIGNS.to(a.dtype)), (x,)),
    "multi_margin_loss": (lambda a: F.multi_margin_loss(a, CLASSES), (x,)),
    "cross_entropy": (lambda a: F.cross_entropy(a, CLASSES), (x,)),
    "gaussian_nll_loss": (lambda a, b: F.gaussian_nll_loss(a, b, (a * 2).abs()), (x, x * 1.001)),
    "binary_cross_entropy_with_logits": (lambda a: F.binary_cross_entropy_with_logits(a, a * 0 + 1), (x,)),
    "addcmul": (lambda a, b: ox.addcmul(a, b, b, value=1e-3), (x, y)),
    "lerp": (lambda a, b: ox.lerp(a, b, 0.3), (x, y)),
    "gradient": (lambda a: ox.gradient(a)[1], (x,)),
    "weight_norm": (lambda a: normed(nn.utils.parametrizations.weight_norm, a), (x,)),
    "get_total_norm": (lambda a, b: nn.utils.get_total_norm([a, b]), (x, y)),
    "get_total_norm 3": (lambda a, b: nn.utils.get_total_norm([a, b], 3.0), (x, y)),
    "clip_grad_norm_": (lambda a, b: clipped(a, b), (x, y)),
}  # fmt: skip
# those whose result has the square of the arguments' size, and the others
SQUARED: dict[str, tuple[Callable[..., Any], tuple[Float64, ...]]] = {
    "mse_loss": (F.mse_loss, (x, y)),
    "var": (ox.var, (x,)),
    "var_mean": (lambda a: ox.var_mean(a, 1)[0], (x,)),
    "cov": (lambda a: ox.cov(a[:3]), (x,)),
    "local_response_norm": (lambda a: F.local_response_norm(a.reshape(4, 16, 96), 4, alpha=1.0, k=0.0, beta=0.5), (x,)),
}


def normed(register: Any, weight: Any) -> Any:
    layer = nn.Linear(96, 64).to(weight.dtype)
    with ox.no_grad():
        layer.weight.copy_(weight)
    return register(layer).weight.detach()


def clipped(*grads: Any) -> Any:
    parameters = [nn.Parameter(ox.zeros_like(g)) for g in grads]
    for p, g in zip(parameters, grads, strict=True):
        p.grad = g.clone()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    return parameters[0].grad


def check(function: Callable[..., Any], arguments: tuple[Float64, ...], size: float, dtype: DType) -> None:
    halves = [ox.from_numpy(size * a).to(dtype) for a in arguments]
    exact = function(*[h.to(float64) for h in halves]).numpy()
    got = function(*halves)
    assert got.dtype == dtype
    given = np.asarray(got.numpy(), np.float64)
    fits = np.abs(exact) < float(ox.finfo(dtype).max)
    assert fits.any(), "a case whose result is beyond the type says nothing"
    allowed = 2 * STEP[dtype] * np.abs(exact) + 1e-6  # which is what is left between numbers of 1000 in float32
    assert (np.abs(given - exact) <= allowed)[fits].all(), np.abs(given - exact)[fits].max()


@rows("dtype", [float16, bfloat16], ids=str)
@rows("name", CASES)
def test_near_the_limits(name: str, dtype: DType) -> None:
    function, arguments = CASES[name]
    for size in (500.0, 6.0, 1e-3):
        check(function, arguments, size, dtype)


@rows("dtype", [float16, bfloat16], ids=str)
@rows("name", SQUARED)
def test_squares_near_the_limits(name: str, dtype: DType) -> None:
    function, arguments = SQUARED[name]
    for size in (100.0, 1.0, 0.1):
        check(function, arguments, size, dtype)


@rows("name", ["std over a dimension", "cosine_similarity", "pairwise_distance", "normalize 3"])
def test_a_recording_holds_the_casts(name: str) -> None:
    """On stock ONNX Runtime the file gives what the call gave."""
    function, arguments = CASES[name]
    halves = [ox.from_numpy(500 * a).half() for a in arguments]
    given = {f"x{i}": h for i, h in enumerate(halves)}
    graph = record(function, given)
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {key: h.numpy() for key, h in given.items()})
    assert np.allclose(got, function(*halves).numpy(), rtol=2e-3)


def test_products_for_a_wider_sum() -> None:
    one, half = ox.ones(2), ox.full((2,), 300.0).half()
    assert ox.addcmul(one, half, half, value=1e-3).allclose(91 * one)
    assert ox.addcdiv(one, half, half * 1e-3, value=1e-5).allclose(one + 1e-5 * 300 / 0.3, 1e-2)


def test_many_numbers() -> None:
    """More than float16 can count."""
    many = ox.full((70_000,), 1.5).half()
    assert ox.nanmean(many).item() == 1.5
    assert many.std().item() == 0.0
    assert (many.float() * ox.arange(70_000) % 2).half().var().isfinite().item()


def test_gradients_of_two_types_are_clipped_together() -> None:
    p, q = nn.Parameter(ox.zeros(1000).half()), nn.Parameter(ox.zeros(1000))
    p.grad, q.grad = ox.full((1000,), 10.0).half(), ox.ones(1000)
    total = nn.utils.clip_grad_norm_([p, q], 1.0)
    assert total.dtype == ox.float32
    assert total.item() == pytest.approx(101_000**0.5)
    assert p.grad[0].item() == pytest.approx(10 / 101_000**0.5, rel=1e-3)
    assert q.grad[0].item() == pytest.approx(1 / 101_000**0.5, rel=1e-3)


def test_a_norm_that_float16_cannot_hold_still_clips() -> None:
    p = nn.Parameter(ox.zeros(100, 100).half())
    p.grad = ox.full((100, 100), 1000.0).half()
    assert nn.utils.clip_grad_norm_([p], 1.0).isinf().item()  # 100,000, in the gradients' type
    assert p.grad[0, 0].item() == pytest.approx(0.01, rel=1e-3)
