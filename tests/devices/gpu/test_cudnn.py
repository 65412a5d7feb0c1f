"""cuDNN's way of calls: on a GPU with cuDNN, or on what stands for both (tests/cuda/host_cudnn.py)."""

from __future__ import annotations

import gc
import sys
from threading import Thread
from typing import Any

import numpy as np
import pytest
from convolution_cases import CONVOLUTIONS, TRANSPOSED
from gpu_and_cpu import compare, random

import ox
from ox import nn, tolerance
from ox.devices.channels_last import is_channels_last
from ox.devices.gpu import cudnn, cudnn_libraries, cudnn_settings
from ox.devices.gpu.cuda_graph import GraphMemory
from ox.devices.gpu.cudnn_settings import Settings

F = nn.functional
HALVES = [ox.float16, ox.bfloat16]


@pytest.mark.gpu
@pytest.mark.usefixtures("cudnn_or_stand_in")
@pytest.mark.parametrize("dtype", [ox.float32, *HALVES], ids=str)
@pytest.mark.parametrize(("x", "w", "settings"), CONVOLUTIONS, ids=range(len(CONVOLUTIONS)))
def test_conv(x: Any, w: Any, settings: Any, dtype: Any) -> None:
    conv: Any = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(x)]
    inputs = [random(*x, dtype=dtype), random(*w, dtype=dtype, seed=1), random(w[0], dtype=dtype, seed=2)]
    compare(lambda x, w, b: conv(x, w, b, **settings), *inputs)
    compare(lambda x, w: conv(x, w, **settings), *inputs[:2])


def channels_last(x: Any) -> Any:
    """[N, C, ...] of the values of x, that lies as [N, ..., C]."""
    return x.contiguous(memory_format=ox.channels_last if x.ndim == 4 else ox.channels_last_3d)


def lies_so(x: Any) -> bool:
    return bool(is_channels_last(x.array))


@pytest.mark.gpu
@pytest.mark.usefixtures("cudnn_or_stand_in")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("x", "w", "settings"), CONVOLUTIONS[2:], ids=range(2, len(CONVOLUTIONS)))
def test_channels_last(x: Any, w: Any, settings: Any, dtype: Any) -> None:
    conv: Any = {4: F.conv2d, 5: F.conv3d}[len(x)]
    inputs = [random(*x, dtype=dtype), random(*w, dtype=dtype, seed=1), random(w[0], dtype=dtype, seed=2)]
    compare(lambda x, w, b: conv(channels_last(x), w, b, **settings), *inputs)
    compare(lambda x, w: conv(channels_last(x), channels_last(w), **settings), *inputs[:2])
    turned: Any = {4: F.conv_transpose2d, 5: F.conv_transpose3d}[len(x)]
    g = random(x[0], w[0], *x[2:], dtype=dtype)
    compare(lambda g, w: turned(channels_last(g), w, groups=settings.get("groups", 1)), g, inputs[1])


@pytest.mark.gpu
def test_images_stay_channels_last(log: Any) -> None:
    """From layer to layer, forward and backward, and without copies of images but of the first gradient."""
    first, second = (random(8, 8, 3, 3, dtype=ox.float16, seed=i).to("cuda").requires_grad_() for i in (1, 2))
    x = channels_last(random(2, 8, 6, 5, dtype=ox.float16).to("cuda")).requires_grad_()
    y = F.conv2d(F.relu(F.conv2d(x, first, padding=1)), second, padding=1)
    g = channels_last(ox.ones_like(y))
    assert lies_so(y) and lies_so(g)
    y.backward(g)
    assert len(log.runs) == 6
    for strides in log.strides:
        assert all(step[1] == 1 for step in strides), strides
    assert first.grad.is_contiguous() and second.grad.is_contiguous()


