"""Training an ONNX file on other data: `ox train --from model.onnx --data ...`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ox.data import Subset, TensorDataset
from ox.data.datasets.npy import read_npy
from ox.errors import ArgumentError, DTypeError, LoadError, RecipeError, ShapeError
from ox.train.recipe.datasets import first
from ox.train.samples import as_array, batches

MAX_CLASSES = 1_000_000  # a larger target is an error in the data; its head would not fit into memory
FILE = "base.onnx"  # the copy in the run folder

ARRAYS_RECIPE = '''"""The arrays of {name}, to train a loaded file on."""

import numpy as np

import ox
from ox import nn
from ox.data import TensorDataset, random_split

defaults = {{"epochs": 5, "batch_size": 16, "lr": 0.001}}
loss = nn.CrossEntropyLoss()


def data():
    """70 % of the samples for training, 15 % for validation (they choose the best epoch), 15 % for testing."""
    arrays = np.load({path!r}, allow_pickle=False)
    samples = TensorDataset(*(arrays[name] for name in {inputs!r}), arrays["target"].astype(np.int64))
    return tuple(random_split(samples, [0.7, 0.15, 0.15], ox.Generator(0)))
'''


@dataclass(frozen=True)
class BaseModel:
    """The ONNX file from which a run starts.

    Attributes:
        path: the file; the run folder has a copy.
        layers: the layers to train: ``all``, or only the last one, ``head``.
        classes: the number of classes of a new head; None: keep the head of the file.
        source: the original path of the copy in a run folder.
        opened: the loaded file, from which the first model is made; so it is read only once.
    """

    path: Path
    layers: str = "all"
    classes: int | None = None
    source: Path | None = None
    opened: list[Any] = field(default_factory=list, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The name of the original file."""
        return (self.source or self.path).name

    def model(self, parts: Mapping[str, Any], collate: Callable[[list[Any]], Any] | None = None) -> Any:
        """The file as a module that returns scores; it is tried with the first samples of `parts`.

        Raises:
            RecipeError: the data do not fit the file.
            ArgumentError: `layers` is wrong. LoadError: the file cannot be trained.
        """
        from ox.onnx_module.fine_tune import LAYERS, FineTuned
        from ox.onnx_module.loaded import load

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
        """Raises RecipeError if a target is larger than the number of scores."""
        for name, part in parts.items():
            targets = _targets(part)
            if targets is None or targets.dtype.kind not in "iu" or targets.ndim != 1 or len(model.shape) != 2:
                continue
            scores = model.shape[1]
            if targets.max() >= scores:
                raise RecipeError(
                    f"a target of the {name} data has no score",
                    expected=f"0 to {scores - 1}: there are {scores} scores", got=str(targets.max()),
                    hint="labels = [...] in the recipe file, one per class, for a new head",
                )  # fmt: skip

    def to_table(self) -> dict[str, Any]:
        table: dict[str, Any] = {"file": FILE, "source": str(self.path.resolve()), "layers": self.layers}
        return table if self.classes is None else table | {"classes": self.classes}

    @staticmethod
    def from_table(table: Mapping[str, Any], folder: Path) -> BaseModel:
        """The base model of a run, from its config."""
        return BaseModel(folder / FILE, table["layers"], table.get("classes"), Path(table["source"]))

    def copy_to(self, folder: Path) -> None:
        """Writes a copy with embedded weights into a run folder."""
        from ox.graph.reader.source import read_model
        from ox.serialization.files import write_whole

        file = read_model(self.path).SerializeToString()

        def write(temporary: Path) -> None:
            temporary.write_bytes(file)

        write_whole(folder / FILE, write)


def input_names_and_scores(net: Any) -> tuple[tuple[str, ...], int | None]:
    """The input names of a loaded file, and the number of scores of its first output; None if unknown."""
    from ox.onnx_module.fine_tune import find_head

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
    """All targets of a dataset, if they are available without reading each sample; else None."""
    if isinstance(part, Subset):
        targets = _targets(part.dataset)
        return None if targets is None else targets[part.indices]
    return as_array(part.tensors[-1]) if isinstance(part, TensorDataset) else None


def arrays_recipe(path: Path, inputs: tuple[str, ...]) -> tuple[str, int]:
    """The text of a recipe file for the arrays of an .npz file, and the number of classes in its targets.

    Raises:
        RecipeError: not an .npz file, or an array is missing.
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
    if not classes or (target.size and not 0 <= target.min() <= target.max() < MAX_CLASSES):
        reach = f" from {target.min()} to {target.max()}" if classes else ""
        raise RecipeError(
            f"'target' in {path} names no classes", expected=f"integers from 0 to {MAX_CLASSES - 1:,}, one a sample",
            got=f"{target.dtype} {list(target.shape)}{reach}",
        )  # fmt: skip
    if set(lengths.values()) != {len(target)} or len(target) < 10:
        raise RecipeError(
            f"the arrays of {path} are no samples",
            expected="one length for all, at least 10",
            got=", ".join(f"{name} {'a number' if n is None else n}" for name, n in lengths.items()),
        )
    text = ARRAYS_RECIPE.format(name=path.name, path=str(path.resolve()), inputs=list(inputs))
    return text, int(target.max()) + 1
