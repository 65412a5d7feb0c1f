"""What public code takes from PyTorch is there, or refused with the way out."""

from __future__ import annotations

from pathlib import Path

from rows import rows

from ox.porting.names import NOTHING, existing_prefix, way_out

LINES = [line for line in (Path(__file__).parent / "public_names.txt").read_text().splitlines() if line[0] != "#"]
PATHS = [f"{owner}.{name}" for owner, _, names in (line.partition(": ") for line in LINES) for name in names.split()]


@rows("owner", dict.fromkeys(line.partition(": ")[0] for line in LINES))
def test_each_name_is_there_or_refused_with_the_way_out(owner: str) -> None:
    paths = [path for path in PATHS if path.rpartition(".")[0] == owner]
    assert paths
    assert not [path for path in paths if existing_prefix(path) != path and way_out(path) == NOTHING]


def test_most_names_are_there() -> None:
    there = [path for path in PATHS if existing_prefix(path) == path]
    assert len(PATHS) > 2000 and len(there) > 0.84 * len(PATHS), f"{len(there)} of {len(PATHS)}"
