"""The folder that workers share, and what becomes of those of servers that were killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ox.serve.workers.shared_folder import PREFIX, SharedFolder

KILLED = """
import os, signal, sys
from pathlib import Path
from ox.serve.workers.shared_folder import SharedFolder
folder = SharedFolder((Path(sys.argv[1]),))
(folder.path / "responses").write_text("a secret")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_folders_of_killed_processes_are_removed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    assert (left / "responses").read_text() == "a secret" and left.stat().st_mode & 0o777 == 0o700
    (tmp_path / f"{PREFIX}other").mkdir()  # of something else: it has no lock
    first, second = SharedFolder((tmp_path,)), SharedFolder((tmp_path,))
    assert first.path is not None and second.path is not None and first.path.is_dir()
    assert {each.name for each in tmp_path.iterdir()} == {f"{PREFIX}other", first.path.name, second.path.name}
    first.close()
    second.close()
    assert [each.name for each in tmp_path.iterdir()] == [f"{PREFIX}other"]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    nowhere = tmp_path / "none"
    assert SharedFolder((nowhere,)).path is None
    folder = SharedFolder((nowhere, tmp_path))
    assert folder.path is not None and folder.path.parent == tmp_path
    folder.close()
