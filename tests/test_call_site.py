"""The line that an error names is the user's: no generated method, no command, no line that starts a worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(*command: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=folder, timeout=300)
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_the_line_that_made_a_dataclass(tmp_path: Path) -> None:
    """Its `__init__` is generated code without a file."""
    (tmp_path / "script.py").write_text("from ox.serve import ServerConfig\n\nServerConfig(port=-4)\n")
    assert "script.py:3   ServerConfig(port=-4)" in run("script.py", folder=tmp_path)


def test_a_line_of_a_command_without_a_file(tmp_path: Path) -> None:
    assert "<string>:2" in run("-c", "import ox\nox.ones(2) @ ox.ones(3)", folder=tmp_path)


def test_a_command_names_no_line(tmp_path: Path) -> None:
    text = run("-m", "ox_cli", "train", "digits", "--epochs", "-3", folder=tmp_path)
    assert "epochs must be" in text and " in " not in text.partition("epochs must be")[2].splitlines()[1]


def test_a_worker_that_starts_anew_names_no_line(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import ox\n"
        "from ox.data import DataLoader\n"
        "class Broken:\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, i): return ox.zeros(i + 1)\n"
        "if __name__ == '__main__':\n"
        "    list(DataLoader(Broken(), batch_size=2, num_workers=1, multiprocessing_context='spawn'))\n"
    )
    assert "<string>:1" not in run("script.py", folder=tmp_path)
