"""DistributedDataParallel on real MPI processes: the weights of one process on the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import needs_mpi, run
from rows import rows

pytestmark = needs_mpi

# Rank r trains on its part of every batch; beside it, the same model trains alone on the whole batch.
COMMON = """
from ox.nn import functional as F
from ox.nn.parallel import DistributedDataParallel as DDP

def mlp(*between):
    return nn.Sequential(nn.Linear(6, 16), *between, nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))

def twins(make, **options):
    ox.manual_seed(100 + rank)  # other values on every rank: those of rank 0 count
    inner = make()
    ddp = DDP(inner, **options)
    alone = make()
    alone.load_state_dict(inner.state_dict())
    return ddp, alone

random = np.random.default_rng(7)

def batch(size):
    return ox.tensor(random.normal(size=(size, 6)).astype("f")), ox.tensor(random.integers(0, 3, size))

def apart(a, b):
    return max(float(abs(p.detach() - q.detach()).max()) for p, q in zip(a.parameters(), b.parameters(), strict=True))

def same_everywhere(module):
    for x in module.state_dict().values():
        first = x.clone()
        dist.broadcast(first)
        assert (first.array == x.array).all(), (first, x)
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_fifty_steps_are_those_of_one_process(ranks: int, tmp_path: Path) -> None:
    """The last batch of each epoch is uneven: a rank's loss is weighted by its share of the samples."""
    run(
        COMMON
        + """
for view, cap in ((False, 25), (True, 0.001)):
    ddp, alone = twins(mlp, gradient_as_bucket_view=view, bucket_cap_mb=cap)
    mine = ox.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    whole = ox.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for step in range(50):
        x, y = batch(8 * world if step % 5 < 4 else 2 * world + 1)  # 2, 2, ... and 3 samples
        part = slice(rank, None, world)
        mine.zero_grad()
        loss = F.cross_entropy(ddp(x[part]), y[part], reduction="sum") * (world / len(y))
        loss.backward()
        mine.step()
        whole.zero_grad()
        F.cross_entropy(alone(x), y).backward()
        whole.step()
        for p, q in zip(ddp.parameters(), alone.parameters(), strict=True):
            assert ox.allclose(p.grad, q.grad, atol=1e-6, rtol=1e-4)
    assert apart(ddp, alone) < 1e-5, apart(ddp, alone)
    assert (len(ddp.reducer.buckets) > 1) == (cap < 1)
    same_everywhere(ddp)
    if view:
            assert all(any(np.shares_memory(p.grad.array, b.flat.array) for b in ddp.reducer.buckets)
                   for p in ddp.parameters())
""",
        ranks,
        tmp_path,
    )


def test_accumulation_without_sync(tmp_path: Path) -> None:
    run(
        COMMON
        + """
calls = []
whole_reduce = dist.all_reduce
dist.all_reduce = lambda *a, **k: (calls.append(1), whole_reduce(*a, **k))[1]
for view in (False, True):
    ddp, alone = twins(mlp, gradient_as_bucket_view=view)
    mine, whole = (ox.optim.Adam(m.parameters(), lr=0.01) for m in (ddp, alone))
    for step in range(10):
        mine.zero_grad(); whole.zero_grad()
        for k in range(3):
            x, y = batch(4 * world)
            part = slice(rank, None, world)
            calls.clear()
            if k < 2:
                with ddp.no_sync():
                    F.cross_entropy(ddp(x[part]), y[part]).backward()
                assert not calls
            else:
                F.cross_entropy(ddp(x[part]), y[part]).backward()
                assert calls
            F.cross_entropy(alone(x), y).backward()
        mine.step(); whole.step()
    assert apart(ddp, alone) < 1e-4, apart(ddp, alone)
    same_everywhere(ddp)
""",
        2,
        tmp_path,
    )


