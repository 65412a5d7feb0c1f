"""Activations against their formulas, their modules, and their forms in place."""

from __future__ import annotations

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn
from ox.nn import functional as F

R = np.random.default_rng(9)
X = np.concatenate([R.normal(size=20) * 3, [-100.0, -3.0, -0.5, 0.0, 0.5, 3.0, 6.0, 100.0]])


def sigmoid(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    return np.exp(-np.logaddexp(0, -x))


FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "celu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "silu": lambda x: x * sigmoid(x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "softplus": lambda x: np.logaddexp(0, x),
    "logsigmoid": lambda x: -np.logaddexp(0, -x),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanhshrink": lambda x: x - np.tanh(x),
    "hardshrink": lambda x: np.where(np.abs(x) > 0.5, x, 0),
    "softshrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
}
MODULES = """relu=ReLU relu6=ReLU6 leaky_relu=LeakyReLU elu=ELU celu=CELU selu=SELU hardtanh=Hardtanh silu=SiLU
mish=Mish hardsigmoid=Hardsigmoid hardswish=Hardswish softplus=Softplus logsigmoid=LogSigmoid softsign=Softsign
tanh=Tanh tanhshrink=Tanhshrink hardshrink=Hardshrink softshrink=Softshrink sigmoid=Sigmoid"""


