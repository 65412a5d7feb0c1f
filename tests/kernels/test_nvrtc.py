"""The kernels' sources for GPUs compile with NVRTC, without a device."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from nvrtc import ARCHITECTURES, REAL, compiled, library_file, problem_of, process, report, resources
from rows import rows

from ox.devices.gpu.kernels import typed
from ox.dtypes import float32
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


def test_a_report_of_what_kernels_take(tmp_path: Path) -> None:
    """Of ox's kernels, the most of several types; an array that is indexed by a number lies in local memory."""
    body = "NUMBER kept[64]; for (int k = 0; k < 64; k++) kept[k] = x[k * i]; x[i] = kept[((int*)x)[i] & 63];"
    text = gpu_source(f"EACH(set, i, count, NUMBER* x) {{ {body} }} END")
    sources = [f"#define NUMBER {kind}\n{text}" for kind in ("float", "double")]
    sources.append('extern "C" __global__ void cupy_set(int* x) { *x = 1; }')
    for i, source in enumerate(sources):
        (tmp_path / f"{i}.json").write_text(json.dumps({"source": source, "options": [], "names": []}))
    (line,) = report(tmp_path).splitlines()[2:]
    name, *cells = line.strip("| ").split(" | ")
    assert name == "`set`" and len(cells) == len(REAL)
    for cell, architecture in zip(cells, REAL, strict=True):
        single, double = (resources(source, architecture)["set"] for source in sources[:2])
        assert (single.stack, double.stack) == (256, 512) and single.registers > 8
        assert cell == f"{max(single.registers, double.registers)} / 512 / 0"


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("architecture", ["sm_80", pytest.param("sm_90", marks=pytest.mark.slow)])
def test_attention_has_its_sums_in_registers(architecture: str, width: int) -> None:
    """Two blocks on a multiprocessor leave a thread 128 of them."""
    source = gpu_source(typed("device_attention.cu", float32, f"#define WIDTH {width}\n"))
    for name, found in resources(source, architecture).items():
        assert found.stack == found.spills == 0, (name, found)
