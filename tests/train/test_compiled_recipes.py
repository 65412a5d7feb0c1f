"""Every built-in recipe, compiled: the weights and the optimizer's state after some steps are those of the eager run.

In float64, where no rounding grows to what a wrong step would make; in float32 the networks themselves amplify the last
bit within some ten steps, so that two correct implementations differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ox import train
from ox.train.recipe.recipe import available
from ox.train.run import checkpoint

PAGE = """
import numpy as np
import ox_models.{name} as base
from ox.data import Dataset
from ox_models.{name} import *


def wide(x):
    if isinstance(x, (tuple, list)):
        return type(x)(map(wide, x))
    if isinstance(x, dict):
        return {{key: wide(value) for key, value in x.items()}}
    if hasattr(x, "is_floating_point"):
        return x.double() if x.is_floating_point() else x
    return np.asarray(x, np.float64) if getattr(x, "dtype", None) == np.float32 else x


class Wide(Dataset):
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        return wide(self.inner[index])


def data():
    found = base.data()
    return tuple(map(Wide, found)) if isinstance(found, tuple) else Wide(found)


def model(*given):
    return base.model(*given).double()
"""
# Steps of large models; the others take 100.
STEPS = {"gpt": 4, "kjv_llama": 3, "resnet18": 8, "vit": 10, "verses": 10, "fashion_cnn": 30}
FEW = ("kjv_llama",)  # a step of ten million parameters in float64 takes seconds: three samples, one a step
QUICK = ("tumours",)
FLOAT32 = {"resnet18_photos": "its transforms make float32"}


def arrays(state: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """The floating-point tensors of a checkpoint."""
    if isinstance(state, dict | list | tuple):
        for key, value in state.items() if isinstance(state, dict) else enumerate(state):
            yield from arrays(value, f"{path}.{key}")
    else:
        array = getattr(state, "array", state)
        if isinstance(array, np.ndarray) and array.dtype.kind == "f":
            yield path, array


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in available()]
)
def test_a_compiled_recipe_ends_where_the_eager_one_does(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if name in FLOAT32:
        pytest.skip(FLOAT32[name])
    page = tmp_path / "page.py"
    page.write_text(PAGE.format(name=name))
    ends = []
    few: dict[str, Any] = {"batch_size": 1} if name in FEW else {}
    for compiled in (False, True):
        run = train.train(
            page,
            out=tmp_path / str(compiled),
            max_steps=STEPS.get(name, 100),
            limit=3 if name in FEW else 320 if name in STEPS else 1600,
            compile=compiled,
            show=None,
            **few,
        )
        ends.append(dict(arrays(checkpoint.load(run.last))))
    assert "stays eager" not in caplog.text
    eager, compiled_run = ends
    assert eager.keys() == compiled_run.keys() and len(eager) >= 4
    assert any(array.dtype == np.float64 and array.size > 1 for array in eager.values())
    for path, array in eager.items():
        # gradients that are 0 but for rounding (a bias before a normalization) are above 1e-15 nowhere
        np.testing.assert_allclose(
            compiled_run[path], array, rtol=1e-8, atol=1e-9 + 1e-9 * np.abs(array).max(initial=0), err_msg=path
        )