@pytest.mark.gpu
@pytest.mark.usefixtures("cudnn_or_stand_in")
@pytest.mark.parametrize("images", [1, 3])
def test_layers_read_images_that_are_channels_last(images: int) -> None:
    def work(x: Any, w: Any, scale: Any, bias: Any) -> Any:
        y = F.conv2d(channels_last(x), w, padding=1)
        y = F.max_pool2d(F.relu(F.batch_norm(y, None, None, scale, bias, training=True)), 2)
        y = F.gelu(F.conv2d(channels_last(y) + y, w)) * channels_last(scale.reshape(1, 4, 1, 1).expand(images, 4, 1, 1))
        return F.group_norm(y, 2).flatten(1)

    weights = random(4, 4, 3, 3), random(4, seed=2), random(4, seed=3)
    compare(work, *[x.half() for x in (random(images, 4, 8, 6, seed=1), *weights)], tolerance=3e-2)


@pytest.mark.gpu
def test_what_is_not_kept_channels_last(log: Any) -> None:
    """Float32, and what cuDNN has no way for in that order."""
    import host_cudnn

    w = random(4, 8, 3, 3)
    x = random(2, 8, 6, 5)
    compare(lambda x, w: F.conv2d(channels_last(x), w), x, w)
    log.refuses = lambda graph: (
        host_cudnn.cudnnGraphNotSupportedError("not so") if graph.tensors[0].stride[1] == 1 else None
    )
    compare(lambda x, w: F.conv2d(channels_last(x), w), x.half(), w.half())
    assert len(log.runs) == 6 and all(step[1] > 1 for strides in log.strides for step in strides)


@pytest.mark.gpu
@pytest.mark.usefixtures("cudnn_or_stand_in")
def test_images_channels_last_at_other_addresses() -> None:
    def work(flat: Any, w: Any) -> Any:
        return F.conv2d(flat[1:241].reshape(2, 6, 5, 4).permute(0, 3, 1, 2), w)

    compare(work, random(241, dtype=ox.float16), random(3, 4, 3, 3, dtype=ox.float16))


@pytest.mark.gpu
@pytest.mark.usefixtures("cudnn_or_stand_in")
@pytest.mark.parametrize("pads", [[1, 0, 2, 1], [-1, 0, 0, 1]])  # cuDNN does not crop
def test_pads_of_two_sizes(pads: list[int]) -> None:
    compare(
        lambda x, w: ox.ops.Conv(x, w, pads=pads, strides=[2, 1], group=2),
        random(2, 4, 7, 6),
        random(6, 2, 3, 3, seed=1),
    )


@pytest.mark.gpu
@pytest.mark.usefixtures("cudnn_or_stand_in")
def test_addresses_that_cudnn_does_not_take() -> None:
    """Parts of a batch, and parameters in a flat buffer, do not begin at a multiple of 16 bytes."""

    def work(flat: Any, images: Any) -> Any:
        w, bias = flat[1:55].reshape(3, 2, 3, 3), flat[55:58]
        y = F.conv2d(images[1:], w, bias, padding=1)
        return F.conv_transpose2d(y[1:], w, padding=1)

    compare(work, random(58), random(4, 2, 5, 5, seed=1))


@pytest.mark.gpu
@pytest.mark.usefixtures("cudnn_or_stand_in")
@pytest.mark.parametrize("dtype", [ox.float32, *HALVES], ids=str)
@pytest.mark.parametrize(("x", "w", "settings"), TRANSPOSED, ids=range(len(TRANSPOSED)))
def test_conv_transpose(x: Any, w: Any, settings: Any, dtype: Any) -> None:
    conv: Any = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}[len(x)]
    compare(lambda x, w: conv(x, w, **settings), random(*x, dtype=dtype), random(*w, dtype=dtype, seed=1))


@pytest.mark.gpu
@pytest.mark.usefixtures("cudnn_or_stand_in")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [8, 64, 12])  # cuDNN does not take 12
def test_attention(width: int, causal: bool, dtype: Any) -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        # as heads come: turned views of rows
        turned = [x.transpose(1, 2) for x in (q, k, v)]
        return F.scaled_dot_product_attention(*turned, is_causal=causal).transpose(1, 2)

    inputs = [random(2, rows, 3, width, dtype=dtype, seed=i) for i, rows in enumerate((9, 11, 11))]
    compare(attend, *inputs)


