"""Recipes: Python files that define what to train, by functions and variables with these names:

    def model():            builds the network, an `ox.nn.Module`
    def data():             returns the datasets: train, validation and, if there is one, test
    loss                    called as loss(outputs, targets)
    defaults                a dict: epochs, batch_size, lr, seed, and other fields of `TrainConfig`

and, optionally,

    def optimizer(model, lr):            one, or a tuple, list or dict of several; default: AdamW
    def scheduler(optimizer, lr, steps): stepped with the optimizer, `steps` times in all; one that watches a
                                         metric after each epoch; one or several; default: a constant rate
    def collate(samples):                makes a batch; default: `ox.data.default_collate`
    def sampler(dataset):                the indices of an epoch, or batch_sampler(dataset), lists of them;
                                         default: all, in a new order each epoch
    def augment(batch, generator):       returns the batch for training; validation batches are not augmented
    def step(model, batch):              returns (loss, outputs or None) in place of `loss`
    def step(model, batch, optimizers):  the same, and calls backward and the optimizers itself
    def validate(model, batch):          like step(model, batch), for validation and test data
    def sample(model):                   a text to print after each epoch, such as generated text or a forecast
    def export(model):                   the module to export, if it is a part of the model, such as a GAN's generator
    def example_inputs(count):           its inputs, if they are not the samples of data(): one array per input
    def tokenizer():                     the `tokenizers.Tokenizer` of a model that reads texts, for `ox export FOLDER`
    chat_template           how such a decoder sees a conversation, in Jinja2
    generation              a dict: how its texts are chosen, by the names of Hugging Face's generation_config.json
    metrics                 a list of names or of metrics (`ox.train.metrics`), computed on validation and test data
    best                    the metric that chooses the best epoch: "accuracy", "-loss" (the lowest), "f1", ...
    inputs, outputs         dicts from a tensor's name to its meaning, in the order of the model's arguments
    labels                  the names of the classes
    shareable               True if an exported file may contain samples of the data
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ox.data import DataLoader
from ox.errors import OxError, RecipeError
from ox.random import stream_version
from ox.train import rng_state
from ox.train.recipe.datasets import Data, first
from ox.train.recipe.draw_data import derived_seed, describe, load_data
from ox.train.recipe.from_onnx import BaseModel, arrays_recipe, input_names_and_scores
from ox.train.recipe.manifest import Manifest, manifest_of
from ox.train.recipe.names import check_functions, check_names, suggest_renames, unused_names, updates
from ox.train.recipe.source_lines import compiled, definition, error_line
from ox.train.samples import inputs_of

DEFAULT_OPTIONS = {"epochs": 10, "batch_size": 32, "lr": 1e-3, "seed": 0}  # for options missing in `defaults`
OPTION_NAMES = (
    *DEFAULT_OPTIONS, "accumulate", "clip", "ema", "patience", "amp", "workers", "max_steps", "steps_per_epoch",
    "drop_last", "timeout", "threads", "compile",
)  # fmt: skip  # what it may hold
EXPECTED_CONTENT = "a function model(), a function data(), a loss and a dict defaults"


@dataclass(frozen=True)
class Recipe:
    """A recipe file that was loaded and checked. `page` is its module.

    Attributes:
        base: an ONNX file instead of the recipe's model().
        data_seed: of the random numbers that data() draws; None: that of the seed in `defaults`.
        data_after_model: the seed is that of the run, and model() draws from it before data(), as in older versions.
        manifest: of the data of a run: data() returns its split, or an error.
        on_change: what follows if the data differ from the manifest: "error", "warning" or "ignore".
        random_stream: the version of the random numbers.
    """

    name: str
    path: Path
    text: str
    page: ModuleType
    base: BaseModel | None = None
    data_seed: int | None = None
    data_after_model: bool = False
    manifest: Manifest | None = None
    on_change: str = "error"
    random_stream: int = field(default_factory=lambda: stream_version.current)

    @property
    def sha256(self) -> str:
        """The checksum of the recipe file. A run stores it to detect changes."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def defaults(self) -> dict[str, Any]:
        return DEFAULT_OPTIONS | dict(self.page.defaults)

    @property
    def inputs(self) -> dict[str, str | None]:
        """The name and description of each input, in the order of the model's arguments; may be empty."""
        return _named(getattr(self.page, "inputs", {}))

    @property
    def outputs(self) -> dict[str, str | None]:
        return _named(getattr(self.page, "outputs", {}))

    @property
    def labels(self) -> list[str] | None:
        labels = getattr(self.page, "labels", None)
        return None if labels is None else [str(label) for label in labels]

    @property
    def shareable(self) -> bool:
        """Whether an exported file may contain samples of the data."""
        return bool(getattr(self.page, "shareable", False))

    @property
    def unused(self) -> list[str]:
        """Messages about names that the recipe file defines and nothing uses."""
        return unused_names(self.text, vars(self.page)) if self.text else []

    def optional(self, name: str) -> Any:
        """The value of `name` in the recipe file, or None."""
        return getattr(self.page, name, None)

    def function(self, name: str) -> Any:
        """The function `name` of the recipe file, or None. If it raises, a RecipeError names the line in the file.

        Functions passed to `Trainer` raise their own errors.
        """
        own = self.optional(name)
        if own is None or not self.text:
            return own

        def called(*given: Any) -> Any:
            try:
                return own(*given)
            except OxError:
                raise
            except Exception as error:
                raise RecipeError(
                    f"{name}() in {self.path.name} stops with {type(error).__name__}",
                    where=error_line(error, self.path, own),
                    got=str(error),
                ) from error

        return called

    @property
    def updates(self) -> bool:
        """Whether the recipe's `step` calls the optimizers itself."""
        own = self.optional("step")
        return own is not None and updates(own)

    def check_result(self, name: str, what: Any, usable: bool, expected: str) -> Any:
        """Returns `what`, the result of the function `name`. Raises RecipeError if it is not usable."""
        if not usable:
            raise RecipeError(
                f"{name}() in {self.path.name} did not return {expected}", got=type(what).__name__,
                where=None if self.optional(name) is None else definition(self.optional(name)),
            )  # fmt: skip
        return what

    def model(self, data: Data | None = None) -> Any:
        """A new model. An ONNX file is tried with `data`, which is loaded if it is None.

        Raises:
            RecipeError: model() returned something else.
        """
        from ox.nn import Module

        if self.base is not None:
            parts = (data or self.data()).parts()
            base = self.base.model(parts, self.function("collate"))
            if self.optional("step") is None:
                self.base.check(base, parts)
            return base
        with stream_version(self.random_stream):
            model = self.function("model")()
        if not isinstance(model, Module):
            raise RecipeError(
                f"model() in {self.path.name} did not return a module",
                expected="an ox.nn.Module",
                got=type(model).__name__,
                hint="return the network itself, for example nn.Sequential(...)",
            )
        return model

    def with_data_of(self, manifest: Manifest | None, on_change: str = "error") -> Recipe:
        """This recipe with the split of a run."""
        if manifest is None:
            return self
        return replace(
            self, data_seed=manifest.seed, data_after_model=False, manifest=manifest, on_change=on_change,
            random_stream=manifest.random_stream,
        )  # fmt: skip

    def with_data_as(self, other: Recipe) -> Recipe:
        """This recipe with the data of another, of a run of it."""
        return replace(
            self, data_seed=other.data_seed, data_after_model=other.data_after_model, manifest=other.manifest,
            on_change=other.on_change, random_stream=other.random_stream,
        )  # fmt: skip

    def seeded(self, seed: int) -> Recipe:
        """This recipe with the data of a run of this seed, unless it has the data of another."""
        return self if self.data_seed is not None else replace(self, data_seed=derived_seed(seed))

    def data(self) -> Data:
        """The datasets, the same in each call: see `draw_data.load_data`."""
        return load_data(self)

    def describe(self, data: Data) -> Manifest:
        """The manifest of data that `data` returned."""
        return describe(self, data)

    def examples(self, count: int, model: Any = None, data: Data | None = None) -> list[np.ndarray[Any, Any]]:
        """The inputs of the first `count` samples, one array per input, each with a leading batch axis, in the order of
        the model's arguments.

        Args:
            data: the datasets, if they are already loaded.
        """
        return inputs_of(self.batch(count, data), list(self.inputs) if model is None else model)[0]

    def batch(self, count: int, data: Data | None = None, train: bool = False) -> Any:
        """The first `count` samples as a batch: of the validation set if there is one, else of the training set."""
        data = data or self.data()
        part = first(data.train if train else data.trial_part(), count)
        return next(iter(DataLoader(part, batch_size=count, collate_fn=self.function("collate"))))


