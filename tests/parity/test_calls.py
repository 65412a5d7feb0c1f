"""PyTorch's sample inputs in every form of call that PyTorch takes give the same here: by position, by name, with the
defaults given, with NumPy's names, with `out=`. Run as a script, it prints the score and what differs."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest

pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

from call_forms import calls, check

from ox.functions.overloads import SINGLE

# "full name: form" -> why ox does not take it
EXCEPTIONS = {
    **{f"torch.{name}: with NumPy's names*": "a call of one operator, which more names would slow" for name in SINGLE},
    "torch.Tensor.__*: *": "what an infix sign calls has no names",
    "torch.Tensor.*_as: with NumPy's names*": "documented nowhere",
    "torch.constant_pad_nd: with NumPy's names*": "documented nowhere",
    "torch.grid_sampler*: with NumPy's names*": "documented nowhere",
    "torch.*_: with NumPy's names*": "documented nowhere",
    "torch.fft.ihfft?: with out*": "PyTorch leaves out= empty for one dimension",
    "torch.view_as_complex: with NumPy's names*": "documented nowhere",
    "torch.Tensor.copy_: with NumPy's names*": "documented nowhere",
    "torch.Tensor.where: with NumPy's names*": "documented nowhere",
    "torch.nn.functional.*: with NumPy's names*": "documented nowhere, and not of all layers",
    "torch.nn.functional.*: with out*": "documented nowhere; what torch has of these has it",
    "torch.*stft: *align_to_window*": "of PyTorch 2.9 and later, for frames that are not centred",
    "torch.Tensor.expand: *implicit*": "PyTorch's own mark of a broadcast",
    "torch.Tensor.to_sparse: *layout*": "sparse tensors are COO",
}
EXCEPTIONS |= {name.replace("torch.", "torch.Tensor."): why for name, why in EXCEPTIONS.items() if "operator" in why}


def differences() -> Iterator[tuple[int, list[str]]]:
    """For each name: how many forms PyTorch takes, and what ox takes otherwise, with its text."""
    for full, each in calls().items():
        found = [check(call) for call in each]
        yield (
            sum(n for n, _ in found),
            [f"{full}: {form}: {text}" for _, wrong in found for form, text in wrong.items()],
        )


def unexplained(differences: list[str]) -> list[str]:
    return [text for text in differences if not any(fnmatchcase(text, pattern) for pattern in EXCEPTIONS)]


def stale(differences: list[str]) -> list[str]:
    """The exceptions that nothing differs under any more, but for those of single operators, which are made for all."""
    found = [pattern for pattern in EXCEPTIONS if not any(fnmatchcase(text, pattern) for text in differences)]
    return [pattern for pattern in found if "operator" not in EXCEPTIONS[pattern]]


@pytest.mark.slow
def test_every_form_of_call_gives_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(differences())
    counted, every = sum(n for n, _ in found), [text for _, different in found for text in different]
    with capsys.disabled():
        print(f"\nforms of calls that give the same as in PyTorch: {counted - len(every)} of {counted}")
    assert counted > 9000
    assert not unexplained(every), "\n".join(unexplained(every))
    assert not stale(every), f"no longer exceptions: {stale(every)}"


if __name__ == "__main__":
    found = list(differences())
    counted, every = sum(n for n, _ in found), [text for _, different in found for text in different]
    print(*unexplained(every), *(f"no longer an exception: {pattern}" for pattern in stale(every)), sep="\n")
    print(f"{counted - len(every)} of {counted}")
