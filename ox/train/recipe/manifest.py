"""What a run knows of its data: fingerprints, the indices of each part, and how samples are encoded.

It is stored in the run folder (data.json) and in the exported file. Each later command checks that `data()` of the
recipe returns the same data, and uses the stored indices and encoding, so that a test set never contains samples of the
training.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ox.core.random_stream import NEWEST, checked
from ox.data import Subset
from ox.data.checksum import checksum
from ox.data.datasets import Coding, TableDataset
from ox.errors import ArgumentError, LoadError, TrainError
from ox.graph.contract import DATASET
from ox.train.recipe.datasets import Data, full_name, length
from ox.train.recipe.fingerprint import fingerprint

FORMAT = 1
MAX_INDEX_BYTES = 1 << 16  # of all indices in an exported file; larger ones are left out, and only compared
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """One of the datasets of a recipe.

    Attributes:
        samples: their number; None for a stream.
        source_samples: the number of samples of the dataset that this is a part of, else `samples`.
        fingerprint: of that dataset; None if it has none.
        indices: the samples in that dataset, in order, int64 [samples]; None for all, or if they are not stored.
        digest: a checksum of the indices; None for all.
    """

    samples: int | None
    source_samples: int | None
    fingerprint: str | None
    indices: Indices | None = None
    digest: str | None = None


class Change(NamedTuple):
    """How some parts of the data differ from those of the training, in words."""

    parts: str
    then: str
    now: str


@dataclass(frozen=True)
class TableEncoding:
    """How a table becomes inputs: the arguments of `TableDataset`."""

    coding: Coding
    missing: str
    one_hot: bool
    max_categories: int

    def encode(self, table: Any = None) -> TableDataset:
        """Rows of another table, without the target; by default no row."""
        table = {column.name: [] for column in self.coding.features} if table is None else table
        return TableDataset(
            table, missing="fill" if self.missing == "fill" else "error", one_hot=self.one_hot,
            max_categories=self.max_categories, coding=Coding(self.coding.features, None),
        )  # fmt: skip


@dataclass(frozen=True)
class Manifest:
    """The data of a run.

    Attributes:
        seed, random_stream: of the random numbers that `data()` draws: the seed, and their version.
        recipe: the checksum of the recipe file.
        table: the encoding of a table; None for other data.
        classes: the names of the classes, if the dataset has them.
        normalization: mean and standard deviation of each channel of images.
        input_range: the smallest and the largest value of the first samples of images.
    """

    seed: int
    recipe: str
    parts: Mapping[str, Part]
    table: TableEncoding | None = None
    classes: tuple[str, ...] | None = None
    normalization: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    input_range: tuple[float, float] | None = None
    random_stream: int = NEWEST

    @staticmethod
    def of(data: Data, seed: int, recipe: str, images: NDArray[Any] | None = None) -> Manifest:
        """The manifest of data that `data()` returned.

        Args:
            images: an array of some images as the model takes them, if it takes images.
        """
        encoding = table_encoding(data.train)
        source = _source(data.train)[0]
        classes = getattr(data.train, "classes", None) or getattr(source, "classes", None)
        names = tuple(map(str, classes)) if isinstance(classes, list | tuple) and classes else None
        reach = None if images is None or not images.size else (float(images.min()), float(images.max()))
        fingerprints: dict[int, str | None] = {}  # of each source, which the parts may share
        parts = {name: _part(each, fingerprints) for name, each in data.parts().items()}
        return Manifest(seed, recipe, parts, encoding, names, _normalization(source), reach)

    def apply(self, data: Data, where: str | None = None) -> Data:
        """The same data, without `changes`, with the stored indices and encoding.

        Args:
            where: the line of the recipe file, for errors.

        Raises:
            TrainError: the split is another one, and its indices are not stored.
        """
        parts = {name: self._stored_part(name, part, where) for name, part in data.parts().items()}
        return Data(parts["train"], parts.get("validation"), parts.get("test"))

    def changes(self, now: Manifest, split: bool = False) -> list[Change]:
        """How other data differ.

        Args:
            split: compare the indices, too.
        """
        several: dict[tuple[str, str], list[str]] = {}
        for name in {**self.parts, **now.parts}:
            pair = _difference(self.parts.get(name), now.parts.get(name), split)
            if pair is not None:
                several.setdefault(pair, []).append(full_name(name))
        return [Change(" and ".join(names), before, after) for (before, after), names in several.items()]

    def _stored_part(self, name: str, part: Any, where: str | None) -> Any:
        stored, (source, indices) = self.parts[name], _source(part)
        is_table = isinstance(part, TableDataset) and self.table is not None
        same_coding = not is_table or part.coding.features == self.table.coding.features  # type: ignore[union-attr]
        if stored.digest == _digest(indices) and same_coding:
            return part
        if stored.digest is not None and stored.indices is None:
            raise TrainError(
                f"data() splits differently in each call, and the file lacks the indices of the {full_name(name)}",
                where=where, expected=f"the same {stored.samples:,} indices",
                hint="use the run instead of the file; random_split or ox.randperm in data() give the same split again",
            )  # fmt: skip
        every = np.arange(length(source) or 0) if stored.indices is None else stored.indices
        if is_table:
            assert self.table is not None
            return part.select(every, self.table.coding)
        return source if stored.indices is None else Subset(source, every.tolist())

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {_number(part.samples)}" for name, part in self.parts.items())
        table = [] if self.table is None else [f"a table of {len(self.table.coding.features)} columns"]
        return " · ".join([f"{counts} samples", *table])

    @property
    def digest(self) -> str:
        """A checksum of all that is compared."""
        rows = [[name, p.samples, p.source_samples, p.fingerprint, p.digest] for name, p in self.parts.items()]
        return checksum([self.seed, self.recipe, rows])

    def to_text(self, max_index_bytes: int | None = None) -> str:
        """As JSON, for `from_text`.

        Args:
            max_index_bytes: leave out the indices if they are larger together.
        """
        indices = {name: _pack(part.indices) for name, part in self.parts.items() if part.indices is not None}
        if max_index_bytes is not None and sum(map(len, indices.values())) > max_index_bytes:
            indices = {}
        parts = {
            name: {
                "samples": part.samples, "source_samples": part.source_samples, "fingerprint": part.fingerprint,
                "digest": part.digest, "indices": indices.get(name),
            }
            for name, part in self.parts.items()
        }  # fmt: skip
        content: dict[str, Any] = {
            "format": FORMAT, "seed": self.seed, "random_stream": self.random_stream, "recipe": self.recipe,
            "parts": parts,
        }  # fmt: skip
        if self.table is not None:
            table = self.table
            content["table"] = {
                "coding": table.coding.to_dict(), "missing": table.missing, "one_hot": table.one_hot,
                "max_categories": table.max_categories,
            }  # fmt: skip
        for name in ("classes", "normalization", "input_range"):
            if (value := getattr(self, name)) is not None:
                content[name] = value
        return json.dumps(content, ensure_ascii=False)

    @staticmethod
    def from_text(text: str, where: str) -> Manifest:
        """What `to_text` wrote.

        Args:
            where: the file that it is from.

        Raises:
            LoadError: it is damaged, or of a newer format.
        """
        try:
            content = json.loads(text)
            if content["format"] != FORMAT:
                raise LoadError(
                    f"{where} is of a newer version of ox", expected=f"format {FORMAT}", got=str(content["format"])
                )
            parts = {str(name): _read_part(part) for name, part in content["parts"].items()}
            if "train" not in parts:
                raise ValueError("no training data")
            table, classes = content.get("table"), content.get("classes")
            if table is not None:
                table = TableEncoding(
                    Coding.from_dict(table["coding"]), str(table["missing"]), bool(table["one_hot"]),
                    int(table["max_categories"]),
                )  # fmt: skip
            normalization, reach = content.get("normalization"), content.get("input_range")
            if normalization is not None:
                mean, std = (tuple(map(float, numbers)) for numbers in normalization)
                normalization = mean, std
            if reach is not None:
                low, high = map(float, reach)
                reach = low, high
            return Manifest(
                int(content["seed"]), str(content["recipe"]), parts, table,
                None if classes is None else tuple(map(str, classes)),
                normalization,
                reach,
                checked(content["random_stream"]),
            )  # fmt: skip
        except LoadError as error:
            error.where = error.where or where
            raise
        except (ValueError, KeyError, TypeError, AttributeError, ArgumentError, zlib.error) as error:
            raise LoadError(
                f"the description of the training data in {where} is damaged", got=f"{type(error).__name__}: {error}"
            ) from error


def manifest_of(metadata: Mapping[str, str], where: str) -> Manifest | None:
    """The manifest in an exported file; None without one. Raises LoadError if it is damaged."""
    text = metadata.get(DATASET)
    return None if text is None else Manifest.from_text(text, where)


def is_image(shape: tuple[int | None, ...]) -> bool:
    """Whether a sample of this shape may be an image: [h, w], [c, h, w] or [h, w, c]."""
    return len(shape) == 2 or (len(shape) == 3 and bool({shape[0], shape[2]} & {1, 3, 4}))


def changed(changes: list[Change]) -> str:
    """Changes as one text."""
    return "; ".join(f"{change.parts}: {change.then} then, {change.now} now" for change in changes)


def then_and_now(changes: list[Change]) -> tuple[str, str]:
    """Changes as two texts."""
    texts = zip(
        *((f"{change.parts}: {change.then}", f"{change.parts}: {change.now}") for change in changes), strict=True
    )
    then, now = ("; ".join(several) for several in texts)
    return then, now


def table_encoding(part: Any) -> TableEncoding | None:
    """How a table, or the table that a dataset is a part of, is encoded; None for other datasets."""
    while isinstance(part, Subset):
        part = part.dataset
    if not isinstance(part, TableDataset):
        return None
    return TableEncoding(part.coding, part.missing, part.one_hot, part.max_categories)


def _source(part: Any) -> tuple[Any, Indices | None]:
    """The dataset that this is a part of, and the indices in it; the dataset itself and None."""
    indices: Indices | None = None
    while type(part) is Subset:
        own = np.asarray([int(i) for i in part.indices], np.int64)
        own = np.where(own < 0, own + (length(part.dataset) or 0), own)
        indices, part = own if indices is None else own[indices], part.dataset
    if isinstance(part, TableDataset) and part.indices is not None and indices is None:
        return part.source, part.indices
    return part, indices


def _part(part: Any, fingerprints: dict[int, str | None]) -> Part:
    source, indices = _source(part)
    if id(source) not in fingerprints:
        fingerprints[id(source)] = fingerprint(source)
    return Part(length(part), length(source), fingerprints[id(source)], indices, _digest(indices))


def _digest(indices: Indices | None) -> str | None:
    return None if indices is None else checksum(indices)


def _normalization(source: Any) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Mean and standard deviation of the last `Normalize` in the transform of a dataset."""
    steps = [getattr(source, "transform", None)]
    found = None
    while steps:
        step = steps.pop(0)
        steps = [*(getattr(step, "transforms", None) or ()), *steps]
        if type(step).__name__ == "Normalize":
            mean, std = (np.atleast_1d(np.asarray(getattr(step, name, ()), float)) for name in ("mean", "std"))
            found = tuple(mean.tolist()), tuple(std.tolist())
    return found


