"""Compiled calls on a GPU run as one CUDA graph, and give what eager calls give."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import pytest
from recorded_step import task_of

import ox
from ox import nn
from ox.core.operator import OPS
from ox.engines.native import Native
from ox.engines.native.calls import KernelCall
from ox.graph.ir import Node
from ox.tolerance import allowed

pytestmark = pytest.mark.gpu


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(self.embedding(x)).mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layer, self.head = kind(8, 6, batch_first=True), nn.Linear(6, 5)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0][:, -1])


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3),
        nn.AvgPool2d(2, padding=1), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5)),
        lambda: ox.randn(4, 8),
    ),
    "dropout": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 5)),
        lambda: ox.randn(4, 8),
    ),
    "cnn": (cnn, lambda: ox.randn(4, 3, 8, 8)),
    "attention": (Attention, lambda: ox.randint(0, 11, (4, 6))),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda: ox.randn(4, 6, 8)),
    "gru": (lambda: Recurrent(nn.GRU), lambda: ox.randn(4, 6, 8)),
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "Adam": lambda p: ox.optim.Adam(p, lr=0.01),
    "SGD": lambda p: ox.optim.SGD(p, lr=0.05, momentum=0.9),
    "RMSprop": lambda p: ox.optim.RMSprop(p, lr=0.01),
}


def train(model: str, optimizer: str, compiled: bool) -> tuple[nn.Module, list[float], Any]:
    """Losses of seven steps on as many batches, with clipping and a schedule."""
    make, batch = MODELS[model]
    ox.manual_seed(0)
    net = make().to("cuda")
    update = OPTIMIZERS[optimizer](net.parameters())
    schedule = ox.optim.lr_scheduler.StepLR(update, 2, 0.5)
    batches = [batch().to("cuda") for _ in range(7)]
    target = ox.tensor([0, 1, 2, 4]).to("cuda")

    def step(x: Any, t: Any) -> Any:
        update.zero_grad()
        loss = nn.functional.cross_entropy(net(x), t)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        update.step()
        return loss.detach()

    run = ox.compile(step) if compiled else step
    losses = []
    for x in batches:
        losses.append(run(x, target).item())
        schedule.step()
    return net, losses, run


def same(one: Any, other: Any) -> None:
    one, other = one.detach().cpu().numpy(), other.detach().cpu().numpy()
    assert one.dtype == other.dtype and one.shape == other.shape
    assert np.abs(one.astype(np.float64) - other).max(initial=0) <= 8 * allowed(other)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_a_step_is_one_graph_and_equals_the_eager_one(model: str, optimizer: str) -> None:
    eager, wanted, _ = train(model, optimizer, False)
    compiled, got, run = train(model, optimizer, True)
    np.testing.assert_allclose(got, wanted, rtol=1e-4)
    assert "one CUDA graph" in str(run.explain()), run.explain()
    if optimizer == "SGD":  # others make steps of rounding errors where a gradient is 0
        for one, other in zip(compiled.state_dict().values(), eager.state_dict().values(), strict=True):
            same(one, other)


@pytest.mark.parametrize("dtype", [ox.bfloat16, ox.float16], ids=str)
def test_mixed_precision(dtype: Any) -> None:
    """The scaler's numbers are states on the device, like the others."""

    def losses(compiled: bool) -> tuple[list[float], float, str]:
        ox.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5)).to("cuda")
        optimizer = ox.optim.AdamW(model.parameters(), lr=0.01)
        scaler = ox.amp.GradScaler(enabled=dtype == ox.float16, growth_interval=2)
        target = ox.tensor([0, 1, 2, 4]).to("cuda")

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            with ox.autocast("cuda", dtype=dtype):
                loss = nn.functional.cross_entropy(model(x), target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        run = ox.compile(step) if compiled else step
        found = [run(ox.randn(4, 8).to("cuda")).item() for _ in range(7)]
        return found, scaler.get_scale(), explained(run) if compiled else ""

    wanted, scale, _ = losses(False)
    got, own, said = losses(True)
    np.testing.assert_allclose(got, wanted, rtol=1e-3)
    assert own == scale and "one CUDA graph" in said, said


def explained(function: Any) -> str:
    return str(function.explain())


@pytest.mark.parametrize("size", [8, 300])
def test_results_are_new_memory_in_each_call(size: int) -> None:
    compiled = ox.compile(lambda x: (x * 2, (x @ x).tanh()))
    xs = [ox.randn(size, size).to("cuda") for _ in range(4)]
    got = [compiled(x) for x in xs]
    assert "one CUDA graph" in explained(compiled)
    for x, (double, product) in zip(xs, got, strict=True):
        same(double, x * 2)
        same(product, (x @ x).tanh())


def test_inputs_that_lie_elsewhere_and_states_that_are_replaced() -> None:
    layer = nn.Linear(8, 4).to("cuda")
    compiled = ox.compile(lambda x: layer(x).relu())
    kept = []
    for i in range(8):
        x = ox.randn(3, 8).to("cuda")
        kept.append(x)  # so that the next one lies elsewhere
        if i == 5:
            layer.load_state_dict({name: t.detach() * 2 for name, t in layer.state_dict().items()})
        if i == 6:
            layer.weight.data = ox.randn(4, 8).to("cuda")
        same(compiled(x), layer(x).relu())
    assert "one CUDA graph" in explained(compiled)


def test_an_input_at_the_same_address_that_lies_otherwise() -> None:
    run = Native().on_gpu.build(task_of(lambda x: {"y": x.tanh() + 1}, {"x": ox.randn(4, 4)}))
    x = ox.randn(4, 4).to("cuda").array
    for given in (x, x, x, x.T, x, x.T):
        np.testing.assert_allclose(run([given])[0].get(), np.tanh(given.get()) + 1, atol=1e-5)
    assert run.explain()[-1] == "one CUDA graph"


def test_a_model_whose_backward_is_the_users() -> None:
    ox.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to("cuda")
    compiled = ox.compile(model)
    for _ in range(5):
        x = ox.randn(4, 8).to("cuda")
        wanted = []
        for net in (model, compiled):
            model.zero_grad()
            net(x).square().mean().backward()
            wanted.append([p.grad.cpu().numpy().copy() for p in model.parameters()])
        for one, other in zip(*wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_what_waits_for_the_device_runs_step_by_step() -> None:
    compiled = ox.compile(lambda x: (x * 3, x.unique()))
    for _ in range(4):
        x = ox.tensor([3.0, 1.0, 3.0]).to("cuda")
        triple, values = compiled(x)
        assert triple.cpu().tolist() == [9, 3, 9] and values.cpu().tolist() == [1, 3]


def test_threads_take_turns() -> None:
    compiled = ox.compile(lambda x: (x @ x).tanh() + 1)
    xs = [ox.randn(16, 16).to("cuda") for _ in range(4)]
    for x in xs:
        compiled(x)
    wrong: list[int] = []

    def call(i: int) -> None:
        for _ in range(20):
            got, wanted = compiled(xs[i]).cpu().numpy(), ((xs[i] @ xs[i]).tanh() + 1).cpu().numpy()
            if not np.allclose(got, wanted, atol=1e-5):
                wrong.append(i)

    threads = [Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_profiler_sees_the_pieces() -> None:
    compiled = ox.compile(lambda x: (x @ x).tanh() + 1)
    x = ox.randn(4, 4).to("cuda")
    for _ in range(3):
        compiled(x)
    with ox.profiler.profile() as profile:
        same(compiled(x), (x @ x).tanh() + 1)
    assert "fused" in str(profile.key_averages().table())


def test_graphs_that_share_memory_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch on another stream waits there for the one before."""
    import cupy

    run, x = ox.compile(lambda x: (x * 2).tanh()), ox.randn(4, 8, device="cuda")
    wanted = [run(x) for _ in range(3)][-1].cpu().numpy()
    assert "one CUDA graph" in str(run.explain())
    done: list[tuple[str, str, int]] = []
    current = cupy.cuda.get_current_stream()

    class Stream:
        ptr = current.ptr

        def __init__(self, name: str) -> None:
            self.name = name

        def record(self, event: Any) -> Any:
            done.append((self.name, "records", event.ptr))
            return event

        def wait_event(self, event: Any) -> None:
            done.append((self.name, "waits", event.ptr))

    for name in ("one", "other"):
        monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda name=name: Stream(name))
        y = run(x)
    monkeypatch.undo()
    assert [entry[:2] for entry in done] == [(s, what) for s in ("one", "other") for what in ("waits", "records")]
    assert len({entry[2] for entry in done}) == 1 and np.array_equal(y.cpu().numpy(), wanted)


def test_constants_are_there_for_calls_on_other_streams() -> None:
    host_cuda = sys.modules.get("host_cuda")
    if host_cuda is None:
        pytest.skip("only host_cuda counts waits")
    run = Native().on_gpu.build(task_of(lambda x: {"y": x.tanh() + 1}, {"x": ox.randn(4, 4)}))
    arrays = [ox.randn(4, 4).to("cuda").array]
    waits = []
    for _ in range(2):
        with host_cuda.counting() as counts:
            run._prepared(arrays)
        waits.append(counts["waits"])
    assert waits == [1, 0]


def test_a_prepared_call_on_the_cpu_is_as_fast_after_one_on_a_gpu() -> None:
    node, x = Node("Softmax", "", [], []), np.zeros((64, 512), np.float32)
    expected = KernelCall(OPS["Softmax"], node).accelerated_for([x])
    call = KernelCall(OPS["Softmax"], node)
    call.results([ox.zeros(64, 512, device="cuda").array])
    assert expected is not None and type(call.accelerated_for([x])) is type(expected)