def test_mixed_precision_and_clipping(tmp_path: Path) -> None:
    """A gradient that overflows on one rank makes every rank skip the step and lower the scale."""
    run(
        COMMON
        + """
ddp, alone = twins(mlp)
mine, whole = (ox.optim.SGD(m.parameters(), lr=0.1) for m in (ddp, alone))
scaler, other = ox.GradScaler("cpu", init_scale=1024.0), ox.GradScaler("cpu", init_scale=1024.0)
for step in range(20):
    x, y = batch(8 * world)
    if step == 5:
        x[0, 0] = 1e30  # in the part of rank 0
    part = slice(rank, None, world)
    for model, optimizer, scale, rows in ((ddp, mine, scaler, part), (alone, whole, other, slice(None))):
        optimizer.zero_grad()
        with ox.autocast("cpu", dtype=ox.float16):
            loss = F.cross_entropy(model(x[rows]), y[rows])
        scale.scale(loss).backward()
        scale.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scale.step(optimizer)
        scale.update()
assert scaler.get_scale() == other.get_scale() == 512.0, (scaler.get_scale(), other.get_scale())
assert apart(ddp, alone) < 5e-3, apart(ddp, alone)
same_everywhere(ddp)
""",
        2,
        tmp_path,
    )


def test_halves(tmp_path: Path) -> None:
    run(
        COMMON
        + """
for kind in (ox.bfloat16, ox.float16):
    ddp, alone = twins(lambda: mlp().to(kind))
    x, y = batch(8 * world)
    x = x.to(kind)
    part = slice(rank, None, world)
    F.cross_entropy(ddp(x[part]).float(), y[part]).backward()
    F.cross_entropy(alone(x).float(), y).backward()
    for p, q in zip(ddp.parameters(), alone.parameters(), strict=True):
        assert p.grad.dtype == kind
        assert float(abs(p.grad.float() - q.grad.float()).max()) < (4e-2 if kind == ox.bfloat16 else 1e-2)
""",
        2,
        tmp_path,
    )


def test_buffers_are_those_of_rank_0(tmp_path: Path) -> None:
    """BatchNorm's statistics are each rank's own batch's; before a forward all take rank 0's running ones."""
    run(
        COMMON
        + """
ddp, alone = twins(lambda: mlp(nn.BatchNorm1d(16)))
optimizer = ox.optim.SGD(ddp.parameters(), lr=0.1)
other = ox.optim.SGD(alone.parameters(), lr=0.1)
for step in range(50):
    x, y = batch(6 * world)
    optimizer.zero_grad()
    F.cross_entropy(ddp(x[rank::world]), y[rank::world]).backward()
    optimizer.step()
    # one process that normalizes each part by itself and keeps the statistics of the first
    other.zero_grad()
    parts, stats = [], None
    for r in range(world):
        before = {k: v.clone() for k, v in alone.named_buffers()}
        parts.append(F.cross_entropy(alone(x[r::world]), y[r::world]))
        if r == 0:
            stats = {k: v.clone() for k, v in alone.named_buffers()}
    for k, v in alone.named_buffers():
        v.copy_(stats[k])
    (sum(parts) / world).backward()
    other.step()
assert apart(ddp, alone) < 1e-5, apart(ddp, alone)
ddp.eval()
ddp(x)
same_everywhere(ddp)
assert all(ox.allclose(a, b, atol=1e-5) for a, b in zip(ddp.buffers(), alone.buffers(), strict=True))
kept, _ = twins(lambda: mlp(nn.BatchNorm1d(16)), broadcast_buffers=False)
kept(ox.ones(4, 6) * (rank + 1) * ox.arange(24.0).reshape(4, 6)); kept(ox.ones(4, 6))
first = kept.module[1].running_mean.clone()
dist.broadcast(first)
assert rank == 0 or not ox.allclose(first, kept.module[1].running_mean)
""",
        2,
        tmp_path,
    )


BRANCHES = (
    COMMON
    + """
class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.idle = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(6, 3)
    def forward(self, x, way):
        return self.left(x) if way == 0 else self.right(x) if way == 1 else self.left(x) + self.right(x)
"""
)


@pytest.mark.parametrize("view", [False, True])
def test_unused_parameters(view: bool, tmp_path: Path) -> None:
    run(
        BRANCHES
        + f"""
ddp, alone = twins(Branches, find_unused_parameters=True, bucket_cap_mb=0.0001, gradient_as_bucket_view={view})
"""
        + """
x, y = batch(4 * world)
for step in range(3):
    for m in (ddp, alone):
        m.zero_grad()
    F.cross_entropy(ddp(x[rank::world], rank), y[rank::world]).backward()  # rank 0 goes left, rank 1 right
    loss = sum(F.cross_entropy(alone(x[r::world], r), y[r::world]) for r in range(world)) / world
    loss.backward()
    for (name, p), q in zip(ddp.named_parameters(), alone.parameters(), strict=True):
        if "idle" in name:
            assert p.grad is None
        else:
            assert ox.allclose(p.grad, q.grad, atol=1e-6), name
# an output that the loss does not use: the walk from the loss does not reach it
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 3), nn.Linear(6, 3)
    def forward(self, x):
        return self.a(x), self.b(x)
two = DDP(Two(), find_unused_parameters=True)
two(x)[0].sum().backward()
assert two.module.a.weight.grad is not None and two.module.b.weight.grad is None
""",
        2,
        tmp_path,
    )


