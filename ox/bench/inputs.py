"""Input tensors of requests: random values of the model's types and shapes, or a file's values."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ox.bench.model import Model, Tensor
from ox.errors import ArgumentError

Array = npt.NDArray[Any]
InputArrays = dict[str, Array]

TYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(bool),
    **{f"{kind}{bits}": np.dtype(f"{kind.lower()}{bits}") for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)},
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "BYTES": np.dtype(object),
}
VARIANTS = 8  # different requests, taken in turn, so that no cache of answers flatters a server


def draw(model: Model, rows: int, shapes: Mapping[str, tuple[int, ...]]) -> list[InputArrays]:
    """Several requests' inputs. The first open size becomes `rows`, every other one 1; `shapes` overrides both.

    Floating-point numbers are normal; whole ones are 0 or 1 (they may be indices or masks), those of 8 bits anything.
    """
    unknown = [name for name in shapes if name not in [tensor.name for tensor in model.inputs]]
    if unknown:
        names = ", ".join(tensor.name for tensor in model.inputs)
        raise ArgumentError(f"{model.name} has no input {unknown[0]!r}", expected=names)
    random = np.random.default_rng(0)
    return [
        {tensor.name: _values(tensor, _shape(tensor, rows, shapes), random) for tensor in model.inputs}
        for _ in range(VARIANTS)
    ]


def read(path: Path, model: Model) -> list[InputArrays]:
    """One request's inputs from a .npz of arrays by input name, or from a .json: a request's body, or lists by name.

    Raises:
        ArgumentError: the file is of another kind, or does not hold what the model takes.
    """
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as held:
                found: dict[str, Any] = dict(held)
        elif path.suffix == ".json":
            found = _lists(json.loads(path.read_text(encoding="utf-8")))
        else:
            raise ArgumentError("unknown file type for input data", expected=".json or .npz", got=str(path))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"{path} cannot be read", got=str(error)) from None
    names = [tensor.name for tensor in model.inputs]
    unknown = next((name for name in found if name not in names), None)
    if unknown is not None:
        what = f"{path} has {unknown!r}, which is not an input that {model.name} needs"
        raise ArgumentError(what, expected=", ".join(names))
    feed: InputArrays = {}
    for tensor in model.inputs:
        if tensor.name not in found:
            expected = ", ".join(each.name for each in model.inputs)
            raise ArgumentError(f"{path} lacks the input {tensor.name!r}", expected=expected, got=", ".join(found))
        feed[tensor.name] = _as_type(found[tensor.name], tensor, path)
    return [feed]


def datatype(tensor: Tensor) -> np.dtype[Any]:
    if tensor.datatype not in TYPES:
        raise ArgumentError(f"{tensor.name!r} has a type that cannot be sent", got=tensor.datatype)
    return TYPES[tensor.datatype]


def to_bytes(array: Array) -> bytes:
    """A tensor as the protocol's bytes: little-endian and row by row; texts with their length before each."""
    if array.dtype.hasobject:
        texts = [text if isinstance(text, bytes) else str(text).encode() for text in array.ravel()]
        return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    return array.tobytes()


def from_bytes(data: bytes, kind: str, shape: tuple[int, ...]) -> Array:
    """The other way round; raises ValueError where the bytes are not as many as type and shape want."""
    if kind == "BYTES":
        texts, at = [], 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "little")
            texts.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        if at != len(data):
            raise ValueError("a text that is longer than its tensor")
        return np.array([*texts, None], object)[:-1].reshape(shape)  # without the None NumPy would look into the texts
    return np.frombuffer(data, TYPES[kind]).reshape(shape)


def _shape(tensor: Tensor, rows: int, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    given = shapes.get(tensor.name)
    if given is None:
        return tuple(size if size >= 0 else rows if place == 0 else 1 for place, size in enumerate(tensor.shape))
    fits = len(given) == len(tensor.shape) and all(
        want in (-1, size) for want, size in zip(tensor.shape, given, strict=True)
    )
    if not fits:
        raise ArgumentError(
            f"the shape of {tensor.name!r} does not fit", expected=str(list(tensor.shape)), got=str(list(given))
        )
    return given


def _values(tensor: Tensor, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    kind = datatype(tensor)
    if kind.hasobject:
        texts = [f"text {number}" for number in random.integers(0, 1000, shape).ravel()]
        return np.array(texts, object).reshape(shape)
    if kind.kind in "iu":
        least, most = (np.iinfo(kind).min, np.iinfo(kind).max) if kind.itemsize == 1 else (0, 1)
        return random.integers(least, most, shape, kind, endpoint=True)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    return random.standard_normal(shape).astype(kind)


def _lists(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ValueError("it is not a JSON object")
    if not isinstance(entry.get("inputs"), list):
        return entry
    try:
        return {t["name"]: np.array(t["data"], object).reshape(t["shape"]) for t in entry["inputs"]}
    except (KeyError, TypeError) as error:
        raise ValueError(f"an input without {error}") from None


def _as_type(values: Any, tensor: Tensor, path: Path) -> Array:
    kind = datatype(tensor)
    try:
        array = np.asarray(values).astype(kind)
    except (ValueError, TypeError, OverflowError) as error:
        raise ArgumentError(
            f"{tensor.name!r} in {path} is not of its type", expected=tensor.datatype, got=str(error)
        ) from None
    _shape(tensor, 1, {tensor.name: array.shape})
    return np.ascontiguousarray(array)
