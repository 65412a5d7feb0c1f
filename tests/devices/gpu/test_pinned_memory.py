"""Pinned memory: copies for which the host does not wait, and which keep their memory until they have ended."""

from __future__ import annotations

import gc
import sys
import threading

import numpy as np
import pytest

import ox
from ox.devices.gpu import pinned_memory
from ox.errors import DeviceError


def test_without_a_gpu_nothing_is_pinned() -> None:
    if ox.cuda.is_available():
        pytest.skip("there is a GPU here")
    x = ox.rand(3)
    assert x.pin_memory() is x and not x.is_pinned()


@pytest.mark.gpu
class TestOnADevice:
    @pytest.mark.parametrize("dtype", [ox.float32, ox.bfloat16, ox.int64, ox.bool])
    def test_the_values_go_there(self, dtype: ox.DType) -> None:
        x = ox.arange(12).reshape(3, 4).to(dtype)
        pinned = x.pin_memory()
        assert pinned.is_pinned() and pinned[1:].is_pinned() and pinned.pin_memory() is pinned
        assert not x.is_pinned() and not x.cuda().is_pinned()
        for part in (slice(None), slice(1, None)):
            there = pinned[part].to("cuda", non_blocking=True)
            assert there.is_cuda and there.cpu().tolist() == x[part].tolist()
        assert pinned.T.cuda(non_blocking=True).cpu().tolist() == x.T.tolist()

    @pytest.mark.parametrize(
        ("wanted", "shape"), [(ox.channels_last, (2, 3, 4, 5)), (ox.channels_last_3d, (2, 3, 4, 5, 6))]
    )
    def test_images_stay_channels_last(self, wanted: ox.memory_format, shape: tuple[int, ...]) -> None:
        x = ox.randn(*shape)
        images = x.to(memory_format=wanted)
        pinned = images.pin_memory()
        assert pinned.is_pinned() and pinned.pin_memory() is pinned
        on_gpu = [images.cuda(), pinned.cuda(), pinned.cuda(non_blocking=True)]
        for each in (pinned, *on_gpu, on_gpu[0].cpu()):
            assert each.stride() == images.stride() and each.cpu().tolist() == x.tolist()

    def test_the_gradient_comes_back(self) -> None:
        w = ox.ones(3, requires_grad=True)
        (w.pin_memory().to("cuda", non_blocking=True) * 2).sum().backward()
        assert w.grad is not None and w.grad.tolist() == [2, 2, 2]

    def test_a_tensor_of_the_device_cannot_be_pinned(self) -> None:
        with pytest.raises(DeviceError, match=r"(?s)only tensors of the host can be pinned.*cuda:0.*x.cpu\(\)"):
            ox.ones(3).cuda().pin_memory()
        empty = ox.zeros(0, 3).pin_memory()
        assert empty.cuda(non_blocking=True).shape == (0, 3)

    def test_waits_are_counted(self) -> None:
        host_cuda = sys.modules.get("host_cuda")
        if host_cuda is None:
            pytest.skip("only host_cuda counts: the stand-in has no counters")
        pinned = ox.rand(4, 5).pin_memory()
        with host_cuda.counting() as free:
            pinned.to("cuda", non_blocking=True)
            pinned.to("cuda", None, True)
        with host_cuda.counting() as waiting:
            pinned.to("cuda")
        assert (free["waits"], free["to device"]) == (0, 2)
        assert (waiting["waits"], waiting["to device"]) == (1, 1)

    def test_memory_is_not_used_again_before_its_copy_has_ended(self) -> None:
        host_cuda = sys.modules.get("host_cuda")
        if host_cuda is None:
            pytest.skip("only host_cuda can hold copies: the stand-in has no queue")
        gc.collect()

        def address() -> int:
            return int(ox.rand(1000).pin_memory().array.ctypes.data)

        first = address()
        assert address() == first  # CuPy's pool gives it out again
        with host_cuda.busy():
            pinned = ox.rand(1000).pin_memory()
            there = pinned.to("cuda", non_blocking=True)
            taken, target = pinned.array.ctypes.data, there.array.data.ptr
            del pinned, there
            others = [ox.rand(1000).pin_memory() for _ in range(3)]
            copies = [x.to("cuda", non_blocking=True) for x in others]
            assert taken not in [x.array.ctypes.data for x in others]
            assert target not in [x.array.data.ptr for x in copies]
        del others, copies
        ox.ones(1).pin_memory().to("cuda", non_blocking=True)
        assert len(pinned_memory._under_way) == 1

    def test_the_copy_is_on_a_stream_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its stream waits for the current one, and `join` lets the current one wait for it."""
        import cupy

        waits: list[tuple[str, str]] = []
        current = cupy.cuda.get_current_stream()

        class Stream:
            """Writes down who waits for whose event."""

            def __init__(self, name: str, real: object) -> None:
                self.name, self.real = name, real

            def __getattr__(self, name: str) -> object:
                return getattr(self.real, name)

            def record(self, event: object = None) -> str:
                return f"after {self.name}"

            def wait_event(self, event: str) -> None:
                waits.append((self.name, event))

        pinned = ox.rand(3).pin_memory().array
        copying = Stream("copies", cupy.cuda.Stream(non_blocking=True))
        monkeypatch.setattr(pinned_memory, "_copy_stream", lambda number: copying)
        monkeypatch.setattr(pinned_memory, "_under_way", [])
        monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: Stream("current", current))
        copy = pinned_memory.HostCopy(pinned, "cuda")
        assert ("copies", "after current") in waits and ("current", "after copies") not in waits
        copy.join()
        assert waits[-1] == ("current", "after copies")

    def test_results_that_nobody_waits_for_keep_their_memory_until_they_are_there(self) -> None:
        host_cuda = sys.modules.get("host_cuda")
        if host_cuda is None:
            pytest.skip("only host_cuda can hold copies: the stand-in has no queue")
        flag = ox.ones(1000).cuda().array
        with host_cuda.busy():
            result = pinned_memory.HostResult(flag)
            made, source = result._made.ctypes.data, result._source.data.ptr
            del result
            assert made not in [x.array.ctypes.data for x in [ox.rand(1000).pin_memory() for _ in range(3)]]
            assert source not in [x.array.data.ptr for x in [ox.ones(1000).cuda() for _ in range(3)]]

    def test_threads_may_copy(self) -> None:
        values = [ox.rand(50).pin_memory() for _ in range(8)]
        found: dict[int, list[float]] = {}

        def go(i: int) -> None:
            found[i] = values[i].to("cuda", non_blocking=True).cpu().tolist()

        threads = [threading.Thread(target=go, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [found[i] for i in range(8)] == [x.tolist() for x in values]
        np.testing.assert_array_equal(values[0].array, values[0].cuda().cpu().array)
