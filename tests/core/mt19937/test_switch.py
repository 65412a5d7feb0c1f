"""`ox.random.torch_compatible`: numbers that PyTorch 2.13 gave, what follows the switch, and what it refuses.

tests/parity compares with PyTorch itself, call by call.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stopped_runs import StopAfter

import ox
from ox import nn, train
from ox.data import DataLoader, TensorDataset
from ox.errors import ArgumentError, RecordError
from ox.nn import functional as F
from ox.utils.checkpoint import checkpoint

torch_compatible = ox.random.torch_compatible


@pytest.fixture(autouse=True)
def off_again() -> Iterator[None]:
    with torch_compatible(ox.random.is_torch_compatible()):
        yield


# after torch.manual_seed(0), in PyTorch 2.13.0 on the CPU
GIVEN = [
    ("ox.rand(3)", ["0x1.fc2abp-2", "0x1.89545ep-1", "0x1.6a675p-4"]),
    ("ox.randn(3)", ["0x1.8a7eb8p+0", "-0x1.2c78ap-2", "-0x1.16e292p+1"]),
    ("ox.randn(16)[ox.tensor([0, 8, 15])]", ["-0x1.20370ap+0", "0x1.4a027p-2", "-0x1.fa6cf8p-3"]),
    (
        "ox.randn(3, dtype=ox.float64)",
        ["0x1.8a7eb8902be3ap+0", "-0x1.2c78a087c6feap-2", "-0x1.16e2920a70ee5p+1"],
    ),
    ("ox.randint(0, 100, (5,))", [44, 39, 33, 60, 63]),
    ("ox.randperm(6)", [2, 5, 3, 0, 1, 4]),
    ("ox.empty(3).exponential_()", ["0x1.c110d6p+1", "0x1.3afa7ep+0", "0x1.3ae71p-1"]),
    ("ox.bernoulli(ox.full((8,), 0.5))", [1, 0, 1, 1, 1, 0, 1, 0]),
    ("F.dropout(ox.ones(8))", [0, 0, 2, 0, 0, 0, 2, 2]),
    ("ox.multinomial(ox.arange(1.0, 6.0), 3)", [2, 4, 1]),
    ("ox.poisson(ox.tensor([2.0, 20.0, 200.0]))", [6, 18, 191]),
    ("nn.Linear(2, 1).weight", ["-0x1.5af244p-8", "0x1.846d38p-2"]),
]


@pytest.mark.parametrize(("call", "numbers"), GIVEN)
def test_numbers_of_pytorch(call: str, numbers: list[Any]) -> None:
    ox.manual_seed(0)
    with torch_compatible(True):
        drawn = eval(call, {"ox": ox, "F": F, "nn": nn}).detach().reshape(-1).tolist()
    assert drawn == [float.fromhex(x) if isinstance(x, str) else x for x in numbers]


def test_the_switch_and_its_block() -> None:
    assert not ox.random.is_torch_compatible()
    with torch_compatible(True):
        assert ox.random.is_torch_compatible()
        with torch_compatible(False):
            assert not ox.random.is_torch_compatible()
        assert ox.random.is_torch_compatible()
    assert not ox.random.is_torch_compatible()
    torch_compatible(True)
    assert ox.random.is_torch_compatible()


@pytest.mark.parametrize("mode", [1, 0, None, "yes"])
def test_a_mode_that_is_none(mode: Any) -> None:
    with pytest.raises(ArgumentError, match="on or off"):
        torch_compatible(mode)
    assert not ox.random.is_torch_compatible()


def test_the_streams_know_nothing_of_each_other() -> None:
    ox.manual_seed(4)
    state, own = ox.random.get_state(), ox.rand(3).tolist()
    ox.manual_seed(4)
    with torch_compatible(True):
        theirs = ox.rand(3).tolist()
    assert ox.random.get_state() == state
    assert ox.rand(3).tolist() == own != theirs
    with torch_compatible(True):  # and goes on where it was
        after = ox.rand(3).tolist()
        ox.manual_seed(4)
        assert ox.rand(6).tolist() == theirs + after


def test_states() -> None:
    torch_compatible(True)
    ox.manual_seed(7)
    ox.randn(3)  # keeps the second of a pair
    state = ox.get_rng_state()
    assert state.shape == (5056,) and state.dtype == ox.uint8
    drawn = [ox.randn(4).tolist(), ox.rand(700).tolist()]
    for form in (state, state.numpy(), state.clone()):
        ox.set_rng_state(form)
        assert [ox.randn(4).tolist(), ox.rand(700).tolist()] == drawn
    assert ox.initial_seed() == 7
    with ox.random.fork_rng():
        before = ox.get_rng_state()
        ox.rand(5)
    assert (ox.get_rng_state() == before).all()


def test_a_fork_around_the_switch() -> None:
    ox.manual_seed(3)
    state = ox.random.get_state()
    with ox.random.fork_rng():
        torch_compatible(True)
        ox.rand(3)
    torch_compatible(False)
    assert ox.random.get_state() == state


def test_a_state_of_the_other_kind() -> None:
    with torch_compatible(True):
        theirs = ox.random.get_state()
    own = ox.random.get_state()
    with pytest.raises(ArgumentError, match=r"torch_compatible\(True\) before"):
        ox.random.set_state(theirs)
    with torch_compatible(True), pytest.raises(ArgumentError, match=r"torch_compatible\(False\) before"):
        ox.random.set_state(own)


@pytest.mark.parametrize(
    "state",
    [
        ox.zeros(5056),
        ox.zeros(5055, dtype=ox.uint8),
        ox.zeros(5056, dtype=ox.uint8),
        None,
        "abc",
        np.zeros(3, np.uint8),
    ],
    ids=["floats", "too short", "zeros", "none", "text", "array"],
)
def test_what_is_no_state(state: Any) -> None:
    torch_compatible(True)
    before = ox.get_rng_state()
    with pytest.raises(ArgumentError, match="no state of a generator"):
        ox.set_rng_state(state)
    assert (ox.get_rng_state() == before).all()


# -- what has no form in operators -----------------------------------------------------------------------------------

DRAWS = [
    "ox.rand(2)", "ox.randn(2)", "ox.randint(3, (2,))", "ox.bernoulli(x * 0)", "F.dropout(x, 0.5)",
    "F.alpha_dropout(x, 0.5, True)", "F.dropout2d(x.reshape(1, 1, 1, 4), 0.5)", "F.rrelu(x, training=True)",
    "F.gumbel_softmax(x)", "x.clone().normal_()",
    "ox.multinomial(x.abs(), 1)", "ox.normal(x, 1.0)", "ox.normal(0.0, 1.0, (3,))",
    "F.scaled_dot_product_attention(x.reshape(1, 2, 2), x.reshape(1, 2, 2), x.reshape(1, 2, 2), dropout_p=0.5)",
]  # fmt: skip


@pytest.mark.parametrize("call", DRAWS)
def test_a_draw_under_a_recording_is_refused(call: str) -> None:
    from ox.graph.record.recording import record

    torch_compatible(True)
    names = {"ox": ox, "F": F}
    with pytest.raises(RecordError, match="cannot be recorded"):
        record(lambda x: x + 0 * eval(call, {**names, "x": x}).sum(), {"x": ox.ones(4)})


def test_an_export_of_a_model_in_eval_mode(tmp_path: Path) -> None:
    torch_compatible(True)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2)).eval()
    state = ox.get_rng_state()
    ox.export.save(model, tmp_path / "model.onnx", ox.zeros(2, 3))
    assert (ox.get_rng_state() == state).all()


# -- what follows the switch -----------------------------------------------------------------------------------------


def test_a_checkpointed_part_draws_the_same_again() -> None:
    torch_compatible(True)
    ox.manual_seed(1)
    x = ox.ones(50, requires_grad=True)
    y = checkpoint(lambda x: F.dropout(x * 2, 0.5), x, use_reentrant=False)
    after = ox.get_rng_state()
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())
    assert (ox.get_rng_state() == after).all()


def test_vmap_sees_what_is_drawn() -> None:
    torch_compatible(True)
    x = ox.ones(6, 2)
    for seeded in (False, True):
        if seeded:
            ox.rand(1)
        with pytest.raises(ArgumentError, match="draws random numbers"):
            ox.func.vmap(lambda a: a + ox.rand(2))(x)
    same = ox.func.vmap(lambda a: a + ox.rand(2), randomness="same")(x)
    other = ox.func.vmap(lambda a: a + ox.rand(2), randomness="different")(x)
    assert len(np.unique(same.numpy(), axis=0)) == 1 and len(np.unique(other.numpy(), axis=0)) == 6
    assert (ox.func.vmap(lambda a: a * 2)(x) == 2).all()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_draw_as_their_process(context: str) -> None:
    torch_compatible(True)
    ox.manual_seed(2)
    data = TensorDataset(ox.arange(8))
    loader = DataLoader(data, 2, num_workers=1, multiprocessing_context=context, collate_fn=Drawing())
    states = list(loader)
    assert states == [5056] * 4


class Drawing:
    """Where a batch is made: how large a state of the generator is there."""

    def __call__(self, samples: Any) -> int:
        ox.rand(1)
        return len(ox.random.get_state())


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("after", [3, 9])
def test_a_run_that_is_resumed(tmp_path: Path, after: int) -> None:
    torch_compatible(True)

    def trainer() -> Any:
        ox.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 2))
        random = np.random.RandomState(0)
        x = random.randn(60, 3).astype(np.float32)
        data = x, (x.sum(1) > 0).astype(np.int64)
        optimizer = ox.optim.Adam(model.parameters(), 0.02)
        return train.Trainer(
            model, nn.CrossEntropyLoss(), optimizer, data, data, epochs=3, batch_size=16, checkpoint_every=1e-9
        )

    whole = trainer()
    whole.fit(tmp_path / "whole")
    stopped = trainer()
    with pytest.raises(KeyError):
        stopped.fit(tmp_path / "stopped", show=StopAfter(after))
    again = trainer()
    again.fit(tmp_path / "stopped", resume=True)
    for name, value in whole.model.state_dict().items():
        np.testing.assert_array_equal(again.model.state_dict()[name].numpy(), value.numpy(), err_msg=name)
