"""What the machine offers to processes that share it."""

from __future__ import annotations

import pytest

from ox.devices import machine


@pytest.mark.parametrize("name", ["MPI_LOCALNRANKS", "OX_LOCAL_PROCESSES"])
def test_processes_that_belong_together_share_the_cores(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(machine, "_process_limit", lambda: machine.Limit(8, 16, "cgroup limit 8 of 16 cores"))
    monkeypatch.delenv("MPI_LOCALNRANKS", raising=False)
    monkeypatch.setenv(name, "3")
    assert str(machine.limit()) == "2 (cgroup limit 8 of 16 cores, shared by 3 processes)"
    monkeypatch.setenv(name, "99")
    assert machine.limit().threads == 1
    monkeypatch.setenv(name, "1")
    assert machine.limit().threads == 8
