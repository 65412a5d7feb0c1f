"""Every overload that PyTorch declares is taken here: names, order, defaults, by position or by name; each is called
both ways in test_calls.py. Run as a script, it prints the score and what differs."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

import from_pytorch
from overloads import KEYWORD, NONE, VARIADIC, Overload, Parameter, overloads

from ox.functions.keyword_arguments import ALIASES, WITHOUT_EFFECT

SPACES = (
    "torch", "torch.Tensor", "torch.nn.functional", "torch.nn.init", "torch.linalg", "torch.fft", "torch.special",
)  # fmt: skip

# Overloads that are not counted: what they are for is not there at all.
OTHERS = {
    "names of dimensions, which PyTorch never finished": lambda p: "ellipsis" in p.annotation or p.name == "names",
    "a deprecated order of arguments": lambda p: p.name == "self",
    "a Python function that hides its arguments": lambda p: p.kind == VARIADIC and p.name == "args",
}
# "space.name(parameter)" or "space.name" -> why it differs
EXCEPTIONS: dict[str, str] = {
    "torch.*mm(out_dtype)": "of the CUDA kernels only, in PyTorch too",
    "torch.arange(end)": "found by what is given: arange(3), arange(end=3)",
    "torch.randint(high)": "found by what is given: randint(10, (2,)), randint(high=10, size=(2,))",
    "torch.randint(size)": "found by what is given",
    "torch.randint_like(high)": "found by what is given",
    "torch*.std*(unbiased)": "found by its type: std(x, False)",
    "torch*.var*(unbiased)": "found by its type: var(x, False)",
    "torch*.scatter(value)": "a number in the place of src, or value=",
    "torch.repeat_interleave(repeats)": "found by what is given",
    "torch.result_type(*)": "numbers and tensors alike are tensor and other",
    "torch*.m??(other)": "found by its type: max(x, y), or other=",
    "torch.nn.functional.conv?d(padding)": "a schema for each type of padding",
    "torch.conv?d(padding)": "a stub for each type of padding: a number and 'same' or 'valid'",
    "torch.compile(shapes_spec)": "documented nowhere; ox.compiler.mark_dynamic declares sizes that change",
    "torch.enable_grad(orig_func)": "what a decorator passes to itself",
    "torch.group_norm(cudnn_enabled)": "a choice of kernel",
    "torch.layer_norm(cudnn_enable)": "a choice of kernel",
    "torch.l*space(steps)": "PyTorch's None is refused when it is called",
    "torch.load(pickle_module)": "nothing is pickled",
    "torch.save(*)": "nothing is pickled",
    "torch.rrelu_(generator)": "draws from the default generator",
    "torch.nn.functional.rrelu_(generator)": "draws from the default generator",
    "torch.stft(align_to_window)": "of PyTorch 2.9 and later, for frames that are not centred",
    "torch*.subtract(alpha)": "by name only, as PyTorch's own call has it whatever its stub says",
    "torch.tensor(*)": "by name only, as PyTorch's own call has it whatever its stub says",
    "torch.Tensor.new_tensor(*)": "by name only, as PyTorch's own call has it whatever its stub says",
    "torch.Tensor.requires_grad_(mode)": "called requires_grad, as PyTorch's own call has it whatever its stub says",
    "torch.Tensor.to(other)": "called tensor, as PyTorch's own call has it whatever its stub says",
    "torch.Tensor.expand(implicit)": "PyTorch's own mark of a broadcast",
    "torch.Tensor.count_nonzero(dim)": "several dimensions as one tuple",
    "torch.Tensor.squeeze*(dim)": "several dimensions as one tuple",
    "torch.Tensor.?split(indices)": "several places as one tuple",
    "torch.Tensor.view(dtype)": "by position only",
    "torch.Tensor.to_dense(masked_grad)": "gradients of sparse tensors are those of all elements",
    "torch.Tensor.to_sparse(*)": "sparse tensors are COO",
    "torch.nn.functional.*(out)": "documented nowhere; what torch has of these has it",
    "torch.nn.functional.elu_(*scale)": "of the kernel, documented nowhere",
}
# Defaults that mean the same.
SAME_DEFAULT = ({"None", "()"},)


def pairs() -> Iterator[tuple[Overload, str]]:
    spaces = json.loads(from_pytorch.NAMES.read_text())["spaces"]
    for space in SPACES:
        for entry in from_pytorch.entries(space, spaces[space]):
            if entry.found:
                for overload in overloads(space, entry.name):
                    if not any(other(p) for other in OTHERS.values() for p in overload.parameters):
                        yield overload, entry.found


def differences(overload: Overload, found: str) -> list[str]:
    """What of an overload the function `found` does not take."""
    function = from_pytorch.resolve(found)
    try:
        parameters = list(inspect.signature(function).parameters.values())[overload.space == "torch.Tensor" :]
    except (TypeError, ValueError):
        return []
    own = {p.name: p for p in parameters}
    form = getattr(function, "call_form", None)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return []
    wrong = []
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    star = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for i, p in enumerate(overload.parameters):
        here = own_name(p, own, form)
        if p.kind == VARIADIC:
            if not star:
                wrong.append(f"*{p.name}: no further positions")
            continue
        if here is None:
            wrong.append(f"{p.name}: no such argument")
            continue
        if p.kind != KEYWORD and not star and (i >= len(places) or places[i].name != here):
            wrong.append(f"{p.name}: at another place")
        if here in own and not same_default(p.default, own[here]):
            wrong.append(f"{p.name}: {own[here].default!r} by default, not {p.default}")
    return wrong


def own_name(p: Parameter, own: dict[str, Any], form: Any) -> str | None:
    if p.name in own:
        return p.name
    if form is None:
        return None
    if (form.out and p.name == "out") or (form.without_effect and p.name in WITHOUT_EFFECT):
        return p.name
    return next((name for name in ALIASES.get(p.name, ()) if name in own), None)


def same_default(theirs: str, own: inspect.Parameter) -> bool:
    if theirs == NONE:
        return True
    if own.default is own.empty:
        return own.kind is own.VAR_POSITIONAL
    try:
        value = ast.literal_eval(theirs)
    except (SyntaxError, ValueError):
        return True  # names of types and layouts: the calls compare those
    value, mine = (one_for_all(each) for each in (value, own.default))
    return value == mine or any({repr(value), repr(mine)} <= same for same in SAME_DEFAULT)


def one_for_all(value: Any) -> Any:
    """A list of equal numbers as the number that stands for it; other lists as tuples."""
    if isinstance(value, list):
        return value[0] if value and value.count(value[0]) == len(value) else tuple(value)
    return value


def reason(overload: Overload, difference: str) -> str | None:
    full = f"{overload.full}({difference.partition(':')[0].lstrip('*')})"
    return next((why for pattern, why in EXCEPTIONS.items() if fnmatchcase(full, pattern)), None)


def score() -> tuple[int, int, dict[str, list[str]]]:
    """Overloads that are taken whole, all that are counted, and by overload what differs without a reason."""
    taken, counted = 0, 0
    wrong: dict[str, list[str]] = {}
    for overload, found in pairs():
        counted += 1
        these = differences(overload, found)
        taken += not these
        unexplained = [each for each in these if reason(overload, each) is None]
        if unexplained:
            wrong[str(overload)] = unexplained
    return taken, counted, wrong


def test_every_overload_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    taken, counted, wrong = score()
    with capsys.disabled():
        print(f"\noverloads taken as PyTorch declares them: {taken} of {counted}")
    assert counted > 1300
    assert not wrong, "\n".join(f"{name}: {'; '.join(each)}" for name, each in wrong.items())


if __name__ == "__main__":
    taken, counted, wrong = score()
    print(*(f"{name}\n    {'; '.join(each)}" for name, each in wrong.items()), sep="\n")
    print(f"{taken} of {counted}; {len(wrong)} differ without a reason")
