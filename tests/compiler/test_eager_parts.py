"""What cannot be recorded stays eager, is right, and says why with the user's line."""

from __future__ import annotations

import gc
import io
import logging
import random
import re
import sys
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside_eager import recordings
from rows import rows

import ox
from ox import nn
from ox.errors import CompileError
from ox.optim.lr_scheduler.base import reads_are_told

KEPT: list[Any] = []
LAST: deque[int] = deque(maxlen=3)
GENERATOR = np.random.default_rng(0)


class Square(ox.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: ox.Tensor) -> ox.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: ox.Tensor) -> ox.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * g


class Keeps(nn.Module):
    hidden: Any = None

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        self.hidden = x * 2
        return self.hidden + 1


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        self.calls += 1
        return x * self.calls


def item(x: ox.Tensor) -> Any:
    return x * x.sum().item()


def branch(x: ox.Tensor) -> Any:
    if x.sum() > 0:
        return x + 1
    return x - 1


def asserts(x: ox.Tensor) -> Any:
    assert (x == x).all()
    return x + 1


def appends(x: ox.Tensor) -> Any:
    y = x * 2
    KEPT.append(y.sum())
    return y


def keeps_detached(x: ox.Tensor) -> Any:
    y = x * 2
    KEPT[:] = [y.detach()]
    return y + 1


def prints(x: ox.Tensor) -> Any:
    print("called")
    return x + 1


def tells_time(x: ox.Tensor) -> Any:
    return x + 0 * time.time()


def draws(x: ox.Tensor) -> Any:
    return x + random.random()


def draws_numpy(x: ox.Tensor) -> Any:
    return x + float(np.random.rand())


def draws_generator(x: ox.Tensor) -> Any:
    return x + float(GENERATOR.random())


def permutes(x: ox.Tensor) -> Any:
    return x[ox.randperm(len(x))]


def reads_array(x: ox.Tensor) -> Any:
    return x + float(x.array.sum())


def reads_numpy(x: ox.Tensor) -> Any:
    return x + float(x.detach().numpy().sum())


def own_function(x: ox.Tensor) -> Any:
    return Square.apply(x)


def hooks_inside(x: ox.Tensor) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y * 1


def view_of_argument(x: ox.Tensor) -> Any:
    return x.reshape(-1)


def repeats(x: ox.Tensor) -> Any:
    return x.repeat_interleave((x > 0).long() + 1)


def as_many_classes_as_there_are(x: ox.Tensor) -> Any:
    return x * nn.functional.one_hot(x.abs().long()).sum()


def nonzero(x: ox.Tensor) -> Any:
    return x[x > 0]


def sizes_of_values(x: ox.Tensor) -> Any:
    return ox.nonzero(x).sum()


def logs(x: ox.Tensor) -> Any:
    logging.getLogger("mine").info("called")
    return x + 1


def two_views(x: ox.Tensor) -> Any:
    y = x * 2
    return y, y.reshape(-1)


def seeds(x: ox.Tensor) -> Any:
    ox.manual_seed(5)
    return x + ox.rand(3)


def factors(x: ox.Tensor) -> Any:
    return ox.linalg.qr(x.reshape(1, 3).T @ x.reshape(1, 3) + ox.eye(3))[0]


def writes(x: ox.Tensor) -> Any:
    sys.stderr.write("called")
    return x + 1


def warns(x: ox.Tensor) -> Any:
    warnings.warn("called", stacklevel=1)
    return x + 1


def reads_a_file(x: ox.Tensor) -> Any:
    with open(__file__) as file:
        return x + 0 * len(file.readline())


def dates(x: ox.Tensor) -> Any:
    return x + 0 * datetime.now().microsecond


def names_itself(x: ox.Tensor) -> Any:
    return x + 0 * (uuid.uuid4().int % 2)


def draws_new(x: ox.Tensor) -> Any:
    return x + 0 * random.Random().randint(0, 9)


def draws_new_numpy(x: ox.Tensor) -> Any:
    return x + 0 * float(np.random.default_rng().random())


