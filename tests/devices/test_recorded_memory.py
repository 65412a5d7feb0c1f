"""Memory that another stream still works on is not used again: `Tensor.record_stream`."""

from __future__ import annotations

import gc
import sys

import pytest

import ox
from ox.errors import ArgumentError, DeviceError


def test_tensors_of_the_host() -> None:
    with pytest.raises(DeviceError, match=r"(?s)tensors of the host.*cpu"):
        ox.ones(3).record_stream(None)


@pytest.mark.gpu
class TestOnADevice:
    def test_what_is_no_stream(self) -> None:
        with pytest.raises(ArgumentError, match=r"(?s)no stream.*expected ox.cuda.Stream\(\).*'cuda'"):
            ox.ones(3).cuda().record_stream("cuda")

    @pytest.mark.parametrize("streams", [1, 2])
    def test_memory_waits_for_what_the_stream_has_when_the_tensor_is_dropped(self, streams: int) -> None:
        host_cuda = sys.modules.get("host_cuda")
        if host_cuda is None:
            pytest.skip("only host_cuda can hold work")
        gc.collect()

        def address(recorded: bool) -> int:
            x = ox.zeros(1000, device="cuda")
            for _ in range(streams):
                if recorded:
                    x.record_stream(ox.cuda.Stream())
            return x.data_ptr()

        first = address(False)
        assert address(False) == first  # CuPy's pool gives it out again
        with host_cuda.busy():
            taken = address(True)
            assert taken == first and address(False) != taken
        ox.zeros(1, device="cuda").record_stream(ox.cuda.current_stream())  # ended: what was kept goes
        assert first in [x.data_ptr() for x in [ox.zeros(1000, device="cuda") for _ in range(3)]]

    def test_it_is_the_same_memory(self) -> None:
        x = ox.arange(12.0).reshape(3, 4).cuda()
        part, place, stream = x[1:, ::2], x.data_ptr(), ox.cuda.Stream()
        part.record_stream(stream)
        part.record_stream(stream)
        part.mul_(10)
        assert x.data_ptr() == place and x.tolist() == [[0, 1, 2, 3], [40, 5, 60, 7], [80, 9, 100, 11]]
        assert part.stride() == (4, 2) and part.device == x.device

    def test_gradients(self) -> None:
        x = ox.ones(3, device="cuda", requires_grad=True)
        x.record_stream(ox.cuda.Stream())
        (x * 2).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2, 2, 2]
