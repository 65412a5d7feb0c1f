"""The contract inside a file: what a model takes and gives, and golden samples that let any runtime check itself.

Export writes it into the `metadata_props` of the ONNX file, the server and `ox inspect` read it:

    ox.version   "0.1.0"
    ox.run       the run that trained it, may be absent
    ox.tolerance how far outputs of a quantized file may be from its golden ones, may be absent
    ox.contract  JSON {"inputs": [{"name", "dtype", "dims", "meaning"}], "outputs": [{..., "labels"}],
                       "sizes": {name: {"min", "max", "multiple_of", "remainder"}}, "conditions": [["==", "n", "m"]]}
    ox.proof     JSON {"runtime", "rows": [{"batch", "sizes", "max_abs", "allowed"}], "failed": [text]}
    ox.data      the checksum of the weights in the file beside it, which ends with it, too; may be absent
    ox.dataset   JSON of `ox.train.recipe.manifest`: what it was trained on, split and encoding; may be absent
    ox.golden    JSON {"samples": [{"inputs": {name: {"dtype", "shape", "data"}}, "outputs": {...}}]}

Element types carry the names of the Open Inference Protocol (FP32, INT64, ...); `data` is base64 of little-endian
bytes, strings as in that protocol: a little-endian u32 length and the UTF-8 bytes, one after another.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from ox.errors import DTypeError, LoadError
from ox.graph.size_rules import SizeRules as SizeRules
from ox.tolerance import Through

Array = np.ndarray[Any, Any]
Dim = int | str | None  # a size, the name of a size that varies, or a nameless one

# Open Inference Protocol name -> NumPy type; BYTES is ONNX's string, an object array of str
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "BYTES": np.dtype(object),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LENGTH = struct.Struct("<I")  # before each string

VERSION, RUN, CONTRACT, GOLDEN, PRECISION = "ox.version", "ox.run", "ox.contract", "ox.golden", "ox.precision"
DATASET = "ox.dataset"  # written by `ox export`
PROOF = "ox.proof"  # written by ox.export.files, when the file has been proven
TOLERANCE = "ox.tolerance"
DATA = "ox.data"  # written by ox.export.files, where weights are beside the file
DATA_MARK = b"ox.data "  # what comes before the checksum, the last eight bytes of the data file


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The protocol's name of a NumPy type: float32 is FP32; every string type is BYTES.

    Raises:
        DTypeError: the protocol has no name for it (complex, dates, records).
    """
    name = "BYTES" if dtype.kind in "USO" else NAMES.get(dtype)
    if name is None:
        raise DTypeError(
            "the Open Inference Protocol has no such element type", expected=", ".join(DTYPES), got=str(dtype)
        )
    return name


def to_bytes(array: Array) -> bytes:
    """The elements in row-major order: little-endian, or for strings a u32 length and the bytes of each."""
    if array.dtype.kind not in "USO":
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    parts = []
    for item in array.ravel().tolist():
        text = item if isinstance(item, bytes) else str(item).encode()
        parts += [LENGTH.pack(len(text)), text]
    return b"".join(parts)


def from_bytes(data: bytes | bytearray, dtype: str, shape: tuple[int, ...]) -> Array:
    """The inverse of `to_bytes`: an array of `shape`, read-only where it can share memory with `data`.

    Raises:
        ValueError: the bytes are too few, too many, or not UTF-8.
    """
    if dtype == "BYTES":
        return _strings(data, math.prod(shape)).reshape(shape)
    kind = DTYPES[dtype]
    expected = math.prod(shape) * kind.itemsize
    if len(data) != expected:
        raise ValueError(f"{len(data)} bytes; {dtype} of shape {list(shape)} has {expected}")
    if dtype == "BOOL" and data.strip(b"\0\1"):
        raise ValueError("a BOOL byte that is neither 0 nor 1")
    return np.frombuffer(data, kind.newbyteorder("<")).reshape(shape)


def _strings(data: bytes | bytearray, count: int) -> Array:
    data = bytes(data)  # slices of a bytearray cost more
    size = len(data)
    if 4 * count > size:  # before anything is made for each of them
        raise ValueError(f"{size} bytes; {count} strings have {4 * count} at least")
    items: list[str] = []
    read, add = LENGTH.unpack_from, items.append
    at = 0
    while at < size and len(items) < count:
        if at + 4 > size:
            raise ValueError(f"string {len(items)} has no whole length")
        (length,) = read(data, at)
        start, at = at + 4, at + 4 + length
        if at > size:
            raise ValueError(f"string {len(items)} announces {length} bytes, {size - start} are left")
        add(data[start:at].decode())
    if at < size:
        raise ValueError(f"more than the {count} strings of the shape")
    if len(items) != count:
        raise ValueError(f"{len(items)} strings; the shape has {count}")
    array = np.empty(count, object)
    array[:] = items
    return array


