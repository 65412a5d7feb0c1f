"""No module is hidden by a function or class of its own name, except where PyTorch has the same pair."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import ox
import ox_cli
import ox_models

# In PyTorch (and torchvision), too, the path names a module and what it defines.
AS_IN_PYTORCH = {
    "ox.autograd.gradcheck",
    "ox.nn.parallel.data_parallel",
    "ox.nn.utils.spectral_norm",
    "ox.nn.utils.weight_norm",
    "ox.vision.models.alexnet",
}


def shadowed(root: Path, package: str) -> set[str]:
    """The modules below a package whose path, read as attributes, leads to something that is no module."""
    found: set[str] = set()
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        module = ".".join((package, *parts)).removesuffix(".__init__")
        parent, _, name = module.rpartition(".")
        if (
            parent
            and name != "__main__"
            and not isinstance(getattr(import_module(parent), name, None), ModuleType | None)
        ):
            found.add(module)
    return found


@pytest.mark.parametrize(("package", "expected"), [(ox, AS_IN_PYTORCH), (ox_cli, set()), (ox_models, set())])
def test_no_module_has_the_name_of_a_function(package: ModuleType, expected: set[str]) -> None:
    assert shadowed(Path(str(package.__file__)).parent, package.__name__) == expected