@pytest.mark.gpu
@pytest.mark.usefixtures("cudnn_or_stand_in")
@pytest.mark.parametrize("dtype", [ox.float32, *HALVES], ids=str)
def test_against_own_kernels(dtype: Any) -> None:
    """The sizes of layers as they are."""
    x, w, q = random(4, 16, 14, 14, dtype=dtype), random(32, 16, 3, 3, dtype=dtype), random(2, 4, 128, 64, dtype=dtype)
    g = random(4, 32, 7, 7, dtype=dtype, seed=1).to("cuda")

    def results() -> list[Any]:
        own = [each.detach().to("cuda").requires_grad_() for each in (x, w, q)]
        made = F.conv2d(own[0], own[1], stride=2, padding=1)
        attended = F.scaled_dot_product_attention(own[2], own[2], own[2], is_causal=True)
        made.backward(g)
        attended.backward(attended.detach())
        return [made, attended, *[each.grad for each in own]]

    found = results()
    with ox.backends.cudnn.flags(enabled=False):
        wanted = results()
    for a, b in zip(found, wanted, strict=True):
        difference = tolerance.compare(a.detach().cpu().numpy(), b.detach().cpu().numpy())
        assert a.dtype == b.dtype and difference.ok, difference


@pytest.mark.gpu
def test_what_runs_and_what_is_kept(log: Any) -> None:
    model: Any = nn.Conv2d(3, 4, 3, padding=1, stride=2).to("cuda")
    for _ in range(3):
        x = random(2, 3, 8, 8).to("cuda").requires_grad_()
        model(x).sum().backward()
    assert [kind for kind, _ in log.built] == ["forward+bias", "data", "weights"]  # once each
    assert log.runs == ["forward+bias", "data", "weights"] * 3 or sorted(log.runs) == sorted(log.runs[:3] * 3)
    model(random(1, 3, 8, 8).to("cuda"))
    assert len(log.built) == 4  # another size
    import cupy

    with cupy.cuda.Stream(non_blocking=True) as stream:
        model(random(2, 3, 8, 8).to("cuda"))
    assert log.streams[-1] == stream.ptr and len(log.built) == 4
    assert cudnn.state() == "cuDNN 9.28.1" and ox.backends.cudnn.version() == 92801


@pytest.mark.gpu
def test_threads_take_the_plans_of_those_that_have_ended(log: Any) -> None:
    """Handles are never destroyed, which would wait for the device, and threads come and go."""
    x, w, made = random(1, 2, 5, 5).to("cuda"), random(3, 2, 3, 3).to("cuda"), list[Any]()
    for _ in range(3):
        thread = Thread(target=lambda: made.append(F.conv2d(x, w)))
        thread.start()
        thread.join()
        gc.collect()
    assert len(made) == len(log.runs) == 3 and len(log.built) == 1


@pytest.mark.gpu
def test_attention_is_one_call_each_way(log: Any) -> None:
    q, k, v = (random(1, 2, 8, 16, dtype=ox.float16, seed=i).to("cuda").requires_grad_() for i in range(3))
    F.scaled_dot_product_attention(q, k, v).sum().backward()
    assert log.runs == ["attention", "attention gradient"]
    mask = ox.ones(8, 8, dtype=ox.bool, device="cuda")
    F.scaled_dot_product_attention(q, k, v, mask)
    F.scaled_dot_product_attention(q.float(), k.float(), v.float())
    assert len(log.runs) == 2  # masks and float32 are left to others
    layer: Any = nn.TransformerEncoderLayer(16, 2, dropout=0.0, batch_first=True).half().to("cuda")
    layer(random(1, 5, 16, dtype=ox.float16).to("cuda"), is_causal=True, src_mask=None)
    assert log.runs[2:] == ["attention"]


