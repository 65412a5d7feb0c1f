"""Reads the input file of `ox predict` (arrays, an image, a table or JSON) as the arrays that a model takes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.errors import ArgumentError, LoadError, ShapeError

if TYPE_CHECKING:
    from ox.train import Recipe
    from ox.train.recipe.manifest import TableEncoding
    from ox_cli.model_source import Source

Array = np.ndarray[Any, Any]
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm")
FILE_TYPES = "a .npy or .npz file, an image (.png, .jpg), a table (.csv), a .json file, or test:INDEX"
SCALE_SAMPLES = 32  # samples of the recipe, to find the range of pixel values
MAX_JSON_BYTES = 1 << 27  # bytes of a JSON file


@dataclass(frozen=True)
class InputSpec:
    """An input of a model. `dims` leaves out the batch dimension; None is any size."""

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(['batch', *(str(d) if d is not None else '?' for d in self.dims)])}]"


def read(source: Source, path: Path) -> list[Array]:
    """Reads a batch from a file; returns one array per input of the model.

    Raises:
        LoadError: the file is missing or cannot be read, or values are missing or not finite.
        ShapeError, ArgumentError: the contents do not fit the model's inputs.
    """
    if not path.is_file():
        raise LoadError(f"there is no input file {path}", expected=FILE_TYPES)
    kind = path.suffix.lower()
    readers: dict[str, Callable[[Source, Path, list[InputSpec]], list[Array]]] = {
        ".npy": _numpy, ".npz": _numpy, ".csv": _table, ".tsv": _table, ".json": _json,
        **dict.fromkeys(IMAGE_SUFFIXES, _image),
    }  # fmt: skip
    if kind not in readers:
        raise LoadError(f"{path} has an unknown file type", expected=FILE_TYPES, got=kind or "no file extension")
    specs = _input_specs(source)
    return _match_inputs(readers[kind](source, path, specs), specs, path)


def _input_specs(source: Source) -> list[InputSpec]:
    """The model's inputs, from the ONNX file or from a sample of the recipe."""
    if source.session is not None:
        return [
            InputSpec(
                x.name, _numpy_type(x.type), tuple(d if isinstance(d, int) and d > 0 else None for d in x.shape[1:])
            )
            for x in source.session.get_inputs()
        ]
    from ox.train.recipe.export_inputs import input_names
    from ox.train.samples import as_array

    recipe = _lenient(source)
    plain = recipe.optional("collate") is None and recipe.optional("example_inputs") is None
    if plain and source.manifest is not None and source.manifest.table is not None:
        samples, names = [as_array(x) for x in source.manifest.table.encode().batch(np.arange(0))], source.inputs
    else:
        samples = _samples(source, 1)
        names = source.inputs or tuple(input_names(recipe, source.model))
    names = names or tuple(f"input {i}" for i in range(len(samples)))
    return [InputSpec(name, x.dtype, x.shape[1:]) for name, x in zip(names, samples, strict=True)]


def _lenient(source: Source) -> Recipe:
    """The recipe, also with changed data: for the shapes of inputs, not for their values."""
    return replace(source.require_recipe(), on_change="ignore")


def _numpy_type(name: str) -> np.dtype[Any]:
    """The NumPy type of ONNX Runtime's ``tensor(float)``."""
    inner = name.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64", "string": "object"}.get(inner, inner))


def _samples(source: Source, count: int) -> list[Array]:
    from ox.train.recipe.export_inputs import example_inputs

    return example_inputs(_lenient(source), count, source.order)


def _match_inputs(arrays: list[Array], specs: list[InputSpec], path: Path) -> list[Array]:
    """Casts to the types of the model's inputs; a single sample gets a batch dimension."""
    matched = [a[np.newaxis] if a.ndim == len(w.dims) else a for a, w in zip(arrays, specs, strict=False)]
    if len(arrays) != len(specs) or not all(map(_fits, matched, specs)):
        raise ShapeError(
            "the input does not fit the model", where=str(path),
            expected=" and ".join(map(str, specs)),
            got=" and ".join(f"{a.dtype} {list(a.shape)}" for a in arrays) or "no array",
        )  # fmt: skip
    return [_cast(a, w, path) for a, w in zip(matched, specs, strict=True)]


def _fits(array: Array, spec: InputSpec) -> bool:
    dims = array.shape[1:]
    return len(dims) == len(spec.dims) and all(w in (None, d) for d, w in zip(dims, spec.dims, strict=True))


