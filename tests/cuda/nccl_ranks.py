"""A program of two ranks: what each operation and DistributedDataParallel give over NCCL. See test_nccl_ranks.py."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import ox
import ox.distributed as dist
from ox import nn, optim
from ox.devices import cuda
from ox.distributed.algorithms.ddp_comm_hooks import default_hooks
from ox.distributed.optim import ZeroRedundancyOptimizer
from ox.errors import DistributedError, GradientError

DDP = nn.parallel.DistributedDataParallel
SIZE, STEPS = 8, 5


def on_device(values: Any) -> Any:
    return ox.tensor(values).cuda()


def model(norm: bool = False) -> Any:
    ox.manual_seed(0)
    middle = nn.BatchNorm1d(8) if norm else nn.Identity()
    return nn.Sequential(nn.Linear(6, 8), middle, nn.ReLU(), nn.Linear(8, 3)).cuda()


def batch(step: int) -> tuple[Any, Any]:
    random = np.random.default_rng(step)
    return random.normal(size=(SIZE, 6)).astype(np.float32), random.integers(0, 3, SIZE)


def trained(net: Any, optimizer: Any = None, part: bool = True, scaler: Any = None, clip: bool = False) -> list[Any]:
    """The parameters after a few steps, on this rank's part of each batch or on all of it."""
    optimizer = optimizer or optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    half = SIZE // dist.get_world_size()
    mine = slice(dist.get_rank() * half, (dist.get_rank() + 1) * half) if part else slice(None)
    for step in range(STEPS):
        x, y = batch(step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(on_device(x[mine])), on_device(y[mine]))
        (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.unscale_(optimizer)
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    return [p.detach().cpu().numpy() for p in net.parameters()]


def check_same(got: list[Any], wanted: list[Any], rtol: float = 2e-5, atol: float = 2e-6) -> None:
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def reductions() -> None:
    rank = dist.get_rank()
    for dtype in (ox.float32, ox.float16, ox.bfloat16, ox.float64, ox.int64, ox.uint8):
        x = on_device([rank + 1.0] * 5).to(dtype)
        dist.all_reduce(x)
        assert x.cpu().tolist() == [3] * 5, dtype
        if dtype not in (ox.int64, ox.uint8):
            x = on_device([rank + 1.0] * 5).to(dtype)
            dist.all_reduce(x, dist.ReduceOp.AVG)
            assert x.cpu().tolist() == [1.5] * 5, dtype
    truths = on_device([rank == 0, True, False])
    dist.all_reduce(truths)
    assert truths.cpu().tolist() == [True, True, False]
    largest = on_device([float(rank)])
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    assert largest.item() == 1
    columns = on_device(np.arange(12.0).reshape(3, 4)).T
    dist.all_reduce(columns)
    assert columns.cpu().tolist() == (2 * np.arange(12.0).reshape(3, 4).T).tolist()


def movements() -> None:
    rank = dist.get_rank()
    got = [on_device([0.0, 0.0]) for _ in range(2)]
    dist.all_gather(got, on_device([1.0, 1.0]) * rank)
    assert [x.cpu().tolist() for x in got] == [[0, 0], [1, 1]]
    out = on_device([0.0] * 4)
    dist.all_to_all_single(out, on_device(np.arange(4.0, dtype=np.float32)) + 10 * rank)
    assert out.cpu().tolist() == [[0, 1, 10, 11], [2, 3, 12, 13]][rank]
    out = on_device([0.0] * 2)
    dist.reduce_scatter_tensor(out, on_device(np.arange(4.0, dtype=np.float32)))
    assert out.cpu().tolist() == [[0, 2], [4, 6]][rank]
    x = on_device([float(rank)])
    dist.broadcast(x, 1)
    assert x.item() == 1
    dist.send(on_device([7.0]), 1) if rank == 0 else dist.recv(x, 0)
    assert rank == 0 or x.item() == 7
    dist.scatter(x, [on_device([3.0]), on_device([4.0])] if rank == 0 else None, 0)
    assert x.item() == 3 + rank
    works = [dist.all_reduce(on_device([1.0]), async_op=True) for _ in range(5)]
    assert all(work.wait() for work in works)
    told = [None, None]
    dist.all_gather_object(told, {"rank": rank})
    assert told == [{"rank": 0}, {"rank": 1}]
    half = on_device([1.0])
    dist.all_reduce(half, group=dist.new_group([0, 1]))
    assert half.item() == 2


def training() -> None:
    alone = trained(model(), part=False)
    own = [cuda.ordinal("cuda")]
    for options in ({}, {"device_ids": own}, {"gradient_as_bucket_view": True}, {"static_graph": True},
                    {"find_unused_parameters": True}, {"bucket_cap_mb": 1e-4}):  # fmt: skip
        check_same(trained(DDP(model(), **options)), alone)
    check_same(trained(DDP(model()), scaler=ox.amp.GradScaler("cuda")), alone)
    check_same(trained(DDP(model()), clip=True), trained(model(), part=False, clip=True))
    net = DDP(model())
    zero = ZeroRedundancyOptimizer(net.parameters(), optim.SGD, lr=0.1, momentum=0.9)
    check_same(trained(net, zero), alone)
    norms = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model(norm=True)))
    check_same(trained(norms), trained(model(norm=True), part=False))
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook):
        net = DDP(model())
        net.register_comm_hook(None, hook)
        check_same(trained(net), alone, rtol=0.05, atol=0.02)


