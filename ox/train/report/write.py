"""From a run's folder to its page."""

from __future__ import annotations

import os
from pathlib import Path

from ox.train.report.findings import find
from ox.train.report.page import page
from ox.train.run import Run, write_text
from ox.train.session import restore
from ox.train.summary import summarize


def write(run: Run, path: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of a run; a file that was there stays until the new one is whole.

    The best weights run over what was held back (over validation, where nothing was) to find the confusion matrix and
    the worst samples. Those are real samples: whoever gets the page sees them.

    Args:
        path: default: ``report.html`` in the run's folder.

    Raises:
        LoadError: there is no best checkpoint yet, or it is damaged.
        RecipeError: the run's page is gone, or its data are.
        WriteError: the file cannot be written.
    """
    recipe, model = restore(run)
    data = recipe.data().first(run.options.limit)
    name, part = list(data.parts().items())[-1]
    path = Path(path) if path is not None else run.folder / "report.html"
    write_text(path, page(summarize(run), name, find(recipe, model, part), recipe.labels))
    return path
