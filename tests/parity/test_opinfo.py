"""PyTorch's own sample inputs (its OpInfo database), each operation held against PyTorch: values, types, shapes, forms
in place and as methods, gradients, refusals. What differs stands in opinfo_exceptions.toml with a reason, and nowhere
else: an exception that has come to agree fails, too.

Of each operation `SAMPLES` inputs in each of four types are tried, evenly spread over the first 200 that the database
has; all inputs of a type that an exception speaks of. `python tests/parity/opinfo_score.py` tries all of
every operation.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("expecttest", reason="PyTorch's own test helpers want expecttest")

import opinfo

SAMPLES = 3


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """PyTorch's threads cost more than they bring on small tensors."""
    before = opinfo.torch.get_num_threads()
    opinfo.torch.set_num_threads(1)
    yield
    opinfo.torch.set_num_threads(before)


@pytest.mark.parametrize("name", sorted(opinfo.operations()))
def test_samples(name: str) -> None:
    known = opinfo.exceptions().get(name, {})
    failures = opinfo.check(opinfo.operations()[name], SAMPLES, known)
    wrong = {each: texts for each, texts in failures.items() if texts}
    new = [f"{each}: {texts[0]}" for each, texts in wrong.items() if not opinfo.expected(each, known)]
    assert not new, "\n".join(new)
    passing = [pattern for pattern in known if not opinfo.met(pattern, wrong)]
    assert not passing, f"no longer exceptions: {passing}"


@pytest.mark.parametrize("name", sorted(n for n, op in opinfo.operations().items() if op.error_inputs_func))
def test_refusals(name: str) -> None:
    known = opinfo.exceptions("refusals").get(name, {})
    taken = [told for _, told in opinfo.errors(opinfo.operations()[name]) if told]
    if known:
        assert taken, "no longer an exception"
    else:
        assert not taken, "\n".join(taken)


def test_every_exception_names_an_operation_and_a_reason() -> None:
    for table in ("samples", "refusals"):
        assert set(opinfo.exceptions(table)) <= set(opinfo.operations())
        assert all(why for known in opinfo.exceptions(table).values() for why in known.values())


def test_what_is_missing_has_a_reason() -> None:
    assert not [name for name in opinfo.missing() if not opinfo.why_missing(name)]
