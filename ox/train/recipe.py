"""Recipes: a page of Python that says what to train. No registry and no base class: the page's own names are the form.

    def model():            builds the network, an `ox.nn.Module`
    def data():             returns the datasets: train, validation and, if there is one, held back
    loss                    called as loss(outputs, targets)
    defaults                a dict: epochs, batch_size, lr, seed, and other fields of `Options`

and, where the standard ones do not fit,

    def optimizer(model, lr):            one, or a tuple, list or dict of several; default: AdamW
    def scheduler(optimizer, lr, steps): stepped with the optimizer, `steps` times in all; one that watches a
                                         figure after each epoch; one or several; default: a constant rate
    def collate(samples):                makes a batch; default: `ox.data.default_collate`
    def sampler(dataset):                the indices of an epoch, or batch_sampler(dataset), lists of them;
                                         default: all, in a new order each epoch
    def augment(batch, generator):       returns the batch that is trained on; validation is never augmented
    def step(model, batch):              returns (loss, outputs or None) in place of `loss`
    def step(model, batch, optimizers):  the same, and calls backward and the optimizers itself
    def validate(model, batch):          the same as the first, for validation and held back
    def sample(model):                   a text to show after each epoch: what the model writes, or foresees
    def export(model):                   the module to export, where that is only a part: a GAN's generator
    def example_inputs(count):           what that takes, where it is not the samples of data(): an array an input
    metrics                 a list of names or of metrics (`ox.train.metrics`), computed on validation and held back
    best                    what chooses the best epoch: "accuracy", "-loss" (the least), "f1", ...
    inputs, outputs         dicts from a tensor's name to what it means, in the order of the model's arguments
    labels                  the names of the classes
    shareable               True if samples of the data may travel inside an exported file
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib.util
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ox.data import DataLoader
from ox.errors import OxError, RecipeError
from ox.train.base import Base, arrays_page, scores_of
from ox.train.datasets import Data, first, is_stream, length
from ox.train.names import check_functions, check_names, idle, meant, updates
from ox.train.samples import inputs_of

OPTIONS = {"epochs": 10, "batch_size": 32, "lr": 1e-3, "seed": 0}  # what is missing in `defaults`
KNOWN = (
    *OPTIONS, "accumulate", "clip", "ema", "patience", "amp", "workers", "max_steps", "steps_per_epoch", "drop_last",
    "timeout", "threads",
)  # fmt: skip  # what it may hold
FORM = "a function model(), a function data(), a loss and a dict defaults"


@dataclass(frozen=True)
class Recipe:
    """A page that was read and found to be a recipe."""

    name: str
    path: Path
    text: str
    page: ModuleType
    base: Base | None = None  # an ONNX file in place of the page's model()

    @property
    def sha256(self) -> str:
        """Of the page's text; a run keeps it, so that a page changed since is noticed."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def defaults(self) -> dict[str, Any]:
        return OPTIONS | dict(self.page.defaults)

    @property
    def inputs(self) -> dict[str, str | None]:
        """Name and meaning of each input, in the order of the model's arguments; may be empty."""
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
        """Whether real samples may travel inside an exported file."""
        return bool(getattr(self.page, "shareable", False))

    @property
    def idle(self) -> list[str]:
        """Lines on what the page defines and nothing uses."""
        return idle(self.text, vars(self.page)) if self.text else []

    def optional(self, name: str) -> Any:
        """What the page calls `name`, or None."""
        return getattr(self.page, name, None)

    def function(self, name: str) -> Any:
        """What the page calls `name`, or None. Where it fails, a RecipeError names the page's line.

        A Trainer's functions, which stand on no page, fail as they are.
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
                    where=_line(error, self.path, own),
                    got=str(error),
                ) from error

        return called

    @property
    def updates(self) -> bool:
        """Whether the page's own step takes the optimizers as well, and updates by itself."""
        own = self.optional("step")
        return own is not None and updates(own)

    def gave(self, name: str, what: Any, usable: bool, expected: str) -> Any:
        """What the page's function `name` returned, if it is usable. Raises RecipeError."""
        if not usable:
            raise RecipeError(
                f"{name}() in {self.path.name} did not return {expected}", got=type(what).__name__,
                where=None if self.optional(name) is None else _definition(self.optional(name)),
            )  # fmt: skip
        return what

    def model(self, data: Data | None = None) -> Any:
        """A new model. `data` is what an ONNX file is tried on; it is read where it is not given.

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
        model = self.function("model")()
        if not isinstance(model, Module):
            raise RecipeError(
                f"model() in {self.path.name} did not return a module",
                expected="an ox.nn.Module",
                got=type(model).__name__,
                hint="return the network itself, for example nn.Sequential(...)",
            )
        return model

    def data(self) -> Data:
        """The datasets.

        Raises:
            RecipeError: data() returned something other than two or three datasets, or an empty one.
        """
        parts = self.function("data")()
        usable = isinstance(parts, tuple | list) and len(parts) in (2, 3) and parts[0] is not None
        if not usable or not all(map(_is_dataset, parts)):
            got = [type(part).__name__ for part in parts] if isinstance(parts, tuple | list) else type(parts).__name__
            raise RecipeError(
                f"data() in {self.path.name} did not return the datasets",
                expected="two or three: train, validation and, if there is one, held back",
                got=str(got),
                hint="return TensorDataset(...), TensorDataset(...); train, None where there is nothing to validate on",
            )
        if any(length(part) == 0 for part in parts if part is not None):
            lengths = [None if part is None else length(part) for part in parts]
            raise RecipeError(
                f"data() in {self.path.name} returned an empty dataset",
                expected="samples in each: train, validation and, if there is one, held back", got=str(lengths),
                hint="a table may be a header without rows, or a folder hold no files of the kind that is read",
            )  # fmt: skip
        return Data(*parts, *[None] * (3 - len(parts)))

    def examples(self, count: int, model: Any = None, data: Data | None = None) -> list[np.ndarray[Any, Any]]:
        """The inputs of the first `count` samples, one array an input, each with a leading batch axis, in the order in
        which `model` takes them.

        Args:
            data: where it is read already.
        """
        return inputs_of(self.batch(count, data), list(self.inputs) if model is None else model)[0]

    def batch(self, count: int, data: Data | None = None, train: bool = False) -> Any:
        """The first `count` samples as a batch: of the validation data where there are any, or of those to train on."""
        data = data or self.data()
        part = first(data.train if train else data.to_try(), count)
        return next(iter(DataLoader(part, batch_size=count, collate_fn=self.function("collate"))))


def load_from(
    file: str | os.PathLike[str], data: str | os.PathLike[str], layers: str = "all", classes: int | None = None
) -> Recipe:
    """A recipe that trains an ONNX file on other data.

    Args:
        file: the file to begin from.
        data: a recipe's name, the path to a page (its model() is not asked for), or an .npz file with an array for each
            of the file's inputs and integers ``target``.
        layers: ``all`` learn, or the ``head`` only.
        classes: scores of a new head; default: as many as the data has labels, where the file has another number.

    Raises:
        RecipeError: no such data. LoadError: no such file, or one that ox cannot run.
    """
    from ox.nn.loaded import load as load_file

    net = load_file(file)
    inputs, scores = scores_of(net)
    path = Path(data)
    if path.suffix == ".npz":
        count: int | None
        text, count = arrays_page(path, inputs)
        recipe = _page(text, path, path.stem)
    else:
        recipe = load(data, needed=("data",))
        count = len(recipe.labels) if recipe.labels else None
    if classes is None and count is not None and count != scores:
        classes = count
    # a name of its own, as the data's may be that of a recipe with another model
    return replace(
        recipe, name=f"{Path(file).stem}-{recipe.name}", base=Base(Path(file), layers, classes, opened=[net])
    )


def _page(text: str, path: Path, name: str) -> Recipe:
    """A recipe of a text that is no file yet; a run writes it."""
    page = ModuleType(f"ox_recipe_{name}")
    page.__file__ = str(path)
    exec(compile(text, str(path), "exec"), vars(page))
    return Recipe(name, path, text, page)


def available() -> list[str]:
    """The names of the recipes that come with ox."""
    return sorted(path.stem for path in _shelf().glob("*.py") if _looks_like_one(path))


def load(recipe: str | os.PathLike[str], needed: Sequence[str] = ("model", "data")) -> Recipe:
    """Read a recipe: a name such as ``"digits"``, or the path to a page.

    The page is run, as `python page.py` would run it: what it imports from its own folder is found, but for files that
    are named as a module of Python's own: a page may be called numbers.py, and NumPy imports the standard one.

    Raises:
        RecipeError: no such recipe (names the nearest), or a page that is not one (says what is missing).
    """
    given = os.fspath(recipe)
    if os.sep in given or given.endswith(".py"):
        path = Path(given)
        if not path.is_file():
            raise RecipeError(
                f"there is no page {given}", hint=f"one of {', '.join(available())}, or the path to a page"
            )
        return read(path, path.stem, [path.resolve().parent], needed)
    if given not in available():
        near = difflib.get_close_matches(given, available(), 3, 0.4)
        also = f"./{given}.py" if Path(f"{given}.py").is_file() else None
        raise RecipeError(
            f"there is no recipe '{given}'",
            expected=f"one of {', '.join(available())}, or the path to a page",
            hint=" or ".join(f"ox train {name}" for name in filter(None, [also, *near])) or "ox train page.py",
        )
    return read(_shelf() / f"{given}.py", given, [], needed)


def _after_standard_library() -> int:
    """Where on `sys.path` the standard library ends: 0 where it is not there.

    Processes that are started later take `sys.path` as it is here, and import all of it anew."""
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    standard |= {os.path.join(folder, "lib-dynload") for folder in standard}
    return max((place + 1 for place, folder in enumerate(sys.path) if folder in standard), default=0)


def read(path: Path, name: str, folders: Sequence[Path], needed: Sequence[str] = ("model", "data")) -> Recipe:
    """Run the page at `path`, with `folders` to import from, and check that it is a recipe that has what is needed."""
    place = _after_standard_library()
    sys.path[place:place] = [str(folder) for folder in folders if str(folder) not in sys.path]
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read", got=str(error)) from error
    spec = importlib.util.spec_from_file_location(f"ox_recipe_{name}", path)
    if spec is None:
        raise RecipeError(f"{path.name} is not a recipe", expected=f"a Python page with {FORM}")
    page = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = page  # as an import would, so that dataclasses and the like find their module
    try:
        # The text that was read, and never bytecode: that of a page changed within a second is still the old one's.
        exec(compile(text, str(path), "exec", dont_inherit=True), page.__dict__)
    except OxError:
        raise
    except Exception as error:
        raise RecipeError(
            f"{path.name} stops with {type(error).__name__} when it is read", where=_line(error, path), got=str(error)
        ) from error
    _check(page, path, needed)
    check_functions(page, path, needed)
    check_names(text, path, vars(page), KNOWN)
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
            expected=FORM,
            got=f"a page without {', '.join(missing)}",
            hint=meant(missing, vars(page)) or f"one that is: {_shelf() / 'digits.py'}",
        )
    unknown = [key for key in page.defaults if key not in KNOWN]
    if unknown:
        near = difflib.get_close_matches(str(unknown[0]), KNOWN, 1, 0.3)
        raise RecipeError(
            f"'{unknown[0]}' in the defaults of {path.name} is no option",
            expected=", ".join(KNOWN),
            hint=f"'{near[0]}'" if near else None,
        )


def _is_dataset(part: Any) -> bool:
    return part is None or is_stream(part) or (hasattr(part, "__getitem__") and hasattr(part, "__len__"))


def _shelf() -> Path:
    """The folder of the recipes that come with ox."""
    spec = importlib.util.find_spec("ox_models")
    if spec is None or not spec.submodule_search_locations:
        raise RecipeError("the recipes that come with ox are not installed", expected="the package ox_models")
    return Path(spec.submodule_search_locations[0])


def _looks_like_one(path: Path) -> bool:
    """Whether a page defines model and data at its top level; read, not run, for a list of names must cost nothing."""
    body = ast.parse(path.read_bytes()).body
    names = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return {"model", "data"} <= names


def _named(value: Any) -> dict[str, str | None]:
    return dict(value) if isinstance(value, dict) else dict.fromkeys(value)


def _line(error: Exception, path: Path, function: Any = None) -> str:
    """The page's own line that failed, as errors show lines; of a function that could not be called, its first."""
    if isinstance(error, SyntaxError):
        return f"{path.name}:{error.lineno}   {(error.text or '').strip()}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in (str(path), os.path.abspath(path))]
    if frames:
        return f"{path.name}:{frames[-1].lineno}   {frames[-1].line}"
    return _definition(function) or path.name


def _definition(function: Any) -> str | None:
    """Where a function is defined; None of anything else."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    line = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}   {line}"
