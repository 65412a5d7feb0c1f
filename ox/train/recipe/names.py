"""Checks the names in a recipe file: whether known functions accept their arguments, and misspelt or unused names.

A name is considered misspelt if nothing in the file uses it, it does not begin with an underscore, it has no decorator,
it is similar to a known name, and it is a function with the same number of arguments if the known name is a function.
All other names are allowed.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ox.errors import RecipeError

# the functions of a recipe file, each with the possible calls
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "model": ("model()",),
    "data": ("data()",),
    "loss": ("loss(outputs, targets)",),
    "optimizer": ("optimizer(model, lr)",),
    "scheduler": ("scheduler(optimizer, lr, steps)",),
    "collate": ("collate(samples)",),
    "sampler": ("sampler(dataset)",),
    "batch_sampler": ("batch_sampler(dataset)",),
    "augment": ("augment(batch, generator)",),
    "step": ("step(model, batch)", "step(model, batch, optimizers)"),
    "validate": ("validate(model, batch)",),
    "sample": ("sample(model)",),
    "export": ("export(model)",),
    "example_inputs": ("example_inputs(count)",),
    "tokenizer": ("tokenizer()",),
}
VALUES = ("defaults", "metrics", "best", "inputs", "outputs", "labels", "shareable", "chat_template", "generation")
OPTIONAL = (*(name for name in FUNCTIONS if name not in ("model", "data", "loss")), *VALUES[1:])
# names for the same things in other libraries, which are not similar to the known names
OTHER_LIBRARIES = {
    "collate_fn": "collate", "configure_optimizers": "optimizer", "training_step": "step", "train_step": "step",
    "validation_step": "validate", "eval_step": "validate", "criterion": "loss", "loss_fn": "loss",
    "lr_scheduler": "scheduler", "train_sampler": "sampler", "class_names": "labels", "classes": "labels",
    "example_input_array": "example_inputs", "get_model": "model", "build_model": "model", "create_model": "model",
    "make_model": "model", "net": "model", "network": "model", "get_data": "data", "load_data": "data",
    "make_data": "data", "datasets": "data", "get_datasets": "data", "config": "defaults", "hparams": "defaults",
    "options": "defaults", "hyperparameters": "defaults", "loss_function": "loss",
}  # fmt: skip
MIN_SIMILARITY = 0.8


def accepts(function: Any, count: int) -> bool:
    """Whether a function accepts exactly `count` positional arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def updates(step: Any) -> bool:
    """Whether a recipe's `step` has the parameter optimizers, so that it updates the weights itself."""
    if not accepts(step, 3):
        return False
    third = list(inspect.signature(step).parameters.values())[2:3]
    return not accepts(step, 2) or (bool(third) and third[0].name.startswith("optim"))


def check_functions(page: ModuleType, path: Path, needed: Collection[str]) -> None:
    """Raises RecipeError for a known name that is not a function, or does not accept its arguments.

    Args:
        needed: those of `model` and `data` that will be called.
    """
    for name, ways in FUNCTIONS.items():
        own = getattr(page, name, None)
        if own is None or (name in ("model", "data") and name not in needed):
            continue
        if not callable(own):
            raise RecipeError(f"{name} in {path.name} is no function", expected=ways[0], got=type(own).__name__)
        if not any(accepts(own, way.count(",") + 1 if "()" not in way else 0) for way in ways):
            code = getattr(own, "__code__", None)
            line = None if code is None else f"{path.name}:{code.co_firstlineno}   def {name}{inspect.signature(own)}:"
            raise RecipeError(
                f"{name}() in {path.name} takes other arguments than it will be given",
                where=line, expected=" or ".join(ways), got=f"{name}{inspect.signature(own)}",
            )  # fmt: skip


def check_names(text: str, path: Path, page: Mapping[str, Any], options: Collection[str]) -> None:
    """Raises RecipeError for an unused name that is similar to a known one.

    Args:
        options: the names that `defaults` may contain.
    """
    defined, used = _defined_and_used(text)
    for name in defined.keys() - used - FUNCTIONS.keys() - set(VALUES):
        near, hint = _similar_name(name, page, defined.keys()), None
        if near is not None:
            hint = f"{near}; or another name, or _{name}, if it is something of your own"
        elif name in options and not callable(page.get(name)):
            hint = f"defaults = {{{name!r}: {page.get(name)!r}, ...}}"
        if hint is not None:
            line = text.splitlines()[defined[name] - 1].strip()
            raise RecipeError(
                f"'{name}' in {path.name} is not used", where=f"{path.name}:{defined[name]}   {line}", hint=hint
            )


def suggest_renames(missing: Collection[str], page: Mapping[str, Any]) -> str | None:
    """Suggests to rename names of other libraries, if a known name is missing: ``criterion`` to ``loss``."""
    lacks = {name.removesuffix("()") for name in missing}
    found = {
        name: OTHER_LIBRARIES[name]
        for name in page
        if OTHER_LIBRARIES.get(name) in lacks and _has_kind_of(page[name], OTHER_LIBRARIES[name])
    }
    return "; ".join(f"rename {name} to {known}" for name, known in found.items()) or None


def _has_kind_of(own: Any, known: str) -> bool:
    return isinstance(own, dict) if known == "defaults" else callable(own)


def unused_names(text: str, page: Mapping[str, Any]) -> list[str]:
    """Messages about known names that will not be used."""
    defined, used = _defined_and_used(text)
    if "loss" not in defined or "loss" in used or page.get("step") is None:
        return []
    if page.get("validate") is None and updates(page["step"]):
        return []  # the loss is used for validation
    return ["loss is not used: step() does not call it"]


def _defined_and_used(text: str) -> tuple[dict[str, int], set[str]]:
    """The names that a recipe file defines at its top level, each with its line, and all names that it uses."""
    page = ast.parse(text)
    used = {node.id for node in ast.walk(page) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    functions, defined = set(), dict[str, int]()
    for node in page.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list:
            defined[node.name] = node.lineno
            functions.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined |= {target.id: node.lineno for target in targets if isinstance(target, ast.Name)}
    words = {node.value for node in ast.walk(page) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    named = words & functions  # in __all__, or for getattr
    return {name: line for name, line in defined.items() if not name.startswith("_")}, used | named


def _similar_name(name: str, page: Mapping[str, Any], defined: Collection[str]) -> str | None:
    """The known name that an unused name probably means."""
    if (meant := OTHER_LIBRARIES.get(name)) is not None and meant not in defined:
        return meant
    own = page.get(name)
    for near in difflib.get_close_matches(name, OPTIONAL, 3, MIN_SIMILARITY):
        ways = FUNCTIONS.get(near)
        fits = (
            not callable(own) if ways is None else callable(own) and any(accepts(own, w.count(",") + 1) for w in ways)
        )
        if fits and near not in defined:
            return near
    return None
