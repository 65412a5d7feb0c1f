"""Training on a GPU with workers: the next batch is copied there while a step runs, and no copy to it is waited for."""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn, train

pytestmark = pytest.mark.gpu


def trainer(workers: int, device: str = "cuda") -> train.Trainer:
    random = np.random.RandomState(0)
    x = random.randn(48, 3).astype(np.float32)
    ox.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = ox.optim.SGD(model.parameters(), lr=0.1)
    data = (x, (x.sum(1) > 0).astype(np.int64))
    return train.Trainer(
        model, nn.CrossEntropyLoss(), optimizer, data, data, batch_size=8, epochs=2, workers=workers, device=device
    )


def weights(of: train.Trainer) -> list[Any]:
    return [p.detach().cpu().numpy() for p in of.model.parameters()]


def test_the_weights_are_those_without_workers() -> None:
    found = []
    for workers, device in ((0, "cpu"), (0, "cuda"), (1, "cuda")):
        one = trainer(workers, device)
        one.fit()
        found.append(weights(one))
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_batches_are_there_and_a_checkpoint_counts_only_steps() -> None:
    one = trainer(1)
    groups = one.groups()
    for _ in range(3):
        (batch,) = next(groups)
        assert all(x.is_cuda for x in batch)
        one.step(batch)
    state = deepcopy(one.state_dict())
    assert state["loader"]["position"] == 3
    for group in groups:
        one.step(*group)
    other = trainer(1)
    other.load_state_dict(state)
    assert sum(other.step(*group) > 0 for group in other.groups()) == 3
    for mine, theirs in zip(weights(one), weights(other), strict=True):
        assert mine.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("workers", [0, 1])
def test_no_step_waits_for_a_copy_to_the_device(workers: int) -> None:
    host_cuda = sys.modules.get("host_cuda")
    if host_cuda is None:
        pytest.skip("only host_cuda counts: the stand-in has no counters")
    one = trainer(workers)
    groups = one.groups()
    for _ in range(2):  # the first looks at the labels, too
        one.step(*next(groups))
    with host_cuda.counting() as counts:
        for _ in range(2):
            one.step(*next(groups))
    # a step reads its loss and counts the correct predictions: all that is waited for comes from the device
    assert counts["waits"] == counts["to host"] > 0 and counts["to device"] >= 2
