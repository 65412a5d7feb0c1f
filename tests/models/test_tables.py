"""The recipes on tables and on a series: what goes in, what the baselines are, and that the networks beat them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ox
from ox import train
from ox_models import cars, tumours, weather
from ox_models.tables_data import split, table

Array = np.ndarray[Any, Any]


def arrays(page: Any) -> list[list[Array]]:
    """Of train, validation and held back, what a sample holds."""
    return [[tensor.numpy() for tensor in part.tensors] for part in page.data()]


def least_squares(features: list[Array], targets: list[Array]) -> Array:
    """What linear regression of the first part says about the last."""
    first, last = (np.concatenate([x, np.ones((len(x), 1))], 1) for x in (features[0], features[-1]))
    found: Array = last @ np.linalg.lstsq(first, targets[0], rcond=None)[0]
    return found


# -- the tables -------------------------------------------------------------------------------------------------------


def test_tables_are_whole() -> None:
    found = {name: table(name) for name in ("auto_mpg", "breast_cancer", "seattle_weather")}
    assert {name: len(next(iter(columns.values()))) for name, columns in found.items()} == {
        "auto_mpg": 392, "breast_cancer": 569, "seattle_weather": 1461,
    }  # fmt: skip
    for columns in found.values():
        for column in columns.values():
            assert column.dtype == object or np.isfinite(column).all()
    assert np.bincount([tumours.labels.index(word) for word in found["breast_cancer"]["diagnosis"]]).tolist() == [
        357,
        212,
    ]
    assert found["auto_mpg"]["weight"].mean() > 2900  # pounds


def test_they_are_scikit_learns() -> None:
    loaded = pytest.importorskip("sklearn.datasets").load_breast_cancer()
    columns = table("breast_cancer")
    answers = columns.pop("diagnosis")
    assert np.array_equal(np.stack(list(columns.values()), 1), loaded.data)
    assert [str(loaded.target_names[i]) for i in loaded.target] == list(answers)


def test_parts_share_no_row() -> None:
    rows = np.arange(100)
    parts = [part.tensors[0].tolist() for part in split(rows)]
    assert [len(part) for part in parts] == [60, 20, 20]
    assert sorted(row for part in parts for row in part) == rows.tolist()
    assert [part.tensors[0].tolist() for part in split(rows)] == parts


# -- classification ---------------------------------------------------------------------------------------------------


def test_scales_are_part_of_the_model() -> None:
    x = ox.from_numpy(np.array([[1000, 0.05], [3000, 0.07]], np.float32))
    layer = tumours.Standardize(x)
    assert np.allclose(layer(x).numpy(), np.array([[-1, -1], [1, 1]]) / np.sqrt(2), atol=1e-4)
    assert set(layer.state_dict()) == {"mean", "std"}
    measured = arrays(tumours)[0][0]
    assert measured[:, 3].mean() > 600  # areas go in as they were measured
    model = tumours.model()
    assert np.allclose(model[0](ox.from_numpy(measured)).numpy().std(0, ddof=1), 1, atol=1e-3)


def test_tumours_are_told_apart(tmp_path: Path) -> None:
    """Far better than the more frequent answer. On these 114 rows logistic regression is right, too."""
    answers = arrays(tumours)[2][1]
    run = train.train("tumours", out=tmp_path)
    assert run.result is not None
    held_back = run.result["held_back"]
    assert held_back["count"] == 114
    assert held_back["accuracy"] >= 0.96 > 0.62 > max(np.bincount(answers)) / len(answers)
    assert held_back["auroc"] >= 0.99


# -- regression -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_cars_beat_linear_regression(tmp_path: Path) -> None:
    parts = arrays(cars)
    features = [np.concatenate([numbers, np.eye(3)[origin]], 1) for numbers, origin, _ in parts]
    truth = [mpg for _, _, mpg in parts]
    linear = np.abs(least_squares(features, truth) - truth[-1]).mean()
    assert abs(linear - 2.34) < 0.01
    run = train.train("cars", out=tmp_path)
    assert run.result is not None
    assert run.result["held_back"]["count"] == 79
    assert run.result["held_back"]["mae"] < 0.87 * linear


def test_origins_are_words_and_no_numbers() -> None:
    """With the weights of one word's column at nothing, only that word changes nothing."""
    model = cars.model().eval()
    numbers, _, _ = (tensor[:1] for tensor in cars.data()[0].tensors)
    with ox.no_grad():
        usa, europe, japan = (model(numbers, ox.tensor([i])).item() for i in range(3))
        assert len({usa, europe, japan}) == 3
        model.hidden[0].weight[:, 7:9] = 0
        assert model(numbers, ox.tensor([1])).item() == model(numbers, ox.tensor([2])).item()
        assert model(numbers, ox.tensor([0])).item() == usa


# -- the series -------------------------------------------------------------------------------------------------------


def test_windows_end_where_forecasts_begin() -> None:
    columns = table("seattle_weather")
    highest, dates = columns["temp_max"].astype(np.float32), list(columns["date"])
    parts = arrays(weather)
    assert [len(days) for days, _ in parts] == [880, 182, 363]
    firsts = (30, dates.index("2014-07-01"), dates.index("2015-01-01"))
    for (days, truth), first in zip(parts, firsts, strict=True):
        assert days.shape[1:] == (weather.SEEN, 5)
        for i in (0, 1, len(days) - 1):
            assert days[i, :, 0].tolist() == highest[first + i - 30 : first + i].tolist()
            assert truth[i].tolist() == highest[first + i : first + i + 3].tolist()
    answered = [
        {first + i + k for i in range(len(days)) for k in range(3)}
        for (days, _), first in zip(parts, firsts, strict=True)
    ]
    assert not answered[0] & answered[1]
    assert not answered[1] & answered[2]
    assert parts[2][0][0, -1, 4] == 365  # the day before 2015
    assert parts[0][0][:, :, 4].max() == 366  # 2012 has one more


def test_an_untrained_forecaster_says_as_warm_as_today() -> None:
    model = weather.model().eval()
    days, _ = arrays(weather)[1]
    with ox.no_grad():
        found = model(ox.from_numpy(days)).numpy()
    assert np.allclose(found, np.repeat(days[:, -1, :1], 3, axis=1), atol=1e-5)


@pytest.mark.slow
def test_weather_beats_as_warm_as_today(tmp_path: Path) -> None:
    days, truth = arrays(weather)[2]
    persistence = np.abs(days[:, -1, :1] - truth).mean()
    assert abs(persistence - 2.957) < 0.01
    run = train.train("weather", out=tmp_path)
    assert run.result is not None
    assert run.result["held_back"]["mae"] < 0.9 * persistence
    assert run.result["sample"].startswith("29 to 31 December 2015: ")


@pytest.mark.parametrize("page", ["tumours", "cars", "weather"])
def test_trained_exported_served(page: str, three_commands: Callable[..., dict[str, Any]]) -> None:
    assert three_commands(page)["held_back"]["count"] == 64