def test_unused_parameters_that_nobody_announced(tmp_path: Path) -> None:
    """Every rank raises, and names who lacks which; nobody hangs."""
    run(
        BRANCHES
        + """
ddp, _ = twins(Branches)
x, y = batch(4)
try:
    F.cross_entropy(ddp(x, 2 if rank == 0 else 0), y).backward()
except ox.errors.GradientError as error:
    text = str(error)
    assert "rank 0: idle.weight, idle.bias" in text, text
    assert "rank 1: right.weight, right.bias, idle.weight, idle.bias" in text, text
    assert "find_unused_parameters=True" in text and "script.py" in text, text
else:
    raise AssertionError("no error")
""",
        2,
        tmp_path,
    )


@rows(
    ("model", "expected"),
    [
        ("nn.Linear(6, 3 + rank)", "the model of rank 1 is not that of rank 0: 'weight' has another shape"),
        ("nn.Linear(6, 3).to(ox.float64 if rank else ox.float32)", "'weight' has another type"),
        ("nn.Linear(6, 3, bias=rank == 0)", "'bias' is on one of them only"),
        ("nn.Sequential(*[nn.Linear(3, 3)] * 1, *[nn.Linear(3, 3)] * rank)", "'1.weight' is on one of them only"),
        ("frozen(nn.Linear(6, 3))", "'bias' is trained on one of them only"),
        ("nn.ModuleDict({'ab'[rank]: nn.Linear(3, 3)})", "'a.weight' has another name"),
        ("nn.BatchNorm1d(3, track_running_stats=rank == 0)", "'running_mean' is on one of them only"),
    ],
)
def test_models_that_differ(model: str, expected: str, tmp_path: Path) -> None:
    run(
        COMMON
        + f"""
def frozen(m):
    m.bias.requires_grad_(rank == 0)
    return m
try:
    DDP({model})
except ox.errors.ArgumentError as error:
    text = str(error)
    assert {expected!r} in text and "rank 1" in text and "script.py" in text, text
else:
    raise AssertionError("no error")
""",
        2,
        tmp_path,
    )


def test_several_forwards_and_backwards(tmp_path: Path) -> None:
    run(
        COMMON
        + """
ddp, alone = twins(mlp)
x, y = batch(4 * world)
part = slice(rank, None, world)

def check():
    for p, q in zip(ddp.parameters(), alone.parameters(), strict=True):
        assert ox.allclose(p.grad, q.grad, atol=1e-6)
    ddp.zero_grad(); alone.zero_grad()

# two forwards, one backward
(F.cross_entropy(ddp(x[part]), y[part]) + ddp(x[part] * 2).square().mean()).backward()
(F.cross_entropy(alone(x), y) + alone(x * 2).square().mean()).backward()
check()
# two forwards, then two backwards
a, b = F.cross_entropy(ddp(x[part]), y[part]), ddp(x[part] * 2).square().mean()
a.backward(); b.backward()
(F.cross_entropy(alone(x), y) + alone(x * 2).square().mean()).backward()
check()
# a graph that is kept
loss, other = F.cross_entropy(ddp(x[part]), y[part]), F.cross_entropy(alone(x), y)
for each in (loss, other):
    each.backward(retain_graph=True); each.backward()
check()
# a gradient penalty: the inner gradient is this rank's own, the outer one is averaged
for model, rows in ((ddp, part), (alone, slice(None))):
    z = x[rows].clone().requires_grad_()
    g, = ox.autograd.grad(model(z).sum(), z, create_graph=True)
    (F.cross_entropy(model(z), y[rows]) + g.square().sum(1).mean()).backward()
check()
# a part of the model that runs again in backward
for model, rows in ((ddp, part), (alone, slice(None))):
    F.cross_entropy(ox.utils.checkpoint.checkpoint(model, x[rows], use_reentrant=False), y[rows]).backward()
check()
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 3)
    def forward(self, x):
        return self.b(ox.utils.checkpoint.checkpoint(lambda t: self.a(t).tanh(), x, use_reentrant=False))
ddp, alone = twins(Inner)
F.cross_entropy(ddp(x[part]), y[part]).backward()
F.cross_entropy(alone(x), y).backward()
check()
# two models in one loss
(first, one), (second, two) = twins(mlp), twins(lambda: nn.Linear(3, 2))
second(first(x[part])).square().mean().backward()
two(one(x)).square().mean().backward()
for ddp, alone in ((first, one), (second, two)):
    check()
try:
    ddp(x[:, :3]).sum().backward(create_graph=True)
except ox.errors.GradientError as error:
    assert "create_graph" in str(error)
else:
    raise AssertionError
""",
        2,
        tmp_path,
    )


