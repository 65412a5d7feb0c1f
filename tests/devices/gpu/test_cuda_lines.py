"""What people write with tensors on a GPU, forward and backward, beside the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn

pytestmark = pytest.mark.gpu

F = nn.functional


def written(x: Any) -> Any:
    y = x.clone()
    y[ox.tensor([0, 2]).to(x.device)] = x[:2] * 3
    y[1] = np.ones(6, np.float32)
    return y


def copied(x: Any) -> Any:
    layer = nn.Linear(6, 2).to(x.device)
    state = {"weight": ox.arange(12.0).reshape(2, 6), "bias": ox.ones(2)}  # on the CPU
    layer.load_state_dict(state)
    return layer(x)


def lazy(x: Any) -> Any:
    layer = nn.LazyLinear(3).to(x.device)
    nn.init.ones_(layer(x) * 0)
    return layer.weight.shape[1] * x


def targets(x: Any) -> Any:
    return (x > 0).long()


def ctc(x: Any) -> Any:
    log_probs = x.reshape(4, 1, 6).expand(4, 2, 6).log_softmax(-1)
    labels = ox.tensor([[1, 2], [3, 3]]).to(x.device)
    return F.ctc_loss(log_probs, labels, ox.tensor([4, 4]), ox.tensor([2, 1]))


LINES: dict[str, Callable[[Any], Any]] = {
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "rms_norm": lambda x: F.rms_norm(x, (6,)),
    "instance_norm": lambda x: F.instance_norm(x[None]),
    "group_norm": lambda x: F.group_norm(x.reshape(2, 4, 3), 2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "median": lambda x: x.median(1).values,
    "bincount": lambda x: ox.bincount(targets(x).reshape(-1)).float() + x.sum() * 0,
    "one_hot": lambda x: F.one_hot(targets(x), 2).float() * x[..., None],
    "multi_margin_loss": lambda x: F.multi_margin_loss(x, targets(x[:, 0])),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(x, targets(x)),
    "ctc_loss": ctc,
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x[None], 4),
    "interpolate": lambda x: F.interpolate(x[None, None], size=(5, 4), mode="area"),
    "causal attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "inv": lambda x: ox.linalg.inv(x[:, :4] + 9 * ox.eye(4, device=x.device)),
    "assignment": written,
    "load_state_dict": copied,
    "LazyLinear": lazy,
}


@pytest.mark.parametrize("name", LINES)
def test_a_line(name: str) -> None:
    here = ox.randn(4, 6, generator=ox.Generator().manual_seed(1)).requires_grad_()
    there = here.detach().to("cuda").requires_grad_()
    for x in (here, there):
        LINES[name](x).sum().backward()
    wanted, got = LINES[name](here), LINES[name](there)
    assert got.device.type == "cuda"
    np.testing.assert_allclose(got.detach().cpu().numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(there.grad.cpu().numpy(), here.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "line",
    [
        lambda x: F.dropout(x, 0.5),
        lambda x: F.rrelu(x, training=True),
        lambda x: F.gumbel_softmax(x),
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5),
        lambda x: F.fractional_max_pool2d(x[None], 2, output_size=2),
    ],
    ids=["dropout", "rrelu", "gumbel_softmax", "attention with dropout", "fractional_max_pool2d"],
)
def test_random_numbers_are_those_of_the_cpu(line: Callable[[Any], Any]) -> None:
    x = ox.randn(4, 6, generator=ox.Generator().manual_seed(1))
    results = []
    for device in ("cpu", "cuda"):
        ox.manual_seed(3)
        results.append(line(x.to(device)).cpu().numpy())
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


def test_a_gradient_whose_elements_share_memory_adds_up() -> None:
    x = ox.ones(3, device="cuda").requires_grad_()
    x.grad = ox.ones(1, device="cuda").expand(3)
    x.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_tensors_that_the_user_left_on_the_cpu_are_an_error() -> None:
    x = ox.randn(4, 6).to("cuda")
    with pytest.raises(ox.errors.DeviceError, match="different devices"):
        x * ox.ones(6)
    with pytest.raises(ox.errors.DeviceError, match="different devices"):
        nn.Linear(6, 2)(x)
