"""The zoo under both libraries: models step by step, and whole training scripts as programs.

A model of `tests/zoo` is read again with `torch` in place of `ox`, and gets the same weights, inputs and random
numbers: its outputs, its gradients and what two steps of training leave must be the same.

A script of `tests/zoo/programs`, in the style of public repositories, is run as a program, in an empty folder and
without arguments, as it is under PyTorch and as `ox port` writes it. What it prints is compared: the words must be the
same, and the numbers equal to rounding. ox draws PyTorch's random numbers meanwhile, so that a script starts from the
same weights with nothing but its own `torch.manual_seed`; a `torch.Size` prints as a tuple, `torch.float32` as float32.
The `model` and `example` (a tensor or a tuple of them) that a script leaves behind are exported and compared with ONNX
Runtime.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from architecture import PROGRAMS, Architecture, Array, flat
from architectures import ZOO

import ox
from ox.porting import port

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
torch.set_num_threads(1)  # its threads spin, and take many times as long where they must share their cores

SCRIPTS = sorted(PROGRAMS.glob("*.py"))
DIMS: dict[str, dict[str, list[str | int]]] = {  # the sizes of an export that has another first dimension than a batch
    "gat": {"x": ["nodes", 6], "adj": ["nodes", "nodes"]},
    "gcn": {"x": [30, 9], "edge_index": [2, "edges"]},
    "swin": {"x": [2, 3, 16, 16]},  # int(x.shape[0] / 4.0) is a number to Python, in PyTorch's exporter as in ox's
}
SIZE = re.compile(r"torch\.Size\(\[(.*?)\]\)")
DTYPE = re.compile(r"\b(?:torch|ox)\.(b?float|u?int|bool)|dtype\('?(\w+)'?\)")
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)(?!\w)")


@cache
def on_torch() -> dict[str, Architecture]:
    """The models of the zoo with `torch` written for `ox`."""
    models: dict[str, Architecture] = {}
    for path in sorted(PROGRAMS.parent.glob("[a-z]*_*.py")):
        if not path.name.startswith("test_"):
            module = ModuleType(f"{path.stem} on torch")
            text = re.sub(r"\box\b(?!\.vision)", "torch", path.read_text())
            exec(compile(text, str(path), "exec"), vars(module))
            models |= module.MODELS
    return models


def steps(library: Any, model: Any, inputs: tuple[Array, ...]) -> dict[str, Array]:
    """What a model returns before training, and its gradients, outputs and state in two steps of it."""
    library.manual_seed(7)
    tensors = [library.from_numpy(x.copy()) for x in inputs]
    with library.no_grad():
        arrays = {f"output {i}": x for i, x in enumerate(flat(model.eval()(*tensors)))}
    for layer in model.modules():
        if isinstance(layer, library.nn.LSTM):  # over packed sequences ox draws other numbers here: see docs/random.md
            layer.dropout = 0.0
    optimizer = library.optim.SGD(model.train().parameters(), lr=0.05, momentum=0.9)
    for step in range(2):
        outputs = flat(model(*tensors))
        weights = [library.from_numpy(np.cos(np.arange(x.numel(), dtype=np.float32))).view(x.shape) for x in outputs]
        loss = sum((x * w).mean() for x, w in zip(outputs, weights, strict=True) if x.requires_grad)
        if not isinstance(loss, int):  # one that gives whole numbers has nothing to learn
            optimizer.zero_grad()
            loss.backward()
        arrays |= {f"output {i} of step {step}": x for i, x in enumerate(outputs)}
        arrays |= {
            f"gradient of {name} in step {step}": p.grad for name, p in model.named_parameters() if p.grad is not None
        }
        optimizer.step()
    arrays |= dict(model.state_dict())
    return {name: x.detach().numpy().copy() for name, x in arrays.items()}


def both(name: str, dtype: type[np.floating[Any]]) -> tuple[dict[str, Array], dict[str, Array]]:
    """`steps` of a model in ox and in PyTorch, whose floating-point numbers are of a type."""
    ox.manual_seed(0)
    ours = ZOO[name].make()
    inputs = tuple(x.astype(dtype) if x.dtype == np.float32 else x for x in ZOO[name].inputs(**ZOO[name].other))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch's own
        theirs = on_torch()[name].make()
        theirs.load_state_dict({key: torch.from_numpy(x.numpy().copy()) for key, x in ours.state_dict().items()})
        if dtype == np.float64:
            ours, theirs = ours.double(), theirs.double()
        expected = steps(torch, theirs, inputs)
    with ox.random.torch_compatible(True):
        return steps(ox, ours, inputs), expected


@pytest.mark.parametrize("name", [name for name, each in ZOO.items() if not each.alone])
def test_a_model_is_the_same(name: str) -> None:
    got, expected = both(name, np.float32)
    assert got.keys() == expected.keys()
    for key in expected:
        assert got[key].dtype == expected[key].dtype, key
    far = [key for key in expected if not np.allclose(got[key], expected[key], rtol=1e-4, atol=1e-5, equal_nan=True)]
    if far:
        # A ReLU whose input is within rounding of 0 has another gradient where a processor's kernels round otherwise,
        # and all that lies before it. In float64 nothing lies so near; a wrong rule is wrong there, too.
        try:
            got, expected = both(name, np.float64)
            for key in expected:
                np.testing.assert_allclose(got[key], expected[key], rtol=1e-7, atol=1e-8, err_msg=f"{name}: {key}")
        except Exception as error:
            error.add_note(f"in float64, which ran because these differ in float32: {', '.join(far[:5])}")
            raise


def printed(path: Path) -> tuple[str, dict[str, Any]]:
    """What a script prints when it is run as a program, and the names that it leaves behind."""
    stream = io.StringIO()
    state = np.random.get_state()
    try:
        with contextlib.redirect_stdout(stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch's own
            names = runpy.run_path(str(path), run_name="__main__")
    finally:
        np.random.set_state(state)
    return stream.getvalue(), names


def words(text: str) -> str:
    shapes = SIZE.sub(lambda size: str(tuple(map(int, re.findall(r"\d+", size[1])))), text)
    # a longer dtype breaks a line elsewhere, and `1.  ]` is wider where a neighbour has one digit more
    return " ".join(NUMBER.sub("#", DTYPE.sub(r"\1\2", shapes)).split()).replace("# ]", "#]")


def numbers(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_program_moves_over(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ported = port(script.read_bytes(), str(script))
    assert ported.imports, "nothing of PyTorch is imported"
    assert not [each for each in ported.missing if not each.guarded], ported.missing
    for library in ("torch", "ox"):
        (tmp_path / library).mkdir()
    path = tmp_path / "ox" / script.name
    path.write_bytes(ported.data)
    monkeypatch.setattr(sys, "argv", [script.name])
    monkeypatch.chdir(tmp_path / "torch")
    expected, _ = printed(script)
    monkeypatch.chdir(tmp_path / "ox")
    with ox.random.torch_compatible(True):
        got, names = printed(path)
    assert words(got) == words(expected)
    assert len(numbers(expected)) > 5, "too little is printed to compare"
    np.testing.assert_allclose(numbers(got), numbers(expected), rtol=2e-3, atol=1e-3)
    if "model" in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an `assert` on values is not in the file
            ox.export.save(names["model"].eval(), "model.onnx", names["example"], dims=DIMS.get(script.stem))


def test_there_are_at_least_40_programs() -> None:
    stems = {script.stem for script in SCRIPTS}
    assert len(stems) >= 40 and not set(DIMS) - stems
