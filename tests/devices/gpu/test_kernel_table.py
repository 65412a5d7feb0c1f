"""The kernels of a GPU against NumPy, in the types and layouts that the samples of the operators do not have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpu_and_cpu import compare, random
from nvrtc import ARCHITECTURES, compiled
from rows import rows

import ox
from ox import nn
from ox.core.operator import OPS
from ox.devices import cuda
from ox.devices.gpu import index as cuda_index
from ox.devices.gpu import kernels as cuda_kernels
from ox.devices.gpu import matmul_precision
from ox.devices.gpu.rowwise import BY_BLOCK
from ox.errors import BoundsError
from ox.kernels.gpu_source import gpu_source

F = nn.functional
TYPES = list(cuda_kernels.TYPES)
BLOCK_ROWS = ("device_rows.cu", "device_losses.cu", "device_norms.cu")
SOURCES = [
    *[(file, dtype) for file in BLOCK_ROWS for dtype in (ox.float32, ox.float16, ox.bfloat16)],
    ("device_random.cu", ox.float32), ("device_random.cu", ox.float16),
    ("device_halves.cu", ox.float32), ("device_tensors.cu", ox.float32),
    *[("device_index.cu", dtype) for dtype in TYPES],
    ("device_attention.cu", ox.float32), ("device_attention.cu", ox.float16), ("device_attention.cu", ox.bfloat16),
]  # fmt: skip


@rows("architecture", ARCHITECTURES)
@rows(("file", "dtype"), SOURCES)
def test_a_source_compiles(file: str, dtype: Any, architecture: str) -> None:
    lines = "#define INDEX int\n#define ELEMENT uint4\n#define WIDTH 64\n#define KEPT_COLUMNS 16\n#define VECTOR 2\n"
    for more in (lines, lines + BY_BLOCK) if file in BLOCK_ROWS else (lines,):
        assert ".entry ox_" in compiled(gpu_source(cuda_kernels.typed(file, dtype, more)), architecture)


HALVES = [ox.float16, ox.bfloat16]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [ox.float32, *HALVES, ox.float64], ids=str)
@pytest.mark.parametrize(
    "work",
    [
        lambda x: F.softmax(x, -1), lambda x: F.softmax(x, 0), lambda x: F.log_softmax(x, -1), F.gelu, F.silu,
        lambda x: F.gelu(x, approximate="tanh"), ox.sigmoid, ox.tanh, F.relu, ox.erf, F.softplus,
        lambda x: F.softmax(x.t(), -1), lambda x: F.gelu(x.t()), lambda x: F.layer_norm(x, (33,)),
        lambda x: F.rms_norm(x, (33,)), lambda x: (x + x * x) * (x.abs() - x), lambda x: (x.t() + x[0, :5]) * x.t(),
    ],
    ids=range(17),
)  # fmt: skip
def test_rows_and_elements(work: Callable[[Any], Any], dtype: Any) -> None:
    compare(work, random(5, 33, dtype=dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [ox.float32, *HALVES], ids=str)
@pytest.mark.parametrize("mask", ["none", "causal", "bool", "row", "bias", "nowhere", "dropout"])
def test_attention(mask: str, dtype: Any) -> None:
    allowed = ox.tensor(np.random.default_rng(3).random((2, 1, 6, 7)) > 0.4)

    def attend(q: Any, k: Any, v: Any) -> Any:
        masks = {
            "bool": allowed,
            "row": allowed[0, 0, :1],
            "bias": random(6, 7, dtype=dtype, seed=5),
            "nowhere": allowed & (ox.arange(6) > 2).reshape(6, 1),
        }
        chosen = masks[mask].to(q.device) if mask in masks else None
        ox.manual_seed(0)
        drop = 0.4 if mask == "dropout" else 0.0
        return F.scaled_dot_product_attention(q, k, v, chosen, is_causal=mask == "causal", dropout_p=drop)

    sizes = ((2, 3, 6, 4), (2, 3, 7, 4), (2, 3, 7, 5))
    compare(attend, *[random(*size, dtype=dtype, seed=i) for i, size in enumerate(sizes)])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [ox.float32, *HALVES, ox.float64], ids=str)
def test_products(dtype: Any) -> None:
    compare(lambda a, b: a @ b, random(2, 3, 4, 5, dtype=dtype), random(5, 6, dtype=dtype))
    compare(lambda a, b: a @ b.transpose(1, 2), random(2, 4, 5, dtype=dtype), random(2, 3, 5, dtype=dtype))
    compare(F.linear, random(2, 4, 5, dtype=dtype), random(3, 5, dtype=dtype), random(3, dtype=dtype))
    compare(lambda a, b, c: ox.addmm(c, a, b, alpha=0.5), random(4, 5), random(5, 3), random(4, 3))


@pytest.mark.gpu
def test_products_of_halves_are_added_up_in_float32() -> None:
    a, b = ox.ones(1, 5000, dtype=ox.float16, device="cuda"), ox.ones(5000, 1, dtype=ox.float16, device="cuda")
    assert (a @ b).item() == 5000.0  # float16 sums would stop at 2048


@pytest.mark.gpu
@pytest.mark.parametrize("allowed", [False, True])
def test_tf32_is_asked_for_where_it_is_allowed(allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from ox.devices.gpu.cublas import FAST_TF32, FLOAT32, cublas

    asked, handle = [], cublas(cuda.cupy())
    multiply = handle._multiply
    monkeypatch.setattr(handle, "_multiply", lambda *a: (asked.append(a[-2]), multiply(*a))[1])
    monkeypatch.setattr(matmul_precision, "_precision", "high" if allowed else "highest")
    random(2, 3).to("cuda") @ random(3, 2).to("cuda")
    random(2, 3, dtype=ox.float64).to("cuda") @ random(3, 2, dtype=ox.float64).to("cuda")
    # convolutions have a switch of their own
    with ox.backends.cudnn.flags(enabled=False, allow_tf32=not allowed):
        F.conv2d(random(1, 2, 3, 3).to("cuda"), random(2, 2, 2, 2).to("cuda"))
    assert asked[0] == (FAST_TF32 if allowed else FLOAT32) and asked[1] not in (FAST_TF32, FLOAT32)
    assert asked[2:] == [FLOAT32 if allowed else FAST_TF32]


@pytest.mark.gpu
@pytest.mark.parametrize("sorted_from", [0, 1 << 30])
@pytest.mark.parametrize("dtype", [ox.float32, *HALVES, ox.float64], ids=str)
@pytest.mark.parametrize("index", [ox.int32, ox.int64], ids=str)
def test_gradients_by_place(index: Any, dtype: Any, sorted_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_index, "SORTED_FROM", sorted_from)
    places = ox.tensor(np.random.default_rng(0).integers(-7, 7, 50)).to(index)
    compare(lambda x, i: ox.ops.Gather(x, i), random(7, 3, 2, dtype=dtype), places)
    compare(lambda x, i: ox.ops.Gather(x, i, axis=1), random(3, 7, dtype=dtype), places)
    compare(lambda x, i: F.embedding(i, x), random(7, 5, dtype=dtype), places % 7)
    long = (places % 7).long().reshape(10, 5)
    compare(lambda x, s, i: x.scatter_add(0, i, s), random(7, 5, dtype=dtype), random(10, 5, dtype=dtype), long)
    compare(lambda x, i: ox.gather(x, 0, i), random(7, 5, dtype=dtype), long)


def sums_of_parts(g: Any, indices: Any, n: int, length: int) -> Any:
    """Rows of one index are added in order, `length` of them at a time, and then these sums."""
    sums = np.zeros((n, g.shape[1]), np.float32)
    for index in range(n):
        rows = g[indices == index].astype(np.float32)
        for first in range(0, len(rows), length):
            part = np.zeros_like(sums[index])
            for row in rows[first : first + length]:
                part += row
            sums[index] += part
    return sums


@pytest.mark.gpu
@pytest.mark.parametrize("sorted_from", [0, 1 << 30])
@pytest.mark.parametrize("blocks", [1, cuda_kernels.MOST_BLOCKS])
def test_sums_by_index_are_added_in_a_fixed_order(
    blocks: int, sorted_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many blocks there are, how many columns a thread has, and where the rows begin."""
    monkeypatch.setattr(cuda_index, "SORTED_FROM", sorted_from)
    for module in (cuda_kernels, cuda_index):
        monkeypatch.setattr(module, "MOST_BLOCKS", blocks)
    for n, count, width in ((9, 3000, 4), (1, 300, 3), (2, 128, 1), (3, 129, 8), (40, 500, 2)):
        indices = np.random.default_rng(0).integers(0, n, count)
        for dtype in (ox.float32, ox.float16):
            g = random(count, width, dtype=dtype)
            length = cuda_index.part_length(count) if sorted_from == 0 else count
            expected = sums_of_parts(g.numpy(), indices, n, length).astype(dtype)
            for offset in (0, 1):
                rows: Any = ox.cat([ox.zeros(offset, dtype=dtype), g.flatten()]).to("cuda")[offset:].reshape(g.shape)
                assert rows.array.data.ptr % 16 == offset * dtype.itemsize
                sums: Any = OPS["ox.IndexAdd"](rows, ox.tensor(indices).to("cuda"), size=n)
                assert np.array_equal(sums.cpu().numpy(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["RandomNormal", "RandomUniform"])
def test_operators_without_inputs_run_on_the_cpu(name: str) -> None:
    """Also when others ran on a GPU before."""
    _ = ox.ones(2, device="cuda") + 1
    numbers: Any = OPS[name](shape=[2])
    assert numbers.device.type == "cpu" and isinstance(numbers.array, np.ndarray)


@pytest.mark.gpu
@pytest.mark.parametrize("sorted_from", [1, 99])
def test_rows_of_places_out_of_range_are_left_out(sorted_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are reported, and take nothing from rows whose place they are, counted from the end once more."""
    monkeypatch.setattr(cuda_index, "SORTED_FROM", sorted_from)
    places, g = ox.tensor([7, 2, -6, -1, 4, 0, 5]).to("cuda"), ox.ones(7, 3, device="cuda")
    made: Any = OPS["ox.IndexAdd"](g, places, size=5)
    assert made.array.get()[:, 0].tolist() == [1, 0, 1, 0, 2]
    scattered: Any = OPS["ScatterElements"](ox.zeros(5, device="cuda"), places, g[:, 0], reduction="add")
    assert scattered.array.get().tolist() == [1, 0, 1, 0, 2]
    with pytest.raises(BoundsError, match="ScatterElements"):
        ox.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.parametrize("classes", [7, 2500])  # a row of a warp, and of a block
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [ox.float32, *HALVES], ids=str)
def test_cross_entropy(dtype: Any, weighted: bool, smoothing: float, classes: int) -> None:
    target = ox.tensor([1, -100, 0, 6, 2])
    weight = random(classes, dtype=dtype, seed=1).abs() if weighted else None

    def loss(x: Any, t: Any, reduction: str = "mean") -> Any:
        own = None if weight is None else weight.to(x.device)
        return F.cross_entropy(x * 3, t, own, reduction=reduction, label_smoothing=smoothing)

    for reduction in ("mean", "sum", "none"):
        compare(lambda x, t, reduction=reduction: loss(x, t, reduction), random(5, classes, dtype=dtype), target)
    compare(loss, random(5, classes, dtype=dtype), target.int())
    compare(lambda x, t: loss(x.t(), t), random(classes, 5, dtype=dtype), target)
    assert np.isnan(loss(random(1, classes, dtype=dtype).to("cuda"), ox.tensor([-100]).to("cuda")).item())


@pytest.mark.gpu
def test_cross_entropy_of_large_scores_keeps_its_digits() -> None:
    """The logarithms of their sums are rounded to more than the exponentials may be."""
    for shift in (63.0, -63.0, 1e5, -1e5):
        compare(lambda x, t, shift=shift: F.cross_entropy(x + shift, t), random(3, 9).round(), ox.tensor([1, 4, 8]))


@pytest.mark.gpu
def test_a_call_on_a_gpu_leaves_the_kernels_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them runs is decided once for an operator and its element types, whatever the device."""
    op, x = OPS["Softmax"], random(64, 64)
    monkeypatch.setattr(op, "_plans", {})
    op(x)
    found = type(op._plans[ox.float32])
    op._plans.clear()
    op(x.to("cuda"))
    assert np.array_equal(op(x).numpy(), op(x).numpy()) and type(op._plans[ox.float32]._found) is found


@pytest.mark.gpu
def test_a_total_weight_of_0_costs_nan() -> None:
    weight, target = ox.tensor([0.0, 1.0], device="cuda"), ox.tensor([0, 0], device="cuda")
    for smoothing in (0.0, 0.5):
        assert np.isnan(F.cross_entropy(random(2, 2).to("cuda"), target, weight, label_smoothing=smoothing).item())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [ox.uint8, ox.float16, ox.float32, ox.float64], ids=str)
def test_rows_of_all_sizes_are_gathered(dtype: Any) -> None:
    """Threads move as many bytes as lie together, up to 16."""
    places = ox.tensor([[4, -1, 0], [2, 2, -5]])
    for width in (1, 2, 3, 4, 8, 12, 16):
        for skipped in (0, 1):  # the first elements, so that rows do not begin at a multiple of 16 bytes
            numbers = (random(2 * 5 * width + 1) * 50).clamp(min=0).to(dtype)
            data = numbers[skipped : skipped + 10 * width].reshape(2, 5, width)
            made = ox.ops.Gather(
                numbers.to("cuda")[skipped : skipped + 10 * width].reshape(2, 5, width), places.to("cuda"), axis=1
            )
            assert np.array_equal(made.cpu().numpy(), np.take(data.numpy(), places.numpy(), axis=1))


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [127, 128, 256, 257, 1000, 2048, 4096, 4097])  # a row of a warp, and of a block
@pytest.mark.parametrize("dtype", [ox.float32, *HALVES], ids=str)
def test_norms_of_rows(dtype: Any, columns: int) -> None:
    rows = random(19, columns, dtype=dtype), random(columns, dtype=dtype, seed=1), random(columns, dtype=dtype, seed=2)
    with ox.backends.cudnn.flags(enabled=False):
        compare(lambda x, w, b: F.layer_norm(x, (columns,), w, b), *rows)
        compare(lambda x, w: F.rms_norm(x, (columns,), w), *rows[:2])


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [2047, 2048, 16_384, 50_304])  # a row of a warp, and of blocks of 256 and of 1,024
@pytest.mark.parametrize("dtype", [ox.float32, *HALVES], ids=str)
def test_long_rows(dtype: Any, columns: int) -> None:
    x = random(3, columns, dtype=dtype)
    for work in (F.softmax, F.log_softmax):
        compare(lambda x, work=work: work(x, -1), x)
    wrong = x.clone()
    wrong[0, columns - 1], wrong[1, 5], wrong[2] = np.inf, np.nan, -np.inf
    assert np.array_equal(
        np.isnan(F.softmax(wrong.to("cuda"), -1).cpu().numpy()), np.isnan(F.softmax(wrong, -1).numpy())
    )