def test_different_numbers_of_batches(tmp_path: Path) -> None:
    run(
        COMMON
        + """
for divide in (True, False):
    ddp, alone = twins(lambda: mlp(nn.BatchNorm1d(16)), bucket_cap_mb=0.001)
    optimizer = ox.optim.SGD(ddp.parameters(), lr=0.1)
    steps = 0
    with ddp.join(divide_by_initial_world_size=divide):
        for k in range(3 + 2 * rank):
            x, y = batch(6)
            optimizer.zero_grad()
            F.cross_entropy(ddp(x), y).backward()
            optimizer.step()
    same_everywhere(ddp)
    # afterwards all goes on as before
    F.cross_entropy(ddp(x), y).backward()
# what is left of the last average
linear = DDP(nn.Linear(1, 1, bias=False))
for divide, expected in ((True, 0.5), (False, 1.0)):
    with linear.join(divide_by_initial_world_size=divide):
        for k in range(1 + rank):
            linear.zero_grad()
            linear(ox.ones(1, 1)).sum().backward()
            assert linear.module.weight.grad.item() == (1.0 if k == 0 else expected)
try:
    with linear.join(throw_on_early_termination=True):
        for k in range(1 + rank):
            linear(ox.ones(1, 1)).sum().backward()
except ox.errors.DistributedError as error:
    assert "rank 0 has no more batches" in str(error)
else:
    raise AssertionError
""",
        2,
        tmp_path,
    )