def load_from(
    file: str | os.PathLike[str], data: str | os.PathLike[str], layers: str = "all", classes: int | None = None
) -> Recipe:
    """A recipe that trains an ONNX file on other data.

    Args:
        file: the ONNX file to train.
        data: the name of a recipe, the path of a recipe file (its model() is not called), or an .npz file with an array
            for each of the file's inputs and integers ``target``.
        layers: the layers to train: ``all`` or ``head``.
        classes: the number of classes of a new head; default: the number of labels, if it differs from the file's.

    Raises:
        RecipeError: no such data. LoadError: no such file, or one that ox cannot run.
    """
    from ox.onnx_module.loaded import load as load_file

    net = load_file(file)
    inputs, scores = input_names_and_scores(net)
    path = Path(data)
    if path.suffix == ".npz":
        count: int | None
        text, count = arrays_recipe(path, inputs)
        recipe = _recipe_from_text(text, path, path.stem)
    else:
        recipe = load(data, needed=("data",))
        count = len(recipe.labels) if recipe.labels else None
    manifest = manifest_of(net.metadata, str(file))
    if manifest is not None:  # of data that the file was trained on, its test set stays the test set
        recipe = recipe.with_data_of(manifest, "warning" if manifest.recipe == recipe.sha256 else "ignore")
    if classes is None and count is not None and count != scores:
        classes = count
    # its own name, since a recipe with the name of the data may have another model
    return replace(
        recipe, name=f"{Path(file).stem}-{recipe.name}", base=BaseModel(Path(file), layers, classes, opened=[net])
    )