@pytest.mark.gpu
def test_switches(log: Any) -> None:
    import host_cudnn

    notes = host_cudnn.numerical_note
    x, w = random(1, 2, 5, 5).to("cuda"), random(3, 2, 3, 3).to("cuda")

    def refused(**switches: Any) -> set[Any]:
        log.built.clear()
        with ox.backends.cudnn.flags(**switches):
            F.conv2d(x, w)
        return set(log.built[0][1])

    always = {notes.DOWN_CONVERT_INPUTS, notes.REDUCED_PRECISION_REDUCTION}
    assert refused(enabled=True) == always  # PyTorch's defaults
    assert refused(enabled=True, allow_tf32=False) == {*always, notes.TENSOR_CORE}
    assert refused(enabled=True, deterministic=True) == {*always, notes.NONDETERMINISTIC}
    F.conv2d(x, w)
    assert set(log.built[-1][1]) == {*always, notes.TENSOR_CORE, notes.NONDETERMINISTIC}  # ox's
    F.conv2d(x.half(), w.half())
    assert set(log.built[-1][1]) == {*always, notes.NONDETERMINISTIC}
    ran = len(log.runs)
    ox.backends.cudnn.enabled = False
    F.conv2d(x, w)
    assert len(log.runs) == ran and cudnn_settings.current() == Settings(enabled=False)


@pytest.mark.gpu
def test_benchmark_keeps_the_fastest_way(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    times = iter([3.0, 1.0, 5.0, 5.0])
    monkeypatch.setattr(cupy.cuda, "get_elapsed_time", lambda begin, end: next(times))
    ox.backends.cudnn.benchmark = True
    x, w = random(1, 2, 5, 5).to("cuda"), random(3, 2, 3, 3).to("cuda")
    wanted = F.conv2d(random(1, 2, 5, 5), random(3, 2, 3, 3)).numpy()
    for _ in range(2):
        np.testing.assert_allclose(F.conv2d(x, w).cpu().numpy(), wanted, rtol=1e-5, atol=1e-5)
    tried = ["forward by way 0"] * 2 + ["forward by way 2"] * 2  # this device does not have way 1
    assert log.runs == [*tried, "forward by way 2", "forward by way 2"]


@pytest.mark.gpu
def test_no_ways_are_timed_in_the_capture_of_a_graph(log: Any) -> None:
    ox.backends.cudnn.benchmark = True
    x, w = random(1, 2, 5, 5).to("cuda"), random(3, 2, 3, 3).to("cuda")
    memory = GraphMemory()
    memory.capture(lambda _: F.conv2d(x, w)).launch()  # timing waits, which ends a capture
    assert log.runs == ["forward"]


@pytest.mark.gpu
def test_what_cudnn_refuses_runs_on_own_kernels(log: Any) -> None:
    import host_cudnn

    x, w = random(1, 2, 5, 5), random(3, 2, 3, 3)
    log.refuses = lambda graph: host_cudnn.cudnnGraphNotSupportedError("no")
    compare(F.conv2d, x, w)  # without a word
    log.refuses = lambda graph: RuntimeError("CUDNN_STATUS_INTERNAL_ERROR")
    with pytest.warns(RuntimeWarning, match="ox's own kernels run: CUDNN_STATUS_INTERNAL_ERROR") as warned:
        compare(lambda x, w: F.conv2d(x, w, padding=1), x, w)
        compare(lambda x, w: F.conv2d(x, w, padding=2), x, w)
    assert len(warned) == 1 and not log.runs


@pytest.mark.gpu
def test_two_versions_of_cudnn(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    two = "this process has loaded cuDNN 9.28.1 (/a) and 9.10.2 (/b)"
    monkeypatch.setattr(cudnn_libraries, "conflict", lambda: two)
    x, w = random(1, 2, 5, 5), random(3, 2, 3, 3)
    with pytest.warns(RuntimeWarning, match="which do not work together: one nvidia-cudnn package"):
        compare(F.conv2d, x, w)
    log.refuses = lambda graph: RuntimeError("CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH")
    with pytest.warns(RuntimeWarning, match="own kernels run: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH .this process"):
        compare(lambda x, w: F.conv2d(x, w, padding=1), x, w)


@pytest.mark.gpu
def test_without_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", None)
    cudnn.library.cache_clear()
    try:
        compare(F.conv2d, random(1, 2, 5, 5), random(3, 2, 3, 3))
        assert not ox.backends.cudnn.is_available() and ox.backends.cudnn.version() is None
        assert "cuDNN" in cudnn.state()
    finally:
        cudnn.library.cache_clear()
