"""Writes the tables in models/ox_models/data from the packages scikit-learn and vega-datasets:
`pip install scikit-learn vega-datasets; python scripts/make_tables.py`. `ATTRIBUTION.txt` there says whose they are.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "models" / "ox_models" / "data"


def write(name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with open(DATA / name, "w", newline="", encoding="ascii") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    print(f"{DATA / name}: {(DATA / name).stat().st_size} bytes")


def breast_cancer() -> None:
    from sklearn.datasets import load_breast_cancer

    loaded = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in loaded.feature_names]
    kinds = [str(loaded.target_names[target]) for target in loaded.target]
    rows = ([*map(repr, row.tolist()), kind] for row, kind in zip(loaded.data, kinds, strict=True))
    write("breast_cancer.csv", [*names, "diagnosis"], rows)


def auto_mpg() -> None:
    """The cars whose consumption and power are known, as in most uses of this table."""
    cars = json.loads((files("vega_datasets") / "_data" / "cars.json").read_text())
    columns = {
        "mpg": "Miles_per_Gallon", "cylinders": "Cylinders", "displacement": "Displacement",
        "horsepower": "Horsepower", "weight": "Weight_in_lbs", "acceleration": "Acceleration",
        "year": "Year", "origin": "Origin", "name": "Name",
    }  # fmt: skip
    known = [car for car in cars if None not in car.values()]
    rows = ([car[key][:4] if key == "Year" else car[key] for key in columns.values()] for car in known)
    write("auto_mpg.csv", list(columns), rows)


def seattle_weather() -> None:
    days = csv.DictReader((files("vega_datasets") / "_data" / "seattle-weather.csv").read_text().splitlines())
    columns = ["date", "precipitation", "temp_max", "temp_min", "wind"]
    write("seattle_weather.csv", columns, ([day[name].replace("/", "-") for name in columns] for day in days))


if __name__ == "__main__":
    breast_cancer()
    auto_mpg()
    seattle_weather()
