"""What the profiler sees and tells; never how long anything took."""

from __future__ import annotations

import gzip
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn
from ox.core.mode import MODE
from ox.errors import ArgumentError
from ox.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2, bias=False)))


def step(m: nn.Module, optimizer: Any = None) -> None:
    with record_function("step"):
        (m(ox.ones(5, 3)) ** 2).sum().backward()
        if optimizer is not None:
            optimizer.step()


def rows(p: profile, **options: Any) -> dict[tuple[str, str], Any]:
    return {(r.key, r.phase): r for r in p.key_averages(**options)}


def test_operators_gradients_and_ranges_are_counted() -> None:
    m = model()
    optimizer = ox.optim.Adam(m.parameters())
    with profile() as p:
        for _ in range(3):
            step(m, optimizer)
    found = rows(p)
    assert found["Relu", "forward"].count == 3 and found["ReluBackward", "backward"].count == 3
    assert found["step", "forward"].count == 3 and found["Optimizer.step#Adam.step", "forward"].count == 3
    assert any((layer, "forward") in found for layer in ("Linear", "Gemm")) and any(
        phase == "backward" for _, phase in found
    )
    whole = found["step", "forward"]
    assert 0 <= whole.self_cpu_time_total <= whole.cpu_time_total
    assert sum(r.self_cpu_time_total for r in found.values()) == pytest.approx(whole.cpu_time_total)
    assert p.key_averages().total_average().count == len(p.events())


def test_off_it_leaves_no_trace() -> None:
    before = MODE.get()
    with profile():
        assert MODE.get().watch is not None and MODE.get().observer is not None
    assert MODE.get() is before
    step(model())  # a range with nobody watching


def test_results_are_those_without_it() -> None:
    m = model()
    step(m)
    plain = [p.grad.array.copy() for p in m.parameters()]
    m.zero_grad()
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True, with_modules=True):
        step(m)
    for p, g in zip(m.parameters(), plain, strict=True):
        assert np.array_equal(p.grad.array, g)
    for nested in (False, True):
        with ExitStack() as stack:
            if not nested:
                stack.enter_context(ox.devices.forced("numpy"))
            p = stack.enter_context(profile())
            if nested:
                stack.enter_context(ox.devices.forced("numpy"))
            assert MODE.get().executor is ox.devices.executors.on_numpy
            (ox.ones(2) + 1.0).sum()
        assert {e.name for e in p.events()} >= {"Add", "ReduceSum"}  # an executor that is forced is watched, too


def test_shapes_lines_and_work() -> None:
    with profile(record_shapes=True, with_stack=True, with_flops=True) as p:
        ox.ones(2, 3) @ ox.ones(3, 4)
        ox.ones(5, 3) @ ox.ones(3, 4)
    events = [e for e in p.events() if e.name == "MatMul"]
    assert [e.shapes for e in events] == [((2, 3), (3, 4)), ((5, 3), (3, 4))]
    assert [e.flops for e in events] == [48, 120] and "@" in events[0].line
    assert len([r for r in p.key_averages(group_by_input_shape=True) if r.key == "MatMul"]) == 2
    assert len([r for r in p.key_averages(group_by_stack_n=5) if r.key == "MatMul"]) == 2
    assert len([r for r in p.key_averages() if r.key == "MatMul"]) == 1
    table = p.key_averages(group_by_input_shape=True).table()
    assert "[[2, 3], [3, 4]]" in table and "MFLOPs" in table


def test_memory_of_new_outputs() -> None:
    x = ox.ones(1000)
    with profile(profile_memory=True) as p, record_function("outer"):
        y = x + 1.0
        y.reshape(10, 100)
    found = rows(p)
    assert found["Add", "forward"].self_cpu_memory_usage == 4000
    assert found["Reshape", "forward"].cpu_memory_usage == 0  # a view
    outer = found["outer", "forward"]
    assert outer.cpu_memory_usage == 4000 and outer.self_cpu_memory_usage == 0
    assert "3.91 KB" in p.key_averages().table("cpu_memory_usage")


