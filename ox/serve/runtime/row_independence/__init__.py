"""Which rows of a model's outputs depend on which rows of its inputs, read from its graph without running it.

Imports ox.serve.config and ox.serve.operator_kinds only; imported by ox.serve.runtime only.
"""

# Every tensor either does not depend on the batch, or carries the rows on one axis, so that it holds for each row what
# it would hold for that row alone. Operators that keep this have a rule (a table for each family); the others are
# refused with a reason, and so is whatever no rule knows.

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from onnx import ModelProto

from ox.serve.runtime.row_independence import classical as classical
from ox.serve.runtime.row_independence import constants as constants
from ox.serve.runtime.row_independence import contrib as contrib
from ox.serve.runtime.row_independence import control as control
from ox.serve.runtime.row_independence import elementwise as elementwise
from ox.serve.runtime.row_independence import indexing as indexing
from ox.serve.runtime.row_independence import layout as layout
from ox.serve.runtime.row_independence import matrix as matrix
from ox.serve.runtime.row_independence import quantization as quantization
from ox.serve.runtime.row_independence import recurrent as recurrent
from ox.serve.runtime.row_independence import reduction as reduction
from ox.serve.runtime.row_independence import refusals as refusals
from ox.serve.runtime.row_independence import shapes as shapes
from ox.serve.runtime.row_independence import vision as vision
from ox.serve.runtime.row_independence.walk import TooLarge, Walk


def rows_mix(model: ModelProto, folder: Path | None = None, axes: Mapping[str, int] | None = None) -> str | None:
    """Why rows of the outputs depend on more than the same rows of the inputs; None if they certainly do not.

    Sizes besides the rows are taken to be 1 or more. Raises nothing, whatever the model is.

    Args:
        model: the parsed file.
        folder: where external data lies.
        axes: the axis that counts as rows, by input and output, of those that have one; without it the first of each,
            which is the batch.
    """
    try:
        return Walk(model, folder, axes).why()
    except (TooLarge, RecursionError):
        return "its graph is too large, or nested too deeply, to be followed"
    except Exception as error:
        return f"its graph cannot be followed ({type(error).__name__})"
