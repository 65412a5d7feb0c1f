"""SyncBatchNorm on real MPI processes is BatchNorm of the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import needs_mpi, run

pytestmark = needs_mpi

COMMON = """
from ox.nn import functional as F
from ox.nn.parallel import DistributedDataParallel as DDP
random = np.random.default_rng(3)

def close(a, b, margin=1e-5):
    assert ox.allclose(a.detach(), b.detach(), atol=margin, rtol=1e-4), (a, b)

def rows(sizes):
    ends = np.cumsum(sizes)
    return slice(int(ends[rank] - sizes[rank]), int(ends[rank]))
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_as_batch_norm_of_everything(ranks: int, tmp_path: Path) -> None:
    """Uneven batches, one of them empty, data far from zero; values, gradients and statistics."""
    run(
        COMMON
        + """
sizes = [5, 2, 0, 1][:world]
for kind, shape, momentum, affine in (
    (nn.BatchNorm2d, (3, 4, 5), 0.1, True), (nn.BatchNorm1d, (3,), None, True),
    (nn.BatchNorm3d, (3, 2, 2, 2), 0.3, False),
):
    plain = kind(3, momentum=momentum, affine=affine)
    if affine:
        with ox.no_grad():
            plain.weight.copy_(ox.tensor([1.0, -2.0, 0.5])); plain.bias.copy_(ox.tensor([0.0, 1.0, 2.0]))
    sync = nn.SyncBatchNorm.convert_sync_batchnorm(kind(3, momentum=momentum, affine=affine))
    assert type(sync) is nn.SyncBatchNorm
    sync.load_state_dict(plain.state_dict())
    for step in range(3):
        whole = ox.tensor((random.normal(size=(sum(sizes), *shape)) + 50).astype("f"))
        cotangent = ox.tensor(random.normal(size=whole.shape).astype("f"))
        a, b = whole.clone().requires_grad_(), whole[rows(sizes)].clone().requires_grad_()
        y, z = plain(a), sync(b)
        close(z, y[rows(sizes)], 1e-4)
        for m in (plain, sync):
            m.zero_grad()
        y.backward(cotangent); z.backward(cotangent[rows(sizes)])
        close(b.grad, a.grad[rows(sizes)], 1e-4)
        for p, q in zip(plain.parameters(), sync.parameters(), strict=True):
            total = q.grad.clone()
            dist.all_reduce(total)  # what DistributedDataParallel averages
            close(total, p.grad, 1e-3)
    for p, q in zip(plain.buffers(), sync.buffers(), strict=True):
        close(q, p, 1e-4)
    plain.eval(); sync.eval()
    close(sync(whole), plain(whole), 1e-4)
try:
    nn.SyncBatchNorm(3)(ox.ones(1 if rank == 0 else 0, 3))
except ox.errors.ShapeError as error:
    assert "more than one value" in str(error) and "1 over all ranks" in str(error)
else:
    raise AssertionError
""",
        ranks,
        tmp_path,
    )


def test_fifty_steps_with_ddp(tmp_path: Path) -> None:
    run(
        COMMON
        + """
def make():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8),
        nn.Linear(8, 3))
ox.manual_seed(5)
alone = make()
ddp = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(make()), bucket_cap_mb=0.0005)
ddp.module.load_state_dict(alone.state_dict())
assert sum(isinstance(m, nn.SyncBatchNorm) for m in ddp.modules()) == 2
mine, whole = (ox.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (ddp, alone))
for step in range(50):
    sizes = [4] * world if step % 3 else [3] * (world - 1) + [5]
    x = ox.tensor(random.normal(size=(sum(sizes), 1, 6, 6)).astype("f"))
    y = ox.tensor(random.integers(0, 3, sum(sizes)))
    part = rows(sizes)
    mine.zero_grad(); whole.zero_grad()
    (F.cross_entropy(ddp(x[part]), y[part], reduction="sum") * world / len(y)).backward()
    F.cross_entropy(alone(x), y).backward()
    mine.step(); whole.step()
for (name, p), q in zip(ddp.module.state_dict().items(), alone.state_dict().values(), strict=True):
    close(p.float(), q.float(), 1e-3)
""",
        2,
        tmp_path,
    )


def test_halves_and_autocast(tmp_path: Path) -> None:
    run(
        COMMON
        + """
whole = ox.tensor((random.normal(size=(8, 3, 4)) + 2).astype("f"))
for kind, margin in ((ox.float16, 1e-2), (ox.bfloat16, 6e-2)):
    sync, plain = nn.SyncBatchNorm(3), nn.BatchNorm1d(3)
    a, b = whole.to(kind)[rank::world].clone().requires_grad_(), whole.to(kind).clone().requires_grad_()
    with ox.autocast("cpu", dtype=kind):
        y, z = sync(a), plain(b)
    assert y.dtype == z.dtype == kind
    y.float().square().sum().backward(); z.float().square().sum().backward()
    close(y.float(), z[rank::world].float(), margin)
    close(a.grad.float(), b.grad[rank::world].float(), margin)
    close(sync.running_var, plain.running_var, 1e-3)
    assert sync.weight.grad.dtype == ox.float32
""",
        2,
        tmp_path,
    )


def test_what_a_file_holds(tmp_path: Path) -> None:
    run(
        COMMON
        + """
sync = nn.Sequential(nn.SyncBatchNorm(3), nn.ReLU())
x = ox.tensor(random.normal(size=(4, 3, 2)).astype("f"))
sync(x)
def record():
    ox.export.save(sync, f"norm{rank}.onnx", x)
from ox.graph.record.recording import record as recorded
try:
    recorded(sync, {"x": x})
except ox.errors.RecordError as error:
    assert "SyncBatchNorm was recorded while training on several ranks" in str(error), error
else:
    raise AssertionError
sync.eval()
record()
import onnx
model = onnx.load(f"norm{rank}.onnx")
assert [n.op_type for n in model.graph.node] == ["BatchNormalization", "Relu"], model
assert not model.functions
""",
        2,
        tmp_path,
    )


def test_alone_it_is_batch_norm() -> None:
    import ox
    from ox import nn

    x = ox.randn(4, 3, 2)
    sync, plain = nn.SyncBatchNorm(3), nn.BatchNorm1d(3)
    assert ox.equal(sync(x), plain(x))
    assert ox.equal(sync.running_var, plain.running_var)
    with pytest.raises(ox.errors.ShapeError, match=r"\[batch, 3, ...\]"):
        sync(ox.ones(2, 4))
    with pytest.raises(ox.errors.ShapeError, match="two dimensions"):
        sync(ox.ones(3))
    nested = nn.Sequential(nn.BatchNorm2d(2), nn.ModuleDict({"a": nn.BatchNorm1d(3, affine=False).eval()}))
    made = nn.SyncBatchNorm.convert_sync_batchnorm(nested)
    assert made is nested
    assert [type(m) for m in made.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)] == [nn.SyncBatchNorm] * 2
    assert not made[1]["a"].training and made[1]["a"].weight is None
