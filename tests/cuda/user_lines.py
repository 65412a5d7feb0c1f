"""Reads and runs the lines of user_lines.txt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ox
from ox import nn

Prepared = tuple[Callable[[], Any], list[Any]]  # what runs a line, and the parameters that get gradients

FILE = Path(__file__).with_suffix(".txt")
_numbers = np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return _numbers.standard_normal(shape).astype(np.float32)


INPUTS: dict[str, np.ndarray[Any, Any]] = {
    "matrix": _normal(4, 6),
    "square": _normal(3, 3) + 3 * np.eye(3, dtype=np.float32),
    "sequence": _normal(2, 3, 8),
    "image": _normal(2, 3, 12, 12),
    "heads": _normal(2, 2, 5, 4),
    "ids": _numbers.integers(0, 5, (2, 4)),
}
LABELS = np.array([1, 0, 5, 3])
ROWS = np.array([0, 2])


class SelfAttention(nn.Module):
    """`nn.MultiheadAttention` of a sequence with itself."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(size, heads, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x)[0]


class PackedLSTM(nn.LSTM):
    """An LSTM over sequences of different lengths, in the order of the user."""

    def forward(self, x: Any, hx: Any = None) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x.transpose(0, 1), [2, 3], enforce_sorted=False)
        return super().forward(packed)[1][0]


class GloballyPruned(nn.Linear):
    """Half of the weights and biases are taken away when it is first called."""

    def forward(self, x: Any) -> Any:
        prune = nn.utils.prune
        prune.global_unstructured([(self, "weight"), (self, "bias")], prune.L1Unstructured, amount=0.5)
        return nn.functional.linear(x, self.weight, self.bias)


def names(x: Any) -> dict[str, Any]:
    """What a line may use."""
    rows, labels = (ox.tensor(numbers).to(x.device) for numbers in (ROWS, LABELS))
    modules = {module.__name__: module for module in (SelfAttention, PackedLSTM, GloballyPruned)}
    given = {"x": x, "rows": rows, "labels": labels}
    return {"ox": ox, "nn": nn, "F": nn.functional, "np": np, **modules, **given}


def expression(line: str, x: Any) -> Prepared:
    given = names(x)
    return lambda: eval(line, given), []


def layer(line: str, x: Any) -> Prepared:
    made = eval(line, names(x)).to(x.device)
    return lambda: made(x), list(made.parameters())


def write(line: str, x: Any) -> Prepared:
    given, random = names(x), "normal" in line or "uniform" in line

    def run() -> Any:
        given["y"] = x.detach().clone() if random else x.clone()
        exec(line, given)
        return given["y"]

    return run, []


def optimizer(line: str, x: Any) -> Prepared:
    """Two steps, whose result is the weights."""
    name, _, options = line.partition("(")
    model = nn.Linear(6, 3, bias=name != "Muon").to(x.device)
    made = eval(f"getattr(ox.optim, name)(model.parameters(), {options}", {"ox": ox, "name": name, "model": model})

    def closure() -> Any:
        made.zero_grad()
        loss = model(x.detach()).square().sum()
        loss.backward()
        return loss

    def run() -> Any:
        for _ in range(2):
            if name == "LBFGS":
                made.step(closure)
            else:
                closure()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                made.step()
        return model.weight.detach() + 0

    return run, []


PREPARE: dict[str, Callable[[str, Any], Prepared]] = {
    function.__name__: function for function in (expression, layer, write, optimizer)
}


def read() -> Iterator[tuple[str, str, str]]:
    """The lines of the file: what prepares each, its input, the line."""
    run = kind = ""
    for line in FILE.read_text().splitlines():
        if line.startswith("["):
            run, kind = line.strip("[]").split()
        elif line and not line.startswith("#"):
            yield run, kind, line
