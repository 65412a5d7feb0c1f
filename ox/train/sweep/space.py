"""Search spaces: options of a recipe, each with a range or a list of values, as `ox sweep` takes them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ox.errors import ArgumentError, DeviceError
from ox.installation import install_command
from ox.train.recipe.recipe import OPTION_NAMES, Recipe
from ox.train.run.train_config import TrainConfig

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

SHORT = {"batch": "batch_size"}
LEFT_OUT = ("workers", "timeout", "threads")  # they change no result
NAMES = [name for name in OPTION_NAMES if name not in LEFT_OUT]
FORMS = "LOW..HIGH, LOW..HIGH:log, or values such as 32,64,128"


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; integers if both are; with `log`, all orders of magnitude alike."""

    low: float
    high: float
    log: bool = False

    def distribution(self) -> BaseDistribution:
        optuna = library()
        if isinstance(self.low, int) and isinstance(self.high, int):
            return optuna.distributions.IntDistribution(self.low, self.high, log=self.log)
        return optuna.distributions.FloatDistribution(self.low, self.high, log=self.log)

    @property
    def examples(self) -> list[Any]:
        return [self.low, self.high]


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Any, ...]

    def distribution(self) -> BaseDistribution:
        return library().distributions.CategoricalDistribution(self.values)

    @property
    def examples(self) -> list[Any]:
        return list(self.values)


Space = dict[str, Range | Choice]


def library() -> Any:
    """Optuna. Raises DeviceError where it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise DeviceError("Optuna is not installed", where="", hint=install_command("sweep")) from error
    return optuna


def read_space(words: Sequence[str], recipe: Recipe) -> Space:
    """The search space of words such as ``lr=1e-4..1e-1:log`` and ``batch=32,64,128``.

    Args:
        recipe: its defaults are the options that are not varied.

    Raises:
        ArgumentError: no such option, a form that there is not, or a value that the option does not take.
    """
    space: Space = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = SHORT.get(name, name.replace("-", "_"))
        if not equals or not text:
            raise ArgumentError(f"'{word}' is no part of a search space", where="", expected=f"NAME={FORMS}")
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, 1, 0.4)
            raise ArgumentError(f"there is no option '{name}' to vary", where="", expected=", ".join(NAMES),
                                hint=f"{near[0]}={text}" if near else None)  # fmt: skip
        if name in space:
            raise ArgumentError(f"{name} is given twice", where="", got=word)
        space[name] = _part(name, text)
        for value in space[name].examples:
            TrainConfig.from_defaults(recipe.defaults, **{name: value})  # raises what is wrong with a value
    if not space:
        raise ArgumentError("a search space needs an option to vary", where="", expected=f"NAME={FORMS}",
                            hint="lr=1e-4..1e-1:log")  # fmt: skip
    return space


def _part(name: str, text: str) -> Range | Choice:
    kind = str(TrainConfig.__dataclass_fields__[name].type).partition(" ")[0]
    low, dots, rest = text.partition("..")
    if not dots:
        return Choice(tuple(_value(name, kind, word) for word in text.split(",")))
    high, colon, form = rest.partition(":")
    if kind not in ("int", "float") or (colon and form != "log"):
        raise ArgumentError(f"{name}={text} is no range", where="", expected=f"{name}={FORMS}")
    ends = _value(name, kind, low), _value(name, kind, high)
    if ends[0] >= ends[1] or (colon and ends[0] <= 0):
        raise ArgumentError(f"{name}={text} is an empty range", where="",
                            expected="LOW below HIGH, and above 0 where it is log")  # fmt: skip
    return Range(*ends, log=bool(colon))


def _value(name: str, kind: str, word: str) -> Any:
    """A value of an option. Raises ArgumentError for one of another type."""
    try:
        if kind == "bool":
            return {"true": True, "false": False}[word.lower()]
        return {"int": int, "float": float}.get(kind, str)(word)
    except (ValueError, KeyError):
        expected = {"int": "a whole number", "float": "a number", "bool": "true or false"}[kind]
        raise ArgumentError(f"{name} has no value '{word}'", where="", expected=expected) from None