def _cast(array: Array, spec: InputSpec, path: Path) -> Array:
    if array.dtype.kind not in "biuf" or spec.dtype.kind not in "biuf":
        if array.dtype == spec.dtype:
            return array
        raise ShapeError(
            "the input has another kind of values than the model takes", where=str(path),
            expected=str(spec.dtype), got=str(array.dtype),
        )  # fmt: skip
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise LoadError(
            f"{path} contains NaN or infinity",
            got=f"first in sample {row}",
            hint="replace the value, or remove the sample",
        )
    if array.dtype.kind == "f" and spec.dtype.kind in "iub" and (array != np.round(array)).any():
        raise LoadError(f"{path} contains fractions, but input '{spec.name}' takes integers", expected=str(spec.dtype))
    if spec.dtype.kind in "iu" and array.size:
        reach = np.iinfo(spec.dtype)
        if float(array.min()) < reach.min or float(array.max()) > reach.max:
            raise LoadError(
                f"{path} contains numbers out of the range of {spec.dtype}", expected=f"{reach.min} to {reach.max}",
                got=f"{array.min()} to {array.max()}",
            )  # fmt: skip
    return np.ascontiguousarray(array, dtype=spec.dtype)


# -- one reader per file type -----------------------------------------------------------------------------------------


def _numpy(source: Source, path: Path, specs: list[InputSpec]) -> list[Array]:
    from ox.data.datasets.npy import read_npy

    content = read_npy(path)
    return [content] if isinstance(content, np.ndarray) else _in_order(content, specs, path)


def _in_order(arrays: Mapping[str, Array], specs: list[InputSpec], path: Path) -> list[Array]:
    """Orders arrays by the names of the model's inputs; a single array may have any name."""
    names = [w.name for w in specs]
    if set(names) <= set(arrays):
        return [arrays[name] for name in names]
    if len(arrays) == 1 and len(names) == 1:
        return list(arrays.values())
    raise LoadError(
        f"{path} does not contain the model's inputs", expected=", ".join(names), got=", ".join(arrays) or "no array"
    )


