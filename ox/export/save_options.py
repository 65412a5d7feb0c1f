"""What `ox.export.save` is told besides the model, checked before anything is recorded or written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.dtypes import is_floating
from ox.errors import ArgumentError, ExportError
from ox.export.proof import Case


def check_options(*, optimize: Any, seed: Any, metadata: Any, external_above: Any) -> None:
    """Raise ArgumentError for a value of the wrong kind."""
    if optimize not in (None, "inference"):
        raise ArgumentError(
            f"there is no optimization '{optimize}'", expected="'inference' or None", got=repr(optimize)
        )
    if not (seed is None or isinstance(seed, bool) or (isinstance(seed, str) and seed)):
        raise ArgumentError("seed is the name of an input", expected='seed="seed", or seed=True', got=repr(seed))
    for key, text in dict(metadata or {}).items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ArgumentError(
                "metadata are texts by name", got=f"{key!r}: {text!r}", hint="str(...) or json.dumps(...)"
            )
    if isinstance(external_above, bool) or not isinstance(external_above, (int, float)):
        raise ArgumentError("external_above is a number of bytes", got=repr(external_above))


def check_outputs(cases: Sequence[Case]) -> None:
    """Raise ExportError where an output has no finite number in any run: every file would be found equal to the
    model."""
    runs = [case for case in cases if case.in_report]
    for name, output in runs[0].outputs.items():
        if is_floating(output.dtype) and output.size and not any(np.isfinite(c.outputs[name]).any() for c in runs):
            kind = "NaN" if all(np.isnan(case.outputs[name]).all() for case in runs) else "NaN or infinite"
            raise ExportError(
                f"'{name}' is {kind} for every example, so nothing can be proven",
                hint='an example of numbers that the model is for; proof="warn" writes the file all the same',
            )
