"""Autocast and GradScaler beside PyTorch's: which element type comes out, what a step does."""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest
from sides import torch

import ox

LOWER = {"bfloat16": (ox.bfloat16, torch.bfloat16), "float16": (ox.float16, torch.float16)}


def to_ox(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bfloat16:
            return ox.tensor(value.float().numpy()).bfloat16()
        return ox.tensor(value.numpy())
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_ox, value))
    if isinstance(value, dict):
        return {key: to_ox(v) for key, v in value.items()}
    return value


def lists() -> Any:
    """PyTorch's own lists of what autocast does on CUDA, with arguments on the CPU. Of the test tools that they import,
    which need a package of their own, they use one flag."""
    name = "torch.testing._internal.common_utils"
    stub = types.ModuleType(name)
    stub.__dict__.update(TEST_WITH_ROCM=False, TestCase=object)
    before = sys.modules.get(name)
    sys.modules[name] = stub
    try:
        module = importlib.import_module("torch.testing._internal.autocast_test_lists")
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
    return module.AutocastTestLists(torch.device("cpu"))


LISTS = lists()
# what stands in the lists and has no name in ox: internals, other spellings of what is there, other domains
NOT_HERE = {
    "_convolution", "convolution", "cudnn_convolution", "cudnn_convolution_transpose", "conv_tbc", "nll_loss2d",
    "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "grid_sampler", "index_put", "linalg_vecdot",
    "linalg_multi_dot", "einsum",
    "margin_ranking_loss",  # an internal that broadcasts its target
}  # fmt: skip


def rows(*names: str) -> list[Any]:
    found = []
    for listed in names:
        for name, args, *rest in getattr(LISTS, listed):
            if name not in NOT_HERE:
                found.append(pytest.param(name, args, rest, id=f"{listed}-{name}-{len(found)}"))
    return found


def called(name: str, args: Any, rest: Any) -> Any:
    """ox's function of that name on these arguments, as PyTorch's lists call it."""
    kwargs = next((to_ox(r) for r in rest if isinstance(r, dict)), {})
    given = to_ox(args if isinstance(args, tuple) else (args,))
    if name.startswith("__") and name != "__div__":
        return getattr(given[0], name)(*given[1:])
    function = getattr(ox.nn.functional, name, None) if not hasattr(ox, name) else getattr(ox, name)
    return given[0] / given[1] if name == "__div__" else function(*given, **kwargs)


@pytest.mark.parametrize("name, args, rest", rows("torch_fp16", "nn_fp16", "methods_fp16"))
def test_what_cuda_lowers(name: str, args: Any, rest: Any) -> None:
    with ox.autocast("cpu", ox.float16):
        assert called(name, args, rest).dtype == ox.float16


@pytest.mark.parametrize("name, args, rest", rows("torch_fp32", "nn_fp32", "methods_fp32"))
def test_what_cuda_keeps_in_float32(name: str, args: Any, rest: Any) -> None:
    with ox.autocast("cpu", ox.float16):
        assert called(name, args, rest).dtype == ox.float32


@pytest.mark.parametrize(
    "name, args, rest",
    rows("torch_need_autocast_promote", "torch_expect_builtin_promote", "methods_expect_builtin_promote"),
)
def test_what_cuda_promotes(name: str, args: Any, rest: Any) -> None:
    if name == "tensordot":
        pytest.skip("PyTorch on a CPU has it in the lower type, and ox has one table for all devices")
    with ox.autocast("cpu", ox.float16):
        y = called(name, args, rest)
    if isinstance(y, bool):
        return
    assert y.dtype in (ox.float32, np.dtype(bool))
    assert (y.dtype == bool) == (rest[:1] == [torch.bool])


# -- beside torch.autocast("cpu") --------------------------------------------------------------------------------------

R = np.random.default_rng(5)


