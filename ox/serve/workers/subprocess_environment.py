"""The environment of Python subprocesses of the server: they import the same `ox`."""

from __future__ import annotations

import os
from pathlib import Path


def subprocess_environment() -> dict[str, str]:
    """This process's variables, with `PYTHONPATH` led by the folder that holds `ox`.

    Not all of `sys.path`: `PYTHONPATH` goes before the standard library, which a file beside a user's script, such as
    `types.py`, would hide from the other process. For the same reason start it with ``python -P``.
    """
    here = str(Path(__file__).parents[3])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])}
