"""Calibration data: what is run through a model to find the ranges of its activations."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, create_calibrator, save_tensors_data

from ox.core.tensor import is_tensor
from ox.devices import cpu
from ox.dtypes import is_floating
from ox.errors import ArgumentError
from ox.export.input_file import read_arrays
from ox.export.quantization.integers import CALIBRATED
from ox.export.quantization.source_model import tool_errors
from ox.graph.ir import Array

BATCH = 16  # rows of one run
METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "percentile": CalibrationMethod.Percentile,
    "entropy": CalibrationMethod.Entropy,
}
# As many bins as quantized bins, ONNX Runtime's default, leave entropy nothing to choose.
BINS = {CalibrationMethod.Entropy: {"num_bins": 512, "num_quantized_bins": 128}}
Feed = dict[str, Array]


class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """Feeds, one after another, as ONNX Runtime's calibration asks for them."""

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


def find_ranges(model: onnx.ModelProto, feeds: Iterable[Feed], method: CalibrationMethod, path: Path) -> None:
    """Runs a model and writes the range of each activation to a file, which `quantize_static` reads.

    Raises:
        ArgumentError: ONNX Runtime's tools find no range, as in histograms of values that are not finite.
    """
    with TemporaryDirectory(prefix="ox-quantize-") as folder:
        plain, augmented = (Path(folder) / name for name in ("plain.onnx", "augmented.onnx"))
        onnx.save(model, plain)
        with tool_errors():
            calibrator = create_calibrator(
                plain,
                list(CALIBRATED),
                augmented_model_path=str(augmented),
                calibrate_method=method,
                extra_options=BINS.get(method, {}),
            )
        try:
            calibrator.collect_data(Reader(feeds))
            ranges = calibrator.compute_data()
        except (ValueError, AssertionError) as error:
            raise ArgumentError(
                f"calibration by {method.name.lower()} finds no ranges for these data",
                expected="finite activations",
                got=str(error) or "activations that are not",
                hint="minmax, or data without outliers",
            ) from error
        save_tensors_data(ranges, path)


def read_calibration(data: Any, session: Any, infinite: bool) -> list[Feed]:
    """Calibration data as feeds of a session.

    Args:
        data: the path of an .npz or .npy file of arrays with rows along the first dimension; an array for the only
            input, a tuple in the order of the inputs, a dict of arrays by input name, each with such rows; or a list of
            such dicts, each of them one run. Where an input has no rows, the arrays are one run.
        infinite: whether infinities are allowed, such as those of a mask; NaN never is.

    Raises:
        LoadError: the file is missing or damaged.
        ArgumentError: it is empty, has other names than the inputs, rows of other types or sizes, or values that are
            not finite.
    """
    inputs = list(session.get_inputs())
    names = [info.name for info in inputs]
    if isinstance(data, (str, os.PathLike)):
        data = read_arrays(data, names)
    if isinstance(data, list) and all(isinstance(item, Mapping) for item in data):
        feeds = [_arrays(item, names) for item in data]
        for number, feed in enumerate(feeds):
            _check_finite(feed, f"run {number}, ", infinite)
            if not any(array.size for array in feed.values()):
                raise ArgumentError(
                    "a calibration run is empty",
                    where=f"run {number}",
                    expected="typical inputs of the model",
                    got=", ".join(f"{name} {list(array.shape)}" for name, array in feed.items()),
                    hint="leave this run out",
                )
    else:
        arrays = _arrays(_by_name(data, names), names)
        _check_finite(arrays, "", infinite)
        feeds = _cut(arrays, inputs)
    if not feeds:
        raise ArgumentError(
            "the calibration data are empty", expected="some hundred typical inputs of the model", got="0 rows"
        )
    for feed in feeds[:1]:
        for info in inputs:
            _check(feed[info.name], info)
    return feeds


def _by_name(data: Any, names: Sequence[str]) -> Mapping[str, Any]:
    if isinstance(data, Mapping):
        return data
    several = data if isinstance(data, tuple) else (data,)
    if len(several) != len(names):
        raise ArgumentError(
            "the calibration data do not fit the inputs", expected=", ".join(names), got=f"{len(several)} arrays"
        )
    return dict(zip(names, several, strict=True))


def _arrays(data: Mapping[str, Any], names: Sequence[str]) -> Feed:
    if set(data) != set(names):
        raise ArgumentError(
            "the calibration data have other names than the model's inputs",
            expected=", ".join(names),
            got=", ".join(map(str, data)) or "none",
        )
    return {name: np.asarray(cpu(x.array) if is_tensor(x) else x) for name, x in data.items()}


def _cut(arrays: Feed, inputs: Sequence[Any]) -> list[Feed]:
    """Runs of equal size; ONNX Runtime's histograms need that. One run where the inputs have no rows in common."""
    counts = {name: len(array) if array.ndim else None for name, array in arrays.items()}
    firsts = {info.name: info.shape[0] if info.shape else None for info in inputs}
    in_common = len({first if isinstance(first, int) else None for first in firsts.values()}) == 1
    if None in counts.values() or not in_common:
        return [arrays]
    if len(set(counts.values())) != 1:
        of_each_size = {(first, counts[name]) for name, first in firsts.items()}
        if None not in firsts.values() and len(of_each_size) == len(set(firsts.values())):
            return [arrays]
        raise ArgumentError(
            "the calibration data have different numbers of rows",
            got=", ".join(f"{name} {count}" for name, count in counts.items()),
            hint="in Python a list of dicts, each of them one run, may have any",
        )
    count = next(iter(arrays.values())).shape[0]
    if not count:
        return []
    first = inputs[0].shape[0] if inputs[0].shape else None
    size = first if isinstance(first, int) else min(BATCH, count)
    if size > count:
        raise ArgumentError(
            "too few calibration data for one run", expected=f"{size} rows, the model's batch size", got=str(count)
        )
    return [{name: x[i : i + size] for name, x in arrays.items()} for i in range(0, count - size + 1, size)]


def _check_finite(arrays: Feed, run: str, infinite: bool) -> None:
    """Raises ArgumentError for values that give an activation no range."""
    for name, array in arrays.items():
        if array.size == 0 or not is_floating(array.dtype):
            continue
        numbers = array.astype(np.float32) if array.dtype.itemsize < 4 else array
        bad = np.isnan(numbers) if infinite else ~np.isfinite(numbers)
        if bad.any():
            rows = np.flatnonzero(bad.reshape(len(bad), -1).any(1)) if bad.ndim else np.zeros(1, int)
            raise ArgumentError(
                "the calibration data are not finite",
                where=f"input '{name}', {run}row {rows[0]}",
                expected="finite numbers" if not infinite else "numbers",
                got=f"{numbers[bad].flat[0]} ({len(rows):,} of {len(bad) if bad.ndim else 1:,} rows)",
                hint="leave these rows out",
            )


def _check(array: Array, info: Any) -> None:
    sizes = info.shape
    fits = array.ndim == len(sizes) and all(
        not isinstance(size, int) or size == n for size, n in zip(sizes, array.shape, strict=True)
    )
    types = {"float": "float32", "double": "float64"}
    kind = info.type.removeprefix("tensor(").removesuffix(")")
    kind = types.get(kind, kind)
    if not fits or str(array.dtype) != kind:
        shown = ", ".join("?" if size is None else str(size) for size in sizes)
        raise ArgumentError(
            f"the calibration data do not fit input '{info.name}'",
            expected=f"{kind} [{shown}]",
            got=f"{array.dtype} {list(array.shape)}",
        )
