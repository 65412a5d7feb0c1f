"""What people write does on "cuda" what it does on the CPU: values, types, gradients. It waits where it has to."""

from __future__ import annotations

import pytest
from count_table import CountTable
from user_line_check import COUNTERS, check
from user_lines import read

pytestmark = pytest.mark.gpu

CASES = list(read())


@pytest.mark.parametrize(("name", "kind", "line"), CASES, ids=[f"{name} {line}" for name, _, line in CASES])
def test_a_line(name: str, kind: str, line: str, count_table: CountTable) -> None:
    check(name, kind, line, count_table.counting(f"{name}: {line}", COUNTERS))