def appends_to_deque(x: ox.Tensor) -> Any:
    LAST.append(len(x))
    return x + 1


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "item": (item, r"item\(\) needs the value of a tensor.*return x \* x.sum\(\).item\(\)"),
    "a branch": (branch, r"bool\(\).*if x.sum\(\) > 0"),
    "assert": (asserts, r"bool\(\).*assert"),
    "append": (appends, r"len\(KEPT\) is changed by the call"),
    "a detached tensor": (keeps_detached, r"kept by 'KEPT\[0\]'"),
    "print": (prints, r'print\(\) is called.*print\("called"\)'),
    "time": (tells_time, r"time\(\) is called"),
    "writing": (writes, r'write\(\) is called.*sys.stderr.write\("called"\)'),
    "a warning": (warns, r"warn\(\) is called"),
    "a file": (reads_a_file, r"open\(\) is called"),
    "a date": (dates, r"now\(\) is called.*datetime.now\(\)"),
    "uuid": (names_itself, r"urandom\(\) is called.*uuid.uuid4\(\)"),
    "a new Random": (draws_new, r"seed\(\) is called.*random.Random\(\)"),
    "a new generator of NumPy": (draws_new_numpy, r"urandom\(\) is called.*default_rng\(\)"),
    "a deque": (appends_to_deque, r"append\(\) is called.*LAST.append"),
    "random": (draws, r"random\(\) is called|random numbers of Python"),
    "numpy.random": (draws_numpy, "random numbers of Python or NumPy"),
    "a generator of NumPy": (draws_generator, "the state of GENERATOR is changed"),
    "randperm": (permutes, "randperm has no form in operators"),
    "x.array": (reads_array, r"`.array` is read"),
    "x.numpy()": (reads_numpy, r"numpy\(\) needs the value"),
    "a Function": (own_function, "a gradient of one's own"),
    "a hook": (hooks_inside, "a hook is set inside"),
    "a view of an argument": (view_of_argument, "a result (is a view|shares the memory) of a tensor"),
    "a mask": (nonzero, "depends on values"),
    "nonzero": (sizes_of_values, "depends on values"),
    "repeats": (repeats, "what Range gives depends on values"),
    "classes": (as_many_classes_as_there_are, "what OneHot gives depends on values"),
    "logging": (logs, r"logging.info\(\) is called"),
    "results that share memory": (two_views, "two results share memory"),
    "a seed": (seeds, "seeded inside"),
    "a factorization": (factors, "has no form in ONNX operators"),
}


class Named:
    """Whose attributes are set by names that stand in no code."""

    count = 0

    def __init__(self) -> None:
        self.last = self.count = 0


def set_by_setattr(owner: Any, name: str, value: int) -> None:
    setattr(owner, name, value)


def set_in_vars(owner: Any, name: str, value: int) -> None:
    vars(owner)[name] = value


def set_in_dict(owner: Any, name: str, value: int) -> None:
    owner.__dict__.update({name: value})


def set_by_object(owner: Any, name: str, value: int) -> None:
    object.__setattr__(owner, name, value)


@rows("put", [set_by_setattr, set_in_vars, set_in_dict, set_by_object])
@rows("names", [["last"], ["count"], ["last", "count"], ["new"]])
def test_an_attribute_with_a_computed_name(put: Callable[..., None], names: list[str]) -> None:
    owner, seen = Named(), []

    def call(x: ox.Tensor) -> ox.Tensor:
        for name in names:
            put(owner, name, len(x))
        return x + 1

    compiled = ox.compile(call)
    for size in (2, 3, 2, 3):
        compiled(ox.ones(size))
        seen.append([vars(owner)[name] for name in names])
    assert seen == [[size] * len(names) for size in (2, 3, 2, 3)]


@pytest.mark.parametrize("of_argument", [False, True])
def test_an_attribute_of_a_tensor(of_argument: bool) -> None:
    weight, name, seen = nn.Parameter(ox.ones(2)), "".join(["si", "ze"]), []

    def call(x: ox.Tensor) -> ox.Tensor:
        setattr(x if of_argument else weight, name, len(x))
        return x + weight

    compiled = ox.compile(call)
    for size in (2, 3, 2, 3):
        x = ox.ones(size, 2)
        compiled(x)
        seen.append(getattr(x if of_argument else weight, name))
    assert seen == [2, 3, 2, 3]


