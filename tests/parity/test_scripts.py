"""Ordinary PyTorch training scripts, run as they are and run again with nothing but their imports changed."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ox.porting import port

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
torch.set_num_threads(1)  # its threads spin, and take many times as long where they must share their cores

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


def moved(text: str) -> str:
    """The script as `ox port` writes it: with its imports changed, and nothing else."""
    ported = port(text.encode())
    assert not ported.missing
    return ported.data.decode()


def run(text: str, name: str) -> list[float]:
    module = sys.modules[name] = ModuleType(name)  # where dataclasses look their annotations up
    exec(compile(text, name, "exec"), vars(module))
    return module.main(filler(module.torch), stream())  # type: ignore[no-any-return]


def stream() -> Callable[..., Any]:
    generator = np.random.default_rng(11)
    return lambda *shape: generator.standard_normal(shape).astype(np.float32)


def filler(torch: Any) -> Callable[[Any], Any]:
    """Gives every parameter the same numbers under either library."""
    draw = stream()

    def fill(model: Any) -> Any:
        with torch.no_grad():
            for name, parameter in sorted(model.named_parameters()):
                vector = len(parameter.shape) == 1
                scale, offset = (0.05, float("weight" in name)) if vector else (0.3, 0.0)
                parameter.copy_(torch.from_numpy(draw(*parameter.shape) * scale + offset))
        return model

    return fill


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_moves_over(path: Path) -> None:
    text = path.read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch's own
        expected = run(text, f"{path.stem} on torch")
    got = run(moved(text), f"{path.stem} on ox")
    assert "torch." not in "\n".join(line for line in moved(text).splitlines() if line.startswith(("import", "from")))
    assert len(got) == len(expected) > 5
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-4)
