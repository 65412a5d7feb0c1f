"""Memory that another stream still works on is not used again: `Tensor.record_stream`."""

from __future__ import annotations

import gc
import sys

import pytest
from lent_stream import lent_stream

import ox
from ox.devices.gpu import recorded_memory
from ox.errors import ArgumentError, DeviceError


def test_tensors_of_the_host() -> None:
    with pytest.raises(DeviceError, match=r"(?s)tensors of the host.*cpu"):
        ox.ones(3).record_stream(None)


@pytest.mark.gpu
class TestOnADevice:
    def test_what_is_no_stream(self) -> None:
        with pytest.raises(ArgumentError, match=r"(?s)no stream.*expected ox.cuda.Stream\(\).*'cuda'"):
            ox.ones(3).cuda().record_stream("cuda")

    def test_memory_waits_for_what_the_streams_have_when_it_is_dropped(self) -> None:
        host_cuda = sys.modules.get("host_cuda")
        if host_cuda is None:
            pytest.skip("only host_cuda can hold work")
        gc.collect()

        def address(streams: int = 0) -> int:
            x = ox.zeros(1000, device="cuda")
            for _ in range(streams):
                x.record_stream(ox.cuda.Stream())
            return x[10:].data_ptr() - 40

        other, view = ox.zeros(1, device="cuda"), ox.zeros(5, device="cuda")[1:]
        view.record_stream(ox.cuda.Stream())
        first = address()
        assert address() == first  # CuPy's pool gives it out again
        with host_cuda.busy():
            assert address(streams=2) == first and address() != first
            other.record_stream(ox.cuda.current_stream())  # no tensor has the memory, and the streams have work
            assert address() != first
        del other
        for _ in range(2):
            ox.cuda.empty_cache()
        assert [recorded.memory.ptr for recorded in recorded_memory._recorded.values()] == [view.array.data.mem.ptr]

    def test_a_stream_that_was_destroyed(self) -> None:
        borrowed, destroy = lent_stream()
        x, y = ox.zeros(3, device="cuda"), ox.zeros(3, device="cuda")
        x.record_stream(borrowed)
        y.record_stream(ox.cuda.current_stream())
        del x, y
        destroy()
        with pytest.raises(DeviceError, match="this stream has been destroyed"):
            ox.zeros(3, device="cuda").record_stream(borrowed)
        for _ in range(2):
            ox.cuda.empty_cache()
        assert not recorded_memory._recorded

    def test_a_stream_of_another_gpu(self) -> None:
        if ox.cuda.device_count() < 2:
            pytest.skip("one GPU is not enough")
        x = ox.zeros(3, device="cuda:0")
        for stream in (ox.cuda.Stream("cuda:1"), ox.cuda.default_stream()):
            x.record_stream(stream)
        del x
        recorded_memory.release_unused()
        assert not recorded_memory._recorded

    def test_gradients(self) -> None:
        x = ox.ones(3, device="cuda", requires_grad=True)
        x.record_stream(ox.cuda.Stream())
        (x * 2).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2, 2, 2]