def both(*shape: int, positive: bool = False) -> tuple[ox.Tensor, torch.Tensor]:
    array = (R.uniform(0.1, 0.9, shape) if positive else R.standard_normal(shape)).astype(np.float32)
    return ox.tensor(array), torch.tensor(array)


NAMES: dict[str, tuple[Any, Any]] = {
    "x": both(4, 6), "y": both(4, 6), "v": both(6), "m": both(6, 3), "p": both(4, 6, positive=True),
    "q": both(4, 6, positive=True), "b": both(2, 4, 6), "c": both(2, 6, 3), "image": both(2, 3, 8, 8),
    "k": both(5, 3, 3, 3), "kt": both(3, 5, 3, 3), "bias": both(5), "one": both(1), "s": both(2, 2, 4, 6),
    "line": both(2, 3, 8), "k1": both(5, 3, 3), "w": both(3, 6), "square": both(4, 4),
    "t": (ox.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 2, 3])),
}  # fmt: skip
# in float32 unless h (half) stands before the name: hx is x in the lower type
SAME = """
    x @ m; T.matmul(x, m); T.mm(x, m); T.bmm(b, c); T.addmm(m[:4], x, m); T.baddbmm(b @ c, b, c)
    F.linear(x, w); F.linear(hx, w); F.linear(b, w, one.expand(3)); T.einsum('ij,jk', x, m); F.conv2d(image, k, bias)
    F.conv2d(himage, k); F.conv1d(line, k1); F.conv_transpose2d(image, kt); F.scaled_dot_product_attention(s, s, s)
    nn.LSTM(6, 3)(b)[0]; nn.MultiheadAttention(6, 2)(x, x, x)[0]; T.chain_matmul(x, m)
    x + y; hx + y; hx + hy; hx * 2; 2 - hx; hx / y; T.cat([hx, y]); T.stack([hx, hy]); T.where(x > 0, hx, y)
    F.relu(hx); F.gelu(hx); T.tanh(hx); T.sigmoid(hx); F.silu(hx); F.leaky_relu(hx); F.elu(hx); T.abs(hx); T.erf(hx)
    F.max_pool2d(himage, 2); F.avg_pool2d(himage, 2); F.adaptive_avg_pool2d(himage, 1); F.pad(hx, (1, 1))
    hx.amax(1); hx.argmax(1); T.sort(hx)[0]; T.topk(hx, 2)[0]; hx.reshape(-1); hx.T; hx[1]; F.embedding(t, x)
    F.mse_loss(hx, y); F.mse_loss(hx, hy); F.l1_loss(hx, hy); F.smooth_l1_loss(hx, hy); F.huber_loss(hx, hy)
    F.cross_entropy(hx, t); F.nll_loss(F.log_softmax(x, 1), t); F.kl_div(hx, hp); F.binary_cross_entropy(hp, hq)
    F.binary_cross_entropy_with_logits(hx, hq); F.poisson_nll_loss(hx, hp); F.soft_margin_loss(hx, hy)
    F.cosine_embedding_loss(hx, hy, T.ones(4)); F.multi_margin_loss(hx, t); F.triplet_margin_loss(hx, hy, hp)
    F.batch_norm(himage, None, None, training=True); T.cdist(hx, hy); T.prod(hx); T.exp(x); F.softmax(x, 1)
    x.double() @ m.double(); T.maximum(hx, y); T.clamp(hx, 0, 1); F.dropout(hx, 0.0)
    F.prelu(x, one); F.local_response_norm(himage, 2)
    T.einsum('bi,bj->ij', hx, y); T.einsum('bi,bi,bi->b', x, hy, p); T.einsum('i,i->', hv, v); hx.index_copy(0, t, y)
    x.index_copy(0, t, hy); T.quantile(hx, 0.5); T.quantile(x, hp[0], 1); T.nanquantile(hx, 0.5)
    T.linalg.lstsq(hx, y)[0]; T.linalg.lstsq(x, hy)[0]; T.pinverse(hx); T.linalg.matrix_rank(hx)
    T.linalg.inv_ex(hsquare)[0]; T.linalg.solve(hsquare, square); T.linalg.cond(hsquare); F.linear(x, hw)
    T.baddbmm(hb[:, :, :3], b, c); F.conv2d(image, hk, bias)
    F.embedding_bag(t, hx, t[:1]); F.grid_sample(himage, image[:, :, :, :2], align_corners=False)
    F.scaled_dot_product_attention(hs, s, s)
    nn.LSTM(6, 3)(hb)[0]; nn.GRUCell(6, 3)(hx, m[:4]); nn.MultiheadAttention(6, 2)(hx, x, hx)[0]
"""
# where ox's one table goes with CUDA's lists, and PyTorch's CPU leaves its kernels to their own float32 sums
AS_CUDA = """
    F.softmax(hx, 1); F.log_softmax(hx, 1); F.layer_norm(hx, (6,)); F.group_norm(himage, 3); T.exp(hx); T.log(hp)
    T.pow(hx, 2); hx.sum(); hx.cumsum(0); T.logsumexp(hx, 1); F.softplus(hx); T.norm(hx); T.rsqrt(hp); T.reciprocal(hp)
    T.cosh(hx); T.expm1(hx); T.log1p(hp); F.cosine_similarity(hx, hy); T.dist(hx, hy)
"""
# the type in ox, the one of PyTorch's CPU, and why they differ
OWN = {
    "hx.mean()": ("float32", "bfloat16", "every reduction that adds is float32, not only sum"),
    "hx.var()": ("float32", "bfloat16", "the same"),
    "T.sqrt(hp)": ("float32", "bfloat16", "Sqrt is what norms and rsqrt are made of"),
    "T.mv(x, v)": ("bfloat16", "float32", "lowered, as on CUDA"),
    "nn.GRU(6, 3)(b)[0]": ("bfloat16", "float32", "lowered, as on CUDA, and as PyTorch's own LSTM is"),
    "F.pairwise_distance(hx, hy)": ("float32", "bfloat16", "a distance, as cdist and dist are"),
    "T.square(hx)": ("float32", "bfloat16", "a power, as on CUDA"),
}


