"""Divisions of kernels on a GPU by multiplication, and how many bytes a thread moves."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.kernels import divisor, functions, together

LAST = 2**31 - 1
DIVISORS = [*range(1, 70), *(2**k + d for k in range(7, 31) for d in (-1, 0, 1)), LAST - 1, LAST]


def numbers(n: int) -> list[int]:
    """Around multiples of n, and at the ends."""
    near = [m * n + d for m in (0, 1, 2, LAST // n // 2, LAST // n - 1, LAST // n) for d in (-1, 0, 1)]
    return [i for i in [*near, LAST - 1, LAST] if 0 <= i <= LAST]


def test_a_divisor_divides_by_multiplication() -> None:
    for n in DIVISORS:
        packed = divisor(n) % 2**64
        assert packed % 2**32 == n
        shift = 31 + (n - 1).bit_length()
        assert all(i * (packed >> 32) >> shift == i // n for i in numbers(n))


@pytest.mark.gpu
def test_kernels_divide() -> None:
    source = """#include "division.h"
    EACH(divide, i, count, const int* numbers, const long long* divisors, int* quotients, int* remainders) {
        int n = numbers[i];
        remainders[i] = split_off(n, Divisor<int>(divisors[i]));
        quotients[i] = n;
    } END
    """
    pairs = [(i, n) for n in DIVISORS for i in numbers(n)]
    above, below = np.array(pairs, np.int32).T
    results = [cupy().zeros(len(pairs), np.int32) for _ in range(2)]
    packed = cupy().asarray(np.array([divisor(n) for _, n in pairs]))
    divide = functions(source, ("divide",))["divide"]
    divide((3,), (32,), (len(pairs), cupy().asarray(np.ascontiguousarray(above)), packed, *results))
    for result, expected in zip(results, np.divmod(above, below), strict=True):
        np.testing.assert_array_equal(result.get(), expected)


def test_a_thread_moves_what_rows_and_addresses_have_in_common() -> None:
    at = [SimpleNamespace(data=SimpleNamespace(ptr=ptr)) for ptr in (512, 520, 513)]
    assert [together(size) for size in (64, 24, 4, 7)] == [16, 8, 4, 1]
    assert together(64, at[0]) == 16 and together(64, at[0], at[1]) == 8 and together(64, *at) == 1
