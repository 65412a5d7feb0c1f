"""Normalization as functions and as modules, beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sides import assert_same, check_error, check_gradient, check_value, names, split

R = np.random.default_rng(21)
ARRAYS = {
    "x": R.normal(size=(4, 6)),
    "y": R.normal(size=(3, 6, 5)),
    "z": R.normal(size=(2, 6, 4, 3)),
    "v": R.normal(size=(2, 6, 2, 3, 2)),
    "f": R.normal(size=(2, 6, 4, 3)).astype(np.float32),
    "h": R.normal(size=(2, 6, 4, 3)).astype(np.float16),
    "w": R.uniform(0.5, 2, size=(6,)),
    "b": R.normal(size=(6,)),
    "l": R.uniform(0.5, 2, size=(4, 3)),
    "o": R.normal(size=(4, 3)),
    "wf": R.uniform(0.5, 2, size=(6,)).astype(np.float32),
    "wh": R.uniform(0.5, 2, size=(3,)).astype(np.float16),
    "m": R.normal(size=(6,)),
    "s": R.uniform(0.5, 2, size=(6,)),
    "zero": np.zeros((3, 4)),
    "e": np.zeros((0, 6, 4)),
    "i": np.arange(24).reshape(2, 6, 2),
}
FUNCTIONS = """
F.layer_norm(z, (3,)); F.layer_norm(z, [4, 3], l); F.layer_norm(z, (4, 3), l, o, 0.1); F.layer_norm(x, (6,), w, b)
F.layer_norm(z, (4, 3), None, o); F.group_norm(z, 1); F.group_norm(z, 3, w); F.group_norm(y, 2, w, b, 0.1)
F.group_norm(x, 2, w, b); F.instance_norm(y); F.instance_norm(z, weight=w, bias=b)
F.instance_norm(v, eps=0.1); F.instance_norm(z, m, s, w, b, use_input_stats=False); F.rms_norm(z, (3,))
F.rms_norm(z, (4, 3), l); F.rms_norm(x, [6], w, 0.1); F.batch_norm(x, m, s); F.batch_norm(z, m, s, w, b)
F.batch_norm(z, m, s, w, None); F.batch_norm(y, None, None, w, b, True); F.batch_norm(x, None, None, training=True)
F.local_response_norm(z, 3); F.local_response_norm(z, 2, 0.5, 0.6, 2.0); F.local_response_norm(y, 4, alpha=0.3)
F.local_response_norm(v, 5, 0.9); F.local_response_norm(z, 9, 0.5); F.normalize(z); F.normalize(y, 1, -1)
F.normalize(y, p=3, dim=2); F.normalize(x, dim=0, eps=10.0); F.normalize(y, float('inf'), 1); F.normalize(y, 0.5)
"""
VALUES = f"""
{FUNCTIONS.strip()}
F.group_norm(v, 6, None, b); F.layer_norm(f, (4, 3)); F.group_norm(f, 2, wf); F.instance_norm(f); F.rms_norm(f, (3,))
F.local_response_norm(f, 3, 0.5)
F.normalize(f); F.layer_norm(h, (3,), wh); F.group_norm(h, 2); F.rms_norm(h, (3,), wh); F.normalize(zero)
F.layer_norm(e, (4,)); F.normalize(e); F.rms_norm(e, (4,)); F.local_response_norm(e, 3)
"""
ERRORS = """
F.layer_norm(z, (4,)); F.layer_norm(z, (4, 3), w); F.group_norm(z, 4); F.group_norm(z, 2, w[:3])
F.group_norm(x[:1], 6)
F.instance_norm(z[:, :, :1, :1]); F.instance_norm(z, use_input_stats=False); F.instance_norm(z, weight=w[:2])
F.rms_norm(z, (4,)); F.rms_norm(z, (3,), w); F.batch_norm(z, None, None); F.batch_norm(z, m[:2], s[:2])
F.batch_norm(x[:1], m, s, training=True); F.local_response_norm(x, 3); F.group_norm(i, 2); F.rms_norm(i, (2,))
nn.GroupNorm(4, 6); nn.BatchNorm1d(6)(z); nn.BatchNorm2d(6)(y); nn.BatchNorm3d(6)(z); nn.BatchNorm2d(5)(z)
nn.InstanceNorm1d(6)(z); nn.InstanceNorm2d(6)(x); nn.InstanceNorm2d(5, affine=True)(z.float())
nn.LayerNorm(4)(z.float())
nn.LazyBatchNorm2d()(x); nn.GroupNorm(3, 6)(z[:, :3].float()); nn.RMSNorm(5)(z.float())
"""
# where PyTorch has no second derivative: absolute values, and a bias without a weight
FIRST_ALONE = ("0.5)", "inf", "None, o)", "None, b)")


@pytest.mark.parametrize("expression", split(VALUES))
def test_values(expression: str) -> None:
    check_value(expression, ARRAYS)


@pytest.mark.parametrize("expression", split(FUNCTIONS))
def test_gradients(expression: str) -> None:
    import re

    used = set(re.findall(r"\b[a-z]\b", expression))
    check_gradient(expression, ARRAYS, sorted(used & set("xyzvwblo")), not expression.endswith(FIRST_ALONE))


@pytest.mark.parametrize("expression", split(ERRORS))
def test_errors(expression: str) -> None:
    check_error(expression, ARRAYS)


MODULES = """
BatchNorm1d(6) x; BatchNorm1d(6) y; BatchNorm2d(6) z; BatchNorm3d(6) v; BatchNorm2d(6, 0.1, 0.3) z
BatchNorm2d(6, momentum=None) z; BatchNorm2d(6, affine=False) z; BatchNorm1d(6, track_running_stats=False) y
BatchNorm2d(6, bias=False) z; InstanceNorm1d(6) y; InstanceNorm1d(6) y[0]; InstanceNorm2d(6, affine=True) z
InstanceNorm2d(6) z[1]; InstanceNorm3d(6, affine=True, track_running_stats=True) v; InstanceNorm3d(6) v[0]
InstanceNorm2d(6, 0.1, 0.3, True, True) z; InstanceNorm1d(6, track_running_stats=True) y[1]; LayerNorm(3) z
LayerNorm([4, 3], 0.1) z; LayerNorm((4, 3), elementwise_affine=False) z; LayerNorm(3, bias=False) z; RMSNorm(3) z
RMSNorm([4, 3], 0.1) z; RMSNorm(3, elementwise_affine=False) z; GroupNorm(2, 6) z; GroupNorm(3, 6, 0.1) y
GroupNorm(1, 6, affine=False) v; GroupNorm(6, 6, bias=False) x; LocalResponseNorm(3, 0.5) z; LocalResponseNorm(2) y
LazyBatchNorm1d() y; LazyBatchNorm2d(0.1, 0.3) z
LazyBatchNorm3d(affine=False) v; LazyInstanceNorm1d(affine=True) y; LazyInstanceNorm2d(track_running_stats=True) z
LazyInstanceNorm3d() v
"""


@pytest.mark.parametrize("case", split(MODULES))
def test_modules(case: str) -> None:
    """Two training steps, then evaluation: outputs, gradients, running statistics, under the same names."""
    make, given = case.rsplit(" ", 1)
    found: list[list[Any]] = []
    for side in (0, 1):
        own = names(ARRAYS, side)
        x = eval(given, own)
        module = eval(f"nn.{make}", own)
        module(x.float())
        module = module.double()
        values = np.random.default_rng(3)
        state = {
            k: own["T"].tensor(values.uniform(0.5, 2, tuple(v.shape)))
            for k, v in module.state_dict().items()
            if k != "num_batches_tracked"
        }
        module.load_state_dict(state, strict=False)
        results = [type(module).__name__, sorted(module.state_dict())]
        x = x.clone().requires_grad_()
        for _ in range(2):
            y = module(x)
            results.append(y.detach())
            (y * y * y).sum().backward()
        results += [x.grad, *[p.grad for _, p in sorted(module.named_parameters())]]
        module.eval()
        results.append(module(x).detach())
        results += [v for _, v in sorted(module.state_dict().items())]
        found.append(results)
    assert_same(*found)
