"""A folder without models is served, and said."""

from __future__ import annotations

from pathlib import Path

from ox.serve import Server


def test_an_empty_folder_is_said(tmp_path: Path, mlp: Path) -> None:
    with Server([tmp_path]) as server:
        assert server.greeting()[0].startswith(f"warning: there is no model in {tmp_path} yet; ")
    with Server([mlp]) as server:
        assert not any("warning" in line for line in server.greeting())
