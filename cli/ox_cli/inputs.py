"""What `ox predict` reads: a file of arrays, a picture, a table or JSON, as the arrays that a model takes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.errors import ArgumentError, LoadError, ShapeError

if TYPE_CHECKING:
    from ox_cli.model_source import Source

Array = np.ndarray[Any, Any]
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm")
ENDINGS = "a .npy or .npz file, a picture (.png, .jpg), a table (.csv), a .json file, or held-back:INDEX"
LOOKED_AT = 32  # samples of the recipe, for the range of their values
LARGEST = 1 << 27  # bytes of a JSON file


@dataclass(frozen=True)
class Wanted:
    """An input of a model: its dimensions without the batch, None for any."""

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(['batch', *(str(d) if d is not None else '?' for d in self.dims)])}]"


def read(source: Source, path: Path) -> list[Array]:
    """The inputs of a batch, one array an input, from a file.

    Raises:
        LoadError: no such file, one that cannot be read, or one with values that are missing or not finite.
        ShapeError, ArgumentError: it does not hold what the model takes.
    """
    if not path.is_file():
        raise LoadError(f"there is no input {path}", expected=ENDINGS)
    kind = path.suffix.lower()
    readers: dict[str, Callable[[Source, Path, list[Wanted]], list[Array]]] = {
        ".npy": _numpy, ".npz": _numpy, ".csv": _table, ".tsv": _table, ".json": _json, **dict.fromkeys(IMAGES, _image)
    }  # fmt: skip
    if kind not in readers:
        raise LoadError(f"{path} is of a kind that is not read", expected=ENDINGS, got=kind or "no ending")
    wanted = _wanted(source)
    return _fitted(readers[kind](source, path, wanted), wanted, path)


def _wanted(source: Source) -> list[Wanted]:
    """What the model takes, as a sample of the recipe or the file says it."""
    if source.session is not None:
        return [
            Wanted(x.name, _numpy_type(x.type), tuple(d if isinstance(d, int) and d > 0 else None for d in x.shape[1:]))
            for x in source.session.get_inputs()
        ]
    from ox.train.export_inputs import input_names

    samples = _samples(source, 1)
    names = source.inputs or tuple(input_names(source.needed_recipe(), source.model))
    names = names or tuple(f"input {i}" for i in range(len(samples)))
    return [Wanted(name, x.dtype, x.shape[1:]) for name, x in zip(names, samples, strict=True)]


def _numpy_type(name: str) -> np.dtype[Any]:
    """Of ONNX Runtime's ``tensor(float)``."""
    inner = name.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64", "string": "object"}.get(inner, inner))


def _samples(source: Source, count: int) -> list[Array]:
    from ox.train.export_inputs import example_inputs

    return example_inputs(source.needed_recipe(), count, source.order)


def _fitted(arrays: list[Array], wanted: list[Wanted], path: Path) -> list[Array]:
    """In the types and ranks of the model's inputs: a lone sample gets its batch axis."""
    fitted = [a[np.newaxis] if a.ndim == len(w.dims) else a for a, w in zip(arrays, wanted, strict=False)]
    if len(arrays) != len(wanted) or not all(map(_fits, fitted, wanted)):
        raise ShapeError(
            "the input does not fit the model", where=str(path),
            expected=" and ".join(map(str, wanted)),
            got=" and ".join(f"{a.dtype} {list(a.shape)}" for a in arrays) or "no array",
        )  # fmt: skip
    return [_cast(a, w, path) for a, w in zip(fitted, wanted, strict=True)]


def _fits(array: Array, wanted: Wanted) -> bool:
    dims = array.shape[1:]
    return len(dims) == len(wanted.dims) and all(w in (None, d) for d, w in zip(dims, wanted.dims, strict=True))


