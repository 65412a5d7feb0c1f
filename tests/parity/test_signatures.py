"""Every argument of PyTorch's classes and functions has its name, its place and its default here, too."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import from_pytorch

SPACES = (
    "torch.nn", "torch.nn.Module", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.nn.utils.rnn",
    "torch.nn.utils.parametrize", "torch.nn.utils.parametrizations", "torch.nn.utils.prune", "torch.optim",
    "torch.optim.lr_scheduler", "torch.optim.swa_utils", "torch.utils.data", "torch.autograd", "torch.func",
    "torch.autograd.functional",
)  # fmt: skip
# Ways to be faster, or to lie elsewhere in memory, that change no result; and PyTorch's own internals.
ANYWHERE = {"foreach", "fused", "capturable", "inplace", "self", "_stacklevel"}
# name -> arguments that are not taken, or have another default, on purpose
KNOWN = {
    "torch.nn.Buffer": {"data"},  # empty ones are of no use
    "torch.nn.Parameter": {"data"},
    "torch.nn.utils.parametrize.Parameter": {"data"},
    "torch.nn.utils.rnn.PackedSequence": {"batch_sizes"},
    "torch.nn.Hardtanh": {"min_value", "max_value"},  # deprecated
    "torch.utils.data.random_split": {"generator"},  # None is the default generator
    "torch.autograd.backward": {"grad_variables"},  # deprecated
    "torch.autograd.enable_grad": {"orig_func"},
    # ox has its own, which checks what PyTorch's does and names other things
    "torch.autograd.gradcheck": {"*"},
    "torch.autograd.gradgradcheck": {"*"},
}


def pairs() -> list[tuple[str, str]]:
    spaces = json.loads(from_pytorch.NAMES.read_text())["spaces"]
    return [
        (f"{space}.{e.name}", e.found)
        for space in SPACES
        for e in from_pytorch.entries(space, spaces[space])
        if e.found
    ]


def signature(path: str) -> inspect.Signature | None:
    try:
        return inspect.signature(from_pytorch.resolve(path.partition("(")[0]))
    except (TypeError, ValueError):
        return None


def differences(theirs: inspect.Signature, ours: inspect.Signature, known: set[str]) -> list[str]:
    own: dict[str, Any] = dict(ours.parameters)
    if "*" in known or any(p.kind is p.VAR_KEYWORD for p in own.values()):
        return []
    wanted = [p for p in theirs.parameters.values() if p.name not in ANYWHERE | known and p.kind not in (2, 4)]
    found = [f"no argument {p.name}" for p in wanted if p.name not in own]
    for p in wanted:
        if p.name in own and p.default is not p.empty and not callable(p.default) and own[p.name].default != p.default:
            found.append(f"{p.name} is {own[p.name].default!r} by default, not {p.default!r}")
    by_place = [p.name for p in wanted if p.kind in (0, 1)]
    here = [n for n, p in own.items() if p.kind in (0, 1) and n in by_place]
    if not any(p.kind is p.VAR_POSITIONAL for p in own.values()) and here != by_place[: len(here)]:
        found.append(f"the order is {here}, not {by_place}")
    return found


def test_arguments_are_the_same() -> None:
    compared, wrong = 0, []
    for theirs, ours in pairs():
        a, b = signature(theirs), signature(ours)
        if a is None or b is None:
            continue
        compared += 1
        wrong += [f"{theirs}: {each}" for each in differences(a, b, KNOWN.get(theirs, set()))]
    assert compared > 300
    assert not wrong, "\n".join(wrong)
