"""ZeroRedundancyOptimizer on real MPI processes: the weights of the optimizer inside, a part of its state."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import needs_mpi, run

pytestmark = needs_mpi

COMMON = """
from ox.nn import functional as F
from ox.nn.parallel import DistributedDataParallel as DDP
from ox.distributed.optim import ZeroRedundancyOptimizer

def make():
    ox.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 3))

random = np.random.default_rng(7)

def batch(size):
    return ox.tensor(random.normal(size=(size, 6)).astype("f")), ox.tensor(random.integers(0, 3, size))

def train(model, optimizer, steps, part=slice(None), after=lambda: None):
    for _ in range(steps):
        x, y = batch(4 * world)
        optimizer.zero_grad()
        F.cross_entropy(model(x[part]), y[part]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        after()

def close(a, b, margin=1e-5):
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        assert float(abs(p.detach() - q.detach()).max()) <= margin

def held(optimizer):
    return sum(s.array.nbytes for state in optimizer.state.values() for s in state.values())
"""


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("ranks", [2, 4])
def test_as_the_optimizer_inside(ranks: int, tmp_path: Path) -> None:
    run(
        COMMON
        + """
for kind, options, view in (
    (ox.optim.Adam, dict(lr=1e-2), False), (ox.optim.AdamW, dict(lr=1e-2, weight_decay=0.1), True),
    (ox.optim.SGD, dict(lr=0.1, momentum=0.9), False), (ox.optim.Adagrad, dict(lr=0.1), True),
):
    ddp, alone = DDP(make()), make()
    zero = ZeroRedundancyOptimizer(ddp.parameters(), kind, parameters_as_bucket_view=view, **options)
    plain = kind(alone.parameters(), **options)
    schedules = [ox.optim.lr_scheduler.StepLR(o, 4, 0.5) for o in (zero, plain)]
    before = random.bit_generator.state
    train(ddp, zero, 12, slice(rank, None, world), schedules[0].step)
    random.bit_generator.state = before
    train(alone, plain, 12, slice(None), schedules[1].step)
    # Adam divides by the root of the squared gradient: rounding in a gradient near zero becomes a part of a step
    close(ddp, alone, 2e-4 if kind in (ox.optim.Adam, ox.optim.AdamW) else 5e-5)
    assert zero.param_groups[0]["lr"] == plain.param_groups[0]["lr"]
    # one process's state, dealt out
    parts = [None] * world
    dist.all_gather_object(parts, held(zero))
    assert sum(parts) == held(plain), (parts, held(plain))
    # the largest parameter, 200 x 200 of 42,203 elements, is on one rank, and the others share the rest
    assert sorted(parts)[-1] <= held(plain) * 0.96 and sorted(parts)[0] > 0, parts
    if view:
        first, last = (list(ddp.parameters())[k].array for k in (0, -1))
        assert all(p.array.base is not None for p in ddp.parameters())
""",
        ranks,
        tmp_path,
    )


def test_memory_falls(tmp_path: Path) -> None:
    """Counted by ox.memory_stats: beside parameters and gradients, a rank holds its part of the state."""
    run(
        COMMON
        + """
def wide():
    return nn.Sequential(*[nn.Linear(256, 256) for _ in range(8)])

def after_a_step(zero):
    import gc
    gc.collect()
    start = ox.memory_stats()["allocated_bytes.all.current"]
    model = wide()
    adam = ox.optim.Adam
    optimizer = ZeroRedundancyOptimizer(model.parameters(), adam) if zero else adam(model.parameters())
    for p in model.parameters():
        p.grad = ox.ones_like(p.detach())
    optimizer.step()
    return ox.memory_stats()["allocated_bytes.all.current"] - start, sum(p.array.nbytes for p in model.parameters())

plain, size = after_a_step(False)
zero, _ = after_a_step(True)
assert plain >= 4 * size
assert zero <= (2 + 2 / world) * size * 1.02, (zero / size, plain / size)
""",
        4,
        tmp_path,
    )


@pytest.mark.slow
def test_state_comes_together_and_goes_elsewhere(tmp_path: Path) -> None:
    """Written by two ranks, read by the optimizer inside and by another number of ranks."""
    code = (
        COMMON
        + """
from pathlib import Path
model = make()
groups = [{"params": model[:2].parameters(), "lr": 0.02}, {"params": model[2:].parameters()}]
zero = ZeroRedundancyOptimizer(groups, ox.optim.Adam, lr=0.01)
plain_model = make()
plain = ox.optim.Adam(
    [{"params": plain_model[:2].parameters(), "lr": 0.02}, {"params": plain_model[2:].parameters()}], lr=0.01)
saved = Path("state.ox")
if not saved.exists():
    dist.barrier()
    both = random.bit_generator.state
    train(model, zero, 3)
    random.bit_generator.state = both
    train(plain_model, plain, 3)
    try:
        zero.state_dict()
    except ox.errors.ArgumentError as error:
        assert "consolidate_state_dict" in str(error)
    else:
        raise AssertionError
    zero.consolidate_state_dict(to=1)
    if rank == 1:
        ours, theirs = zero.state_dict(), plain.state_dict()
        assert ours["param_groups"] == theirs["param_groups"]
        assert list(ours["state"]) == list(theirs["state"])
        for a, b in zip(ours["state"].values(), theirs["state"].values(), strict=True):
            assert list(a) == list(b)
            for name in a:
                assert ox.equal(a[name], b[name]), name
        ox.save({"model": model.state_dict(), "optimizer": ours}, "state.ox")
    dist.barrier()
else:
    loaded = ox.load("state.ox")
    for m in (model, plain_model):
        m.load_state_dict(loaded["model"])
    zero.load_state_dict(loaded["optimizer"])
    plain.load_state_dict(loaded["optimizer"])
    assert 0 < len(zero.state) < len(plain.state)
    both = random.bit_generator.state
    train(model, zero, 3)
    random.bit_generator.state = both
    train(plain_model, plain, 3)
    close(model, plain_model, 0)
    zero.consolidate_state_dict()
    if rank == 0:
        for a, b in zip(zero.state_dict()["state"].values(), plain.state_dict()["state"].values(), strict=True):
            assert all(ox.equal(a[name], b[name]) for name in b)
"""
    )
    run(code, 2, tmp_path)
    run(code, 3, tmp_path)


def test_groups_scaler_and_what_is_refused(tmp_path: Path) -> None:
    run(
        COMMON
        + """
model = make()
zero = ZeroRedundancyOptimizer(model[:2].parameters(), ox.optim.Adam, lr=0.01)
zero.add_param_group({"params": model[2:].parameters(), "lr": 0.1})
assert isinstance(zero, ox.optim.Optimizer) and len(zero.param_groups) == 2 and zero.param_groups[1]["lr"] == 0.1
x, y = batch(4)
scaler = ox.GradScaler("cpu", init_scale=8.0)
for bad in (False, True):
    zero.zero_grad()
    with ox.autocast("cpu", dtype=ox.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    if bad:
        model[0].weight.grad[0, 0] = float("inf")
    before = [p.detach().clone() for p in model.parameters()]
    scaler.step(zero)
    scaler.update()
    moved = [not ox.equal(a, b.detach()) for a, b in zip(before, model.parameters(), strict=True)]
    assert all(moved) if not bad else not any(moved)
assert scaler.get_scale() == 4.0
zero.zero_grad()
assert zero.step(lambda: 3.5) == 3.5

def refused(call, text):
    try:
        call()
    except ox.errors.OxError as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

Zero, params = ZeroRedundancyOptimizer, model.parameters
refused(lambda: Zero(params(), ox.optim.LBFGS), "LBFGS")
refused(lambda: Zero(params(), ox.optim.Adam, overlap_with_ddp=True), "overlap_with_ddp")
refused(lambda: Zero(nn.Linear(2 + rank, 2).parameters(), ox.optim.SGD, lr=1), "rank 1 are not those")
refused(lambda: Zero(params(), ox.optim.Adam, lr=-1), "lr")
""",
        2,
        tmp_path,
    )