def _image(source: Source, path: Path, specs: list[InputSpec]) -> list[Array]:
    """Reads an image and converts it to the channels, size, type and range of the model's input."""
    from PIL import Image

    from ox.data.datasets.image_folder import read_image

    dims = specs[0].dims
    if len(specs) != 1 or len(dims) not in (2, 3) or (len(dims) == 3 and not {dims[0], dims[2]} & {1, 3, 4}):
        raise ShapeError(
            f"{path} is an image, but the model does not take images", expected=" and ".join(map(str, specs)),
            hint="a .npy or .npz file",
        )  # fmt: skip
    first = len(dims) == 3 and dims[0] in (1, 3, 4)  # [c, h, w]; else [h, w, c] or [h, w]
    channels = 1 if len(dims) == 2 else dims[0] if first else dims[2]
    height, width = dims[1:] if first else dims[:2]
    scale, mean, std = _scale(source, specs[0], path)
    pixels = read_image(path, {1: "L", 3: "RGB", 4: "RGBA"}[channels or 1])
    if (height or pixels.shape[0], width or pixels.shape[1]) != pixels.shape[:2]:
        picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        size = (width or pixels.shape[1], height or pixels.shape[0])
        pixels = np.asarray(picture.resize(size, Image.Resampling.BILINEAR)).reshape(size[1], size[0], -1)
    values: Array = pixels if scale == 1 else pixels.astype(np.float32) * np.float32(scale)
    if mean is not None:
        values = (values - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
    return [values.transpose(2, 0, 1) if first else values if len(dims) == 3 else values[:, :, 0]]


def _scale(source: Source, spec: InputSpec, path: Path) -> tuple[float, Any, Any]:
    """The factor for pixel values from 0 to 255: 1/255 where the samples of the training are from 0 to 1, else 1. And
    the mean and the standard deviation of its normalization, one per channel; None without."""
    if spec.dtype == np.uint8:
        return 1.0, None, None
    manifest = source.manifest
    if manifest is not None and manifest.normalization is not None:
        mean, std = (np.asarray(numbers) for numbers in manifest.normalization)
        high = manifest.input_range[1] if manifest.input_range is not None else -np.inf
        # pixels from 0 to 1 cannot become larger than that
        return 1 / 255 if high <= ((1 - mean) / std).max() + 1e-3 else 1.0, mean, std
    if manifest is not None and manifest.input_range is not None:
        low, high = manifest.input_range
    elif source.recipe is None:
        return 1 / 255, None, None
    else:
        samples = _samples(source, SCALE_SAMPLES)[0]
        low, high = float(samples.min()), float(samples.max())
    if low >= 0 and high <= 1:
        return 1 / 255, None, None
    if low >= 0 and 64 < high <= 255:
        return 1.0, None, None
    raise ArgumentError(
        "ox cannot tell how the recipe scales images", where=str(path),
        expected="samples from 0 to 1, or from 0 to 255", got=f"samples from {low:.3g} to {high:.3g}",
        hint="save the scaled image with np.save, and call ox predict with that .npy file",
    )  # fmt: skip


def _table(source: Source, path: Path, specs: list[InputSpec]) -> list[Array]:
    """Reads a CSV file, encoded like the recipe's `TableDataset`; without one, as plain numbers."""
    from ox.data.datasets.columns import read_columns

    encoding = source.table_encoding()
    if encoding is not None:
        return _encode_rows(path, encoding, path)
    columns = _numbers_without_header(path) or read_columns(path)
    text = [name for name, column in columns.items() if column.dtype == object]
    width = specs[0].dims[-1] if specs[0].dims else 1
    if len(specs) != 1 or len(specs[0].dims) > 1 or text or (width is not None and len(columns) != width):
        raise LoadError(
            f"the columns of {path} do not fit the model's input",
            expected=" and ".join(map(str, specs)) + ", one column of numbers for each value",
            got=", ".join(f"{name} (text)" if name in text else name for name in columns),
            hint="the columns of the training data in the same order, without the target",
        )
    array = np.stack([np.asarray(column, np.float64) for column in columns.values()], 1)
    return [_not_empty(array if specs[0].dims else array[:, 0], path)]


def _numbers_without_header(path: Path) -> dict[str, Array] | None:
    """The columns of a file without a header, as np.savetxt writes it; None if the first line is a header. The line
    0,1,2 is a header: pandas writes it for columns without names."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        return None
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            cells = next(csv.reader(file, delimiter=delimiter), [])
        first = [float(cell) for cell in cells]
    except (OSError, ValueError, csv.Error):  # text, or an error that read_columns reports
        return None
    if not first or cells == [str(i) for i in range(len(cells))]:
        return None
    try:
        rows = np.loadtxt(path, np.float64, delimiter=delimiter, ndmin=2, encoding="utf-8-sig")
    except ValueError as error:
        raise LoadError(
            f"{path} has a line that is not {len(first)} numbers",
            got=str(error),
            hint="the first line is numbers, no header",
        ) from error
    return {f"column {i + 1}": column for i, column in enumerate(rows.T)}


def _not_empty(array: Array, path: Path) -> Array:
    if not len(array):
        raise LoadError(f"{path} has no rows", expected="a header and at least one row")
    return array


def _encode_rows(table: Any, encoding: TableEncoding, path: Path) -> list[Array]:
    """Encodes rows like the training data, without the target column."""
    from ox.train.samples import as_array

    try:
        rows = encoding.encode(table)
    except (ArgumentError, LoadError) as error:
        error.where = str(path)
        raise
    if not len(rows):
        raise LoadError(f"{path} has no rows", expected="a header and at least one row")
    return [as_array(x) for x in rows.batch(np.arange(len(rows)))]


def _json(source: Source, path: Path, specs: list[InputSpec]) -> list[Array]:
    """Reads JSON: nested lists for one input, an object of lists by input name, or table rows as objects."""
    if path.stat().st_size > MAX_JSON_BYTES:
        raise LoadError(f"{path} is too large", expected=f"at most {MAX_JSON_BYTES:,} bytes", hint="an .npz file")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{path} is not a JSON file", got=str(error) or type(error).__name__) from error
    rows = [value] if isinstance(value, dict) else value
    encoding = source.table_encoding()
    if encoding is not None and isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        names = [column.name for column in encoding.coding.features]
        if absent := [name for name in names for row in rows if name not in row]:
            raise LoadError(
                f"a row of {path} has no '{absent[0]}'", expected=", ".join(names),
                got=", ".join(next(row for row in rows if absent[0] not in row)),
            )  # fmt: skip
        return _encode_rows({name: [row[name] for row in rows] for name in names}, encoding, path)
    if isinstance(value, dict):
        return _in_order({name: _numbers(x, path, name) for name, x in value.items()}, specs, path)
    return [_numbers(value, path, specs[0].name)]


def _numbers(value: Any, path: Path, name: str) -> Array:
    """Converts nested lists to an array."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.zeros(0, object)
    if array.dtype.kind not in "biuf" or not array.ndim:
        raise LoadError(
            f"'{name}' in {path} is not an array of numbers",
            expected="nested lists of numbers, of equal lengths at each level",
            got=_shape_of(value),
        )
    return array


def _shape_of(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        lengths = sorted({len(x) for x in value if isinstance(x, Sequence) and not isinstance(x, str)})
        inner = f" of lists of {' and '.join(map(str, lengths[:4]))}" if lengths else ""
        kinds = sorted({type(x).__name__ for x in value if not isinstance(x, list)})
        return f"a list of {len(value)}{inner}{f' of {chr(44).join(kinds)}' if kinds else ''}"
    return type(value).__name__
