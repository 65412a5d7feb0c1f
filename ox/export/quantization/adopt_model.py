"""`ox.export.adopt`: a file of ox that another tool changed gets golden samples of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ox.errors import ArgumentError, ExportError
from ox.export.files import check_writable
from ox.export.quantization.golden import renew
from ox.export.quantization.quantize_model import score, write
from ox.export.quantization.sessions import open_session
from ox.export.quantization.source_model import is_narrow
from ox.export.save_model import note_failure
from ox.graph.contract import Contract
from ox.graph.reader.model_file import metadata_of
from ox.graph.reader.source import read_model


def adopt(
    path: str | os.PathLike[str],
    *,
    evaluate: Callable[[Any], float] | None = None,
    min_accuracy: float | None = None,
) -> tuple[Contract, float | None]:
    """Draw the golden samples of a file again, in place: it was exported by ox and quantized by another tool, such as
    `onnxruntime.quantization.quantize_dynamic`, which keeps the samples of the float model.

    Args:
        evaluate: takes a session of ONNX Runtime, returns the accuracy.
        min_accuracy: what `evaluate` must return; else the file stays as it is.

    Returns:
        The new contract, and the accuracy. Its tolerance is the largest difference from the old samples, or that of
        the file, if it had one that is larger.

    Raises:
        ArgumentError: the file has no golden samples, or is not quantized.
        ExportError: the accuracy is too low, an output is not finite, or the file cannot be written.
        LoadError: the file is missing or damaged.
    """
    path = Path(path)
    if min_accuracy is not None and evaluate is None:
        raise ArgumentError("a smallest accuracy needs `evaluate`", expected="a function of a session", got="None")
    model = read_model(path)
    metadata = metadata_of(model)
    if not Contract.from_metadata(metadata).samples:
        raise ArgumentError(
            f"{path} has no golden samples, so there is nothing to draw again",
            hint="ox serve takes the file as it is",
        )
    if not is_narrow(model):
        raise ArgumentError(
            f"{path} is not quantized: its golden samples are right as they are",
            expected="a file that another tool wrote in lower precision",
            got="a file in float32",
            hint=f"ox quantize {path}",
        )
    with note_failure(path):
        check_writable(path)
        session = open_session(model, str(path))
        accuracy = None if evaluate is None else score(evaluate, session)
        if accuracy is not None and min_accuracy is not None and not accuracy >= min_accuracy:
            raise ExportError(
                f"{path} is less accurate than it must be",
                expected=f"{min_accuracy} or more",
                got=f"{accuracy:.6g}",
            )
        contract = renew(model, metadata, session)
        write(model, path)
    return contract, accuracy
