"""Packages whose modules list in `__all__` what the package exports."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from pathlib import Path

import pytest

from ox.core.lazy import public_names

ROOT = Path(__file__).parent.parent
PACKAGES = ("ox.distributions", "ox.functions", "ox.nn", "ox.nn.functional", "ox.ops")


def star_imports(package: str) -> list[str]:
    tree = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return [node.module for node in imports if node.module and node.names[0].name == "*"]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_modules_export_one_name(package: str) -> None:
    modules = star_imports(package)
    assert modules
    exported = Counter(name for module in modules for name in importlib.import_module(module).__all__)
    assert {name for name, count in exported.items() if count > 1} == set()
    assert set(exported) <= set(importlib.import_module(package).__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_exports_what_its_modules_define(package: str) -> None:
    for module in star_imports(package):
        assert importlib.import_module(module).__file__ is not None
        source = Path(str(importlib.import_module(module).__file__)).read_text(encoding="utf-8")
        listed = next(
            node.value
            for node in ast.parse(source).body
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        )
        assert all(isinstance(name, ast.Constant) for name in getattr(listed, "elts", [None])), (
            module
        )  # for type checkers


def test_public_names_leaves_out_modules_helpers_and_plain_values() -> None:
    namespace = {"ast": ast, "_helper": star_imports, "FLAG": False, "made": star_imports, "public_names": public_names}
    assert public_names(namespace) == {"made"}