@dataclass(frozen=True)
class TensorInfo:
    """One input or output: `dims` holds sizes and the names of those that vary; `labels` name an output's classes. One
    that a file declares without a shape is not `ranked`, and its `dims` are empty."""

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    meaning: str | None = None
    labels: tuple[str, ...] | None = None
    ranked: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} {show_dims(self.dims) if self.ranked else '[...]'}"

    def with_rank(self, rank: int) -> TensorInfo:
        """With so many dimensions of any size, if it is not ranked."""
        return self if self.ranked else replace(self, dims=(None,) * rank, ranked=True)

    def to_json(self) -> dict[str, Any]:
        labels = None if self.labels is None else list(self.labels)
        head = {"name": self.name, "dtype": self.dtype, "dims": list(self.dims), "meaning": self.meaning}
        return {**head, "labels": labels} if labels is not None else head

    @classmethod
    def from_json(cls, value: Any) -> TensorInfo:
        dtype, dims, labels = value["dtype"], value["dims"], value.get("labels")
        if dtype not in DTYPES:
            raise ValueError(f"unknown element type {dtype!r}")
        if not isinstance(dims, list) or not all(dim is None or type(dim) in (int, str) for dim in dims):
            raise ValueError(f"dims {dims!r}")
        return cls(str(value["name"]), dtype, tuple(dims), value.get("meaning"), labels and tuple(map(str, labels)))


def show_dims(dims: tuple[Dim, ...]) -> str:
    """[batch, 1, 8, 8]; a nameless size that varies is a question mark."""
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in dims) + "]"


@dataclass(frozen=True)
class Sample:
    """One row that the exporter ran: inputs and the outputs they gave, each with a leading dimension of 1."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]


@dataclass(frozen=True)
class Contract:
    """What a file says about itself. Without such metadata everything is empty."""

    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    samples: tuple[Sample, ...] = ()
    version: str | None = None
    run: str | None = None
    rules: SizeRules = field(default_factory=SizeRules)  # the sizes that the file is right for
    precision: str | None = None  # the narrowest type that the graph computes in, where it is mixed: "bfloat16"
    tolerance: float | None = None  # how far outputs may be from golden ones, where the file is quantized

    @property
    def through(self) -> Through:
        """`tolerance` or `precision` as `ox.tolerance` wants them."""
        if self.tolerance is not None:
            return self.tolerance
        return next((dtype for dtype in DTYPES.values() if dtype.name == self.precision), None)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Contract:
        """Reads `metadata_props` as a dict.

        Raises:
            LoadError: an entry is there but damaged; names it.
        """
        shape = _read(
            metadata,
            CONTRACT,
            lambda value: (
                *(tuple(TensorInfo.from_json(item) for item in value[key]) for key in ("inputs", "outputs")),
                SizeRules.from_json(value),
            ),
        )
        samples = _read(
            metadata,
            GOLDEN,
            lambda value: tuple(Sample(_arrays(item["inputs"]), _arrays(item["outputs"])) for item in value["samples"]),
        )
        inputs, outputs, rules = shape or ((), (), SizeRules())
        version, run, precision = (metadata.get(key) for key in (VERSION, RUN, PRECISION))
        tolerance = _read(metadata, TOLERANCE, _positive)
        return cls(inputs, outputs, samples or (), version, run, rules, precision, tolerance)

    def to_metadata(self) -> dict[str, str]:
        """The entries for `metadata_props`; what is absent gets none."""
        entries = {
            CONTRACT: _dump(
                {"inputs": [i.to_json() for i in self.inputs], "outputs": [o.to_json() for o in self.outputs]}
                | self.rules.to_json()
            )
        }
        if self.samples:
            samples = [{"inputs": _tensors(s.inputs), "outputs": _tensors(s.outputs)} for s in self.samples]
            entries[GOLDEN] = _dump({"samples": samples})
        tolerance = None if self.tolerance is None else repr(self.tolerance)
        told = ((VERSION, self.version), (RUN, self.run), (PRECISION, self.precision), (TOLERANCE, tolerance))
        return entries | {key: text for key, text in told if text is not None}


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{value} is no tolerance")
    return number


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _read(metadata: Mapping[str, str], key: str, convert: Any) -> Any:
    if key not in metadata:
        return None
    try:
        return convert(json.loads(metadata[key]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, binascii.Error) as error:
        got = f"{type(error).__name__}: {error}"
        raise LoadError(f"the metadata entry {key} is damaged", got=got, hint="export the model again") from error


def _tensors(arrays: Mapping[str, Array]) -> dict[str, Any]:
    return {
        name: {
            "dtype": dtype_name(array.dtype),
            "shape": list(array.shape),
            "data": base64.b64encode(to_bytes(array)).decode(),
        }
        for name, array in arrays.items()
    }


def _arrays(value: Any) -> dict[str, Array]:
    return {
        str(name): from_bytes(
            base64.b64decode(item["data"], validate=True), item["dtype"], tuple(map(int, item["shape"]))
        )
        for name, item in value.items()
    }
