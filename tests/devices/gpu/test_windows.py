"""Convolutions, pools and batch normalization on a GPU against the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from convolution_cases import CONVOLUTIONS, TRANSPOSED
from gpu_and_cpu import compare, random
from nvrtc import ARCHITECTURES, compiled
from rows import rows

import ox
from ox import nn
from ox.core.operator import OPS
from ox.devices.gpu import batch_norm as cuda_batch_norm
from ox.devices.gpu import conv as cuda_conv
from ox.devices.gpu import cudnn_settings
from ox.devices.gpu import kernels as cuda_kernels
from ox.devices.gpu import windows as cuda_windows
from ox.devices.gpu.cudnn_settings import Settings
from ox.devices.gpu.multi_tensor import KINDS
from ox.kernels.gpu_source import gpu_source
from ox.ops.nn.window import Window

F = nn.functional
HALVES = [ox.float16, ox.bfloat16]
TYPES = [ox.float32, *HALVES, ox.float64]


@pytest.fixture(autouse=True)
def own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cuDNN, where it is installed."""
    monkeypatch.setattr(cudnn_settings, "_current", Settings(enabled=False))


@rows("architecture", ARCHITECTURES)
@rows("dtype", KINDS, ids=str)
@rows("file", ["device_conv.cu", "device_pool.cu", "device_batch_norm.cu"])
def test_a_source_compiles(file: str, dtype: Any, architecture: str) -> None:
    place = "long long" if dtype == ox.float64 else "int"
    source = gpu_source(cuda_kernels.typed(file, dtype, f"#define PLACE {place}\n#define VECTOR 2\n"))
    code = compiled(source, architecture)
    assert code.count(".entry ox_") == source.count("ox_device_")
    if place == "int" and file != "device_batch_norm.cu":  # there a thread divides, not an element
        assert not re.findall(r"\b(?:div|rem)\.[su]\d+", code)


def test_places_and_pads_are_those_of_the_cpu() -> None:
    pads = [None, (0, 0), (1, 2), (-1, 1)]
    autos = ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]
    for n, k, s, d, p, auto, ceil in product((1, 4, 7), (1, 2, 3), (1, 2, 3), (1, 2), pads, autos, (0, 1)):
        wanted = Window((k,), (s,), (d,), p, auto, ceil)
        attributes = {"strides": [s], "dilations": [d], "pads": p, "auto_pad": auto, "ceil_mode": ceil}
        found = cuda_windows.window((n,), (k,), attributes)
        try:
            places = wanted.outputs((n,))
        except ValueError:
            assert found is None
            continue
        assert found is not None
        assert (found.befores[2], found.behinds[2]) == wanted.padding((n,))[0] and list(found.places) == [1, 1, *places]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("chunk", [1, 1 << 27], ids=["parts", "whole"])
@pytest.mark.parametrize(("x", "w", "settings"), CONVOLUTIONS, ids=range(len(CONVOLUTIONS)))
def test_conv(x: Any, w: Any, settings: Any, chunk: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_conv, "CHUNK", chunk)
    conv: Any = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(x)]
    inputs = [random(*x, dtype=dtype), random(*w, dtype=dtype, seed=1), random(w[0], dtype=dtype, seed=2)]
    compare(lambda x, w, b: conv(x, w, b, **settings), *inputs)
    if chunk > 1 and dtype == ox.float32:
        compare(lambda x, w: conv(x, w, **settings), *inputs[:2])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("chunk", [1, 1 << 27], ids=["parts", "whole"])
@pytest.mark.parametrize(("x", "w", "settings"), TRANSPOSED, ids=range(len(TRANSPOSED)))
def test_conv_transpose(x: Any, w: Any, settings: Any, chunk: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_conv, "CHUNK", chunk)
    conv: Any = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}[len(x)]
    bias = random(w[1] * settings.get("groups", 1), dtype=dtype, seed=2)
    inputs = [random(*x, dtype=dtype), random(*w, dtype=dtype, seed=1), bias]
    compare(lambda x, w, b: conv(x, w, b, **settings), *inputs)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(40))
def test_random_windows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 4 == 0:  # as for arrays of 2^31 elements, which kernels count in 64 bits
        monkeypatch.setattr(cuda_windows, "MOST_INT", 0)
    draw = np.random.default_rng(seed).integers
    rank, group = int(draw(1, 4)), int(draw(1, 3))
    kernel, strides, dilations = draw(1, 4, rank), draw(1, 4, rank), draw(1, 3, rank)
    extents = dilations * (kernel - 1) + 1
    sizes = extents + draw(0, 5, rank)
    settings = {"strides": strides.tolist(), "dilations": dilations.tolist()}
    x, w = random(2, 2 * group, *sizes, seed=seed), random(3 * group, 2, *kernel, seed=seed)
    pads = draw(-1 if sizes.min() > extents.max() + 2 else 0, 4, 2 * rank).tolist()
    compare(lambda x, w: OPS["Conv"](x, w, group=group, pads=pads, **settings), x, w)
    weights = random(2 * group, 3, *kernel, seed=seed)
    compare(lambda x, w: OPS["ConvTranspose"](x, w, group=group, **settings), x, weights)
    settings |= {"kernel_shape": kernel.tolist(), "ceil_mode": int(draw(0, 2))}
    inside = [int(draw(0, k)) for k in (*kernel, *kernel)]
    compare(lambda x: OPS["AveragePool"](x, pads=inside, count_include_pad=seed % 2, **settings), x)
    compare(lambda x: OPS["MaxPool"](x, pads=inside, **settings), x)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_fold(dtype: Any) -> None:
    columns = random(2, 3 * 6, 5 * 2, dtype=dtype)
    compare(lambda x: F.fold(x, (5, 6), (3, 2), dilation=(1, 2), padding=(1, 0), stride=(1, 3)), columns)


POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 9), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    ((2, 3, 6, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((1, 2, 7, 8), {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1], "ceil_mode": 1}),
    ((1, 2, 7, 8), {"kernel_shape": [2, 2], "dilations": [2, 3], "pads": [1, 2, 1, 2]}),
    ((1, 1, 5, 5), {"kernel_shape": [3, 3], "pads": [3, 3, 3, 3], "strides": [2, 1]}),
    ((1, 2, 5, 4), {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ((1, 2, 4, 5, 6), {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2], "pads": [0, 1, 0, 0, 1, 0]}),
]


def with_edges(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """With equal values, NaN and infinities."""
    flat = np.round(x).ravel()
    flat[::7], flat[3::11], flat[5::13] = np.nan, -np.inf, np.inf
    return flat.reshape(x.shape)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("shape", "attributes"), POOLS, ids=range(len(POOLS)))
def test_max_pool(shape: Any, attributes: Any, dtype: Any) -> None:
    plain = random(*shape)
    for x in (plain.to(dtype), ox.tensor(with_edges(plain.numpy())).to(dtype), ox.full(shape, -np.inf, dtype=dtype)):
        found: list[Any] = []
        for device in ("cuda", "cpu"):
            own = x.detach().to(device).requires_grad_()
            y, indices = OPS["MaxPool"](own, **attributes, outputs=2)
            g = ox.arange(y.numel()).reshape(y.shape).to(dtype).to(device)
            y.backward(g)
            alone = OPS["MaxPool"](x.detach().to(device), **attributes)
            found.append([y.detach(), indices, own.grad, alone.detach()])
        for a, b in zip(*found, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a.cpu().double().numpy(), b.double().numpy())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("counted", [0, 1])
@pytest.mark.parametrize(("shape", "attributes"), POOLS, ids=range(len(POOLS)))
def test_average_pool(shape: Any, attributes: Any, counted: int, dtype: Any) -> None:
    compare(lambda x: OPS["AveragePool"](x, **attributes, count_include_pad=counted), random(*shape, dtype=dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 7), (2, 3, 5, 6), (2, 1, 64, 64)])
def test_batch_norm(shape: tuple[int, ...], dtype: Any) -> None:
    C = shape[1]
    kept = ox.float32 if dtype in HALVES else dtype
    inputs = [random(*shape, dtype=dtype) * 2 + 3, random(C, dtype=kept, seed=1), random(C, dtype=kept, seed=2)]

    def normalize(train: bool) -> Callable[..., Any]:
        def work(x: Any, scale: Any, bias: Any) -> Any:
            mean, var = (ox.full((C,), value, dtype=kept, device=x.device) for value in (0.5, 2.0))
            made = F.batch_norm(x, mean, var, scale, bias, training=train, momentum=0.3)
            return ox.cat([made.reshape(-1), mean.to(made.dtype), var.to(made.dtype)])

        return work

    compare(normalize(True), *inputs)
    compare(normalize(False), *inputs)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [5, 4096])  # of a part: some parts are empty, or each thread has several numbers
@pytest.mark.parametrize("shape", [(50, 3, 4, 8), (5, 2, 2000), (600, 2), (50, 1, 7)])
def test_parts_of_batch_norm(shape: tuple[int, ...], size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that do not begin at a multiple of 16 bytes give the same bits."""
    monkeypatch.setattr(cuda_batch_norm, "PER_PART", size)
    C, x, g = shape[1], random(*shape) * 2 + 3, random(*shape, seed=3)
    for dtype, tolerance in ((ox.float32, 3e-4), (ox.float64, None)):  # sums of thousands
        inputs = [each.to(dtype) for each in (x, random(C, seed=1), random(C, seed=2))]
        compare(
            lambda x, scale, bias: F.batch_norm(x, None, None, scale, bias, training=True), *inputs,
            tolerance=tolerance,
        )  # fmt: skip

    def on_gpu(skipped: int) -> list[Any]:
        own, other = (
            ox.cat([ox.zeros(skipped), each.reshape(-1)]).to("cuda")[skipped:].reshape(shape) for each in (x, g)
        )
        own = own.detach().requires_grad_()
        made = F.batch_norm(own, None, None, training=True)
        made.backward(other)
        return [made.detach().cpu().numpy(), own.grad.cpu().numpy()]

    for a, b in zip(on_gpu(0), on_gpu(1), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.gpu
def test_batch_norm_copies_no_parameters() -> None:
    """Views of a flat buffer begin anywhere."""
    host_cuda = pytest.importorskip("host_cuda")  # counts
    x, flat = random(2, 3, 4, 4).to("cuda"), random(13).square().to("cuda")
    scale, bias, mean, variance = (flat[1 + 3 * i : 4 + 3 * i] for i in range(4))
    F.batch_norm(x, mean, variance, scale, bias)
    with host_cuda.counting() as done:
        F.batch_norm(x, mean, variance, scale, bias)
    assert (done["launches"], done["on device"]) == (1, 0)


@pytest.mark.gpu
def test_gradients_have_the_same_bits_in_each_run() -> None:
    """Of overlapping windows, groups and sums of many elements."""
    model: Any = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(3, 1), nn.Conv2d(4, 4, 3, groups=2), nn.AvgPool2d(3, 1)
    ).to("cuda")
    x, found = random(4, 2, 16, 16).to("cuda"), []
    for _ in range(2):
        model.zero_grad()
        (model(x) ** 2).sum().backward()
        found.append([p.grad.cpu().numpy() for p in model.parameters()])
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))