def launches(work: Callable[[], Any]) -> int:
    """Those of the second call; only host_cuda counts them."""
    if "host_cuda" not in sys.modules:
        pytest.skip("only host_cuda counts launches")
    import host_cuda

    work()
    with host_cuda.counting() as counts:
        work()
    return int(counts["launches"])


# Forward and backward of norms: one, and one with one for the weights. Of losses: the rows and their mean; the division
# by their number and the rows. Of halves: also two that round the loss and its gradient.
@pytest.mark.gpu
@pytest.mark.parametrize("columns", [33, 300, 5000])
@pytest.mark.parametrize("dtype", [ox.float32, *HALVES], ids=str)
def test_launches_of_rows(dtype: Any, columns: int) -> None:
    x = random(8, columns, dtype=dtype).to("cuda").requires_grad_()
    w, b = (random(columns, dtype=dtype, seed=i).to("cuda").requires_grad_() for i in (1, 2))
    target, weight = ox.arange(8, device="cuda"), random(columns, dtype=dtype).abs().to("cuda")
    rounding = 2 * (dtype != ox.float32)
    one = {kind: ox.ones(8, columns, dtype=kind, device="cuda") for kind in (dtype, ox.float32)}

    def step(work: Callable[[], Any]) -> int:
        def run() -> None:
            x.grad = w.grad = b.grad = None
            made = work()
            made.backward(one[made.dtype] if made.ndim else one[made.dtype][0, 0])

        return launches(run)

    with ox.backends.cudnn.flags(enabled=False):
        assert step(lambda: F.layer_norm(x, (columns,), w, b)) == 3
        assert step(lambda: F.rms_norm(x, (columns,), w)) == 3
    for smoothing in (0.0, 0.1):
        assert step(lambda smoothing=smoothing: F.cross_entropy(x, target, label_smoothing=smoothing)) == 4 + rounding
        assert step(lambda s=smoothing: F.cross_entropy(x, target, weight, label_smoothing=s)) == 4 + rounding
    with ox.autocast("cuda", ox.bfloat16):
        assert step(lambda: F.cross_entropy(x, target)) == 4


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_cross_entropy_under_autocast_is_float32_of_halves(dtype: Any) -> None:
    x, target = random(4, 9, dtype=dtype), ox.tensor([1, 2, 8, 0])
    for policy in (None, {"cross_entropy": "keep"}):
        with ox.autocast("cuda", dtype, policy=policy):
            loss = F.cross_entropy(x.to("cuda"), target.to("cuda"))
        wanted = F.cross_entropy(x.float(), target)
        assert loss.dtype == (ox.float32 if policy is None else dtype)
        np.testing.assert_allclose(loss.float().item(), wanted.item(), rtol=1e-6 if policy is None else 1e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 1025, 16_384, 16_385, 70_001])  # of one block, and of several