def _cast(array: Array, wanted: Wanted, path: Path) -> Array:
    if array.dtype.kind not in "biuf" or wanted.dtype.kind not in "biuf":
        if array.dtype == wanted.dtype:
            return array
        raise ShapeError(
            "the input is of another kind than the model's", where=str(path),
            expected=str(wanted.dtype), got=str(array.dtype),
        )  # fmt: skip
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise LoadError(f"{path} holds NaN or infinity", got=f"first in sample {row}", hint="fill it, or leave it out")
    if array.dtype.kind == "f" and wanted.dtype.kind in "iub" and (array != np.round(array)).any():
        raise LoadError(f"{path} holds fractions, and '{wanted.name}' takes whole numbers", expected=str(wanted.dtype))
    if wanted.dtype.kind in "iu" and array.size:
        reach = np.iinfo(wanted.dtype)
        if float(array.min()) < reach.min or float(array.max()) > reach.max:
            raise LoadError(
                f"{path} holds numbers beyond {wanted.dtype}", expected=f"{reach.min} to {reach.max}",
                got=f"{array.min()} to {array.max()}",
            )  # fmt: skip
    return np.ascontiguousarray(array, dtype=wanted.dtype)


# -- each kind of file -----------------------------------------------------------------------------------------------


def _numpy(source: Source, path: Path, wanted: list[Wanted]) -> list[Array]:
    from ox.data.npy import read_npy

    found = read_npy(path)
    return [found] if isinstance(found, np.ndarray) else _in_order(found, wanted, path)


def _in_order(arrays: Mapping[str, Array], wanted: list[Wanted], path: Path) -> list[Array]:
    """Arrays by the names of the model's inputs; a single one needs no name."""
    names = [w.name for w in wanted]
    if set(names) <= set(arrays):
        return [arrays[name] for name in names]
    if len(arrays) == 1 and len(names) == 1:
        return list(arrays.values())
    raise LoadError(
        f"{path} does not hold the model's inputs", expected=", ".join(names), got=", ".join(arrays) or "no array"
    )


def _image(source: Source, path: Path, wanted: list[Wanted]) -> list[Array]:
    """A picture as the model's input: its channels, its size, its type and range."""
    from PIL import Image

    from ox.data.datasets.image_folder import read_image

    dims = wanted[0].dims
    if len(wanted) != 1 or len(dims) not in (2, 3) or (len(dims) == 3 and not {dims[0], dims[2]} & {1, 3, 4}):
        raise ShapeError(
            f"{path} is a picture, and the model takes none", expected=" and ".join(map(str, wanted)),
            hint="a .npy or .npz file",
        )  # fmt: skip
    first = len(dims) == 3 and dims[0] in (1, 3, 4)  # [c, h, w]; else [h, w, c] or [h, w]
    channels = 1 if len(dims) == 2 else dims[0] if first else dims[2]
    height, width = dims[1:] if first else dims[:2]
    scale = _scale(source, wanted[0], path)
    pixels = read_image(path, {1: "L", 3: "RGB", 4: "RGBA"}[channels or 1])
    if (height or pixels.shape[0], width or pixels.shape[1]) != pixels.shape[:2]:
        picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        size = (width or pixels.shape[1], height or pixels.shape[0])
        pixels = np.asarray(picture.resize(size, Image.Resampling.BILINEAR)).reshape(size[1], size[0], -1)
    array = pixels.transpose(2, 0, 1) if first else pixels if len(dims) == 3 else pixels[:, :, 0]
    return [array if scale == 1 else array.astype(np.float32) * np.float32(scale)]


def _scale(source: Source, wanted: Wanted, path: Path) -> float:
    """What grey levels from 0 to 255 are multiplied by: 1, or 1/255 where the recipe's own samples are from 0 to 1."""
    if wanted.dtype == np.uint8:
        return 1.0
    if source.recipe is None:
        return 1 / 255
    samples = _samples(source, LOOKED_AT)[0]
    low, high = float(samples.min()), float(samples.max())
    if low >= 0 and high <= 1:
        return 1 / 255
    if low >= 0 and 64 < high <= 255:
        return 1.0
    raise ArgumentError(
        "how a picture becomes the model's input only the recipe's page knows", where=str(path),
        expected="samples from 0 to 1, or from 0 to 255", got=f"samples from {low:.3g} to {high:.3g}",
        hint="np.save what the page makes of the picture, and ox predict that .npy file",
    )  # fmt: skip


