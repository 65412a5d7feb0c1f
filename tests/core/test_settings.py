"""Printing, threads, random state: what scripts set at their head."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import ox
from ox.errors import ArgumentError


@pytest.fixture(autouse=True)
def printing_as_it_was() -> Iterator[None]:
    yield
    ox.set_printoptions(profile="default")


def test_how_tensors_print() -> None:
    x = ox.tensor([1.23456789, 1000.0])
    assert repr(x) == "tensor([   1.2346, 1000.0000])"
    ox.set_printoptions(precision=2)
    assert repr(x) == "tensor([   1.23, 1000.00])"
    ox.set_printoptions(sci_mode=True)
    assert repr(x) == "tensor([1.23e+00, 1.00e+03])"
    ox.set_printoptions(profile="full")
    assert "..." not in repr(ox.zeros(5000))
    ox.set_printoptions(profile="default")
    assert "..." in repr(ox.zeros(5000))
    with pytest.raises(ArgumentError, match="no profile"):
        ox.set_printoptions(profile="wide")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0, -2.0], "[ 1., -2.]"),
        ([0.1, 22.75], "[ 0.1000, 22.7500]"),
        ([0.1, 22.75, 300.0], "[1.0000e-01, 2.2750e+01, 3.0000e+02]"),
        ([1e-5], "[1.0000e-05]"),
        ([1.5, float("nan"), 0.0, float("-inf")], "[1.5000,    nan, 0.0000,   -inf]"),
        (3.5, "3.5000"),
        ([2.0e9], "[2.0000e+09]"),
    ],
)
def test_floats_print_as_in_pytorch(values: list[float], text: str) -> None:
    assert repr(ox.tensor(values)) == f"tensor({text})"


def test_the_default_type_is_not_printed() -> None:
    ox.set_default_dtype(ox.float64)
    try:
        assert repr(ox.tensor([1.5])) == "tensor([1.5000])"
        assert repr(ox.tensor([1.5], dtype=ox.float32)) == "tensor([1.5000], dtype=ox.float32)"
    finally:
        ox.set_default_dtype(ox.float32)


def test_threads_are_set_before_they_start() -> None:
    code = (
        "import ox\n"
        "ox.set_num_threads(1)\n"
        "assert ox.get_num_threads() == 1\n"
        "a = ox.ones(2, 512, 512)\n"
        "with ox.devices.forced('onnxruntime'): a @ a\n"
        "ox.set_num_threads(1)\n"
        "try:\n"
        "    ox.set_num_threads(2)\n"
        "except ox.errors.ArgumentError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "have started" in done.stdout
    for number in (0, 257, 2**40, True, 1.5):
        with pytest.raises(ArgumentError, match="int from 1 to 256"):
            ox.set_num_threads(number)


def test_random_state_comes_back() -> None:
    ox.manual_seed(3)
    assert ox.initial_seed() == 3
    state = ox.get_rng_state()
    first = ox.rand(4)
    ox.set_rng_state(state)
    assert np.array_equal(first.array, ox.rand(4).array)
    with ox.random.fork_rng():
        inside = ox.rand(4)
    assert np.array_equal(inside.array, ox.rand(4).array)
    assert ox.seed() == ox.initial_seed() != 3


def test_the_default_device_is_the_cpu() -> None:
    ox.set_default_device("cpu")
    ox.set_default_device(ox.device("cpu"))
    assert ox.get_default_device() == "cpu"
    with pytest.raises(ArgumentError, match="default device is always the CPU"):
        ox.set_default_device("cuda")


def test_versions() -> None:
    assert ox.version.__version__ == ox.__version__
    assert ox.version.cuda is None or float(ox.version.cuda) >= 12