def test_names_hooks_and_what_is_refused(tmp_path: Path) -> None:
    run(
        COMMON
        + """
ddp, alone = twins(mlp)
assert list(ddp.state_dict()) == ["module." + name for name in alone.state_dict()]
ddp.load_state_dict(ddp.state_dict())
x, y = batch(4 * world)

def refused(call, text, kind=ox.errors.ArgumentError):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

refused(lambda: DDP(nn.ReLU()), "nothing to average")
refused(lambda: DDP(nn.LazyLinear(3)), "'weight' has no shape yet")
refused(lambda: DDP(mlp(), device_ids=[0, 1]), "one device")
refused(lambda: DDP(mlp(), bucket_cap_mb=0), "bucket")
table = DDP(nn.Embedding(5, 3, sparse=True))
refused(lambda: table(ox.tensor([1, 2])).sum().backward(), "sparse", ox.errors.GradientError)
ddp.module[0].weight.requires_grad_(False)
refused(lambda: ddp(x), "requires_grad of '0.weight' was changed")
double = DDP(mlp()).double()
refused(lambda: double(x), "the type or shape of '0.weight' was changed")

# a backward that fails on its way leaves collectives behind, and says so
ddp, _ = twins(mlp, bucket_cap_mb=0.0001)
h = ddp.module[0](x)
first = ddp.module[0]
first.register_forward_hook(lambda m, i, o: o.register_hook(lambda g: 1 / 0) and None)
refused(lambda: ddp(x).sum().backward(), "zero", ZeroDivisionError)
refused(lambda: ddp(x), "a backward failed after its collectives had begun", ox.errors.GradientError)

# a copy is wrapped alike, and the average of a copy's weights is one of wrapped weights
import copy
ddp, _ = twins(mlp, bucket_cap_mb=0.001)
other = copy.deepcopy(ddp)
F.cross_entropy(other(x[rank::world]), y[rank::world]).backward()
same_everywhere(other)
assert ddp.module[0].weight.grad is None and len(other.reducer.buckets) == len(ddp.reducer.buckets)
average = ox.optim.swa_utils.AveragedModel(ddp)
average.update_parameters(ddp)
same = other.module[0].weight.grad.clone()
dist.broadcast(same)
assert (same.array == other.module[0].weight.grad.array).all()

# a file of the wrapped model
ddp.eval()
ox.export.save(ddp, f"wrapped{rank}.onnx", x)
found = ox.export.load(f"wrapped{rank}.onnx")
assert ox.allclose(found(x), ddp.module(x), atol=1e-5)

# with a hook, too, every rank says who lacks what
from ox.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
ddp, _ = twins(lambda: nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)]))
ddp.module.forward = lambda x: ddp.module[0](x) + (ddp.module[1](x) if rank else 0)
ddp.register_comm_hook(None, noop_hook)
refused(lambda: ddp(x).sum().backward(), "rank 0: 1.weight, 1.bias", ox.errors.GradientError)

# a wrapper that is gone leaves nothing behind
inner = mlp()
for _ in range(3):
    again = DDP(inner)
assert len(inner[0].weight.node.after) == 1

# a hook of one's own
from ox.distributed.algorithms.ddp_comm_hooks import default_hooks
for hook, margin in ((default_hooks.allreduce_hook, 1e-6), (default_hooks.fp16_compress_hook, 1e-2),
                     (default_hooks.bf16_compress_hook, 4e-2)):
    ddp, alone = twins(mlp)
    ddp.register_comm_hook(None, hook)
    refused(lambda: ddp.register_comm_hook(None, hook), "once")
    F.cross_entropy(ddp(x[rank::world]), y[rank::world]).backward()
    F.cross_entropy(alone(x), y).backward()
    for p, q in zip(ddp.parameters(), alone.parameters(), strict=True):
        assert ox.allclose(p.grad, q.grad, atol=margin), (hook, p.grad, q.grad)
    same = ddp.module[0].weight.grad.clone()
    dist.broadcast(same)
    assert (same.array == ddp.module[0].weight.grad.array).all()
""",
        2,
        tmp_path,
    )


def test_a_collective_begins_while_backward_goes_on(tmp_path: Path) -> None:
    run(
        COMMON
        + """
ddp, _ = twins(mlp, bucket_cap_mb=0.0001)
x, y = batch(8)
F.cross_entropy(ddp(x), y).backward()  # buckets follow the order of this one
with ox.profiler.profile() as profile:
    F.cross_entropy(ddp(x), y).backward()
profile.export_chrome_trace("trace.json" + str(rank))
import json, pathlib
events = json.loads(pathlib.Path("trace.json" + str(rank)).read_text())["traceEvents"]
events = [e for e in events if e["ph"] == "X"]
flights = [e for e in events if "all_reduce bucket" in e["name"]]
nodes = [e for e in events if e["cat"] == "backward"]
assert len(flights) == len(ddp.reducer.buckets) > 1
last = max(e["ts"] + e["dur"] for e in nodes)
early = [e for e in flights if e["ts"] < last]
assert len(early) >= 2, (flights, last)  # what the first layer's node makes comes after the last node
assert all(e["args"]["phase"] == "backward" for e in flights)
assert min(e["ts"] for e in flights) < next(e["ts"] for e in nodes if e["name"] == "ReluBackward")
assert [e["name"][-1] for e in sorted(flights, key=lambda e: e["ts"])] == [str(k) for k in range(len(flights))]
""",
        2,
        tmp_path,
    )


def test_no_step_makes_new_buckets(tmp_path: Path) -> None:
    run(
        COMMON
        + """
ddp, _ = twins(mlp, gradient_as_bucket_view=True)
x, y = batch(8)
places = []
for step in range(4):
    ddp.zero_grad()
    F.cross_entropy(ddp(x), y).backward()
    places.append([p.grad.array.ctypes.data for p in ddp.parameters()])
assert places[1] == places[2] == places[3]
""",
        2,
        tmp_path,
    )


