"""Training that begins from an ONNX file: `ox train --from model.onnx --data ...`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ox.data import Subset, TensorDataset
from ox.data.npy import read_npy
from ox.errors import ArgumentError, DTypeError, LoadError, RecipeError, ShapeError
from ox.train.datasets import first
from ox.train.samples import batches, plain

MOST = 1_000_000  # classes; a target beyond is a slip, and a head for it would not fit into memory
FILE = "base.onnx"  # what a run calls its copy

ARRAYS_PAGE = '''"""The arrays of {name}, to train a loaded file on."""

import numpy as np

import ox
from ox import nn
from ox.data import TensorDataset, random_split

defaults = {{"epochs": 5, "batch_size": 16, "lr": 0.001}}
loss = nn.CrossEntropyLoss()


def data():
    """7 of 10 samples to learn from, the rest in halves: to choose the best epoch by, and held back."""
    arrays = np.load({path!r}, allow_pickle=False)
    samples = TensorDataset(*(arrays[name] for name in {inputs!r}), arrays["target"].astype(np.int64))
    return tuple(random_split(samples, [0.7, 0.15, 0.15], ox.Generator(0)))
'''


@dataclass(frozen=True)
class Base:
    """The file that a run begins from.

    Attributes:
        path: the file; a run keeps a copy.
        layers: which of them learn: ``all``, or ``head``, the last one.
        classes: how many scores a new head gives; None keeps the file's own head.
        source: where a run's copy came from.
        opened: the file as it was read when the recipe was made; the first model is made of it.
    """

    path: Path
    layers: str = "all"
    classes: int | None = None
    source: Path | None = None
    opened: list[Any] = field(default_factory=list, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The file's own name."""
        return (self.source or self.path).name

    def model(self, parts: Mapping[str, Any], collate: Callable[[list[Any]], Any] | None = None) -> Any:
        """The file as a module that gives scores, tried on the first samples of the data's `parts`.

        Raises:
            RecipeError: the file does not take the data.
            ArgumentError: other layers. LoadError: a file that cannot be trained so.
        """
        from ox.nn.fine_tune import LAYERS, FineTuned
        from ox.nn.loaded import load

        if self.layers not in LAYERS:
            raise ArgumentError(f"there are no layers '{self.layers}'", expected=" or ".join(LAYERS))
        try:
            net = self.opened.pop() if self.opened else load(self.path)
            names = [value.name for value in net.graph.inputs]
            inputs, _ = next(batches(first(parts.get("validation", parts["train"]), 2), 2, collate, names))
            model = FineTuned(net, self.layers, self.classes, inputs)
        except (ArgumentError, ShapeError, DTypeError) as error:
            raise RecipeError(
                f"the data do not fit {self.name}: {error.what}",
                where=error.where, expected=error.expected, got=error.got, hint=error.hint,
            ) from error  # fmt: skip
        return model

    def check(self, model: Any, parts: Mapping[str, Any]) -> None:
        """Raise RecipeError where the data name a class that has no score."""
        for name, part in parts.items():
            targets = _targets(part)
            if targets is None or targets.dtype.kind not in "iu" or targets.ndim != 1 or len(model.shape) != 2:
                continue
            scores = model.shape[1]
            if targets.max() >= scores:
                raise RecipeError(
                    f"a target of the {name} data has no score",
                    expected=f"0 to {scores - 1}: there are {scores} scores", got=str(targets.max()),
                    hint="labels = [...] in the page, one a class, for a new head of so many",
                )  # fmt: skip

    def to_table(self) -> dict[str, Any]:
        table: dict[str, Any] = {"file": FILE, "source": str(self.path.resolve()), "layers": self.layers}
        return table if self.classes is None else table | {"classes": self.classes}

    @staticmethod
    def of_table(table: Mapping[str, Any], folder: Path) -> Base:
        """The base of a run, from its config."""
        return Base(folder / FILE, table["layers"], table.get("classes"), Path(table["source"]))

    def keep(self, folder: Path) -> None:
        """A copy for the run, its weights inside."""
        from ox.files import write_whole
        from ox.graph.source import read_model

        file = read_model(self.path).SerializeToString()

        def write(temporary: Path) -> None:
            temporary.write_bytes(file)

        write_whole(folder / FILE, write)


def scores_of(net: Any) -> tuple[tuple[str, ...], int | None]:
    """The names of a loaded file's inputs, and how many scores its first output has, where it says so."""
    from ox.nn.fine_tune import find_head

    names = tuple(value.name for value in net.graph.inputs)
    dims = net.graph.outputs[0].dims
    if dims and isinstance(dims[-1], int) and dims[-1] > 0:
        return names, dims[-1]
    try:
        head = find_head(net)
    except LoadError:
        return names, None
    return names, head.scores


def _targets(part: Any) -> np.ndarray[Any, Any] | None:
    """All targets of a dataset, where they can be had without reading each sample."""
    if isinstance(part, Subset):
        targets = _targets(part.dataset)
        return None if targets is None else targets[part.indices]
    return plain(part.tensors[-1]) if isinstance(part, TensorDataset) else None


def arrays_page(path: Path, inputs: tuple[str, ...]) -> tuple[str, int]:
    """A page whose data are the arrays of an .npz file, and how many classes its targets name.

    Raises:
        RecipeError: not such a file, or not the arrays that are needed.
    """
    needed = [*inputs, "target"]
    try:
        read = read_npy(path)
        if isinstance(read, np.ndarray):
            raise LoadError(f"{path} is one array", got="a single array, as in .npy")
    except LoadError as error:
        raise RecipeError(
            f"{path} cannot be read", expected=error.expected or "an .npz file of plain arrays", got=error.got,
            hint=error.hint,
        ) from error  # fmt: skip
    if missing := [name for name in needed if name not in read]:
        raise RecipeError(
            f"{path} has no array '{missing[0]}'", expected=", ".join(needed), got=", ".join(read) or "no array"
        )
    arrays = {name: read[name] for name in needed}
    target, lengths = arrays["target"], {name: len(x) if x.ndim else None for name, x in arrays.items()}
    classes = target.ndim == 1 and target.dtype.kind in "iu"
    if not classes or (target.size and not 0 <= target.min() <= target.max() < MOST):
        reach = f" from {target.min()} to {target.max()}" if classes else ""
        raise RecipeError(
            f"'target' in {path} names no classes", expected=f"integers from 0 to {MOST - 1:,}, one a sample",
            got=f"{target.dtype} {list(target.shape)}{reach}",
        )  # fmt: skip
    if set(lengths.values()) != {len(target)} or len(target) < 10:
        raise RecipeError(
            f"the arrays of {path} are no samples",
            expected="one length for all, at least 10",
            got=", ".join(f"{name} {'a number' if n is None else n}" for name, n in lengths.items()),
        )
    text = ARRAYS_PAGE.format(name=path.name, path=str(path.resolve()), inputs=list(inputs))
    return text, int(target.max()) + 1