def test_the_mean_of_many_losses(rows: int) -> None:
    scores, target = random(rows, 2), ox.tensor(np.random.default_rng(1).integers(0, 2, rows))
    target[::3] = -100
    target[0] = 1
    x = scores.double().numpy()
    losses = np.log(np.exp(x).sum(1)) - x[np.arange(rows), target.clamp(0).numpy()]
    wanted = losses[target.numpy() >= 0].mean()
    own = scores.to("cuda").requires_grad_()
    loss = F.cross_entropy(own, target.to("cuda"))
    loss.backward()
    assert abs(loss.item() - wanted) < 3e-7 * wanted
    counted = (target >= 0).sum().item()
    slope = (np.exp(x[0]) / np.exp(x[0]).sum() - [0, 1]) / counted
    np.testing.assert_allclose(own.grad.cpu().numpy()[0], slope, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 2, 3, 4, 4001])
def test_random_numbers_have_the_bits_of_the_cpu(count: int) -> None:
    def drawn(device: str) -> list[Any]:
        ox.manual_seed(2**63 + 5)
        ones = ox.ones(count, device=device)
        return [
            ox.rand(count, device=device), ox.rand(count, device=device, dtype=ox.float16), ox.rand_like(ones),
            ox.randint(5, (count,), device=device), ox.randint(1 << 20, (count,), device=device),
            F.dropout(ones, 0.3), F.dropout(ones.half(), 0.3), F.dropout1d(ones.reshape(1, count, 1)),
            ox.empty(count, device=device).uniform_(-1, 2), nn.init.uniform_(ox.empty(count, device=device)),
            ox.rand(count, device=device),
        ]  # fmt: skip

    for there, here in zip(drawn("cuda"), drawn("cpu"), strict=True):
        assert there.device.type == "cuda" and there.dtype == here.dtype
        assert np.array_equal(there.cpu().numpy(), here.numpy())