def test_modules_forward_and_backward() -> None:
    with profile(with_modules=True) as p:
        step(model())
    found = {(r.key, r.phase): r for r in p.module_averages()}
    for phase in ("forward", "backward"):
        inner, outer = found["Sequential.2.0", phase], found["Sequential", phase]
        assert inner.count >= 1 and outer.count > inner.count
        assert outer.cpu_time_total >= found["Sequential.2", phase].cpu_time_total
    assert any(r.module == "Sequential.1" for r in p.key_averages(group_by_module=True))
    assert "Module" in p.key_averages(group_by_module=True).table()


def test_chrome_trace(tmp_path: Path) -> None:
    with profile(with_modules=True, record_shapes=True) as p:
        step(model())
        p.step()
    p.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    names = {e["name"] for e in spans}
    assert {"step", "Relu", "ReluBackward", "Sequential.1", "Sequential.1 (backward)", "ProfilerStep#0"} <= names
    assert all(e["dur"] >= 0 and isinstance(e["ts"], float) for e in spans)
    outer = next(e for e in spans if e["name"] == "step")
    inner = next(e for e in spans if e["name"] == "Relu")
    assert outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


def test_a_schedule(tmp_path: Path) -> None:
    N, W, R, S = ProfilerAction
    plan = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    assert [plan(i) for i in range(11)] == [N, N, W, R, S, N, W, R, S, N, N]
    assert [schedule(wait=2, warmup=0, active=1, skip_first_wait=1)(i) for i in range(4)] == [S, N, N, S]
    seen = []

    def ready(p: profile) -> None:
        seen.append([e.name for e in p.events() if e.name.startswith("range")])

    with profile(schedule=plan, on_trace_ready=ready) as p:
        for i in range(11):
            with record_function(f"range{i}"):
                ox.ones(2) + 1.0
            p.step()
    assert seen == [["range3", "range4"], ["range7", "range8"]]
    with profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path / "log"), "me", use_gzip=True)):
        ox.ones(2) + 1.0
    (file,) = (tmp_path / "log").iterdir()
    assert file.name.startswith("me.") and file.name.endswith(".pt.trace.json.gz")
    assert json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]


def test_record_function_decorates_and_survives_errors() -> None:
    @record_function("named")
    def broken() -> None:
        raise KeyError

    with profile() as p:
        with pytest.raises(KeyError):
            broken()
        with pytest.raises(ox.errors.ShapeError):
            ox.ones(2) + ox.ones(3)
        ox.ones(2) + 1.0
    assert [e.name for e in p.events()] == ["named", "Add", "Add"]


def test_it_works_beside_anomaly_detection() -> None:
    x = ox.zeros(2, requires_grad=True)
    with profile() as p, ox.autograd.detect_anomaly(), pytest.raises(ox.errors.GradientError, match="NaN"):
        (x / x).sum().backward()
    assert p.events()
    with ox.autograd.detect_anomaly(), profile() as p, pytest.raises(ox.errors.GradientError, match="NaN"):
        (x / x).sum().backward()
    assert any(e.backward for e in p.events())


def test_what_it_refuses() -> None:
    p = profile()
    with pytest.raises(ArgumentError, match="nothing yet"):
        p.events()
    with p:
        with pytest.raises(ArgumentError, match="running already"):
            p.start()
        ox.ones(2) + 1.0
    with pytest.raises(ArgumentError, match="not sorted by 'size'"):
        p.key_averages().table("size")
    with pytest.raises(ArgumentError, match="records one step"):
        schedule(wait=0, warmup=0, active=0)
    assert ProfilerActivity.CPU in ox.profiler.supported_activities()


def test_what_is_on_its_way_has_a_lane_of_its_own() -> None:
    from ox.profiler.collection import in_flight

    in_flight("nobody looks")()
    with ox.profiler.profile() as p:
        with ox.profiler.record_function("around"):
            landed = in_flight("journey", backward=True)
            ox.ones(3).exp()
        landed()
    events = {e.name: e for e in p.events()}
    journey, around = events["journey"], events["around"]
    assert around.start <= journey.start and journey.end >= around.end  # it outlives what it began in
    assert journey.self_cpu_time_total == 0 and around.self_cpu_time_total > 0 and journey.phase == "backward"
    assert journey.thread != around.thread
    assert "nobody looks" not in events