def _recipe_from_text(text: str, path: Path, name: str) -> Recipe:
    """A recipe from a text; the run writes the file."""
    page = ModuleType(f"ox_recipe_{name}")
    page.__file__ = str(path)
    exec(compiled(text, path), vars(page))
    return Recipe(name, path, text, page)


def available() -> list[str]:
    """The names of the recipes that come with ox."""
    return sorted(path.stem for path in _builtin_folder().glob("*.py") if _is_recipe_file(path))


def load(recipe: str | os.PathLike[str], needed: Sequence[str] = ("model", "data")) -> Recipe:
    """Read a recipe: a name such as ``"digits"``, or the path of a recipe file.

    The file is executed, as `python recipe.py` would do it. It can import modules of its own folder, except for names
    of the standard library: a recipe file may be called numbers.py, and NumPy must import the standard module.

    Raises:
        RecipeError: no such recipe (suggests similar names), or a file that is no recipe (names what is missing).
    """
    given = os.fspath(recipe)
    if os.sep in given or given.endswith(".py"):
        path = Path(given)
        if not path.is_file():
            raise RecipeError(
                f"there is no recipe file {given}",
                hint=f"one of {', '.join(available())}, or the path of a recipe file",
            )
        return read(path, path.stem, [path.resolve().parent], needed)
    if given not in available():
        near = difflib.get_close_matches(given, available(), 3, 0.4)
        also = f"./{given}.py" if Path(f"{given}.py").is_file() else None
        raise RecipeError(
            f"there is no recipe '{given}'",
            expected=f"one of {', '.join(available())}, or the path of a recipe file",
            hint=" or ".join(f"ox train {name}" for name in filter(None, [also, *near])) or "ox train recipe.py",
        )
    return read(_builtin_folder() / f"{given}.py", given, [], needed)


