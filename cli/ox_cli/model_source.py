"""What `ox eval` and `ox predict` run: the best weights of a run, or an ONNX file, behind one call on arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.errors import LoadError, OxError, ShapeError

if TYPE_CHECKING:
    from ox.train import Recipe

Array = np.ndarray[Any, Any]


@dataclass
class Source:
    """A model that can be run.

    `inputs` names the arguments of `run` where they are known; `recipe` is what trained it, where that is known.
    """

    name: str
    inputs: tuple[str, ...]
    labels: list[str] | None
    recipe: Recipe | None
    model: Any = None  # an ox Module: what would be exported
    whole: Any = None  # what was trained, of which it may be a part
    session: Any = None  # an ONNX Runtime session

    @property
    def order(self) -> Any:
        """What says in which order the inputs of a batch with names are: the model, or their names."""
        return self.inputs if self.model is None else self.model

    def run(self, arrays: Sequence[Array]) -> Array:
        """The first output for a batch, one array an input."""
        if self.session is not None:
            if len(arrays) != len(self.inputs):
                raise ShapeError(f"{self.name} takes {len(self.inputs)} inputs", got=f"{len(arrays)} arrays")
            try:
                output: Array = self.session.run(None, dict(zip(self.inputs, arrays, strict=True)))[0]
            except Exception as error:  # ONNX Runtime's classes have no common base but Exception
                shapes = [f"{a.dtype} {list(a.shape)}" for a in arrays]
                raise ShapeError(
                    f"{self.name} does not take this", got=f"{', '.join(shapes)}: {_first_line(error)}"
                ) from error
            return output
        from ox import devices, from_numpy, no_grad

        with no_grad():
            outputs = self.model(*map(from_numpy, arrays))
        first = outputs[0] if isinstance(outputs, tuple | list) else outputs
        return devices.cpu(first.array)

    def needed_recipe(self) -> Recipe:
        """The recipe, for its data.

        Raises:
            LoadError: nothing says which it is.
        """
        if self.recipe is None:
            raise LoadError(f"{self.name} does not say which recipe trained it", hint="--recipe digits, or a page")
        return self.recipe


def open_source(given: Path | None, recipe: str | None = None) -> Source:
    """A run's folder, an ONNX file, or, with None, the newest run. `recipe` overrides what the model itself says.

    Raises:
        LoadError: neither a run nor a readable file.
        RecipeError: no such recipe.
    """
    from ox import train
    from ox.train.export_inputs import exported

    if given is not None and (given.suffix == ".onnx" or given.is_file()):
        source = _from_file(given)
    else:
        run = train.newest_run() if given is None else train.find(given)
        page, model = train.restore(run)
        source = Source(
            str(run.folder), tuple(page.inputs), page.labels, page, model=exported(page, model), whole=model
        )
    if recipe is not None:
        source.recipe = train.load(recipe, needed=("data",))
    if source.labels is None and source.recipe is not None:
        source.labels = source.recipe.labels
    return source


def _from_file(path: Path) -> Source:
    from ox.devices.runtime import onnxruntime

    runtime = onnxruntime()
    if not path.is_file():
        raise LoadError(f"there is no file {path}", hint="ox export writes one")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # what it has to say comes back as the exception
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's classes have no common base but Exception
        raise LoadError(f"{path} is not an ONNX file that ONNX Runtime can run", got=_first_line(error)) from error
    try:
        metadata = session.get_modelmeta().custom_metadata_map
    except UnicodeDecodeError as error:
        raise LoadError(f"{path} is damaged: its metadata is no text", got=str(error)) from error
    return Source(
        str(path),
        tuple(entry.name for entry in session.get_inputs()),
        _labels(metadata),
        _recipe(metadata),
        session=session,
    )


def _labels(metadata: dict[str, str]) -> list[str] | None:
    try:
        outputs = json.loads(metadata["ox.contract"])["outputs"]
        return next((list(map(str, output["labels"])) for output in outputs if output.get("labels")), None)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _recipe(metadata: dict[str, str]) -> Recipe | None:
    """The recipe that a file names: the copy in its run's folder while that is here, else one that comes with ox."""
    from ox import train

    name, run = metadata.get("ox.recipe"), metadata.get("ox.run")
    if name in train.available():
        return train.load(name)
    try:
        return train.find(Path("runs") / run).recipe() if run and Path(run).name == run else None
    except OxError:
        return None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