@pytest.mark.parametrize(
    ("way", "said"), [("raise ValueError('enough')", "ended with an error"), ("sys.exit(0)", "ended without")]
)
def test_a_rank_that_ends_is_named(way: str, said: str, tmp_path: Path) -> None:
    """The collectives of a model are in a group of their own, which hears of it too."""
    code = (
        COMMON
        + f"""
ddp, _ = twins(mlp)
x, y = batch(4)
F.cross_entropy(ddp(x), y).backward()
if rank == 1:
    {way}
F.cross_entropy(ddp(x), y).backward()
"""
    )
    out = run(code, 2, tmp_path, check=False, limit=300)
    assert "rank 1 has ended and will not come" in out and said in out and "script.py" in out, out
    assert "is done" not in out


def test_two_models_in_two_groups(tmp_path: Path) -> None:
    run(
        COMMON
        + """
from ox.optim import ZeroRedundancyOptimizer
groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
group, place = groups[rank % 2], rank // 2
ox.manual_seed(rank)
make = lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
inner = nn.SyncBatchNorm.convert_sync_batchnorm(make(), group)
ddp, alone = DDP(inner, process_group=group, find_unused_parameters=True), make()
alone.load_state_dict(inner.state_dict())
mine = ZeroRedundancyOptimizer(ddp.parameters(), ox.optim.SGD, process_group=group, lr=0.1, momentum=0.9)
whole = ox.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
random = np.random.default_rng(rank % 2)  # each group its own data
for step in range(1 + 2 * (rank % 2)):
    x, y = batch(8)
    mine.zero_grad(); whole.zero_grad()
    F.cross_entropy(ddp(x[place::2]), y[place::2]).backward()
    F.cross_entropy(alone(x), y).backward()
    mine.step(); whole.step()
assert apart(ddp, alone) < 1e-4, apart(ddp, alone)
mine.consolidate_state_dict(to=2 + rank % 2)
assert (place == 1) == (mine._gathered_state is not None)
if place:
    ours, theirs = (o.state_dict()["state"] for o in (mine, whole))
    assert all(ox.allclose(ours[k]["momentum_buffer"], theirs[k]["momentum_buffer"], atol=1e-4) for k in theirs)
weight = ddp.module[0].weight.detach().clone()
other = [ox.zeros(4, 6) for _ in range(world)]
dist.all_gather(other, weight)
assert ox.equal(other[0], other[2]) and ox.equal(other[1], other[3]) and not ox.equal(other[0], other[1])
""",
        4,
        tmp_path,
    )


@pytest.mark.parametrize("finding", [False, True])
def test_buckets_follow_the_first_backward(finding: bool, tmp_path: Path) -> None:
    """Where unused parameters are looked for: the first in which all have a gradient on all ranks."""
    run(
        COMMON
        + f"FINDING = {finding}"
        + """
class Backwards(nn.Module):  # used in another order than made
    def __init__(self):
        super().__init__()
        self.c, self.a, self.b = nn.Linear(6, 3), nn.Linear(6, 6), nn.Linear(6, 6)
    def forward(self, x):
        return self.c(self.b(self.a(x)).relu())
ddp, alone = twins(Backwards, bucket_cap_mb=0.0001, gradient_as_bucket_view=True, find_unused_parameters=FINDING)
names = lambda: [[ddp.reducer.names[i][0] for i in bucket.indices][0] for bucket in ddp.reducer.buckets]
order = lambda: "".join(dict.fromkeys(names()))
assert order() == "bac", order()
x, y = batch(4 * world)
if FINDING:
    for _ in range(2):
        out = ddp(x[rank::world])
        (out.sum() if rank else ddp.module.c(x).sum()).backward()  # rank 0 does not reach a and b
        assert order() == "bac", order()
for step in range(3):
    if step != 1:
        ddp.zero_grad(); alone.zero_grad()  # the second adds to what lay in the old buckets
    F.cross_entropy(ddp(x[rank::world]), y[rank::world]).backward()
    F.cross_entropy(alone(x), y).backward()
    assert order() == "cba", order()
    for p, q in zip(ddp.parameters(), alone.parameters(), strict=True):
        assert ox.allclose(p.grad, q.grad, atol=1e-6)
""",
        2,
        tmp_path,
    )


