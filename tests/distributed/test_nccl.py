"""NCCL: what can be seen without a device, and two ranks where there are two."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ranks import needs_mpi, run

import ox.distributed as dist
from ox.devices import cuda
from ox.distributed import ReduceOp, nccl
from ox.errors import ArgumentError, DeviceError, DTypeError


class Library:
    """The numbers of nccl.h."""

    NCCL_UINT8, NCCL_FLOAT32, NCCL_BFLOAT16 = 1, 7, 9
    NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG = 0, 1, 2, 3, 4


def test_without_a_device_the_error_says_what_is_missing() -> None:
    if cuda.available():
        pytest.skip("there is a GPU")
    assert not dist.is_nccl_available()
    with pytest.raises(DeviceError, match="CuPy"):
        dist.init_process_group("nccl")


@pytest.mark.parametrize(("version", "text"), [(21805, "2.18.5"), (22303, "2.23.3")])
def test_an_nccl_in_which_abort_hangs(version: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(available=True, get_version=lambda: version)
    monkeypatch.setattr(cuda, "cupy", lambda: None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(nccl=found)))
    monkeypatch.setitem(sys.modules, "cupy.cuda", SimpleNamespace(nccl=found))
    with pytest.raises(DeviceError, match=rf"(?s)NCCL is too old.*2\.25\.1 or newer.*{text}"):
        nccl.library()
    assert not nccl.available()
    found.get_version = lambda: nccl.OLDEST
    assert nccl.library() is found


def test_types_and_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "library", lambda: Library)
    assert nccl._kind(np.float32) == 7 and nccl._kind("bool") == 1 and nccl._kind("bfloat16") == 9
    numbers, bools = np.zeros(1, np.float32), np.zeros(1, bool)
    assert [nccl._operation(op, numbers) for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT)] == [0, 4, 1]
    assert [nccl._operation(op, bools) for op in (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MAX)] == [2, 3, 2]
    with pytest.raises(ArgumentError, match="no BXOR"):
        nccl._operation(ReduceOp.BXOR, numbers)
    with pytest.raises(DTypeError, match="no such type"):
        nccl._kind(np.int16)


def test_every_operation_of_the_interface_is_there() -> None:
    from ox.distributed.backend import Backend
    from ox.distributed.mpi import MPIBackend

    wanted = {name for name in vars(Backend) if not name.startswith("_")}
    for backend in (nccl.NCCLBackend, MPIBackend):
        assert wanted <= {*dir(backend)}, backend


@needs_mpi
@pytest.mark.gpu
def test_two_ranks_on_two_devices(tmp_path: Path) -> None:
    if cuda.device_count() < 2:
        pytest.skip("one GPU")
    code = """
    import ox, ox.distributed as dist
    dist.init_process_group("nccl", timeout=60)
    rank, world = dist.get_rank(), dist.get_world_size()
    for dtype in (ox.float32, ox.float16, ox.bfloat16, ox.int64):
        x = (ox.ones(5) * (rank + 1)).to(dtype).cuda()
        dist.all_reduce(x)
        assert x.cpu().tolist() == [3] * 5
    got = [ox.zeros(2).cuda() for _ in range(world)]
    dist.all_gather(got, ox.ones(2).cuda() * rank)
    assert [t.cpu().tolist() for t in got] == [[0, 0], [1, 1]]
    told = [None] * world
    dist.all_gather_object(told, rank)
    assert told == [0, 1]
    dist.destroy_process_group()
    """
    run(code, 2, tmp_path, bare=True)
