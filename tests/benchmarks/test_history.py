"""The rule that finds a regression, and the file of the history."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import history
import pytest
from history import Entry, Regression, regressions, worse
from measurement import Machine, Measurement, Spread


def test_a_slower_figure_is_a_regression() -> None:
    assert worse(Spread(1.3, 1.28, 1.32), Spread(1.0, 0.98, 1.02))


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (Spread(1.1, 1.09, 1.11), "10 % more"),
        (Spread(0.7, 0.69, 0.71), "faster"),
        (Spread(1.3, 1.0, 1.5), "its processes differ by more"),
        (Spread(1.15, 1.15, 1.15), "the limit itself"),
    ],
)
def test_noise_is_no_regression(now: Spread, why: str) -> None:
    assert not worse(now, Spread(1.0, 0.98, 1.02)), why


def test_noise_in_the_last_measurement() -> None:
    assert not worse(Spread(1.3, 1.29, 1.31), Spread(1.0, 0.8, 1.2))


def changed(measured: Measurement, name: str, **factors: float) -> Measurement:
    """A later measurement in which the sides of one figure are slower by these factors."""
    times = {key: dict(by_side) for key, by_side in measured.times.items()}
    times[name].update({side: [v * factor for v in times[name][side]] for side, factor in factors.items()})
    return replace(measured, times=times, date="2026-03-01 00:00:00", commit="def5678")


def test_a_made_up_slower_measurement(measured: Measurement) -> None:
    then = Entry.of(measured)
    assert regressions(then, then) == []
    (found,) = regressions(Entry.of(changed(measured, "gelu", ox=1.5)), then)
    assert found == Regression("gelu", 1.41, pytest.approx(2.115), 1.0)
    assert found.change == pytest.approx(1.5)
    assert not found.shared
    assert regressions(Entry.of(changed(measured, "gelu", torch=1.5, without=9.0)), then) == [], "only ox counts"


def test_compiled_steps_count(measured: Measurement) -> None:
    (found,) = regressions(Entry.of(changed(measured, "step: mlp", whole=1.5)), Entry.of(measured))
    assert found == Regression("step: mlp, ox.compile", 1.6, pytest.approx(2.4), 1.0)


def test_a_slower_machine_is_told_from_a_slower_ox(measured: Measurement) -> None:
    then = Entry.of(measured)
    (both,) = regressions(Entry.of(changed(measured, "gelu", ox=1.5, torch=1.5)), then)
    assert both.shared
    (more,) = regressions(Entry.of(changed(measured, "gelu", ox=2.0, torch=1.5)), then)
    assert not more.shared


def test_memory_counts_as_well(measured: Measurement) -> None:
    name = "step: mlp: peak memory, MiB"
    first = {**measured.first, name: {**measured.first[name], "ox": [60.0, 61.0, 62.0]}}
    (found,) = regressions(Entry.of(replace(measured, first=first)), Entry.of(measured))
    assert (found.name, found.then, found.now) == (name, 30.5, 61.0)


def test_one_process_has_no_spread_and_does_not_count(measured: Measurement) -> None:
    alone = replace(measured, times={"gelu": {"ox": [9.0]}}, first={})
    assert Entry.of(alone).figures == {}
    assert "step: mlp: first step, empty caches, ms" not in Entry.of(measured).figures


def test_the_last_entry_of_the_same_machine_before_it(measured: Measurement) -> None:
    entry = Entry.of(measured)
    first, second = replace(entry, date="2026-01-01 00:00:00"), replace(entry, date="2026-01-02 00:00:00")
    other = replace(entry, date="2026-01-03 00:00:00", machine=Machine("another CPU", 2, 8))
    later = replace(entry, date="2026-03-03 00:00:00")
    assert history.earlier([first, second, other, entry, later], measured) == second
    assert history.earlier([other, entry, later], measured) is None


def test_the_file(measured: Measurement, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert history.read(path) == []
    entry = Entry.of(measured)
    history.append(path, entry)
    history.append(path, replace(entry, commit="def5678"))
    assert history.read(path) == [entry, replace(entry, commit="def5678")]
    assert len(path.read_text().splitlines()) == 2
    assert list(tmp_path.iterdir()) == [path], "no temporary file stays"
