"""The model of `ox eval` and `ox predict`: the best weights of a run, or an ONNX file, called with arrays."""

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
    from ox.train.recipe.manifest import Manifest, TableEncoding

Array = np.ndarray[Any, Any]


@dataclass
class Source:
    """A model that can be run.

    `inputs` are the names of the arguments of `run`, and `recipe` is the recipe that trained it, if these are known.
    """

    name: str
    inputs: tuple[str, ...]
    labels: list[str] | None
    recipe: Recipe | None
    model: Any = None  # an ox Module: the one that `ox export` writes
    trained: Any = None  # the trained Module, of which `model` may be a part
    session: Any = None  # an ONNX Runtime session
    manifest: Manifest | None = None  # of the data that it was trained on
    missing_recipe: str | None = None  # the recipe and the run that a file names, if they are not here

    @property
    def order(self) -> Any:
        """The order of named inputs: the model, or the names of the file's inputs."""
        return self.inputs if self.model is None else self.model

    def run(self, arrays: Sequence[Array]) -> Array:
        """The first output for a batch; `arrays` has one array per input."""
        if self.session is not None:
            if len(arrays) != len(self.inputs):
                raise ShapeError(f"{self.name} takes {len(self.inputs)} inputs", got=f"{len(arrays)} arrays")
            try:
                output: Array = self.session.run(None, dict(zip(self.inputs, arrays, strict=True)))[0]
            except Exception as error:  # ONNX Runtime's classes have no common base but Exception
                shapes = [f"{a.dtype} {list(a.shape)}" for a in arrays]
                raise ShapeError(
                    f"{self.name} does not take this input", got=f"{', '.join(shapes)}: {_first_line(error)}"
                ) from error
            return output
        from ox import devices, from_numpy, no_grad

        with no_grad():
            outputs = self.model(*map(from_numpy, arrays))
        first = outputs[0] if isinstance(outputs, tuple | list) else outputs
        return devices.cpu(first.array)

    def require_recipe(self) -> Recipe:
        """The recipe, for its data.

        Raises:
            LoadError: the recipe is not known.
        """
        if self.recipe is None:
            what = f"{self.name} does not name its recipe"
            if self.missing_recipe is not None:
                what = f"the recipe of {self.name} is not here"
            raise LoadError(what, expected=self.missing_recipe, hint="--recipe digits, or --recipe FILE")
        return self.recipe

    def table_encoding(self) -> TableEncoding | None:
        """How a table becomes inputs: as in training; else as in the data of the recipe. None for other data."""
        from ox.train.recipe.manifest import table_encoding

        if self.manifest is not None:
            return self.manifest.table
        return None if self.recipe is None else table_encoding(self.recipe.data().train)


def open_source(path_or_run: Path | None, recipe: str | None = None) -> Source:
    """Opens a run's folder, an ONNX file or, with None, the newest run. `recipe` replaces the recipe of the model.

    Raises:
        LoadError: it is neither a run nor a readable ONNX file.
        RecipeError: no such recipe.
    """
    from ox import train
    from ox.train.recipe.export_inputs import module_to_export

    if path_or_run is not None and (path_or_run.suffix == ".onnx" or path_or_run.is_file()):
        source = _from_file(path_or_run)
    else:
        run = train.newest_run() if path_or_run is None else train.find(path_or_run)
        run_recipe, model = train.restore(run)
        source = Source(
            str(run.folder),
            tuple(run_recipe.inputs),
            run_recipe.labels,
            run_recipe,
            model=module_to_export(run_recipe, model),
            trained=model,
            manifest=run_recipe.manifest,
        )
    if recipe is not None:
        own = source.recipe
        source.recipe = train.load(recipe, needed=("data",)).with_data_of(source.manifest, "warning")
        if source.manifest is None and own is not None and own.sha256 == source.recipe.sha256:
            source.recipe = own  # with the split of a run of an older version
    if source.labels is None and source.recipe is not None:
        source.labels = source.recipe.labels
    if source.labels is None and source.manifest is not None and source.manifest.classes is not None:
        source.labels = list(source.manifest.classes)
    return source


def _from_file(path: Path) -> Source:
    from ox.devices.onnxruntime.runtime import onnxruntime

    runtime = onnxruntime()
    if not path.is_file():
        raise LoadError(f"there is no file {path}", hint="ox export writes one")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # errors come back as exceptions
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's classes have no common base but Exception
        raise LoadError(f"{path} is not an ONNX file that ONNX Runtime can run", got=_first_line(error)) from error
    try:
        metadata = session.get_modelmeta().custom_metadata_map
    except UnicodeDecodeError as error:
        raise LoadError(f"{path} is damaged: its metadata is not text", got=str(error)) from error
    from ox.train.recipe.manifest import manifest_of

    manifest = manifest_of(metadata, str(path))
    recipe = _recipe(metadata, path, manifest)
    name, run = metadata.get("ox.recipe"), metadata.get("ox.run")
    return Source(
        str(path),
        tuple(entry.name for entry in session.get_inputs()),
        _labels(metadata),
        recipe,
        session=session,
        manifest=manifest,
        missing_recipe=f"{name}, as in the run {run}" if recipe is None and name and run else None,
    )


def _labels(metadata: dict[str, str]) -> list[str] | None:
    try:
        outputs = json.loads(metadata["ox.contract"])["outputs"]
        return next((list(map(str, output["labels"])) for output in outputs if output.get("labels")), None)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _recipe(metadata: dict[str, str], path: Path, manifest: Manifest | None) -> Recipe | None:
    """The recipe that a file names, with the data of its training: the copy in the run's folder, which is searched in
    the working directory and beside the file, or a built-in one."""
    from ox import train

    name, run = metadata.get("ox.recipe"), metadata.get("ox.run")
    for folder in _run_folders(run, path):
        try:
            recipe = train.find(folder).recipe()
        except OxError:
            continue
        if manifest is None:
            if name not in train.available():
                return recipe
        elif recipe.sha256 == manifest.recipe:
            # the run has all indices; a large file has only their checksum
            same = recipe.manifest is not None and recipe.manifest.digest == manifest.digest
            return recipe if same else recipe.with_data_of(manifest)
    return train.load(name).with_data_of(manifest) if name in train.available() else None


def _run_folders(run: str | None, path: Path) -> list[Path]:
    """Where the run of a file may be: runs/ of the working directory, of the file's folder and of those above it."""
    if not run or Path(run).name != run:
        return []
    above = path.resolve().parents
    folders = [Path("runs") / run, *(folder / "runs" / run for folder in above), *(f for f in above if f.name == run)]
    return [folder for folder in folders if (folder / "config.toml").is_file()]


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
