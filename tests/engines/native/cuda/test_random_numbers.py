"""Random numbers of compiled calls are drawn on the GPU: key and counter go there, and the numbers are those of eager
calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ox
from ox.nn import functional as F

pytestmark = pytest.mark.gpu

SIZES = 4, 7, 15, 15  # the last block of four numbers is not full
START = 16  # bytes of a key and a counter


def attention(x: Any) -> Any:
    return F.scaled_dot_product_attention(x, x, x, dropout_p=0.2)


GENERATOR, BUFFER = ox.Generator(), ox.zeros(15)


def own_generator(x: Any) -> Any:
    return x + ox.rand(SIZES, generator=GENERATOR, device="cuda") + ox.rand_like(x)


def noise_of_the_host(x: Any) -> Any:
    noise = ox.rand(15)
    return x * noise.to(x.device), noise


def moved_to_the_host(x: Any) -> Any:
    noise = ox.rand(15)
    return x * 2, (x.cpu() + noise).sum(), noise


def buffer_of_the_host(x: Any) -> Any:
    BUFFER.uniform_()
    return x * BUFFER.to(x.device), BUFFER.clone()


# By name, with how often they draw
CALLS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "dropout": (lambda x: F.dropout(F.dropout(x, 0.3), 0.5), 2),
    "dropout of float16": (lambda x: F.dropout(x.half(), 0.3), 1),
    "dropout of float64": (lambda x: F.dropout(x.double(), 0.3), 1),
    "dropout of channels": (lambda x: F.dropout2d(x, 0.3), 1),
    "alpha_dropout": (lambda x: F.alpha_dropout(x, 0.3, training=True), 1),
    "attention": (attention, 1),
    "rand_like": (lambda x: x + ox.rand_like(x), 1),
    "rand of float16": (lambda x: x.half() + ox.rand(SIZES, dtype=ox.float16, device="cuda"), 1),
    "randn": (lambda x: x * ox.randn(SIZES, device="cuda") * 2 + 1, 1),
    "a result": (lambda x: (x + 1, ox.randn_like(x)), 1),
    "a number": (lambda x: x * ox.rand(()), 1),
    "its own generator": (own_generator, 2),
    "an update": (lambda x: x.clone().normal_(1, 2) + x, 1),
}


def calls(run: Callable[[Any], Any], grad: bool) -> list[Any]:
    """Results and gradients of five calls."""
    ox.manual_seed(0)
    GENERATOR.manual_seed(1)
    x = (ox.arange(int(np.prod(SIZES))).reshape(SIZES) % 7 - 3.0).cuda().requires_grad_(grad)
    found = []
    for _ in range(5):
        results = run(x)
        results = results if isinstance(results, tuple) else (results,)
        if grad:
            x.grad = None
            results[0].float().sum().backward()
        found += [*(y.detach() for y in results), *([x.grad.clone()] if grad else [])]
    return found


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_the_numbers_are_drawn_there(name: str, grad: bool) -> None:
    call, draws = CALLS[name]
    run = ox.compile(call)
    for one, other in zip(calls(run, grad), calls(call, grad), strict=True):
        assert one.is_cuda and one.dtype == other.dtype
        np.testing.assert_allclose(one.cpu().numpy(), other.cpu().numpy(), rtol=1e-5, atol=1e-5)
    assert str(run.explain()).count("one CUDA graph") == 1 + grad, run.explain()
    host_cuda, x = sys.modules.get("host_cuda"), ox.ones(SIZES, device="cuda", requires_grad=grad)
    if host_cuda is None:
        return
    run(x)
    with host_cuda.counting() as counts:
        run(x)
    assert counts["bytes to device"] <= 2 * START * draws, counts


@pytest.mark.parametrize("call", [noise_of_the_host, moved_to_the_host, buffer_of_the_host])
def test_what_is_returned_on_the_host_is_drawn_there(call: Any) -> None:
    for one, other in zip(calls(ox.compile(call), False), calls(call, False), strict=True):
        assert one.device == other.device
        np.testing.assert_allclose(one.cpu().numpy(), other.cpu().numpy(), rtol=1e-6)


def test_draws_between_a_forward_and_its_backward_change_no_gradient() -> None:
    x = ox.ones(SIZES, device="cuda", requires_grad=True)

    def gradients(drop: Any, more: Any) -> list[Any]:
        ox.manual_seed(0)
        found = []
        for _ in range(4):
            first, second = drop(x), drop(x)
            more(x)
            for y in (second, first):
                x.grad = None
                y.sum().backward()
                found += [y.detach().cpu().numpy(), x.grad.cpu().numpy()]
        return found

    def drop(x: Any) -> Any:
        return F.dropout(x, 0.4)

    for one, other in zip(gradients(ox.compile(drop), ox.compile(attention)), gradients(drop, attention), strict=True):
        np.testing.assert_array_equal(one, other)