def test_a_computed_name_that_changes_nothing_is_recorded() -> None:
    owner = Named()

    def call(x: ox.Tensor) -> ox.Tensor:
        setattr(owner, "".join(["la", "st"]), 0)
        return x + 1

    compiled = ox.compile(call, fullgraph=True)
    for _ in range(3):
        compiled(ox.ones(2))
    assert len(recordings(compiled)) == 1


def test_a_warning_that_is_shown_once() -> None:
    """By Python's own filters. Where each would be shown, or be an error, the call stays eager."""
    compiled, x = ox.compile(warns), ox.ones(1)
    with warnings.catch_warnings(record=True) as shown:
        warnings.resetwarnings()
        warnings.simplefilter("always", np.exceptions.RankWarning)  # as NumPy does
        for _ in range(3):
            compiled(x)
        assert len(shown) == len(recordings(compiled)) == 1 and not compiled.eager
        warnings.simplefilter("always")
        compiled(x), compiled(x)
        assert len(shown) == 3
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="called"):
            compiled(x)


@pytest.mark.filterwarnings("ignore:called")
@pytest.mark.parametrize("name", REFUSED)
def test_a_function_stays_eager(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    function, reason = REFUSED[name]
    compiled = ox.compile(function)
    ox.manual_seed(0), random.seed(0), np.random.seed(0)
    for i in range(4):
        x = ox.tensor([1.0, -2.0, 3.0 + i], requires_grad=True)
        state = ox.random.get_state(), random.getstate(), np.random.get_state(), GENERATOR.bit_generator.state
        wanted = function(x)
        after = ox.random.get_state(), random.getstate(), GENERATOR.bit_generator.state
        ox.random.set_state(state[0]), random.setstate(state[1]), np.random.set_state(state[2])
        GENERATOR.bit_generator.state = state[3]
        got = compiled(x)
        assert (ox.random.get_state(), random.getstate(), GENERATOR.bit_generator.state) == after
        for a, b in zip(*[r if isinstance(r, tuple) else (r,) for r in (wanted, got)], strict=True):
            assert np.allclose(a.detach().numpy(), b.detach().numpy()) and a.requires_grad == b.requires_grad
            if a.requires_grad:
                grads = [ox.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in (a, b)]
                assert ox.allclose(*grads)

    text = str(compiled.explain())
    assert not recordings(compiled) and re.search(reason, text), text


@pytest.mark.parametrize("name", ["item", "a branch", "a Function", "randperm"])
def test_fullgraph_raises(name: str) -> None:
    function, _ = REFUSED[name]
    with pytest.raises(CompileError):
        ox.compile(function, fullgraph=True)(ox.ones(3, requires_grad=True))


def test_an_attribute_that_keeps_a_tensor() -> None:
    net = Keeps()
    compiled = ox.compile(net)
    for i in range(3):
        assert compiled(ox.ones(1) * i).item() == 2 * i + 1 and net.hidden.item() == 2 * i
    assert "kept by attribute 'hidden' of Keeps" in str(compiled.explain())


def test_an_attribute_that_counts() -> None:
    net = Counts()
    compiled = ox.compile(net)
    assert [compiled(ox.ones(1)).item() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert "Counts.calls is changed by the call, at every call" in str(compiled.explain())


class Remembers(nn.Module):
    def forward(self, x: ox.Tensor) -> ox.Tensor:
        self.last = len(x)
        return x * 2


def test_an_attribute_that_the_call_sets() -> None:
    model = Remembers()
    compiled = ox.compile(model)
    for n in (2, 2, 3, 3, 2, 3):
        compiled(ox.ones(n))
        assert model.last == n
    assert "last is changed by the call" in str(compiled.explain())


def sets_a_global(x: ox.Tensor) -> Any:
    global SET
    SET = len(x)
    return x * 2


def test_a_global_that_the_call_sets() -> None:
    compiled = ox.compile(sets_a_global)
    for n in (2, 2, 3, 3, 2, 3):
        compiled(ox.ones(n))
        assert globals().pop("SET") == n
    assert "SET is changed by the call" in str(compiled.explain())


def counts_itself(x: ox.Tensor) -> Any:
    counts_itself.calls += 1  # type: ignore[attr-defined]
    return x * counts_itself.calls  # type: ignore[attr-defined]


def test_an_attribute_of_a_function() -> None:
    counts_itself.calls = 0  # type: ignore[attr-defined]
    compiled = ox.compile(counts_itself)
    assert [compiled(ox.ones(1)).item() for _ in range(4)] == [1, 2, 3, 4]
    assert "counts_itself.calls is changed by the call" in str(compiled.explain())


def test_tensors_that_change_places() -> None:
    class Pair:
        def __init__(self) -> None:
            self.one, self.two = ox.zeros(1), ox.ones(1)

    pair = Pair()

    @ox.compile
    def swapped(x: ox.Tensor) -> Any:
        pair.one, pair.two = pair.two, pair.one
        return x + pair.one

    assert [swapped(ox.ones(1)).item() for _ in range(4)] == [2, 1, 2, 1]
    assert "changed by the call" in str(swapped.explain())


@dataclass
class Batch:
    x: ox.Tensor
    number: int = 0


def counts_batch(batch: Batch) -> Any:
    batch.number = 3
    return batch.x + 1


def swaps(pair: dict[str, Any]) -> Any:
    pair["x"], pair["y"] = pair["y"], pair["x"]
    return pair["x"] + 1


CHANGED: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "pop": (lambda pair: pair.pop("x") + 1, lambda: {"x": ox.ones(1)}),
    "a new entry": (lambda pair: pair.setdefault("done", True) and pair["x"] + 1, lambda: {"x": ox.ones(1)}),
    "swapped entries": (swaps, lambda: {"x": ox.ones(1), "y": ox.zeros(1)}),
    "append": (lambda row: (row.append(7), row[0] + 1)[1], lambda: [ox.ones(1)]),
    "reverse": (lambda row: (row.reverse(), row[0] + 1)[1], lambda: [ox.ones(1), ox.zeros(1)]),
    "a dataclass": (counts_batch, lambda: Batch(ox.ones(1))),
}


@rows("name", CHANGED)
def test_an_argument_that_the_call_changes(name: str) -> None:
    function, make = CHANGED[name]
    compiled = ox.compile(function)
    for _ in range(3):
        wanted, got = make(), make()
        assert compiled(got).item() == function(wanted).item() and repr(got) == repr(wanted)
    assert not recordings(compiled) and "an argument is changed by the call" in str(compiled.explain())


def test_what_the_call_makes_for_itself_may_change() -> None:
    @ox.compile(fullgraph=True)
    def local(x: ox.Tensor) -> ox.Tensor:
        queue, text, rows = deque([1]), io.StringIO(), [2]
        queue.append(3)
        text.write("text")
        rows.append(4)
        return x * (len(queue) + len(rows) + len(text.getvalue())) + float(np.random.default_rng(0).random())

    assert local(ox.ones(1)).item() == local(ox.ones(1)).item() and len(recordings(local)) == 1


def test_hooks_of_modules_set_before_and_later() -> None:
    seen: list[int] = []
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    compiled, x = ox.compile(net), ox.ones(1, 2)
    compiled(x), compiled(x)
    assert len(recordings(compiled)) == 1
    handle = net[0].register_forward_hook(lambda *_: seen.append(1))
    for _ in range(3):
        compiled(x)
    assert len(seen) == 3 and "has hooks" in str(compiled.explain())
    handle.remove()
    compiled(x), compiled(x)
    assert len(seen) == 3


def test_hooks_of_parameters_set_later() -> None:
    p = nn.Parameter(ox.ones(2))
    x = ox.ones(2)

    def step() -> None:
        p.grad = None
        (p * x).sum().backward()

    compiled = ox.compile(step)
    compiled(), compiled()
    assert len(recordings(compiled)) >= 1
    handle = p.register_hook(lambda g: g * 10)
    for _ in range(3):
        compiled()
        assert p.grad is not None and p.grad.tolist() == [10, 10]
    assert "has hooks" in str(compiled.explain())
    handle.remove()
    compiled()
    assert p.grad.tolist() == [1, 1]


def test_hooks_of_parameters_with_the_backward_outside() -> None:
    net = nn.Linear(2, 1)
    seen: list[Any] = []
    net.weight.register_hook(lambda g: seen.append(g.clone()))
    compiled = ox.compile(net)
    for _ in range(3):
        compiled(ox.ones(1, 2)).sum().backward()
    assert len(seen) == 3 and len(recordings(compiled)) == 1


def test_saved_tensor_hooks_and_anomaly_detection() -> None:
    compiled, x = ox.compile(lambda x: x * x), ox.ones(2, requires_grad=True)
    packed: list[Any] = []
    for _ in range(2):
        with ox.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            compiled(x).sum().backward()
    assert packed and "saved-tensor hooks" in str(compiled.explain())


def test_sparse_gradients() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    compiled = ox.compile(table)
    for _ in range(3):
        table.zero_grad()
        compiled(ox.tensor([1, 2])).sum().backward()
        assert table.weight.grad is not None and table.weight.grad.is_sparse
    assert "sparse" in str(compiled.explain())


def test_what_kinds_of_arguments_are_taken() -> None:
    compiled = ox.compile(lambda x: ox.as_tensor(x) + 1)
    array = np.zeros(2, np.float32)
    assert compiled(array).tolist() == [1, 1]
    array[:] = 5
    assert compiled(array).tolist() == [6, 6]
    assert "an array of NumPy" in str(compiled.explain())


def test_errors_of_the_function_are_its_own() -> None:
    def fails(x: ox.Tensor) -> ox.Tensor:
        raise KeyError("mine")

    compiled = ox.compile(fails)
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            compiled(ox.ones(1))
    x = ox.ones(2)
    assert x._recorded is None and x.shape == (2,)


def test_a_setting_that_is_changed_inside() -> None:
    p = nn.Parameter(ox.ones(1))
    optimizer = ox.optim.SGD([p], lr=1.0)

    def step(rate: float) -> None:
        optimizer.param_groups[0]["lr"] = rate
        p.grad = ox.ones(1)
        optimizer.step()

    compiled = ox.compile(step)
    for _ in range(4):
        compiled(0.25)
    assert p.item() == 0 and not recordings(compiled)
    assert "a setting of an optimizer is changed inside" in str(compiled.explain())


def test_a_scheduler_before_the_optimizer() -> None:
    p = nn.Parameter(ox.zeros(1))
    optimizer = ox.optim.SGD([p], lr=1.0)
    scheduler = ox.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def step() -> None:
        optimizer.zero_grad()
        p.sum().backward()
        scheduler.step()
        optimizer.step()

    compiled = ox.compile(step)
    for _ in range(4):
        compiled()
    assert abs(p.item() + 0.9375) < 1e-6 and "a scheduler's step comes before" in str(compiled.explain())


def rate_before(optimizer: Any, scheduler: Any) -> float:
    rate: float = optimizer.param_groups[0]["lr"]
    scheduler.step()
    return rate


def rate_after(optimizer: Any, scheduler: Any) -> float:
    scheduler.step()
    rate: float = optimizer.param_groups[0]["lr"]
    return rate


def last_rate(optimizer: Any, scheduler: Any) -> float:
    scheduler.step()
    rate: float = scheduler.get_last_lr()[0]
    return rate


def branch_on_the_epoch(optimizer: Any, scheduler: Any) -> float:
    if scheduler.last_epoch < 4:
        scheduler.step()
        return 1.0
    return 2.0


SCHEDULED: dict[str, tuple[Callable[[Any, Any], float], str]] = {
    "the rate before": (rate_before, r"optimizer.param_groups\[0\]\['lr'\] is changed by the call"),
    "the rate after": (rate_after, "a setting of an optimizer is read after a scheduler's step"),
    "get_last_lr": (last_rate, r"get_last_lr of a scheduler is read.*scheduler.get_last_lr\(\)\[0\]"),
    "last_epoch": (branch_on_the_epoch, "last_epoch of a scheduler is read"),
}


@pytest.mark.parametrize("name", SCHEDULED)
def test_numbers_of_a_scheduler(name: str) -> None:
    read, reason = SCHEDULED[name]

    def run(compile: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        p = nn.Parameter(ox.ones(1))
        optimizer = ox.optim.SGD([p], lr=0.5)
        scheduler = ox.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

        @compile
        def step() -> Any:
            optimizer.zero_grad()
            (p * p).sum().backward()
            optimizer.step()
            return read(optimizer, scheduler)

        return [(step(), p.item()) for _ in range(7)], step

    wanted, _ = run(lambda function: function)
    got, step = run(ox.compile)
    assert got == wanted and not recordings(step)
    assert re.search(reason, str(step.explain()))


def test_the_scale_as_a_number() -> None:
    p = nn.Parameter(ox.ones(1))
    optimizer = ox.optim.SGD([p], lr=0.5)
    scaler = ox.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)

    @ox.compile
    def step() -> float:
        optimizer.zero_grad()
        scaler.scale((p * p).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale()

    assert [step() for _ in range(4)] == [16, 32, 64, 128]
    assert "get_scale() gives a number" in str(step.explain())


def test_lbfgs_and_plateau() -> None:
    p = nn.Parameter(ox.ones(1))
    optimizer = ox.optim.LBFGS([p], lr=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    compiled = ox.compile(lambda: optimizer.step(closure))
    for _ in range(3):
        compiled()
    assert abs(p.item()) < 1e-2 and not recordings(compiled)


def test_the_garbage_collector_is_no_part_of_a_call() -> None:
    """It starts at any moment, and what its callbacks do is nobody's effect."""
    told: list[float] = []

    def callback(phase: str, info: Any) -> None:
        told.append(time.time())

    def call(x: ox.Tensor) -> Any:
        gc.collect()
        return x + 1

    compiled = ox.compile(call)
    gc.callbacks.append(callback)
    try:
        assert compiled(ox.zeros(2)).tolist() == [1, 1]
        assert told and compiled(ox.ones(2)).tolist() == [2, 2]
    finally:
        gc.callbacks.remove(callback)
    assert len(recordings(compiled)) == 1


def test_what_gc_freeze_has_put_aside_is_looked_at() -> None:
    factor = 2.0

    def inner(x: ox.Tensor) -> ox.Tensor:
        return x * factor

    functions = {"inner": inner}
    compiled, keeps = ox.compile(lambda x: functions["inner"](x)), ox.compile(keeps_detached)
    gc.collect()
    gc.freeze()
    try:
        assert compiled(ox.ones(2)).tolist() == [2, 2]
        factor = 3.0
        assert compiled(ox.ones(2)).tolist() == [3, 3]
        for _ in range(3):  # the first may add to an empty list
            keeps(ox.ones(2))
        assert "kept by 'KEPT[0]'" in str(keeps.explain())
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_reads_of_schedulers_are_noted_until_the_last_of_two_recordings_ends() -> None:
    """As of two threads, of which the one that began first ends first."""
    optimizer = ox.optim.SGD([ox.ones(1, requires_grad=True)], lr=0.1)
    scheduler = ox.optim.lr_scheduler.StepLR(optimizer, 2)
    plain = type(scheduler).__getattribute__
    first, second = (each() for each in (reads_are_told, reads_are_told))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert type(scheduler).__getattribute__ is not plain and scheduler.last_epoch == 0
    second.__exit__(None, None, None)
    assert type(scheduler).__getattribute__ is plain


@rows(("name", "stays_eager"), [("cuda.pathfinder", False), ("cudnn.graph", False), ("other", True)])
def test_what_a_runtime_reads_when_it_first_runs(name: str, stays_eager: bool, tmp_path: Path) -> None:
    """Its libraries and headers are found beside operators, too."""
    file = tmp_path / "finds.py"
    file.write_text("def find():\n    open(__file__).close()\n")
    scope: dict[str, Any] = {"__name__": name, "__file__": str(file)}
    exec(compile(file.read_text(), str(file), "exec"), scope)

    def call(x: Any) -> Any:
        scope["find"]()
        return x + 1

    run = ox.compile(call)
    run(ox.ones(3))
    assert ("open() is called" in str(run.explain())) is stays_eager, run.explain()
