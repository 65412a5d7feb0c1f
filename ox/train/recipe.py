"""Recipes: a page of Python that says what to train. No registry and no base class: the page's own names are the form.

    def model():            builds the network, an `ox.nn.Module`
    def data():             returns the datasets: train, validation and, if there is one, held back
    loss                    called as loss(outputs, targets)
    defaults                a dict: epochs, batch_size, lr, seed; accumulate, clip, ema, patience, amp, workers

and, where the standard ones do not fit,

    def optimizer(model, lr):            default: AdamW
    def scheduler(optimizer, lr, steps): stepped with the optimizer, `steps` times in all; default: a constant rate
    def augment(batch, generator):       returns the batch that is trained on; validation is never augmented
    def step(model, batch):              returns (loss, outputs or None) in place of `loss`
    def sample(model):                   a text to show after each epoch: what the model writes, or foresees
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
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ox.data import Subset
from ox.errors import OxError, RecipeError
from ox.train.base import Base, arrays_page, scores_of
from ox.train.samples import batches

OPTIONS = {"epochs": 10, "batch_size": 32, "lr": 1e-3, "seed": 0}  # what is missing in `defaults`
KNOWN = (*OPTIONS, "accumulate", "clip", "ema", "patience", "amp", "workers")  # what it may hold
OPTIONAL = (
    "optimizer", "scheduler", "augment", "step", "sample", "metrics", "best",
    "inputs", "outputs", "labels", "shareable",
)  # fmt: skip
FORM = "a function model(), a function data(), a loss and a dict defaults"


@dataclass(frozen=True)
class Data:
    """The parts of a recipe's data. Each has a length, and gives one sample an index: inputs first, target last."""

    train: Any
    validation: Any
    held_back: Any | None

    def parts(self) -> dict[str, Any]:
        """The parts that are there, under the names in which they are shown."""
        named = {"train": self.train, "validation": self.validation, "held back": self.held_back}
        return {name: part for name, part in named.items() if part is not None}

    def first(self, count: int | None) -> Data:
        """The first `count` samples of each part; None for all."""
        if count is None:
            return self
        parts = (self.train, self.validation, self.held_back)
        return Data(*(p if p is None or len(p) <= count else Subset(p, range(count)) for p in parts))


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
            base = self.base.model(parts)
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
        usable = isinstance(parts, tuple | list) and len(parts) in (2, 3)
        if not usable or not all(hasattr(part, "__getitem__") and hasattr(part, "__len__") for part in parts):
            got = [type(part).__name__ for part in parts] if isinstance(parts, tuple | list) else type(parts).__name__
            raise RecipeError(
                f"data() in {self.path.name} did not return the datasets",
                expected="two or three: train, validation and, if there is one, held back",
                got=str(got),
                hint="return TensorDataset(...), TensorDataset(...)",
            )
        if not all(len(part) for part in parts):
            raise RecipeError(f"data() in {self.path.name} returned an empty dataset", got=str([len(p) for p in parts]))
        return Data(parts[0], parts[1], parts[2] if len(parts) == 3 else None)

    def examples(self, count: int) -> list[np.ndarray[Any, Any]]:
        """The inputs of the first `count` validation samples, one array an input, each with a leading batch axis."""
        part = self.data().validation
        *inputs, _ = next(batches(Subset(part, range(min(count, len(part)))), count))
        return inputs


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

    The page is run, as `python page.py` would run it: what it imports from its own folder is found.

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


def read(path: Path, name: str, folders: Sequence[Path], needed: Sequence[str] = ("model", "data")) -> Recipe:
    """Run the page at `path`, with `folders` to import from, and check that it is a recipe that has what is needed."""
    sys.path[:0] = [str(folder) for folder in folders if str(folder) not in sys.path]
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
    _check_names(text, path)
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
            hint=f"one that is: {_shelf() / 'digits.py'}",
        )
    unknown = [key for key in page.defaults if key not in KNOWN]
    if unknown:
        near = difflib.get_close_matches(str(unknown[0]), KNOWN, 1, 0.3)
        raise RecipeError(
            f"'{unknown[0]}' in the defaults of {path.name} is no option",
            expected=", ".join(KNOWN),
            hint=f"'{near[0]}'" if near else None,
        )


def _check_names(text: str, path: Path) -> None:
    """Refuse a name that nothing on the page uses, and that is nearly one that ox would look for."""
    page = ast.parse(text)
    used = {node.id for node in ast.walk(page) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    defined: dict[str, int] = {}
    for node in page.body:
        if isinstance(node, ast.FunctionDef):
            defined[node.name] = node.lineno
        elif isinstance(node, ast.Assign):
            defined |= {target.id: node.lineno for target in node.targets if isinstance(target, ast.Name)}
    for name in defined.keys() - used - {*OPTIONAL, "model", "data", "loss", "defaults"}:
        near = difflib.get_close_matches(name, OPTIONAL, 1, 0.8)
        if near and near[0] not in defined:
            raise RecipeError(
                f"'{name}' in {path.name} is used by nothing",
                where=f"{path.name}:{defined[name]}   {text.splitlines()[defined[name] - 1].strip()}",
                hint=f"{near[0]}; or another name, or _{name}, if it is something of your own",
            )


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