def test_what_is_unfrozen_or_replaced_after_wrapping_is_named(tmp_path: Path) -> None:
    code = """
    said = open(f"said.{rank}", "w")
    def tried(change):
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        model[0].weight.requires_grad_(False)
        ddp = nn.parallel.DistributedDataParallel(model)
        ddp(ox.ones(2, 3)).sum().backward()
        change(model)
        try:
            ddp(ox.ones(2, 3))
        except ox.errors.ArgumentError as error:
            print(error.what, file=said, flush=True)
    tried(lambda model: model[0].weight.requires_grad_(True))
    tried(lambda model: setattr(model[1], "bias", nn.Parameter(ox.ones(1))))
    """
    run(code, 2, tmp_path, limit=300)
    for rank in range(2):
        assert (tmp_path / f"said.{rank}").read_text().splitlines() == [
            "'0.weight' began to be trained after DistributedDataParallel was made",
            "'1.bias' was replaced after DistributedDataParallel was made",
        ]


def test_a_backward_averages_if_one_of_its_forwards_was_outside_no_sync(tmp_path: Path) -> None:
    """Also where the forwards have buffers, which ranks exchange: those with the same bits are not written."""
    run(
        COMMON
        + """
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("scale", ox.ones(3).cos())
    def forward(self, x):
        return self.linear(x) * self.scale

ddp, alone = twins(Scaled)
x, y = batch(4 * world)
part = slice(rank, None, world)
outside = lambda m, rows: F.cross_entropy(m(x[rows]), y[rows])
other = lambda m, rows: m(x[rows] * 2).square().mean()

def inside(call, rows=part):
    with ddp.no_sync():
        return call(ddp, rows)

def check(name, times=1):
    for p, q in zip(ddp.parameters(), alone.parameters(), strict=True):
        assert ox.allclose(p.grad, q.grad, atol=1e-6), name
    same_everywhere(ddp)
    ddp.zero_grad(); alone.zero_grad()

whole = slice(None)
def both():
    (outside(alone, whole) + other(alone, whole)).backward()

(outside(ddp, part) + inside(other)).backward(); both()
check("outside, then inside, one backward")
first = inside(outside)
(first + other(ddp, part)).backward(); both()
check("inside, then outside, one backward")
a, b = outside(ddp, part), inside(other)
b.backward(); a.backward(); both()
check("outside, then inside, two backwards")
a, b = outside(ddp, part), other(ddp, part)
a.backward()
inside(outside)
b.backward(); both()
check("a forward inside, between two backwards")
a = outside(ddp, part)
with ddp.no_sync():
    a.backward()
outside(alone, whole).backward()
check("a backward inside, of a forward outside")
a = outside(ddp, part)
with ddp.no_sync(), ddp.no_sync():
    pass
with ox.no_grad():
    inside(other)
a.backward(); outside(alone, whole).backward()
check("a forward without gradients")
try:
    outside(ddp, part)
    raise RuntimeError
except RuntimeError:
    (inside(outside) + inside(other)).backward(); both()
check("after an exception between forward and backward")
checkpointed = lambda m, rows: ox.utils.checkpoint.checkpoint(lambda t: other(m, rows), x, use_reentrant=False)
with ddp.no_sync():
    loss = checkpointed(ddp, part)
version = ddp.module.scale.version
loss.backward()
assert not ddp.reducer.pending and not ddp.reducer.enabled and ddp.module.scale.version == version
own = ddp.module.linear.weight.grad.clone()
dist.broadcast(own)
assert rank == 0 or not ox.equal(own, ddp.module.linear.weight.grad)  # this rank's own until the next exchange
outside(ddp, part).backward(); both()
check("accumulation with a checkpoint")
compiled = ox.compile(ddp)
(F.cross_entropy(compiled(x[part]), y[part]) + inside(other)).backward(); both()
check("compiled")

# ranks drift apart in nothing: statistics of a model whose last forward of each step is inside
norm = DDP(nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)))
for _ in range(2):
    loss = norm(x[part]).square().mean()
    with norm.no_sync():
        loss = loss + norm(x[part] * 2).abs().mean()
    loss.backward()
norm.eval()
norm(x)
same_everywhere(norm)
# a buffer that did change is given to all, and its version says so
ddp.module.scale.add_(rank + 1)
version = ddp.module.scale.version
outside(ddp, part).backward()
same_everywhere(ddp)
assert (ddp.module.scale.version == version) == (rank == 0)
""",
        2,
        tmp_path,
    )