def other_steps() -> None:
    x = on_device(batch(0)[0])
    net, alone = DDP(model()), model()
    with net.no_sync():
        net(x).sum().backward()
    for each in (net, alone, alone):
        each(x).sum().backward()
    check_same([p.grad.cpu().numpy() for p in net.parameters()], [p.grad.cpu().numpy() for p in alone.parameters()])
    with net.join():
        for _ in range(2 + dist.get_rank()):
            net(x).sum().backward()
    with ox.autocast("cuda", dtype=ox.bfloat16):
        loss = net(x).float().sum()
    loss.backward()
    halves = DDP(model().bfloat16())
    halves(x.bfloat16()).sum().backward()


def waiting() -> None:
    """`wait` lets the stream wait: what follows has the result, and the host has waited for nothing."""
    import host_cuda

    x, y = on_device([1.0]), on_device([[1.0, 2.0], [3.0, 4.0]])
    dist.barrier()
    with host_cuda.counting() as counts:
        dist.all_reduce(x)
        work = dist.all_reduce(y.T, async_op=True)
        assert work is not None and work.wait()
        x *= 10
    assert counts["waits"] == 0
    assert x.item() == 20 and y.cpu().tolist() == [[2, 4], [6, 8]]
    with host_cuda.busy():  # nothing that is in the stream has ended
        work = dist.all_reduce(x, async_op=True)
        assert work is not None and work.wait() and not work.is_completed()
    assert work.wait(timeout=60) and work.is_completed() and work.is_success()
    for dtype in (ox.float32, ox.bfloat16, ox.float16):
        net = DDP(model().to(dtype), bucket_cap_mb=1e-4)
        optimizer = optim.SGD(net.parameters(), lr=0.1)
        inputs = on_device(batch(0)[0]).to(dtype)
        for step in range(4):
            with host_cuda.counting() as counts:
                optimizer.zero_grad()
                net(inputs).sum().backward()
                optimizer.step()
            if step > 1:  # before, the buckets are put into the order of the gradients
                assert counts["waits"] == 0, counts


def missing_gradients() -> None:
    """All ranks raise the same error, in the next backward."""

    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.always, self.sometimes = nn.Linear(6, 1), nn.Linear(6, 1)

        def forward(self, x: Any, both: bool) -> Any:
            return self.always(x) + self.sometimes(x) if both else self.always(x)

    net, x = DDP(Gate().cuda()), on_device(batch(0)[0])
    for _ in range(2):
        net(x, True).sum().backward()
    net(x, dist.get_rank() == 0).sum().backward()
    try:
        net(x, True).sum().backward()
    except GradientError as error:
        assert "rank 1: sometimes.weight, sometimes.bias" in str(error), error
    else:
        raise AssertionError("no error")


def groups_of_the_host() -> None:
    """Of tensors on the CPU, beside the group of tensors on GPUs."""
    group = dist.new_group(backend="gloo")
    x = ox.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x, group=group)
    assert x.tolist() == [3] and dist.get_backend(group) == "mpi" and dist.get_backend() == "nccl"
    told: list[Any] = [None] * 2
    dist.all_gather_object(told, dist.get_rank(), group=group)
    assert told == [0, 1]
    dist.destroy_process_group(group)
    assert dist.get_backend(dist.new_group(backend="nccl")) == "nccl"


def an_error_of_nccl() -> None:
    """It closes the group; the next call that waits for the device says so, or the next operation."""
    os.environ["NCCL_HOST_ERROR"] = "1"
    work = dist.all_reduce(on_device([1.0]), async_op=True)
    assert work is not None
    for call in (lambda: work.wait(timeout=60), lambda: dist.all_reduce(on_device([1.0]))):
        try:
            call()
        except DistributedError as error:
            assert "NCCL has failed" in str(error) or "is closed" in str(error), error
            text = str(error)
        else:
            raise AssertionError("no error")
        if "is closed" not in text:
            assert "remote process exited" in text, text


def main_of_a_dead_rank() -> None:
    """Rank 1 leaves; rank 0 is not left waiting in NCCL."""
    dist.init_process_group("nccl", timeout=60, device_id=ox.device("cuda:0"))
    x = on_device([1.0])
    dist.all_reduce(x)
    assert x.item() == 2
    if dist.get_rank() == 1:
        return
    try:
        dist.all_reduce(x)
        x.item()
        dist.all_reduce(x)
    except DistributedError as error:
        sys.stdout.write(f"rank 0 hears: {error}\n")
    sys.stdout.flush()


def main() -> None:
    on_host = "host_cuda" in sys.modules  # which has one device
    dist.init_process_group("nccl", timeout=60, device_id=ox.device("cuda:0") if on_host else None)
    checks: list[Callable[[], None]] = [
        reductions,
        movements,
        training,
        other_steps,
        missing_gradients,
        groups_of_the_host,
    ]
    if on_host:
        checks += [waiting, an_error_of_nccl]
    for check in checks:
        try:
            check()
            said = "held"
        except Exception as error:
            said = "failed: " + "".join(traceback.format_exception(error))
        sys.stdout.write(f"{check.__name__} of rank {dist.get_rank()} {said}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main_of_a_dead_rank() if "dead" in sys.argv else main()
