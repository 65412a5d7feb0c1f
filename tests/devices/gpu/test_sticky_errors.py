"""The errors after which a process can do nothing more on a GPU, against the headers of CUDA."""

from __future__ import annotations

import re

import pytest
from child_pytest import CUDA_PACKAGES
from cuda_headers import cuda_headers

from ox.devices.gpu.sticky_errors import LOST, lost

# Of an error outside of the GPU, of which CUDA says so for one of two ways to report it
NOT_ALWAYS = {911}


def errors(header: str) -> dict[int, tuple[str, str]]:
    """By number: name and description."""
    folder = cuda_headers(CUDA_PACKAGES)
    if folder is None:
        pytest.skip("CUDA's headers are not installed (make hostcuda)")
    text = (folder / header).read_text(errors="replace")
    found = re.finditer(r"/\*\*((?:(?!\*/).)*)\*/\s*(cudaError\w+|CUDA_ERROR_\w+)\s*=\s*(\d+)", text, re.S)
    return {int(each[3]): (each[2], re.sub(r"[\s*]+", " ", each[1])) for each in found}


@pytest.mark.parametrize(("header", "place"), [("driver_types.h", 0), ("cuda.h", 1)])
def test_the_headers_name_these(header: str, place: int) -> None:
    known = errors(header)
    assert {number: known[number][0] for number in LOST} == {number: names[place] for number, names in LOST.items()}
    ends = {number for number, (_, text) in known.items() if "the process must be terminated and relaunched" in text}
    assert len(ends) > 10 and ends - NOT_ALWAYS <= {*LOST}


def test_other_errors() -> None:
    for text in (
        "CUDA failure 2: out of memory",
        "CUDA failure 7000: no",
        "cudaErrorUnknownSymbol",
        "cudaErrorAsserts",
    ):
        assert lost(text) is None