def _difference(then: Part | None, now: Part | None, split: bool) -> tuple[str, str] | None:
    """How the dataset of a part differs, as two texts; None if it does not."""
    counts = [None if part is None else part.source_samples for part in (then, now)]
    if then is None or now is None or counts[0] != counts[1]:
        before, after = ("none" if n is None else f"{n:,} samples" for n in counts)
        return before, after
    if None in (then.fingerprint, now.fingerprint) or then.fingerprint == now.fingerprint:
        if split and then.digest != now.digest:
            return f"{_number(then.samples)} samples", f"{_number(now.samples)} samples, by another split"
        return None
    before, after = (f"{_number(part.source_samples)} samples, checksum {part.fingerprint}" for part in (then, now))
    return before, after


def _number(count: int | None) -> str:
    return "a stream of" if count is None else f"{count:,}"


def _pack(indices: Indices) -> str:
    """Differences of neighbours as 32-bit or 64-bit integers, compressed, as base64: ranges become small."""
    steps = np.diff(indices, prepend=np.int64(0))
    small = bool(steps.size == 0 or (abs(steps) < 2**31).all())
    data = zlib.compress(steps.astype("<i4" if small else "<i8").tobytes(), 9)
    return ("4" if small else "8") + base64.b64encode(data).decode()


def _unpack(text: str, count: int) -> Indices:
    """At most `count` and one more: a small text may be compressed from a very large one."""
    try:
        size = int(text[0])
        data = zlib.decompressobj().decompress(base64.b64decode(text[1:], validate=True), (count + 1) * size)
        steps = np.frombuffer(data, {4: "<i4", 8: "<i8"}[size])
    except (binascii.Error, KeyError, IndexError) as error:
        raise ValueError(f"indices that cannot be read: {error}") from error
    return np.cumsum(steps, dtype=np.int64)


def _read_part(content: Mapping[str, Any]) -> Part:
    samples, total, digest, packed = (content[name] for name in ("samples", "source_samples", "digest", "indices"))
    for count in (samples, total):
        if count is not None and (type(count) is not int or count < 0):
            raise ValueError(f"a number of samples {count!r}")
    indices = None if packed is None or samples is None else _unpack(packed, samples)
    if indices is not None and (
        _digest(indices) != digest or len(indices) != samples or not (indices >= 0).all() or not (indices < total).all()
    ):
        raise ValueError("indices that do not fit their checksum or the dataset")
    return Part(samples, total, content["fingerprint"], indices, digest)
