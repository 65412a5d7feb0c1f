"""The kernels' sources for GPUs compile with NVRTC, without a device."""

from __future__ import annotations

import pytest
from nvrtc import ARCHITECTURES, compiled

from ox.kernels.compiler import SOURCE
from ox.kernels.gpu_source import gpu_source
from ox.kernels.signatures import FILES, signatures

ON_GPU = [file for file in FILES if file.endswith(".cu")]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("file", ON_GPU)
def test_a_source_compiles(file: str, architecture: str) -> None:
    code = compiled(gpu_source((SOURCE / file).read_text()), architecture)
    names = [name for name in signatures() if f"{name}," in (SOURCE / file).read_text()]
    assert names and all(f".entry {name}(" in code for name in names)


def test_a_wrong_source_does_not() -> None:
    text = (SOURCE / "softmax.cu").read_text() + "EACH(wrong, i, n, float* x) { x[i] = nothing; } END"
    with pytest.raises(AssertionError, match="undefined"):
        compiled(gpu_source(text), "compute_90")