def _table(source: Source, path: Path, wanted: list[Wanted]) -> list[Array]:
    """The rows of a CSV file: encoded as the recipe's `TableDataset` has learnt it, else numbers as they are."""
    from ox.data.datasets.columns import read_columns

    trained = _trained_table(source)
    if trained is not None:
        return _encoded(path, trained, path)
    columns = _numbers_without_header(path) or read_columns(path)
    text = [name for name, column in columns.items() if column.dtype == object]
    width = wanted[0].dims[-1] if wanted[0].dims else 1
    if len(wanted) != 1 or len(wanted[0].dims) > 1 or text or (width is not None and len(columns) != width):
        raise LoadError(
            f"the columns of {path} are not the model's input",
            expected=" and ".join(map(str, wanted)) + ", a column of numbers each",
            got=", ".join(f"{name} (text)" if name in text else name for name in columns),
            hint="the columns of training, in their order, without the target",
        )
    array = np.stack([np.asarray(column, np.float64) for column in columns.values()], 1)
    return [_some(array if wanted[0].dims else array[:, 0], path)]


def _numbers_without_header(path: Path) -> dict[str, Array] | None:
    """The columns of a file whose first line is numbers, as NumPy writes it; None where that line is a header, such as
    the 0,1,2 that pandas writes for columns without names."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        return None
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            cells = next(csv.reader(file, delimiter=delimiter), [])
        first = [float(cell) for cell in cells]
    except (OSError, ValueError, csv.Error):  # text, or what the reader of tables has the words for
        return None
    if not first or cells == [str(i) for i in range(len(cells))]:
        return None
    try:
        rows = np.loadtxt(path, np.float64, delimiter=delimiter, ndmin=2, encoding="utf-8-sig")
    except ValueError as error:
        raise LoadError(
            f"{path} has a line that is not {len(first)} numbers", got=str(error), hint="its first line is no header"
        ) from error
    return {f"column {i + 1}": column for i, column in enumerate(rows.T)}


def _some(array: Array, path: Path) -> Array:
    if not len(array):
        raise LoadError(f"{path} has no rows", expected="a header and at least one row")
    return array


def _trained_table(source: Source) -> Any:
    """The TableDataset that the recipe trains on, if there is one."""
    from ox.data import Subset
    from ox.data.datasets import TableDataset

    part = None if source.recipe is None else source.recipe.data().train
    while isinstance(part, Subset):
        part = part.dataset
    return part if isinstance(part, TableDataset) else None


def _encoded(table: Any, trained: Any, path: Path) -> list[Array]:
    """Rows as the training rows were encoded; their target, if they have one, is left out."""
    from ox.data.datasets import Coding, TableDataset
    from ox.train.samples import plain

    coding = Coding(trained.coding.features, None)
    rule = "fill" if trained.missing == "fill" else "error"
    try:
        rows = TableDataset(
            table, missing=rule, one_hot=trained.one_hot, max_categories=trained.max_categories, coding=coding
        )
    except (ArgumentError, LoadError) as error:
        error.where = str(path)
        raise
    if not len(rows):
        raise LoadError(f"{path} has no rows", expected="a header and at least one row")
    return [plain(x) for x in rows.batch(np.arange(len(rows)))]


def _json(source: Source, path: Path, wanted: list[Wanted]) -> list[Array]:
    """Nested lists of a single input, an object of them by input, or rows of the recipe's table as objects."""
    if path.stat().st_size > LARGEST:
        raise LoadError(f"{path} is too large", expected=f"at most {LARGEST:,} bytes", hint="an .npz file")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{path} is no JSON file", got=str(error) or type(error).__name__) from error
    rows = [value] if isinstance(value, dict) else value
    trained = _trained_table(source)
    if trained is not None and isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        names = [column.name for column in trained.coding.features]
        if lacking := [name for name in names for row in rows if name not in row]:
            raise LoadError(
                f"a row of {path} has no '{lacking[0]}'", expected=", ".join(names),
                got=", ".join(next(row for row in rows if lacking[0] not in row)),
            )  # fmt: skip
        return _encoded({name: [row[name] for row in rows] for name in names}, trained, path)
    if isinstance(value, dict):
        return _in_order({name: _numbers(x, path, name) for name, x in value.items()}, wanted, path)
    return [_numbers(value, path, wanted[0].name)]


def _numbers(value: Any, path: Path, name: str) -> Array:
    """Nested lists of one shape as an array."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.zeros(0, object)
    if array.dtype.kind not in "biuf" or not array.ndim:
        raise LoadError(
            f"'{name}' in {path} is no array of numbers",
            expected="nested lists of numbers, all of one length in each place",
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
