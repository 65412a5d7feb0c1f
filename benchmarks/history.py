"""The history of measurements, one line of JSON each, and the rule that finds a regression in it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from measurement import Machine, Measurement, Spread

from ox.temporary_files import file_beside

SLOWER = 1.15  # a smaller change is noise
OURS = {"ox": "", "whole": ", ox.compile"}  # sides that count, and what is said after the name of their figures

Spreads = dict[str, dict[str, Spread]]  # by figure, then by side


@dataclass(frozen=True)
class Entry:
    """A line of the history."""

    commit: str
    date: str
    machine: Machine
    versions: dict[str, str]
    rounds: int
    figures: Spreads

    @classmethod
    def of(cls, measured: Measurement) -> Entry:
        """A figure of a single process has no spread, and does not count."""
        figures = {
            name: {side: Spread.of(values) for side, values in by_side.items() if len(values) > 1}
            for name, by_side in {**measured.times, **measured.first}.items()
        }
        figures = {name: by_side for name, by_side in figures.items() if by_side}
        return cls(measured.commit, measured.date, measured.machine, measured.versions, measured.rounds, figures)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Entry:
        fields = json.loads(text)
        fields["machine"] = Machine(**fields["machine"])
        fields["figures"] = {
            name: {side: Spread(**spread) for side, spread in by_side.items()}
            for name, by_side in fields["figures"].items()
        }
        return cls(**fields)


@dataclass(frozen=True)
class Regression:
    """A figure that became worse."""

    name: str  # of the figure; with the side, if that is not "ox"
    then: float
    now: float
    peer: float | None  # the change of PyTorch's figure, as a factor

    @property
    def change(self) -> float:
        return self.now / self.then

    @property
    def shared(self) -> bool:
        """PyTorch became slower as well: it was the machine."""
        return self.peer is not None and self.change <= SLOWER * self.peer


def read(path: Path) -> list[Entry]:
    """The entries, the oldest first."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Entry.from_json(line) for line in lines if line.strip()]


def append(path: Path, entry: Entry) -> None:
    before = path.read_text() if path.exists() else ""
    with file_beside(path) as temporary:
        temporary.write_text(before + entry.to_json() + "\n")
        os.replace(temporary, path)


def earlier(entries: list[Entry], measured: Measurement) -> Entry | None:
    """The last entry of the same machine before this measurement."""
    found = [each for each in entries if each.machine == measured.machine and each.date < measured.date]
    return found[-1] if found else None


def worse(now: Spread, then: Spread) -> bool:
    """By more than the limit, and by more than the processes of either measurement differ."""
    spread = max(now.high - now.low, then.high - then.low)
    return now.median > SLOWER * then.median and now.median - then.median > spread


def regressions(now: Entry, then: Entry) -> list[Regression]:
    """ox's figures that became worse, the worst first."""
    found = []
    for name, by_side in now.figures.items():
        before: Mapping[str, Spread] = then.figures.get(name, {})
        for side, said in OURS.items():
            if side in by_side and side in before and worse(by_side[side], before[side]):
                both = "torch" in by_side and "torch" in before
                peer = by_side["torch"].median / before["torch"].median if both else None
                found.append(Regression(name + said, before[side].median, by_side[side].median, peer))
    return sorted(found, key=lambda each: -each.change)
