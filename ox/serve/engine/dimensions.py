"""What the memory of runs means for the sizes of a model's inputs."""

from __future__ import annotations

import numpy as np

from ox.errors import LoadError, ServeError
from ox.serve.engine.proof import draw
from ox.serve.engine.session import Engine


def check_smallest(name: str, engine: Engine) -> None:
    """Runs a model of fixed sizes, which did not run before, to tell what hinders it.

    Raises:
        LoadError: one row needs more memory than all runs may take, so no request could be answered.
    """
    if any(not isinstance(dim, int) for info in engine.inputs for dim in info.dims[1:]):
        return
    try:
        engine.run(draw(engine.inputs, (), 1, np.random.default_rng(0)))
    except ServeError as error:
        if error.status == 413:
            what = f"{name} needs more memory than its runs may take, even for one row"
            raise LoadError(what, expected=error.expected, got=error.got, hint="--limit memory=...") from error
