"""Writes the report of a run."""

from __future__ import annotations

import os
from pathlib import Path

from ox.train.report.findings import find
from ox.train.report.page import page
from ox.train.run.run import Run, write_text
from ox.train.run.session import restore
from ox.train.run.summary import summarize


def write(run: Run, path: str | os.PathLike[str] | None = None) -> Path:
    """Writes the report of a run as an HTML file, atomically.

    The best weights are run on the test set (without one: on the validation data) for the confusion matrix and the
    samples with the largest losses. The report shows these samples of the data set.

    Args:
        path: default: ``report.html`` in the run's folder.

    Raises:
        LoadError: there is no best checkpoint yet, or it is damaged.
        RecipeError: the run's recipe file or its data is missing.
        WriteError: the file cannot be written.
    """
    recipe, model = restore(run)
    data = recipe.data().first(run.options.limit)
    name, part = list(data.parts().items())[-1]
    path = Path(path) if path is not None else run.folder / "report.html"
    write_text(path, page(summarize(run), name, find(recipe, model, part), recipe.labels))
    return path
