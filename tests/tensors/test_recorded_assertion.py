"""`assert` on values while a model is recorded: left out, with one warning; other uses of a truth value stay errors."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn
from ox.core import warn_once


@pytest.fixture(autouse=True)
def nothing_said() -> Iterator[None]:
    said = set(warn_once._warned)
    warn_once._warned.discard("assert on values of tensors")
    yield
    warn_once._warned.clear()
    warn_once._warned.update(said)


MODELS = """
import ox
from ox import nn


class Checked(nn.Module):
    def forward(self, x):
        assert (x < 100).all(), "too large"
        assert not ox.isnan(x).any()
        assert x.min() > -100 and not (x.max() > 100 or x.sum() > 1e6), f"not {x.shape}"
        assert not (x > 1000).any() or x.shape[0] == 7
        assert -100 < x.min() < x.max() + 1 and (x.shape[1] == 4 or x.any())
        assert not 1000 < x.mean() < 2000
        ox._assert((x > -100).all(), "too small")
        return x * 2


class Failing(nn.Module):
    def forward(self, x):
        assert x.shape[0] == 7, "seven rows"
        return x


class Chooses(nn.Module):
    def forward(self, x):
        assert (1 if x.any() else 2) == 1
        return x


class Branches(nn.Module):
    def forward(self, x):
        if (x > 0).all():
            return x
        return -x
"""


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Any]:
    """The classes, from a file of their own: pytest writes the assertions of a test file anew."""
    (tmp_path / "models.py").write_text(MODELS)
    return runpy.run_path(str(tmp_path / "models.py"))


def test_assertions_are_left_out_of_an_export(models: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.warns(UserWarning, match=r"assert on values of tensors changes nothing.*this warning appears once"):
        ox.export.save(models["Checked"](), str(path), ox.ones(2, 3))
    loaded = ox.export.load(str(path))
    np.testing.assert_array_equal(loaded(ox.full((2, 3), 5000.0)).numpy(), np.full((2, 3), 10000.0))


def test_they_hold_in_eager_calls(models: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="too large"):
        models["Checked"]()(ox.full((2, 3), 5000.0))


def test_an_assertion_on_a_shape_is_checked(models: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, ox.OxError), match="seven rows"):
        ox.export.save(models["Failing"](), "m.onnx", ox.ones(2, 3))


@pytest.mark.parametrize("model", ["Chooses", "Branches"])
def test_other_truth_values_are_refused(models: dict[str, Any], model: str) -> None:
    with pytest.raises(ox.OxError, match="needs the value of a tensor"):
        ox.export.save(models[model](), "m.onnx", ox.ones(2, 3))


def test_without_its_source_an_assertion_is_refused() -> None:
    names: dict[str, Any] = {"nn": nn}
    exec("class M(nn.Module):\n    def forward(self, x):\n        assert x.all()\n        return x\n", names)
    with pytest.raises(ox.OxError, match="needs the value of a tensor"):
        ox.export.save(names["M"](), "m.onnx", ox.ones(2, 3))