def _path_position() -> int:
    """The position on `sys.path` after the standard library; 0 without it.

    Child processes inherit `sys.path` and import their modules again."""
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    standard |= {os.path.join(folder, "lib-dynload") for folder in standard}
    return max((place + 1 for place, folder in enumerate(sys.path) if folder in standard), default=0)


def read(path: Path, name: str, folders: Sequence[Path], needed: Sequence[str] = ("model", "data")) -> Recipe:
    """Executes the recipe file `path`, with `folders` on `sys.path`, and checks that it defines what is `needed`."""
    place = _path_position()
    sys.path[place:place] = [str(folder) for folder in folders if str(folder) not in sys.path]
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read", got=str(error)) from error
    spec = importlib.util.spec_from_file_location(f"ox_recipe_{name}", path)
    if spec is None:
        raise RecipeError(f"{path.name} is not a recipe", expected=f"a Python file with {EXPECTED_CONTENT}")
    page = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = page  # as an import does; dataclasses look up their module
    try:
        with rng_state.fork_rng():
            rng_state.seed(0)  # of what it draws beside its functions
            # Compiled from the text, not cached bytecode, which is outdated for a file changed within the same second.
            exec(compiled(text, path), page.__dict__)
    except OxError:
        raise
    except Exception as error:
        raise RecipeError(
            f"{path.name} stops with {type(error).__name__} when it is read",
            where=error_line(error, path),
            got=str(error),
        ) from error
    _check(page, path, needed)
    check_functions(page, path, needed)
    check_names(text, path, vars(page), OPTION_NAMES)
    return Recipe(name, path, text, page)


def _check(page: ModuleType, path: Path, needed: Sequence[str]) -> None:
    missing = [f"{name}()" for name in needed if not callable(getattr(page, name, None))]
    if not callable(getattr(page, "step", None)) and not callable(getattr(page, "loss", None)):
        missing.append("loss")
    if not isinstance(getattr(page, "defaults", None), dict):
        missing.append("defaults")
    if missing:
        raise RecipeError(
            f"{path.name} is not a recipe",
            expected=EXPECTED_CONTENT,
            got=f"a file without {', '.join(missing)}",
            hint=suggest_renames(missing, vars(page)) or f"one that is: {_builtin_folder() / 'digits.py'}",
        )
    unknown = [key for key in page.defaults if key not in OPTION_NAMES]
    if unknown:
        near = difflib.get_close_matches(str(unknown[0]), OPTION_NAMES, 1, 0.3)
        raise RecipeError(
            f"'{unknown[0]}' in the defaults of {path.name} is no option",
            expected=", ".join(OPTION_NAMES),
            hint=f"'{near[0]}'" if near else None,
        )


def _builtin_folder() -> Path:
    """The folder of the recipes that come with ox."""
    spec = importlib.util.find_spec("ox_models")
    if spec is None or not spec.submodule_search_locations:
        raise RecipeError("the recipes that come with ox are not installed", expected="the package ox_models")
    return Path(spec.submodule_search_locations[0])


def _is_recipe_file(path: Path) -> bool:
    """Whether a file defines model and data at its top level. It is parsed, not executed, to be fast."""
    body = ast.parse(path.read_bytes()).body
    names = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return {"model", "data"} <= names


def _named(value: Any) -> dict[str, str | None]:
    return dict(value) if isinstance(value, dict) else dict.fromkeys(value)