def split(text: str) -> list[str]:
    return [p.strip() for line in text.strip().splitlines() for p in line.split("; ") if p.strip()]


def evaluated(expression: str, side: int, dtype: str) -> Any:
    T: Any = torch if side else ox
    names: dict[str, Any] = {"T": T, "F": T.nn.functional, "nn": T.nn}
    for name, pair in NAMES.items():
        names[name] = pair[side]
        names[f"h{name}"] = pair[side] if name == "t" else pair[side].to(LOWER[dtype][side])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with T.autocast("cpu", dtype=LOWER[dtype][side]):
            return eval(expression, names)


def type_of(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


@pytest.mark.parametrize("dtype", LOWER)
@pytest.mark.parametrize("expression", split(SAME))
def test_types_are_pytorchs_on_the_cpu(expression: str, dtype: str) -> None:
    ours = type_of(evaluated(expression, 0, dtype))
    try:
        theirs = type_of(evaluated(expression, 1, dtype))
    except RuntimeError as error:
        if "could not create a primitive descriptor" not in str(error):
            raise
        pytest.skip(f"PyTorch cannot run this in {dtype} on this processor")
    assert ours == theirs


@pytest.mark.parametrize("expression", split(AS_CUDA))
def test_types_are_those_of_cuda(expression: str) -> None:
    assert type_of(evaluated(expression, 0, "bfloat16")) == "float32"
    assert type_of(evaluated(expression, 1, "bfloat16")) == "bfloat16", "PyTorch's CPU has changed: move it to SAME"


@pytest.mark.parametrize("expression", OWN)
def test_types_that_are_ours(expression: str) -> None:
    ours, theirs, _ = OWN[expression]
    assert type_of(evaluated(expression, 0, "bfloat16")) == ours
    assert type_of(evaluated(expression, 1, "bfloat16")) == theirs


# -- values ------------------------------------------------------------------------------------------------------------


def models(seed: int) -> tuple[Any, Any]:
    """The same small transformer on both sides."""
    made = []
    for T in (ox, torch):
        T.manual_seed(seed)
        nn = T.nn
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        made.append(nn.Sequential(nn.Linear(8, 32), layer, nn.Flatten(), nn.Linear(32 * 6, 5)))
    state = {name: ox.tensor(p.detach().numpy().copy()) for name, p in made[1].state_dict().items()}
    made[0].load_state_dict(state)
    return made[0], made[1]


@pytest.mark.parametrize("dtype", LOWER)
def test_losses_and_gradients_are_as_near_to_those_of_float32_as_pytorchs(dtype: str) -> None:
    """A cancelled sum may be far off in 16 bits, and so the two may be far from each other."""
    mine, theirs = models(0)
    x, t = R.standard_normal((16, 6, 8)).astype(np.float32), R.integers(0, 5, 16)

    def gradients(T: Any, model: Any, kind: Any) -> list[Any]:
        model.zero_grad()
        with T.autocast("cpu", kind, enabled=kind is not None):
            loss = T.nn.functional.cross_entropy(model(T.tensor(x)), T.tensor(t))
        loss.backward()
        assert all(p.grad.dtype == T.float32 for p in model.parameters())
        return [x.detach().numpy().copy() for x in (loss, *[p.grad for p in model.parameters()])]

    def distance(a: Any, b: Any) -> float:
        return float(np.linalg.norm(a - b) / np.linalg.norm(b))

    exact = gradients(torch, theirs, None)
    a, b = gradients(ox, mine, LOWER[dtype][0]), gradients(torch, theirs, LOWER[dtype][1])
    for wanted, got, peer in zip(exact, a, b, strict=True):
        assert distance(got, wanted) <= 2.5 * (distance(peer, wanted) + 0.005)


# -- GradScaler --------------------------------------------------------------------------------------------------------


class Side:
    """A parameter, two optimizers and a scaler of one package, driven by a script of gradients."""

    def __init__(self, T: Any, **kwargs: Any) -> None:
        self.T = T
        self.parameters = [T.nn.Parameter(T.tensor([1.0, -2.0])), T.nn.Parameter(T.tensor([0.5]))]
        self.optimizers = [
            T.optim.SGD([self.parameters[0]], lr=0.1, momentum=0.9), T.optim.Adam([self.parameters[1]], lr=0.1)
        ]  # fmt: skip
        scaler = T.GradScaler if T is ox else T.amp.GradScaler
        self.scaler = scaler("cpu", **kwargs)

    def iterate(self, bad: tuple[float, ...], clip: bool, used: int) -> list[Any]:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = sum((p * p).sum() for p in self.parameters[:used])
        scaled = self.scaler.scale([loss])[0]
        scaled.backward()
        for p, value in zip(self.parameters[:used], bad, strict=False):
            p.grad[0] = p.grad[0] + value
        for p, optimizer in list(zip(self.parameters, self.optimizers, strict=True))[:used]:
            if clip:
                self.scaler.unscale_(optimizer)
                self.T.nn.utils.clip_grad_norm_([p], 0.5)
            self.scaler.step(optimizer)
        self.scaler.update()
        return [scaled.item(), self.scaler.get_scale(), self.scaler.state_dict(), [p.tolist() for p in self.parameters]]


INF, NAN = float("inf"), float("nan")
SCRIPT = [
    ((0.0,), False, 2), ((INF,), False, 2), ((0.0, NAN), False, 2), ((0.0,), True, 2), ((0.0,), True, 1),
    ((0.0,), False, 2), ((-INF, NAN), True, 2), ((0.0,), True, 2), ((0.0,), False, 1), ((0.0,), False, 2),
    ((0.0,), False, 2), ((3e37,), False, 2), ((0.0,), False, 2), ((0.0,), True, 2),
]  # fmt: skip


@pytest.mark.parametrize(
    "kwargs",
    [
        {"growth_interval": 2},
        {"init_scale": 7.0, "growth_factor": 1.5, "backoff_factor": 0.3, "growth_interval": 3},
        {"init_scale": 2.0**127, "growth_interval": 1},
        {"enabled": False},
    ],
    ids=["usual", "odd", "largest", "disabled"],
)
def test_scalers_agree_step_by_step(kwargs: dict[str, Any]) -> None:
    sides = [Side(T, **kwargs) for T in (ox, torch)]
    for bad, clip, used in SCRIPT:
        if kwargs.get("enabled", True):
            results = [side.iterate(bad, clip, used) for side in sides]
        else:
            results = [side.iterate((0.0,), clip, used) for side in sides]
        (a, scale_a, state_a, values_a), (b, scale_b, state_b, values_b) = results
        assert scale_a == scale_b and state_a == state_b
        # sums in another order, carried on by Adam's quotients
        np.testing.assert_allclose(a, b, rtol=1e-4)
        for mine, theirs in zip(values_a, values_b, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4)


@pytest.mark.parametrize("shape", [(), (1,), (3,)], ids=str)
@pytest.mark.parametrize("dtype", [*LOWER, "float32", "float64"])
def test_scaled_losses_have_pytorchs_types(dtype: str, shape: tuple[int, ...]) -> None:
    mine = ox.GradScaler("cpu").scale(ox.ones(shape, dtype=getattr(ox, dtype)))
    theirs = torch.amp.GradScaler("cpu").scale(torch.ones(shape, dtype=getattr(torch, dtype)))
    assert type_of(mine) == type_of(theirs)
    np.testing.assert_array_equal(mine.array.astype(np.float64), theirs.double().numpy())


@pytest.mark.parametrize("name", ["cpu", "cpu:0", "cpu:3", "cuda:", "CPU", "cpu0", "cuda:x", None])
def test_devices_are_named_as_in_pytorch(name: Any) -> None:
    taken = []
    for T in (ox, torch):
        try:
            T.autocast(name)
        except (ValueError, RuntimeError, TypeError):  # ox's ArgumentError is a ValueError
            taken.append(False)
        else:
            taken.append(True)
    assert taken[0] == taken[1]


def test_a_state_of_pytorchs_loads() -> None:
    theirs = Side(torch, init_scale=64.0, growth_interval=5)
    for bad, clip, used in SCRIPT[:4]:
        theirs.iterate(bad, clip, used)
    mine = Side(ox)
    mine.scaler.load_state_dict(theirs.scaler.state_dict())
    assert mine.scaler.state_dict() == theirs.scaler.state_dict()


def test_what_pytorch_refuses_is_refused() -> None:
    for side in (Side(ox), Side(torch)):
        error = (AssertionError, RuntimeError)
        with pytest.raises(error):
            side.scaler.step(side.optimizers[0])
        side.scaler.scale(side.parameters[0].sum()).backward()
        with pytest.raises(error):
            side.scaler.update()
        side.scaler.unscale_(side.optimizers[0])
        with pytest.raises(error):
            side.scaler.unscale_(side.optimizers[0])
        side.scaler.step(side.optimizers[0])
        with pytest.raises(error):
            side.scaler.step(side.optimizers[0])
        with pytest.raises(error):
            side.scaler.unscale_(side.optimizers[0])
        with pytest.raises(error):
            side.scaler.step(side.optimizers[1])  # no gradients
        with pytest.raises(error):
            side.scaler.step(side.optimizers[0], closure=lambda: 0)
        with pytest.raises(error):
            side.scaler.load_state_dict({})
