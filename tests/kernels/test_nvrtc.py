"""The kernels' sources for GPUs compile with NVRTC, without a device."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from nvrtc import ARCHITECTURES, compiled, library_file, problem_of, process
from rows import rows

from ox.kernels.compiler import SOURCE
from ox.kernels.gpu_source import gpu_source
from ox.kernels.signatures import FILES, signatures

ON_GPU = [file for file in FILES if file.endswith(".cu")]


@rows("architecture", ARCHITECTURES)
@rows("file", ON_GPU)
def test_a_source_compiles(file: str, architecture: str) -> None:
    code = compiled(gpu_source((SOURCE / file).read_text()), architecture)
    names = [name for name in signatures() if f"{name}," in (SOURCE / file).read_text()]
    assert names and all(f".entry {name}(" in code for name in names)
    if file == "pointwise.cu":  # an unrolled loop would cost each element a division of 64 bits
        assert not re.findall(r"\b(?:div|rem)\.[su]\d+", code)


@pytest.mark.parametrize(("body", "problem"), [("*x = 1;", None), ("*x = nothing;", "undefined")])
def test_kernels_in_files(body: str, problem: str | None, tmp_path: Path) -> None:
    if library_file() is None:
        pytest.skip("the wheel nvidia-cuda-nvrtc is not installed")
    source = f"template <class T> __global__ void set(T* x) {{ {body} }}"
    kernel = {"source": source, "options": ["-arch=sm_70"], "names": ["set<float>"]}
    file = tmp_path / "kernel.json"
    file.write_text(json.dumps(kernel))
    found = process().submit(problem_of, "sm_100", tmp_path, file).result()
    assert found is None if problem is None else problem in (found or "")
