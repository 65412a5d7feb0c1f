"""A call with something that cannot be recorded: its modules run compiled, what is between them as it is."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from beside_eager import Program, compare, recordings

import ox
from ox import nn
from ox.errors import CompileError, ShapeError
from ox.utils.checkpoint import checkpoint


class Cube(ox.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: ox.Tensor) -> ox.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: ox.Tensor) -> ox.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x * x * g


class Own(nn.Module):
    """A block with one line between its two layers."""

    def __init__(self, line: Callable[[ox.Tensor], ox.Tensor]) -> None:
        super().__init__()
        self.body, self.line, self.tail = block(), line, block()

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        return self.tail(self.line(self.body(x)))


def block() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))


def prints(x: ox.Tensor) -> ox.Tensor:
    print("called")
    return x


def item(x: ox.Tensor) -> ox.Tensor:
    return x * abs(x.detach().sum().item())


def branches(x: ox.Tensor) -> ox.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


LINES: dict[str, Any] = {"print": prints, "item": item, "a branch": branches, "a Function": Cube.apply}


def batches(count: int, rows: int = 4) -> Iterator[tuple[ox.Tensor, ox.Tensor]]:
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield ox.tensor(rng.normal(size=(rows, 6)).astype("f")), ox.tensor(rng.normal(size=(rows, 6)).astype("f"))


def training_step(program: Program) -> Callable[[Any, Any], Any]:
    def step(x: ox.Tensor, y: ox.Tensor) -> Any:
        program.optimizer.zero_grad()
        loss = nn.functional.mse_loss(program.model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(program.model.parameters(), 1.0)
        program.optimizer.step()
        return loss.detach()

    return step


def adam(parameters: Any) -> Any:
    return ox.optim.Adam(parameters, lr=1e-2, eps=1e-3)


def inside(compiled: Any) -> dict[str, int]:
    """The modules that run compiled in an eager call, with the number of their recordings."""
    found = getattr(compiled, "_compiled", compiled).parts.made.values()
    return {part.name: n for part in found if (n := len(recordings(part)))}


def run(compiled: Any, x: ox.Tensor, times: int = 4) -> Any:
    for _ in range(times):
        y = compiled(x)
    return y


# -- results, gradients, weights -------------------------------------------------------------------------------


def test_a_hook_on_one_block() -> None:
    seen: list[list[tuple[Any, Any]]] = [[], []]

    def make() -> Program:
        model = nn.Sequential(block(), nn.ReLU(), block(), block())
        mine = next(each for each in seen if not each)
        mine.append(())  # type: ignore[arg-type]
        model[2].register_forward_hook(lambda m, args, y: mine.append((args[0].detach(), y.detach())))
        model[2].register_full_backward_hook(lambda m, gi, go: mine.append((gi[0], go[0])))
        model[2].register_forward_pre_hook(lambda m, args: (args[0] * 2,))
        return Program(model)

    def step(program: Program) -> Any:
        return lambda x: program.model(x)

    def training(program: Program) -> Any:
        call = step(program)

        def one(x: ox.Tensor) -> Any:
            program.model.zero_grad()
            y = call(x)
            y.sum().backward()
            return y.detach()

        return one

    _, compiled = compare(make, training, [(x,) for x, _ in batches(8)])
    assert inside(compiled) == dict.fromkeys([f"Sequential.{i} (Sequential)" for i in (0, 2, 3)], 1)
    assert len(seen[0]) == len(seen[1]) == 17
    for one, other in zip(seen[0][1:], seen[1][1:], strict=True):
        assert all(ox.allclose(a, b, atol=1e-5) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", LINES)
def test_a_line_in_the_middle(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(block(), Own(LINES[name]), block())
    compiled = ox.compile(model)
    for x, _ in batches(8):
        results = []
        for each in (model, compiled):
            model.zero_grad()
            given = x.clone().requires_grad_()
            y = each(given)
            (y * y).sum().backward()
            results.append([y.detach(), given.grad, *[p.grad for p in model.parameters()]])
        assert all(ox.allclose(a, b, atol=1e-5, rtol=1e-4) for a, b in zip(*results, strict=True))
    assert capsys.readouterr().out.count("called") == 16 * (name == "print")
    names = ["Sequential.0", "Sequential.2", "Sequential.1.body", "Sequential.1.tail"]
    assert inside(compiled) == {f"{name} (Sequential)": 1 for name in names}
    assert not recordings(compiled)


@pytest.mark.parametrize("name", LINES)
def test_a_whole_step(name: str) -> None:
    def make() -> Program:
        model = nn.Sequential(block(), nn.Dropout(0.2), Own(LINES[name]), nn.Sequential(nn.Linear(6, 6), nn.Dropout()))
        return Program(model, adam)

    _, step = compare(make, training_step, batches(20))
    assert len(inside(step)) == 4 and not recordings(step)


def test_a_whole_step_with_a_hook_and_batch_norm() -> None:
    def make() -> Program:
        model = nn.Sequential(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU()), block(), nn.LSTM(6, 6))
        model[1].register_forward_hook(lambda m, args, y: y * 0.5)
        return Program(nn.Sequential(model[0], model[1], nn.Linear(6, 6)), adam)

    _, step = compare(make, training_step, batches(20))
    assert set(inside(step)) == {"Sequential.0 (Sequential)", "Sequential.1 (Sequential)"}


def test_a_hook_on_the_model_itself() -> None:
    seen: list[int] = []
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
    model.register_forward_hook(lambda *_: seen.append(1))
    compiled, x = ox.compile(model), ox.randn(4, 6)
    assert ox.allclose(run(compiled, x), model(x), atol=1e-5) and len(seen) == 5
    assert inside(compiled) == {"Sequential": 1}


def test_a_module_that_is_used_twice_and_modules_in_containers() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([block(), block()])
            self.named = nn.ModuleDict({"last": block()})

        def forward(self, x: ox.Tensor) -> ox.Tensor:
            for each in (*self.blocks, self.blocks[0]):
                x = prints(each(x))
            return self.named["last"](x)

    _, step = compare(lambda: Program(Net(), adam), training_step, batches(8))
    assert set(inside(step)) == {f"Net.{name} (Sequential)" for name in ("blocks.0", "blocks.1", "named.last")}


# -- what changes between calls --------------------------------------------------------------------------------


def test_a_hook_that_is_removed_and_set_later() -> None:
    seen: list[int] = []
    model = nn.Sequential(block(), block())
    compiled, x = ox.compile(model), ox.randn(4, 6)
    handle = model[1].register_forward_hook(lambda *_: seen.append(1))
    wanted = model(x)
    assert ox.allclose(run(compiled, x), wanted, atol=1e-5) and len(seen) == 5 and inside(compiled)
    handle.remove()
    run(compiled, x)
    assert len(seen) == 5 and len(recordings(compiled)) == 1
    calls = compiled._compiled.eager.copy()
    run(compiled, x)
    assert compiled._compiled.eager == calls
    model[0].register_forward_hook(lambda m, args, y: y * 0)
    assert ox.allclose(run(compiled, x), model[1](ox.zeros(4, 6)), atol=1e-5)


def test_a_hook_that_is_set_inside_a_part() -> None:
    model = nn.Sequential(block(), Own(prints))
    compiled, x = ox.compile(model), ox.randn(4, 6)
    run(compiled, x)
    seen: list[int] = []
    handle = model[0][1].register_forward_hook(lambda *_: seen.append(1))
    assert ox.allclose(run(compiled, x), model(x), atol=1e-5) and len(seen) == 5
    handle.remove()
    assert ox.allclose(run(compiled, x), model(x), atol=1e-5) and len(seen) == 5


def test_modes_weights_and_sizes() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout()), Own(item))
    compiled = ox.compile(model, dynamic=True)
    state = {name: t.clone() for name, t in model.state_dict().items()}
    for rows in (4, 7, 4):
        x = ox.randn(rows, 6)
        for _ in range(3):
            for training in (True, False):
                for context in (ox.no_grad, ox.enable_grad, lambda: ox.autocast("cpu", dtype=ox.bfloat16)):
                    model.train(training)
                    found = []
                    for each in (model, compiled):
                        model.load_state_dict(state)
                        ox.manual_seed(1)
                        with context():
                            found.append(each(x))
                    a, b = found
                    assert a.dtype == b.dtype and a.requires_grad == b.requires_grad
                    assert ox.allclose(a, b, atol=1e-5 if a.dtype == ox.float32 else 4e-2)
        state = {name: t + 1 if t.dtype == ox.float32 else t for name, t in state.items()}
    assert "Sequential.0 (Sequential)" in inside(compiled)


def test_modules_of_the_call_itself_are_not_kept() -> None:
    @ox.compile
    def call(x: ox.Tensor) -> ox.Tensor:
        return block()(prints(x))

    run(call, ox.randn(4, 6), 6)
    assert not call.parts.made


def test_reset_forgets() -> None:
    compiled = ox.compile(Own(prints))
    run(compiled, ox.randn(4, 6))
    assert inside(compiled)
    ox.compiler.reset()
    assert not compiled._compiled.parts.made
    assert ox.allclose(run(compiled, ox.ones(4, 6)), compiled._orig_mod(ox.ones(4, 6)), atol=1e-5) and inside(compiled)


# -- beside other features -------------------------------------------------------------------------------------


def test_checkpointing() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = block(), nn.Sequential(block(), nn.Dropout())

        def forward(self, x: ox.Tensor) -> Any:
            return checkpoint(self.two, prints(self.one(x)))

    _, step = compare(lambda: Program(Net(), adam), training_step, batches(6))
    assert inside(step) == {"Net.one (Sequential)": 1}


def test_a_compiled_module_inside() -> None:
    inner = ox.compile(block())
    model = nn.Sequential(inner, Own(prints))
    compiled, x = ox.compile(model), ox.randn(4, 6)
    assert ox.allclose(run(compiled, x), model(x), atol=1e-5)
    assert len(recordings(inner)) == 1 and len(inside(compiled)) == 2


def test_a_module_compiled_in_place() -> None:
    model = nn.Sequential(block(), Own(prints))
    x = ox.randn(4, 6)
    wanted = model(x)
    model.compile()
    assert ox.allclose(run(model, x), wanted, atol=1e-5)
    assert "inside, Sequential.0 (Sequential) runs compiled" in str(ox.compiler.explain(model))


def test_gradients_of_gradients_and_kept_ones() -> None:
    model = nn.Sequential(block(), Own(Cube.apply))
    compiled = ox.compile(model)
    for x, _ in batches(5):
        found = []
        for each in (model, compiled):
            given = x.clone().requires_grad_()
            (g,) = ox.autograd.grad(each(given).sum(), given, create_graph=True)
            found += [g.detach(), *ox.autograd.grad((g * g).sum(), [*model[0].parameters()][:1])]
        assert ox.allclose(found[0], found[2], atol=1e-5) and ox.allclose(found[1], found[3], atol=1e-4)
    assert inside(compiled)


def test_errors_name_the_module() -> None:
    model = nn.Sequential(block(), Own(prints))
    compiled = ox.compile(model)
    run(compiled, ox.randn(4, 6))
    errors = []
    for each in (model, compiled):
        with pytest.raises(ShapeError) as caught:
            each(ox.randn(4, 5))
        errors.append(str(caught.value).replace("OptimizedModule._orig_mod", "Sequential"))
    assert errors[0] == errors[1] and run(compiled, ox.randn(4, 6)).shape == (4, 6)


def test_saved_tensor_hooks_see_every_tensor() -> None:
    model = nn.Sequential(block(), Own(prints))
    compiled, x = ox.compile(model), ox.randn(4, 6)
    run(compiled, x)
    packed: list[list[Any]] = []
    for each in (model, compiled):
        packed.append([])
        with ox.autograd.graph.saved_tensors_hooks(lambda t: packed[-1].append(t) or t, lambda t: t):
            each(x).sum().backward()
    assert len(packed[0]) == len(packed[1]) > 0


def test_the_older_backward_hook_gets_its_last_operator() -> None:
    seen: list[Any] = []
    model = nn.Sequential(block(), Own(prints))
    model[0].register_backward_hook(lambda m, gi, go: seen.append([None if g is None else g.shape for g in gi]))
    compiled, x = ox.compile(model), ox.randn(4, 6, requires_grad=True)
    for each in (model, *[compiled] * 7):
        each(x).sum().backward()
    assert len(seen) == 8 and all(each == seen[0] for each in seen)
    assert len(inside(compiled)) == 2


def test_a_hooked_module_that_calls_itself() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = block()

        def forward(self, x: ox.Tensor, again: bool = True) -> Any:
            return self(self.body(x), False) if again else self.body(x)

    model = nn.Sequential(Twice(), block())
    compiled, x = ox.compile(model), ox.randn(4, 6)
    for factor in (2, 3):
        handle = model[0].register_forward_hook(lambda m, args, y, factor=factor: y * factor)
        assert ox.allclose(run(compiled, x, 6), model(x), atol=1e-5)
        handle.remove()


def test_what_is_marked_with_disable() -> None:
    model = block()
    off = ox.compiler.disable(lambda x: model(x))
    compiled = ox.compile(lambda x: off(x))
    run(compiled, ox.randn(4, 6))
    assert not compiled.parts.made


def test_an_argument_that_no_recording_takes() -> None:
    model = block()
    compiled = ox.compile(lambda array: model(ox.as_tensor(array)))
    for _ in range(4):
        array = np.random.default_rng(0).normal(size=(4, 6)).astype("f")
        assert ox.allclose(compiled(array), model(ox.as_tensor(array)), atol=1e-5)
    assert inside(compiled) == {"Sequential": 1}


def test_kinds_without_end_are_no_warning() -> None:
    model = nn.Sequential(block(), Own(prints))
    compiled = ox.compile(model, dynamic=True)
    limited = ox.compile(lambda x, n: [model(x[:i]) for i in range(1, n)][-1].sum().item())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in [*range(2, 12)] * 4:
            x = ox.randn(rows, 6)
            assert ox.allclose(compiled(x), model(x), atol=1e-5)
        for _ in range(4):
            limited(x, 12)
    assert inside(compiled)["Sequential.0 (Sequential)"] == 10


def test_more_kinds_than_the_limit_when_no_call_is_recorded() -> None:
    model = nn.Sequential(block(), Own(prints))
    compiled = ox.compile(lambda x, n: model(x) * n, recompile_limit=2)
    x = ox.randn(4, 6)
    with pytest.warns(UserWarning, match="was recorded 2 times"):
        for n in range(8):
            assert ox.allclose(compiled(x, n), model(x) * n, atol=1e-5)
    assert len(inside(compiled)) == 3


def test_two_threads() -> None:
    model = nn.Sequential(block(), Own(item), block())
    compiled = ox.compile(model)
    given = [x for x, _ in batches(12)]
    wanted = [model(x).detach() for x in given]
    failed: list[int] = []

    def work(start: int) -> None:
        for i in (*range(start, 12), *range(start)):
            x = given[i].clone().requires_grad_()
            y = compiled(x)
            y.sum().backward()
            if not ox.allclose(y, wanted[i], atol=1e-5) or x.grad is None:
                failed.append(i)

    threads = [Thread(target=work, args=(i * 5,)) for i in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed and len(inside(compiled)) == 4


def test_a_thread_that_sets_attributes_while_another_records() -> None:
    model, stop, before = nn.Sequential(block(), Own(item), block()), Event(), sys.getswitchinterval()
    for each in model.parameters():
        vars(each).update({f"known_{i}": i for i in range(500)})

    def work() -> None:
        while not stop.is_set():
            for change in (lambda each: setattr(each, "note", 1), lambda each: delattr(each, "note")):
                for each in model.parameters():
                    change(each)

    sys.setswitchinterval(1e-5)
    thread = Thread(target=work)
    thread.start()
    try:
        for _ in range(4):
            ox.compile(model)(ox.randn(4, 6)).sum().backward()
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)


# -- what is said ----------------------------------------------------------------------------------------------


def test_explain_and_the_log(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(block(), Own(prints), nn.Linear(6, 6))
    compiled = ox.compile(model)
    with caplog.at_level(logging.WARNING, "ox.compile"):
        for _ in range(5):
            compiled(ox.randn(4, 6)).sum().backward()
    assert [each.message.partition(": print")[0] for each in caplog.records] == ["ox.compile: Sequential stays eager"]
    text = str(compiled.explain())
    assert "eager, 5 calls: print() is called (test_islands.py" in text and 'print("called")' in text
    assert "    inside, Sequential.0 (Sequential) runs compiled for float32 [4, 6]: 3 operators, backward: " in text
    assert "    inside, Sequential.1 (Own) stays eager, 3 calls: print() is called (test_islands.py" in text
    assert "Sequential.1.tail (Sequential) runs compiled" in text
    assert "(Linear)" not in text  # one layer gains nothing
    assert len(compiled.explain().drawings) > 2


def test_fullgraph_raises() -> None:
    compiled = ox.compile(nn.Sequential(block(), Own(prints)), fullgraph=True)
    for _ in range(3):
        with pytest.raises(CompileError, match="print"):
            compiled(ox.randn(4, 6))


def test_runs_that_resume_have_none() -> None:
    """The first call of a kind is eager, and others would run modules compiled: bits would tell when a run began."""
    from ox.compiler.compiled import Compiled

    assert Compiled(lambda x: x, repeatable=True).parts is None
