"""Activations as functions and as modules, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from sides import check_error, check_gradient, check_value, names, split

R = np.random.default_rng(5)
ARRAYS = {
    "m": (R.normal(size=(3, 4)) * 2).astype(np.float32),
    "k": R.normal(size=(2, 4, 3, 2)).astype(np.float32),
    "h": np.array([1.5, -2, 3, 0.25], np.float16),
    "i": np.array([[7, -7, 3, -3], [1, 2, 5, -5]]),
    "big": np.array([-1e4, -90.0, -20.5, -19.5, -3.0, -0.5, 0.0, 0.5, 3.0, 6.0, 19.5, 20.5, 90.0, 1e4], np.float32),
    "ends": np.array([np.inf, -np.inf, np.nan], np.float32),
    "zf": np.array(-2.5, np.float32),
    "e": np.zeros((0, 4), np.float32),
    "x": R.normal(size=(3, 4)) * 2,
    "v": R.uniform(0.1, 0.9, size=(4,)),
    "w": R.uniform(0.1, 0.9, size=(4,)).astype(np.float32),
    "one": np.array([0.3], np.float32),
}

PLAIN = """relu relu6 selu celu elu leaky_relu hardtanh hardswish hardsigmoid silu mish gelu softplus logsigmoid
softsign
tanhshrink hardshrink softshrink sigmoid tanh rrelu glu"""
OPTIONS = """
T.nn.functional.elu({0}, 0.5); F.celu({0}, 2.0); F.celu({0}, alpha=0.3); F.leaky_relu({0}, 0.3)
F.leaky_relu({0}, negative_slope=-0.2); F.hardtanh({0}, -0.3, 2); F.softplus({0}, 2)
F.softplus({0}, beta=0.5, threshold=3)
F.gelu({0}, approximate="tanh"); F.hardshrink({0}, 1.0); F.softshrink({0}, 0.2); F.threshold({0}, 0.1, 20.0)
F.threshold({0}, -1, -7); F.glu({0}, 1); F.rrelu({0}, 0.2, 0.2, True); F.rrelu({0}, 0.1, 0.5); F.softmin({0}, dim=1)
F.softmax({0}, 0); F.softmax({0}, dim=-1); F.log_softmax({0}, 1); F.softshrink({0}, 0); F.hardshrink({0}, 0)
"""
VALUES = f"""
{"; ".join(f"F.{f}({a})" for f in PLAIN.split() for a in ("m", "k", "h", "big", "e", "x") if (f, a) != ("rrelu", "h"))}
{"; ".join(f"F.{f}({a})" for f in PLAIN.split() for a in ("zf", "ends") if f != "glu" and (f, a) != ("gelu", "ends"))}
{OPTIONS.format("m").strip()}
{OPTIONS.format("x").strip()}
F.prelu(m, w); F.prelu(k, w); F.prelu(m, one); F.prelu(m, one[0]); F.prelu(zf, one); F.prelu(m[0], one)
F.prelu(k[:, :, 0], w)
F.relu(i); F.relu6(i); F.hardtanh(i, -2, 3); F.threshold(i, 2, 9); F.sigmoid(i); F.tanh(i); F.softsign(i)
F.tanhshrink(i)
F.softmax(m, 1, dtype=T.float64); F.log_softmax(m, 0, dtype=T.float64); F.softmin(k, 1); F.softmax(k, -3)
F.softmax(zf, 0)
F.softmax(m); F.softmax(k[0]); F.softmax(k); F.log_softmax(m[0]); F.softmin(m); F.glu(k, 1); F.glu(k, -1)
T.relu(m); T.sigmoid(m); T.softmax(m, 0); T.tanh(m); T.log_softmax(m, dim=1)
"""
IN_PLACE = """
F.relu(m, inplace=True); F.relu6(m, True); F.elu(m, inplace=True); F.selu(m, True); F.celu(m, inplace=True)
F.leaky_relu(m, inplace=True); F.hardtanh(m, inplace=True); F.hardswish(m, True); F.hardsigmoid(m, True)
F.silu(m, True)
F.mish(m, True); F.threshold(m, 0.1, 2.0, True); F.rrelu(m, inplace=True); F.relu_(m); F.elu_(m); F.selu_(m)
F.celu_(m)
F.leaky_relu_(m, 0.3); F.hardtanh_(m); F.threshold_(m, 0.1, 2.0); F.rrelu_(m); nn.ReLU(True)(m)
nn.ELU(inplace=True)(m)
nn.SiLU(True)(m); nn.Hardtanh(inplace=True)(m); nn.ReLU6(True)(m); nn.Threshold(0.1, 2.0, True)(m); nn.Mish(True)(m)
nn.CELU(inplace=True)(m); nn.SELU(True)(m); nn.Hardswish(True)(m); nn.LeakyReLU(inplace=True)(m)
nn.Hardsigmoid(True)(m)
"""
GRADIENTS = f"""
{"; ".join(f"F.{f}(x)" for f in PLAIN.split())}
{OPTIONS.format("x").strip()}
F.prelu(x, v); F.prelu(x, v[:1]) * v; F.softmax(x, 0) * v; F.log_softmax(x * v, 1); F.softmin(x, 1) * v
F.silu(x * v) * x
F.glu(x * v, 1) * x[:, :2]; F.relu(x * v, inplace=True) * v; F.elu(x * v, inplace=True) * x
F.silu(x * v, inplace=True)
F.hardtanh(x * v, inplace=True) * x; F.leaky_relu(x * 1.0, inplace=True); F.mish(x * v, True)
F.threshold(x * v, 0.1, 2.0, True)
F.relu(T.zeros_like(x) * x) * v; F.relu6(x * 0.0) * v; F.hardtanh(x * 0.0 + 1) * v; F.leaky_relu(x * 0.0)
F.elu(x * 0.0)
F.hardswish(x * 0.0 + 3.0); F.hardsigmoid(x * 0.0 + 3); F.hardshrink(x * 0.0 + 0.5); F.softshrink(x * 0.0 + 0.5)
F.celu(x * 0.0)
"""
# where PyTorch has no second derivative, or stands on the kink itself
FIRST_ALONE = ("F.hardswish(x * 0.0 + 3.0)", "F.hardsigmoid(x)", "F.hardsigmoid(x * 0.0 + 3)")
MODULES = """
nn.ReLU(); nn.ReLU(True); nn.ReLU6(); nn.ELU(); nn.ELU(0.5, True); nn.SELU(); nn.CELU(2.0); nn.LeakyReLU()
nn.LeakyReLU(0.2)
nn.RReLU(); nn.RReLU(0.2, 0.5, True); nn.Hardtanh(); nn.Hardtanh(-2.0, 0.5); nn.Hardsigmoid(); nn.Hardswish()
nn.SiLU()
nn.Mish(); nn.GELU(); nn.GELU("tanh"); nn.Sigmoid(); nn.Tanh(); nn.LogSigmoid(); nn.Softplus(); nn.Softplus(2.0, 3.0)
nn.Softsign(); nn.Tanhshrink(); nn.Hardshrink(); nn.Hardshrink(0.3); nn.Softshrink(); nn.Softshrink(0.2)
nn.Threshold(0.1, 20.0)
nn.PReLU(); nn.PReLU(4, 0.1); nn.GLU(); nn.GLU(1); nn.Softmax(dim=1); nn.Softmin(dim=0); nn.LogSoftmax(dim=1)
nn.Threshold(1, 2, True)
"""
ERRORS = """
F.relu("a"); F.elu(i); F.selu(i); F.leaky_relu(i); F.silu(i); F.mish(i); F.gelu(i); F.hardswish(i); F.softplus(i)
F.hardshrink(i); F.softshrink(i); F.softshrink(m, -1); F.glu(m[:, :3]); F.glu(zf); F.glu(m, 3)
F.gelu(m, approximate="no")
F.hardtanh(m, 2, 1); F.prelu(m, w[:3]); F.prelu(k, m); F.rrelu(m, 0.5, 0.1, True); F.celu(m, 0); F.softmax(m, 2)
F.log_softmax(m, -3); F.softmax(i, 0); F.gumbel_softmax(i); nn.Hardtanh(2, 1); nn.Softmax2d()(m)
F.gumbel_softmax(m, dim=4); F.logsigmoid(i)
"""


@pytest.mark.parametrize("expression", split(VALUES))
def test_value(expression: str) -> None:
    check_value(expression, ARRAYS, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("expression", split(IN_PLACE))
def test_in_place(expression: str) -> None:
    check_value(f"({expression}, m)", ARRAYS, rtol=1e-5)
    check_value(f"{expression} is m", ARRAYS)


@pytest.mark.parametrize("expression", split(GRADIENTS))
def test_gradient(expression: str) -> None:
    followed = [name for name in ("x", "v") if name in expression.replace("leaky_relu", "").replace("max", "")]
    check_gradient(expression, ARRAYS, followed, second=expression not in FIRST_ALONE)


@pytest.mark.parametrize("expression", split(MODULES))
def test_module(expression: str) -> None:
    """The same value on the same input, the same description, the same names of what is learned."""
    check_value(f"{expression}.eval()(m.clone())", ARRAYS, rtol=1e-5, atol=2e-6)
    check_value(f"repr({expression})", ARRAYS)
    check_value(f"list({expression}.state_dict())", ARRAYS)


@pytest.mark.parametrize("expression", split(ERRORS))
def test_error(expression: str) -> None:
    check_error(expression, ARRAYS)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("side", [0, 1])
def test_gumbel_softmax(dim: int, side: int) -> None:
    """Both sides draw from the distribution that the logits describe; hard samples have the soft ones' gradient."""
    own = names({"logits": np.log(np.array([[0.5, 0.2], [0.3, 0.3], [0.2, 0.5]]))}, side)
    T, F, logits = own["T"], own["F"], own["logits"]
    T.manual_seed(0)
    spread = T.stack([logits if dim == 0 else logits.T] * 4000)
    hard = F.gumbel_softmax(spread, tau=0.7, hard=True, dim=dim if dim < 0 else dim + 1)
    shares = np.asarray(hard.mean(0).tolist())
    np.testing.assert_allclose(shares, np.exp(np.asarray((logits if dim == 0 else logits.T).tolist())), atol=0.04)