@pytest.mark.gpu
def test_normal_numbers() -> None:
    def drawn(device: str) -> list[Any]:
        ox.manual_seed(7)
        made = [ox.randn(4001, device=device), ox.randn_like(ox.ones(3, device=device))]
        return [*made, nn.init.normal_(ox.empty(5, device=device)), ox.randn(0, device=device)]

    for there, here in zip(drawn("cuda"), drawn("cpu"), strict=True):
        np.testing.assert_allclose(there.cpu().numpy(), here.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.gpu
def test_the_gradient_of_dropout_drops_the_same() -> None:
    x = ox.ones(1000, device="cuda", requires_grad=True)
    y = F.dropout(x, 0.5)
    y.sum().backward()
    assert np.array_equal(x.grad.cpu().numpy(), y.detach().cpu().numpy()) and 300 < (y > 0).sum().item() < 700


@pytest.mark.gpu
def test_constants_are_made_there() -> None:
    from ox.devices import cuda

    def made(device: str) -> list[Any]:
        x = ox.ones(2, 3, dtype=ox.float16, device=device)
        return [
            ox.zeros(2, 3, device=device), ox.full((2,), 7, device=device),
            ox.ones(3, dtype=ox.bfloat16, device=device), ox.arange(4, dtype=ox.uint8, device=device),
            ox.arange(5, device=device), ox.arange(9, 2, -3, device=device), ox.arange(0, 1, 0.1, device=device),
            ox.zeros_like(x), ox.full_like(x, 2.5), ox.ones_like(x, dtype=ox.bool),
            ox.arange(0, 5.5, 1.5, dtype=ox.int32, device=device),
        ]  # fmt: skip

    for there, here in zip(made("cuda"), made("cpu"), strict=True):
        assert there.device.type == "cuda" and there.dtype == here.dtype
        assert np.array_equal(there.cpu().float().numpy(), here.float().numpy())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "to_device", None)  # nothing is copied
        assert ox.zeros(1000, device="cuda").sum().item() == 0
        assert ox.rand(1000, device="cuda").max().item() < 1
        assert ox.arange(1000, device="cuda").sum().item() == 499_500
        assert ox.ones_like(ox.zeros(10, device="cuda")).sum().item() == 10


@pytest.mark.gpu
@pytest.mark.parametrize("value", [np.inf, np.nan, 2.0])
def test_the_gradient_of_a_loss_starts_with_one(value: float) -> None:
    x = ox.tensor([value], device="cuda", requires_grad=True)
    x.sum().backward()
    assert x.grad.item() == 1.0
