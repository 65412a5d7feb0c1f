"""The public names of the packages that users import are those of tests/public_names.txt: none goes unnoticed.

After a change that is meant: python tests/test_public_names.py
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

LIST = Path(__file__).with_name("public_names.txt")
# Packages whose `__all__` is public; of those without one, what they define.
WITHOUT_ALL = {"ox.fft", "ox.testing"}
ROOTS = [
    "autograd",
    "amp",
    "data",
    "distributed",
    "distributions",
    "export",
    "fft",
    "func",
    "linalg",
    "nn",
    "onnx",
    "optim",
    "profiler",
    "random",
    "serve",
    "signal",
    "sparse",
    "special",
    "testing",
    "train",
    "utils",
    "vision",
]


def public_modules() -> Iterator[str]:
    """The packages below the roots, without their modules."""
    yield "ox"
    for root in ROOTS:
        package = import_module(f"ox.{root}")
        yield package.__name__
        for found in pkgutil.walk_packages(getattr(package, "__path__", []), f"{package.__name__}."):
            if found.ispkg and "._" not in found.name:
                yield found.name


def public_names() -> list[str]:
    found = set()
    for name in public_modules():
        module = import_module(name)
        # an import of a submodule adds an attribute: which ones are there depends on what ran before
        names = getattr(module, "__all__", None)
        if names is None and name in WITHOUT_ALL:
            names = [
                each
                for each, thing in vars(module).items()
                if not each.startswith("_") and str(getattr(thing, "__module__", "")).startswith("ox")
            ]
        found |= {f"{name}.{each}" for each in names or ()}
    return sorted(found)


def test_the_public_names_are_those_of_the_list() -> None:
    now, listed = set(public_names()), set(LIST.read_text().splitlines())
    assert now == listed, f"gone: {sorted(listed - now)}, new: {sorted(now - listed)}; see the head of this file"


def test_the_list_looks_at_packages_of_all_kinds() -> None:
    some = {"ox.nn.Linear", "ox.train.Trainer", "ox.train.metrics.AUROC", "ox.export.Row", "ox.fft.rfft", "ox.tensor"}
    assert some <= set(public_names())


if __name__ == "__main__":
    LIST.write_text("\n".join(public_names()) + "\n")
