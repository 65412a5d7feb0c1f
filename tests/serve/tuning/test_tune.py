"""`ox tune serve`: what it measures, and what it recommends."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manual_clock import ManualClock
from onnx import TensorProto

from ox.errors import ArgumentError, LoadError, WriteError
from ox.serve.config.model_config import ModelConfig
from ox.serve.repository import model
from ox.serve.repository.model import Model
from ox.serve.tuning import tune
from ox.serve.tuning.chart import check, draw
from ox.serve.tuning.tune import Point, Setting, Tuning, layouts, recommend

FLOAT = TensorProto.FLOAT


def point(rate: float, p99: float, *setting: int) -> Point:
    return Point(Setting(*setting), 32, rate, p99 / 2, p99, 4.0)


def test_layouts() -> None:
    assert layouts(1) == [(1, 1)]
    assert layouts(2) == [(2, 1), (1, 2), (1, 1)]
    assert layouts(6) == [(6, 1), (3, 2), (2, 3), (1, 6), (3, 1)]


def test_the_shortest_wait_among_the_quickest() -> None:
    points = [point(1000, 9.0, 2, 1, 32), point(980, 3.0, 2, 1, 8), point(900, 1.0, 2, 1, 1)]
    assert recommend(points) is points[1]
    tuning = Tuning("m", tuple(points), points[1], (), 2, None)
    assert "98% of the highest" in tuning.reason()
    assert "the highest throughput" in Tuning("m", tuple(points), points[0], (), 2, None).reason()


@pytest.mark.parametrize("name", ["mlp", "my-model_2", "a.b c"])
def test_settings_as_the_server_reads_them(name: str) -> None:
    best = point(1000, 3.0, 2, 1, 8)
    document = tomllib.loads(Tuning(name, (best,), best, (), 2, None).toml())
    options = ModelConfig().updated(document["models"][name], "here")
    assert (options.instances, options.threads, options.max_rows, options.max_wait_ms) == (2, 1, 8, 0)


def test_measured_and_drawn(mlp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads count as no time: how many settings are measured does not depend on how busy the machine is."""
    monkeypatch.setattr(tune, "SYSTEM", ManualClock())
    monkeypatch.setattr(Model, "warm_s", property(lambda _: 0.0, lambda *_: None), raising=False)
    monkeypatch.setattr(tune, "SIZES", (1, 8))
    monkeypatch.setattr(tune, "CLIENTS", (1, 8))
    monkeypatch.setattr(tune, "usable_threads", lambda: 2)
    heard: list[Point] = []
    tuning = tune.tune(mlp, seconds=2.5, clients=8, tell=heard.append)
    assert {p.setting for p in tuning.points} == {Setting(i, t, n) for i, t in layouts(2) for n in (1, 8)}
    assert [p.clients for p in tuning.loads] == [1, 8] and set(heard) >= {*tuning.points, *tuning.loads}
    for p in heard:
        assert p.rate > 0 and 0 < p.p50 <= p.p99 and 1 <= p.rows <= p.setting.max_rows
    assert tuning.best in tuning.points and tuning.name == "mlp" and tuning.why is None
    draw(tuning, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(WriteError):
        draw(tuning, tmp_path / "nowhere" / "c.png")
    with pytest.raises(ArgumentError):
        check(tmp_path / "c.txt")


def test_runs_longer_than_their_time_are_measured(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a second for all settings and loads, with runs of 0.05 s each: none is said to answer nothing."""
    submit = Model.submit

    def slow(self: Model, job: Any) -> None:
        asyncio.get_running_loop().call_later(0.05, submit, self, job)

    monkeypatch.setattr(Model, "submit", slow)
    monkeypatch.setattr(tune, "SIZES", (1, 8))
    monkeypatch.setattr(tune, "CLIENTS", (1,))
    monkeypatch.setattr(tune, "usable_threads", lambda: 1)
    monkeypatch.setattr(tune, "FLOOR_S", 0.1)
    monkeypatch.setattr(tune, "LEAST_S", 0.02)
    heard: list[Point] = []
    tune.tune(mlp, seconds=0.1, clients=1, tell=heard.append)
    assert heard and all(p.rate > 0 and 0 < p.p50 < 10 for p in heard)


def test_too_little_time(mlp: Path) -> None:
    with pytest.raises(ArgumentError, match="too little time") as caught:
        tune.tune(mlp, seconds=0.99, tell=lambda _: None)
    assert caught.value.expected == "--seconds 1 or more"


def test_little_time_is_enough_for_some_settings(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "usable_threads", lambda: 16)  # 36 settings, 8 loads
    heard: list[Point] = []
    tuning = tune.tune(mlp, seconds=1.0, clients=4, tell=heard.append)
    assert len(tuning.points) + tuning.skipped == 36 and tuning.skipped and tuning.loads
    assert len(heard) == len(tuning.points) + len(tuning.loads) and tuning.best in tuning.points
    assert tuning.loads[-1].clients == 128


def test_thinned() -> None:
    values = (1, 2, 4, 8, 16, 32)
    assert [list(tune.evenly_spaced(values, count)) for count in (0, 1, 2, 3)] == [[32], [32], [1, 32], [1, 4, 32]]
    assert tune.evenly_spaced(values, 6) is tune.evenly_spaced(values, 99) is values


def test_a_folder_is_no_model(mlp: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="is a folder") as caught:
        tune.tune(mlp.parent, tell=lambda _: None)
    assert caught.value.hint == f"ox tune serve {mlp}"
    with pytest.raises(ArgumentError) as caught:
        tune.tune(tmp_path, tell=lambda _: None)
    assert "DIR/NAME/1/model.onnx" in str(caught.value.hint)


def test_inputs_that_nobody_can_make_up(build: Any) -> None:
    weights = {"shape": np.array([-1, 7, 11], np.int64)}
    path = build(
        "odd",
        [("Reshape", ["x", "shape"], ["y"], {})],
        {"x": (FLOAT, ["n", "m"])},
        {"y": (FLOAT, [None, 7, 11])},
        weights,
    )
    with pytest.raises(ArgumentError, match="no valid input"):
        tune.tune(path, tell=lambda _: None)


@pytest.mark.parametrize(("device", "instances"), [("cpu", 1), ("cuda", 1), ("cuda:1", 1), ("cuda:0,cuda:1", 2)])
def test_each_gpu_is_looked_at_before_sizes_are_chosen(
    monkeypatch: pytest.MonkeyPatch, device: str, instances: int
) -> None:
    def load(path: str, config: ModelConfig, limits: Any) -> None:
        raise LoadError(f"{config.instances} instances")

    monkeypatch.setattr(model, "Model", load)
    with pytest.raises(LoadError, match=f"^{instances} instances"):
        tune.tune("m.onnx", device=device, tell=print)