@rows("name", FORMULAS)
@rows("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_formula(name: str, dtype: str) -> None:
    x = ox.tensor(X, dtype=getattr(ox, dtype))
    y = getattr(F, name)(x)
    assert y.dtype == x.dtype
    expected = FORMULAS[name](x.numpy().astype(np.float64))
    allowed = {"float64": 1e-8, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(y.numpy().astype(np.float64), expected, rtol=allowed, atol=allowed)


@rows("name", FORMULAS)
def test_nan_stays(name: str) -> None:
    """A NaN that vanished in an activation would hide a broken training."""
    assert np.isnan(getattr(F, name)(ox.tensor([np.nan, 1.0])).numpy()[0])


@rows("pair", MODULES.split())
def test_module_is_the_function(pair: str) -> None:
    name, module = pair.split("=")
    x = ox.tensor(X)
    assert getattr(nn, module)()(x).equal(getattr(F, name)(x))


@rows("name", ["relu", "elu", "selu", "celu", "leaky_relu", "hardtanh", "silu", "mish", "hardswish"])
def test_in_place(name: str) -> None:
    """The result is written into the input, through which the gradient of the function alone goes."""
    function = getattr(F, name)
    x = ox.tensor(X, requires_grad=True)
    doubled = x * 2
    y = function(doubled, inplace=True)
    assert y is doubled
    assert doubled.equal(function(ox.tensor(X) * 2))
    y.sum().backward()
    z = ox.tensor(X, requires_grad=True)
    function(z * 2).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy())  # type: ignore[union-attr]
    with pytest.raises(ox.errors.GradientError):
        function(x, inplace=True)


@pytest.mark.parametrize("dtype", [ox.float16, ox.bfloat16])
def test_the_slope_of_mish_in_halves(dtype: ox.dtype) -> None:
    """exp(x)², of which it is computed, is more than float16 holds from 5.5 on."""
    values = [-20.0, -3.0, 0.5, 3.0, 6.0, 12.0, 15.0, float("inf")]
    slopes = []
    for kind in (ox.float32, dtype):
        x = ox.tensor(values).to(kind).detach().requires_grad_()
        F.mish(x).sum().backward()
        assert x.grad is not None
        slopes.append(x.grad.float().numpy())
    np.testing.assert_allclose(slopes[1], slopes[0], atol=0.01)
    assert slopes[1][-1] == 1


def test_prelu_has_a_slope_a_channel() -> None:
    layer = nn.PReLU(3, init=0.1)
    layer.weight.array[:] = [0.1, 0.2, 0.3]
    y = layer(-ox.ones(2, 3, 4))
    np.testing.assert_allclose(y.detach().numpy()[0, :, 0], [-0.1, -0.2, -0.3], rtol=1e-6)
    y.sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.tolist() == [-8.0, -8.0, -8.0]
    with pytest.raises(ox.errors.ShapeError, match="channels"):
        layer(ox.ones(2, 4))


def test_glu_and_softmaxes() -> None:
    x = ox.tensor(R.normal(size=(2, 6)))
    a, b = np.split(x.numpy(), 2, axis=1)
    np.testing.assert_allclose(nn.GLU()(x).numpy(), a * sigmoid(b))
    np.testing.assert_allclose(nn.Softmin(1)(x).numpy(), nn.Softmax(1)(-x).numpy())
    image = ox.tensor(R.normal(size=(2, 3, 4, 5)))
    np.testing.assert_allclose(nn.Softmax2d()(image).sum(1).numpy(), np.ones((2, 4, 5)))
    with pytest.warns(UserWarning, match="pass dim"):
        assert F.softmax(x).equal(F.softmax(x, 1))
    with pytest.warns(UserWarning, match="pass dim"):
        nn.LogSoftmax()(image[0])


def test_gumbel_softmax() -> None:
    """Hard samples are one-hot, as frequent as the logits say, and have the soft samples' gradient."""
    ox.manual_seed(0)
    shares = np.array([0.6, 0.3, 0.1])
    logits = ox.tensor(np.tile(np.log(shares), (5000, 1)), requires_grad=True)
    hard = F.gumbel_softmax(logits, hard=True)
    np.testing.assert_allclose(np.sort(hard.detach().numpy(), 1)[:, -1], 1)
    np.testing.assert_allclose(hard.detach().numpy().mean(0), shares, atol=0.03)
    (hard * ox.tensor([1.0, 0.0, 0.0], dtype=ox.float64)).sum().backward()
    assert logits.grad is not None and abs(logits.grad.numpy()).sum() > 0
    soft = F.gumbel_softmax(logits.detach(), tau=0.5)
    np.testing.assert_allclose(soft.sum(1).numpy(), np.ones(5000))


def test_rrelu() -> None:
    """Slopes lie between the bounds, one an element; without training they are the mean."""
    layer = nn.RReLU(0.1, 0.5)
    ox.manual_seed(0)
    slopes = -layer(ox.full((100, 100), -1.0)).numpy()
    assert slopes.min() >= 0.1
    assert slopes.max() <= 0.5
    assert abs(slopes.mean() - 0.3) < 5e-3
    assert np.unique(slopes).size > 9000
    np.testing.assert_allclose(layer.eval()(ox.tensor([-1.0, 2.0])).numpy(), [-0.3, 2.0], rtol=1e-6)


def test_descriptions() -> None:
    assert repr(nn.ELU(0.5, inplace=True)) == "ELU(alpha=0.5, inplace=True)"
    assert repr(nn.ReLU()) == "ReLU()"
    assert repr(nn.Threshold(0.1, 2)) == "Threshold(threshold=0.1, value=2)"
    assert repr(nn.PReLU(3)) == "PReLU(num_parameters=3)"
    assert repr(nn.Hardshrink()) == "Hardshrink(0.5)"


@rows(
    "call",
    [
        lambda: F.elu(ox.tensor([1])), lambda: F.softshrink(ox.ones(2), -1), lambda: F.glu(ox.ones(3)),
        lambda: F.glu(ox.tensor(1.0)), lambda: F.hardtanh(ox.ones(2), 2, 1), lambda: nn.Hardtanh(1, 1),
        lambda: F.rrelu(ox.ones(2), 0.5, 0.1), lambda: F.celu(ox.ones(2), 0), lambda: F.softplus(ox.ones(2), 0),
        lambda: F.softmax(ox.ones(2, 2), 2), lambda: nn.Softmax2d()(ox.ones(2, 2)),
        lambda: F.gumbel_softmax(ox.tensor([1])),
        lambda: F.gelu(ox.ones(2), "maybe"), lambda: F.hardshrink(ox.tensor([1])),
    ],
)  # fmt: skip
def test_refusals(call: object) -> None:
    with pytest.raises(ox.OxError):
        call()  # type: ignore[operator]
