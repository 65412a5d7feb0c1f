"""Whole training steps, compiled and eager, over several steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from beside_eager import Program, close, compare, reasons, recordings

import ox
import ox.nn.functional as F
from ox import nn
from ox.errors import CompileError


def batches(count: int, *shape: int, classes: int = 3, seed: int = 0) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(seed)
    return [
        (ox.tensor(random.normal(size=shape).astype(np.float32)), ox.tensor(random.integers(0, classes, shape[:1])))
        for _ in range(count)
    ]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, bias=False)  # its gradient would be rounding errors alone
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(36, 3)

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(x.flatten(1))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 3)

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        return self.head(self.body(self.embed(x)).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 8, 2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        y, _ = self.lstm(x)
        return self.head(y[:, -1])


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (8, 6)),
    "lenet": (LeNet, (4, 1, 8, 8)),
    "transformer": (Transformer, (4, 7)),
    "lstm": (Recurrent, (4, 6, 5)),
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: ox.optim.SGD(p, lr=0.1),
    "momentum": lambda p: ox.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    # with an eps above the rounding errors of gradients that are zero
    "adam": lambda p: ox.optim.Adam(p, lr=1e-2, eps=1e-3),
    "adamw": lambda p: ox.optim.AdamW(p, lr=1e-2, eps=1e-3),
    "rmsprop": lambda p: ox.optim.RMSprop(p, lr=1e-3, eps=1e-3),
}


def data_of(name: str, count: int) -> list[tuple[Any, Any]]:
    made = batches(count, *MODELS[name][1])
    if name != "transformer":
        return made
    random = np.random.default_rng(1)
    return [(ox.tensor(random.integers(0, 11, MODELS[name][1])), y) for _, y in made]


def training_step(program: Program) -> Any:
    def step(x: ox.Tensor, y: ox.Tensor) -> ox.Tensor:
        program.optimizer.zero_grad()
        loss = F.cross_entropy(program.model(x), y)
        loss.backward()
        program.optimizer.step()
        return loss

    return step


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_a_whole_step(model: str, optimizer: str) -> None:
    make = MODELS[model][0]
    _, compiled = compare(lambda: Program(make(), OPTIMIZERS[optimizer]), training_step, data_of(model, 6))
    assert len(recordings(compiled)) == 1 and "state" not in reasons(compiled), compiled.explain()


@pytest.mark.parametrize("model", MODELS)
def test_a_model_whose_training_is_eager(model: str) -> None:
    make = MODELS[model][0]
    compiled: list[Any] = []

    def step(program: Program) -> Any:
        net = ox.compile(program.model) if compiled else program.model
        compiled.append(net)

        def run(x: ox.Tensor, y: ox.Tensor) -> ox.Tensor:
            program.optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            program.optimizer.step()
            return loss

        return run

    compare(lambda: Program(make(), OPTIMIZERS["adam"]), step, data_of(model, 5), compiled=lambda run: run)
    assert len(recordings(compiled[1])) == 1 and not reasons(compiled[1]), compiled[1].explain()
    assert recordings(compiled[1])[0].backward is not None


@pytest.mark.parametrize("model", MODELS)
def test_inference(model: str) -> None:
    net = MODELS[model][0]().eval()
    compiled = ox.compile(net)
    for x, _ in data_of(model, 3):
        with ox.no_grad():
            assert np.allclose(compiled(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-5)
    assert len(recordings(compiled)) == 1 and not reasons(compiled)


def test_the_last_smaller_batch() -> None:
    data = [*batches(3, 8, 6), *batches(1, 5, 6), *batches(3, 8, 6)]
    _, compiled = compare(lambda: Program(mlp(), OPTIMIZERS["adam"]), training_step, data)
    assert len(recordings(compiled)) == 2


def test_clipping_and_accumulation() -> None:
    def step(program: Program) -> Any:
        def run(x: ox.Tensor, y: ox.Tensor) -> Any:
            program.optimizer.zero_grad()
            for part in range(2):
                loss = F.cross_entropy(program.model(x[part::2]), y[part::2]) / 2
                loss.backward()
            norm = nn.utils.clip_grad_norm_(program.model.parameters(), 0.1)
            program.optimizer.step()
            return loss.detach(), norm

        return run

    _, compiled = compare(lambda: Program(mlp(), OPTIMIZERS["adam"]), step, batches(5, 8, 6))
    assert len(recordings(compiled)) == 1, compiled.explain()


def test_gradients_are_added_to_those_from_outside() -> None:
    def step(program: Program) -> Any:
        def run(x: ox.Tensor, y: ox.Tensor) -> Any:
            loss = F.cross_entropy(program.model(x), y)
            loss.backward()
            return loss.detach()

        return run

    _, compiled = compare(lambda: Program(mlp()), step, batches(5, 8, 6))
    assert len(recordings(compiled)) == 1, compiled.explain()


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: ox.optim.lr_scheduler.StepLR(o, 2, 0.5),
    "cosine": lambda o: ox.optim.lr_scheduler.CosineAnnealingLR(o, 5),
    "one cycle": lambda o: ox.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "lambda": lambda o: ox.optim.lr_scheduler.LambdaLR(o, lambda n: 0.9**n),
    "several": lambda o: ox.optim.lr_scheduler.SequentialLR(
        o,
        [ox.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=3), ox.optim.lr_scheduler.ExponentialLR(o, 0.8)],
        milestones=[3],
    ),
}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_scheduler_in_the_step(scheduler: str) -> None:
    def make() -> Program:
        program = Program(mlp(), OPTIMIZERS["momentum"])
        program.more["scheduler"] = SCHEDULERS[scheduler](program.optimizer)
        return program

    def step(program: Program) -> Any:
        inner, schedule = training_step(program), program.more["scheduler"]

        def run(x: ox.Tensor, y: ox.Tensor) -> Any:
            loss = inner(x, y)
            schedule.step()
            return loss

        return run

    other, compiled = compare(make, step, batches(7, 8, 6))
    assert len(recordings(compiled)) == 1, compiled.explain()
    assert other.more["scheduler"].last_epoch == 7


def test_a_scheduler_outside() -> None:
    def make() -> Program:
        program = Program(mlp(), OPTIMIZERS["adam"])
        program.more["scheduler"] = SCHEDULERS["step"](program.optimizer)
        return program

    programs = [make(), make()]
    for p in programs:
        p.model.load_state_dict(programs[0].model.state_dict())
        p.model.eval()
    one, two = training_step(programs[0]), ox.compile(training_step(programs[1]))
    for x, y in batches(6, 8, 6):
        assert abs(one(x, y).item() - two(x, y).item()) < 1e-5
        for p in programs:
            p.more["scheduler"].step()
    assert len(recordings(two)) == 1


def test_bfloat16() -> None:
    def step(program: Program) -> Any:
        def run(x: ox.Tensor, y: ox.Tensor) -> Any:
            program.optimizer.zero_grad()
            with ox.autocast("cpu", dtype=ox.bfloat16):
                loss = F.cross_entropy(program.model(x), y)
            loss.backward()
            program.optimizer.step()
            return loss.detach()

        return run

    _, compiled = compare(lambda: Program(LeNet(), OPTIMIZERS["momentum"]), step, batches(5, 4, 1, 8, 8))
    assert len(recordings(compiled)) == 1, compiled.explain()


@pytest.mark.parametrize("cache", [True, False])
def test_autocast_around(cache: bool) -> None:
    def step(program: Program) -> Any:
        inner = training_step(program)
        chosen = inner if not programs else ox.compile(inner)
        programs.append(chosen)

        def run(x: ox.Tensor, y: ox.Tensor) -> Any:
            with ox.autocast("cpu", dtype=ox.bfloat16, cache_enabled=cache):
                return chosen(x, y)

        return run

    programs: list[Any] = []
    compare(lambda: Program(mlp(), OPTIMIZERS["momentum"]), step, batches(5, 8, 6), compiled=lambda run: run)
    assert len(recordings(programs[1])) == 1, programs[1].explain()


def scaled_step(program: Program) -> Any:
    scaler = program.more["scaler"]

    def run(x: ox.Tensor, y: ox.Tensor) -> Any:
        program.optimizer.zero_grad()
        with ox.autocast("cpu", dtype=ox.float16):
            loss = F.cross_entropy(program.model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(program.optimizer)
        nn.utils.clip_grad_norm_(program.model.parameters(), 1.0)
        scaler.step(program.optimizer)
        scaler.update()
        return loss.detach()

    return run


def test_float16_with_a_scaler() -> None:
    def make() -> Program:
        scaler = ox.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=2)
        return Program(mlp(), OPTIMIZERS["adam"], scaler=scaler)

    data = batches(9, 8, 6)
    bad = ox.tensor(np.full((8, 6), 1e30, np.float32))
    data[5] = (bad, data[5][1])
    scales: list[Any] = []

    def step(program: Program) -> Any:
        inner = scaled_step(program)
        chosen = inner if not scales else ox.compile(inner)
        scales.append([])
        own = scales[-1]
        functions.append(chosen)

        def run(x: ox.Tensor, y: ox.Tensor) -> Any:
            chosen(x, y)
            own.append((program.more["scaler"].get_scale(), program.more["scaler"].state_dict()["_growth_tracker"]))

        return run

    functions: list[Any] = []
    other, _ = compare(make, step, data, compiled=lambda run: run)
    assert scales[0] == scales[1]
    assert scales[0][5][0] == scales[0][4][0] / 2  # the skipped step
    assert len(recordings(functions[1])) == 1, functions[1].explain()
    assert all(int(s["step"].item()) == 8 for s in other.optimizer.state.values())


def test_frozen_layers() -> None:
    def make() -> Program:
        model = mlp()
        model[0].requires_grad_(False)
        return Program(model, lambda p: ox.optim.Adam([q for q in p if q.requires_grad], lr=1e-2))

    _, compiled = compare(make, training_step, batches(4, 8, 6))
    assert len(recordings(compiled)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_hundred_steps(model: str) -> None:
    compare(lambda: Program(MODELS[model][0](), OPTIMIZERS["momentum"]), training_step, data_of(model, 100))


def test_an_object_that_is_called() -> None:
    """What it holds is looked at before it runs: gradients that `zero_grad` takes away were there at the beginning."""

    class Training:
        def __init__(self) -> None:
            self.model = nn.Linear(4, 3)
            self.optimizer = ox.optim.Adam(self.model.parameters(), lr=0.1)
            self.loss = partial(self.loss_of, ox.ones(5, 4))

        def loss_of(self, x: ox.Tensor) -> ox.Tensor:
            return self.model(x).square().mean()

        def __call__(self) -> ox.Tensor:
            self.optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            self.optimizer.step()
            return loss

    ox.manual_seed(0)
    eager, other = Training(), Training()
    other.model.load_state_dict(eager.model.state_dict())
    compiled = ox.compile(other, fullgraph=True)
    for _ in range(5):
        close(compiled().detach().numpy(), eager().detach().numpy(), "the loss")
    assert len(recordings(compiled)) == 1
    close(other.model.weight.array, eager.model.weight.array, "the weight")


@pytest.mark.parametrize("steps_before", [0, 2])
def test_fullgraph_that_fails_undoes_what_the_call_did(steps_before: int) -> None:
    ox.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = ox.optim.Adam(model.parameters(), lr=0.1)

    def step(x: ox.Tensor) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    def noisy(x: ox.Tensor) -> None:
        step(x)
        print("stepped")

    x = ox.randn(8, 3)
    for _ in range(steps_before):
        step(x)

    def everything() -> list[Any]:
        grads = [None if p.grad is None else p.grad.tolist() for p in model.parameters()]
        state = {k: [v.tolist() for v in own.values()] for k, own in optimizer.state_dict()["state"].items()}
        weights = [t.tolist() for t in model.state_dict().values()]
        return [weights, grads, state, ox.random.get_state()]

    before = everything()
    with pytest.raises(CompileError, match="print"):
        ox.compile(noisy, fullgraph=True)(x)
    assert everything() == before
    strict = ox.compile(step, fullgraph=True)
    for _ in range(4):
        strict(x)
    assert everything() != before


def test_fullgraph_undoes_a_call_that_no_engine_runs() -> None:
    class Nothing:
        name = "nothing"

        def build(self, task: Any) -> Any:
            raise CompileError("this engine runs nothing")

    p = nn.Parameter(ox.ones(2))

    @ox.compile(fullgraph=True, backend=Nothing())
    def double() -> None:
        with ox.no_grad():
            p.mul_(2)

    with pytest.raises(CompileError, match="runs nothing"):
        double()
    assert p.tolist() == [1, 1]


def with_zeros(model: Any, optimizer: Any) -> Any:
    """Gradients are filled with zeros and added to."""

    def step(x: Any) -> Any:
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def with_closure(model: Any, optimizer: Any) -> Any:
    """A function that the step defines over its argument, and that the optimizer calls."""

    def step(x: Any) -> Any:
        scale = x.mean()

        def closure() -> Any:
            optimizer.zero_grad()
            loss = (model(x) * scale).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return step


@pytest.mark.parametrize("make", [with_zeros, with_closure])
def test_steps_that_define_functions_or_fill_gradients_are_compiled(make: Any) -> None:
    found = []
    for compiled in (False, True):
        ox.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = ox.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        run = ox.compile(make(model, optimizer)) if compiled else make(model, optimizer)
        losses = [float(run(ox.randn(4, 3) * (1 + i))) for i in range(8)]
        found.append([np.float32(losses), *[t.detach().numpy() for p in model.parameters() for t in (p, p.grad)]])
        if compiled:
            assert "operators, 1 inputs" in str(run.explain()), run.explain()
            assert len(str(run.explain()).split("recording ")) == 2, run.explain()
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


def test_a_result_that_is_a_detached_parameter() -> None:
    """It is no parameter, nor the same tensor at each call."""
    model = nn.Linear(3, 2)
    run = ox.compile(lambda x: (model(x).sum(), model.weight.detach()))
    for _ in range(3):
        _, weight = run(ox.randn(4, 3))
        assert weight is not model.weight and not weight.requires_grad
        np.testing.assert_array_equal(weight.numpy(), model.weight.detach().numpy())


def test_a_function_of_outside_keeps_its_guards() -> None:
    """One made by a factory before the call, and one made by the same factory inside."""

    def factory(w: Any) -> Any:
        def scaled(x: Any) -> Any:
            return x * w

        return scaled

    weights = [ox.ones(2)]
    outside = factory(weights[0])

    def call(x: Any) -> Any:
        return outside(x) + factory(x + 1)(x)

    run = ox.compile(call)
    for x in (ox.tensor([1.0, 2.0]), ox.tensor([3.0, 4.0]), ox.tensor([5.0, 6.0])):
        np.testing.assert_allclose(run(x).numpy(), call(x).numpy())
    weights[0].fill_(3)
    np.testing.assert_allclose(run(x).numpy(), call(x).numpy())
