"""`ox.compile` beside other processes: what they take part in stays eager, with the results of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import needs_mpi, run

pytestmark = needs_mpi

COMMON = """
from ox.nn import functional as F
from ox.nn.parallel import DistributedDataParallel as DDP

ox.manual_seed(0)
model, alone = (nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)) for _ in range(2))
alone.load_state_dict(model.state_dict())
random = np.random.default_rng(7)

def batch():
    return ox.tensor(random.normal(size=(8, 6)).astype("f")), ox.tensor(random.integers(0, 3, 8))

def step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()

def train(run):
    whole = ox.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for _ in range(6):
        x, y = batch()
        run(x[rank::world], y[rank::world])
        step(alone, whole, x, y)
    for p, q in zip(model.parameters(), alone.parameters(), strict=True):
        assert ox.allclose(p, q, atol=1e-6, rtol=1e-4), float(abs(p.detach() - q.detach()).max())
"""


def test_a_whole_step_with_ddp_stays_eager(tmp_path: Path) -> None:
    run(
        COMMON
        + """
ddp = DDP(model)
optimizer = ox.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
compiled = ox.compile(lambda x, y: step(ddp, optimizer, x, y))
train(compiled)
text = str(compiled.explain())
assert "eager, 6 calls" in text and "other processes" in text, text
""",
        2,
        tmp_path,
    )


@pytest.mark.parametrize("how", ["model.compile()", "model = ox.compile(model)"])
def test_a_compiled_model_inside_ddp_runs_as_a_graph(how: str, tmp_path: Path) -> None:
    run(
        COMMON
        + how
        + """
ddp = DDP(model)
optimizer = ox.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
train(lambda x, y: step(ddp, optimizer, x, y))
compiled = model._get_hooks().compiled or model._compiled
assert not compiled.eager and any(hasattr(plan, "layout") for held in compiled.plans.values() for plan in held)
""",
        2,
        tmp_path,
    )


def test_collectives_stay_eager(tmp_path: Path) -> None:
    run(
        """
def total(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1

compiled = ox.compile(total)
for i in range(4):
    assert compiled(ox.full((3,), float(rank + i))).tolist() == [2 * sum(r + i for r in range(world)) + 1] * 3
text = str(compiled.explain())
assert "eager, 4 calls" in text and "all_reduce" in text and "dist.all_reduce(y)" in text, text
from ox.errors import CompileError
try:
    ox.compile(total, fullgraph=True)(ox.ones(3))
except CompileError as error:
    assert "all_reduce" in str(error), error
else:
    raise AssertionError("fullgraph took a collective")
dist.barrier()
""",
        2,
        tmp_path,
    )
