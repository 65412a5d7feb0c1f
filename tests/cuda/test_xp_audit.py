"""What ox takes from CuPy is there: names, methods and keywords, by reading the code."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from cupy_names import names
from rows import rows
from xp_audit import audit, misses, tables

ROOT = Path(__file__).resolve().parents[2]


def test_cupy_has_what_ox_takes() -> None:
    found = audit(ROOT / "ox")
    assert not found, "\n".join(f"{place}: {miss.name}: {miss.problem}" for place, miss in found.items())


@rows(
    ("line", "problem"),
    [
        ("xp.vecdot(A, A)", "cupy has no vecdot"),
        ("xp.linalg.svd(A, hermitian=True)", "no keyword hermitian="),
        ("xp.linalg.eig2(A)", "cupy.linalg has no eig2"),
        ("xp.multiply.at(A, 0, 1)", "multiply has no at"),
        ("xp.maximum.reduce(A)", "maximum has no reduce"),
        ("xp.add(A, A, where=A > 0)", "a ufunc has no keyword where="),
        ("cupy().cuda.Device(0).use(), cupy().cuda.Devices", "cupy.cuda has no Devices"),
        ("A.setflags(write=False)", "CuPy's arrays do not have it"),
        ("A.max(axis=0, initial=0)", "no keyword initial="),
    ],
)
def test_a_miss_is_found(line: str, problem: str) -> None:
    (miss,) = misses(f"def kernel(xp, A):\n    return {line}")
    assert miss.line == 2 and problem in miss.problem


@pytest.mark.parametrize(
    "line",
    ["xp.linalg.svd(A, full_matrices=False)", "xp.add.reduce(A)", "A.max(axis=0)", "np.vecdot(A, A)", "A.swap()"],
)
def test_what_is_there_is_no_miss(line: str) -> None:
    assert not list(misses(f"def kernel(xp, A):\n    return {line}"))


def test_a_kernel_for_the_cpu_alone_may_take_more() -> None:
    kernel = "def kernel(xp, A):\n    return xp.vecdot(A, A)\n"
    assert list(misses(kernel)) and not list(misses(kernel + "Operator.large = kernel"))


def test_the_names_are_those_of_the_installed_cupy() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if cupy.__version__ != tables()["version"]:
        pytest.skip(f"CuPy {cupy.__version__} is installed, cupy_names.json is of {tables()['version']}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that CuPy means to take away
        assert names() == tables(), "python tests/cuda/cupy_names.py writes the file again"
