"""What a recipe's page defines: whether a known name can be called as it will be, and what nothing uses.

A name of the user's own is told from a misspelt one by what it is: nothing on the page uses it, it does not begin with
an underscore, no decorator gave it to somebody else, it is a function where the known name is one and takes as many
arguments, and it is spelt nearly alike. All else on a page is its own affair.
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

# the functions of a page, each with the ways to call it
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
}
VALUES = ("defaults", "metrics", "best", "inputs", "outputs", "labels", "shareable")
OPTIONAL = (*(name for name in FUNCTIONS if name not in ("model", "data", "loss")), *VALUES[1:])
# the same things as other libraries call them, too far from ours for a likeness
ELSEWHERE = {
    "collate_fn": "collate", "configure_optimizers": "optimizer", "training_step": "step", "train_step": "step",
    "validation_step": "validate", "eval_step": "validate", "criterion": "loss", "loss_fn": "loss",
    "lr_scheduler": "scheduler", "train_sampler": "sampler", "class_names": "labels", "classes": "labels",
    "example_input_array": "example_inputs", "get_model": "model", "build_model": "model", "create_model": "model",
    "make_model": "model", "net": "model", "network": "model", "get_data": "data", "load_data": "data",
    "make_data": "data", "datasets": "data", "get_datasets": "data", "config": "defaults", "hparams": "defaults",
    "options": "defaults", "hyperparameters": "defaults", "loss_function": "loss",
}  # fmt: skip
ALIKE = 0.8


def takes(function: Any, count: int) -> bool:
    """Whether a function can be called with so many arguments by position, and needs no more."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a builtin does not say
        return True
    return True


def updates(step: Any) -> bool:
    """Whether a page's own step takes the optimizers, too, and updates by itself."""
    if not takes(step, 3):
        return False
    third = list(inspect.signature(step).parameters.values())[2:3]
    return not takes(step, 2) or (bool(third) and third[0].name.startswith("optim"))


def check_functions(page: ModuleType, path: Path, needed: Collection[str]) -> None:
    """Refuse a known name that is no function, or that cannot be called as it will be.

    Args:
        needed: of `model` and `data`, those that will be called.
    """
    for name, ways in FUNCTIONS.items():
        own = getattr(page, name, None)
        if own is None or (name in ("model", "data") and name not in needed):
            continue
        if not callable(own):
            raise RecipeError(f"{name} in {path.name} is no function", expected=ways[0], got=type(own).__name__)
        if not any(takes(own, way.count(",") + 1 if "()" not in way else 0) for way in ways):
            code = getattr(own, "__code__", None)
            line = None if code is None else f"{path.name}:{code.co_firstlineno}   def {name}{inspect.signature(own)}:"
            raise RecipeError(
                f"{name}() in {path.name} takes other arguments than it will be given",
                where=line, expected=" or ".join(ways), got=f"{name}{inspect.signature(own)}",
            )  # fmt: skip


def check_names(text: str, path: Path, page: Mapping[str, Any], options: Collection[str]) -> None:
    """Refuse a name that nothing on the page uses, and that is nearly one that would be looked for.

    Args:
        options: what `defaults` may hold.
    """
    defined, used = _defined(text)
    for name in defined.keys() - used - FUNCTIONS.keys() - set(VALUES):
        near, hint = _near(name, page, defined.keys()), None
        if near is not None:
            hint = f"{near}; or another name, or _{name}, if it is something of your own"
        elif name in options and not callable(page.get(name)):
            hint = f"defaults = {{{name!r}: {page.get(name)!r}, ...}}"
        if hint is not None:
            line = text.splitlines()[defined[name] - 1].strip()
            raise RecipeError(
                f"'{name}' in {path.name} is used by nothing", where=f"{path.name}:{defined[name]}   {line}", hint=hint
            )


def meant(missing: Collection[str], page: Mapping[str, Any]) -> str | None:
    """What a page has under another name of what it lacks: ``criterion`` is looked for as ``loss``."""
    lacks = {name.removesuffix("()") for name in missing}
    found = {
        name: ELSEWHERE[name]
        for name in page
        if ELSEWHERE.get(name) in lacks and _could_be(page[name], ELSEWHERE[name])
    }
    return "; ".join(f"{name} is looked for as {known}" for name, known in found.items()) or None


def _could_be(own: Any, known: str) -> bool:
    return isinstance(own, dict) if known == "defaults" else callable(own)


def idle(text: str, page: Mapping[str, Any]) -> list[str]:
    """Lines on what a page defines and nothing will use, though it is no mistake in its name."""
    defined, used = _defined(text)
    if "loss" not in defined or "loss" in used or page.get("step") is None:
        return []
    if page.get("validate") is None and updates(page["step"]):
        return []  # it measures what that step trains
    return ["loss is used by nothing: step() does not call it"]


def _defined(text: str) -> tuple[dict[str, int], set[str]]:
    """The names that a page defines at its top, each with its line, and those that it uses somewhere."""
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


def _near(name: str, page: Mapping[str, Any], defined: Collection[str]) -> str | None:
    """The known name that an unused one stands for."""
    if (meant := ELSEWHERE.get(name)) is not None and meant not in defined:
        return meant
    own = page.get(name)
    for near in difflib.get_close_matches(name, OPTIONAL, 3, ALIKE):
        ways = FUNCTIONS.get(near)
        fits = not callable(own) if ways is None else callable(own) and any(takes(own, w.count(",") + 1) for w in ways)
        if fits and near not in defined:
            return near
    return None
