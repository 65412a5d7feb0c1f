"""Rows of a table in one item: the failure names the row, marks keep their meaning, and `-k` chooses rows."""

from __future__ import annotations

import pytest
from rows import rows

pytest_plugins = ["pytester"]

TABLE = """
import pytest
from rows import rows

@rows("a, b", [(1, 2), pytest.param(1, 3, id="odd"), pytest.param(5, 6, marks=pytest.mark.slow), (7, 8)])
def test_next(a, b, tmp_path):
    (tmp_path / "x").mkdir()
    if a == 7:
        pytest.skip("not seven")
    assert a + 1 == b
"""

STACKS = """
import faulthandler
from rows import rows

@rows("n", [1, 2], ids=["first", "second"])
def test_it(n):
    with open(f"stacks{n}", "w") as file:
        faulthandler.dump_traceback(file)
"""


def printed(folder: pytest.Pytester, *arguments: str) -> str:
    folder.makepyfile(test_table=TABLE)
    folder.makeconftest("from rows import name_rows as pytest_collection_modifyitems")
    folder.makeini("[pytest]\nverbosity_subtests = 1\nmarkers = slow: slow\n")
    return str(folder.runpytest_inprocess("-rsf", "-p", "no:randomly", *arguments).stdout)


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["here", "in a worker"])
def test_a_failure_names_its_row(workers: list[str], pytester: pytest.Pytester) -> None:
    shown = printed(pytester, *workers)
    assert "SUBFAILED[odd] test_table.py::test_next[1-2..7-8]" in shown and "not seven" in shown
    assert "2 failed, 1 passed, 1 skipped, 2 subtests passed" in shown


def test_a_row_with_a_mark_is_an_item_with_it(pytester: pytest.Pytester) -> None:
    assert "1 passed, 1 deselected, 1 subtests passed" in printed(pytester, "-m", "slow")


def test_a_row_is_chosen_by_its_name(pytester: pytest.Pytester) -> None:
    assert "1 passed, 1 deselected, 1 subtests passed" in printed(pytester, "-k", "[1-2]")


def test_the_stacks_of_a_row_that_hangs_or_crashes_name_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_table=STACKS)
    pytester.runpytest_inprocess("-p", "no:randomly").assert_outcomes(passed=1)
    for n, name in ((1, "first"), (2, "second")):
        assert f" in row [{name}]\n" in (pytester.path / f"stacks{n}").read_text()


def test_a_table_without_rows_is_an_error() -> None:
    with pytest.raises(ValueError, match="the table of a, b is empty"):
        rows("a, b", [])