def test_a_gradient_that_no_rank_used_keeps_its_bits(tmp_path: Path) -> None:
    """Also with a hook. What one rank alone gathered inside no_sync is averaged."""
    run(
        BRANCHES
        + """
from ox.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
x, y = ox.randn(4, 6), ox.zeros(4, dtype=ox.int64)
for hook in (None, allreduce_hook):
    ddp, _ = twins(Branches, find_unused_parameters=True)
    if hook is not None:
        ddp.register_comm_hook(None, hook)
    F.cross_entropy(ddp(x, 2), y).backward()
    before = ddp.module.right.weight.grad.clone()
    for _ in range(5):
        F.cross_entropy(ddp(x, 0), y).backward()
    assert ox.equal(before, ddp.module.right.weight.grad)
    ddp.zero_grad()
    with ddp.no_sync():
        ddp(x, 1 if rank == 0 else 0).sum().backward()
    own = ddp.module.right.weight.grad
    own = ox.zeros(3, 6) if own is None else own.clone()
    dist.all_reduce(own, dist.ReduceOp.AVG)
    ddp(x, 0).sum().backward()
    assert ox.allclose(own, ddp.module.right.weight.grad, atol=1e-6)
    assert ddp.module.idle.weight.grad is None
""",
        3,
        tmp_path,
    )


def test_hooks_written_for_pytorch(tmp_path: Path) -> None:
    run(
        COMMON
        + """
from ox.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, default_hooks, register_ddp_comm_hook
from ox.futures import Future

def then(state, bucket: dist.GradBucket) -> Future[ox.Tensor]:
    work = dist.all_reduce(bucket.buffer() / world, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])

def chain(state, bucket):  # a second collective in the function of the first, as PowerSGD has it
    def again(future):
        half = future.value()[0] / 2
        return dist.all_reduce(half, async_op=True).get_future().wait()[0] / world
    buffer = bucket.buffer()
    work = dist.all_reduce(buffer.add_(0.0 * ox.rand(buffer.numel())), async_op=True)
    return work.get_future().then(again).then(lambda f: f.wait() * 2 / world)

def cat(state, bucket):
    state.append((bucket.index(), bucket.is_last()))
    assert [g.shape for g in bucket.gradients()] == [p.shape for p in bucket.parameters()]
    assert sum(p.numel() for p in bucket.parameters()) == bucket.buffer().numel()
    flat = ox.cat([g.reshape(-1) for g in bucket.gradients()]) / world
    dist.all_reduce(flat)
    bucket.set_buffer(flat)
    future = Future()
    future.set_result(bucket.buffer())
    return future

def work(state, bucket):
    return default_hooks.Future(dist.all_reduce(bucket.buffer().div_(world), async_op=True), bucket.buffer())

seen = []
x, y = batch(4 * world)
hooks = {then: 1e-6, chain: 1e-6, cat: 1e-6, work: 1e-6, DDPCommHookType.FP16_COMPRESS: 1e-2,
         default_hooks.fp16_compress_wrapper(then): 1e-2, default_hooks.bf16_compress_wrapper(then): 4e-2}
for hook, margin in hooks.items():
    ddp, alone = twins(mlp, bucket_cap_mb=0.001)
    if isinstance(hook, DDPCommHookType):
        register_ddp_comm_hook(hook, ddp)
    else:
        ddp.register_comm_hook(seen, hook)
    for _ in range(2):
        ddp.zero_grad(); alone.zero_grad()
        F.cross_entropy(ddp(x[rank::world]), y[rank::world]).backward()
        F.cross_entropy(alone(x), y).backward()
        for p, q in zip(ddp.parameters(), alone.parameters(), strict=True):
            assert ox.allclose(p.grad, q.grad, atol=margin), (hook, p.grad, q.grad)
    for p in ddp.parameters():
        first = p.grad.clone()
        dist.broadcast(first)
        assert ox.equal(first, p.grad), hook
count = len(ddp.reducer.buckets)
assert count > 1 and seen == 2 * [(i, i == count - 1) for i in range(count)]

ddp, _ = twins(mlp)
ddp.register_comm_hook(None, lambda state, bucket: bucket.buffer())
try:
    ddp(x).sum().backward()
except ox.errors.ArgumentError as error:
    assert "returns a future" in str(error) and "get_future" in str(error)
else:
    raise AssertionError
gathered = [ox.zeros(1) for _ in range(world)]
done = dist.all_gather(gathered, ox.full([1], float(rank)), async_op=True)
assert [t.item() for t in done.get_future().wait()] == [0.0, 1.0] and done.result()[1].item() == 1.0
""",
        2,
        tmp_path,
    )
