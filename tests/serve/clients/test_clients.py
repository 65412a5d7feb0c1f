"""Each client runs unmodified in an environment of its own (`make clients`), and their table is current."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import client_table
import pytest
from client_table import CLIENTS, HERE, PAGE, ROOT, Client

from ox.serve import Server

FOLDER = ROOT / ".venv" / "clients"
PYTHON, NODE_MODULES = FOLDER / "bin" / "python", FOLDER / "node_modules"
# Clients that would ask other servers at their start, or report what they do.
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "true", "OPENAI_AGENTS_DISABLE_TRACING": "1", "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "NO_PROXY": "127.0.0.1", "NO_COLOR": "1",
}  # fmt: skip


def command(client: Client) -> list[str]:
    """What runs its calls; skips where it is not installed."""
    if client.node:
        node = shutil.which("node")
        if node is None or not (NODE_MODULES / client.package).is_dir():
            pytest.skip(f"{client.package} is not installed, or Node.js is not (make clients)")
        return [node, str(HERE / client.program)]
    name = client.package.replace("-", "_")
    if not list(FOLDER.glob(f"lib/python*/site-packages/{name}-{client.version}.dist-info")):
        pytest.skip(f"{client.package} {client.version} is not installed (make clients)")
    return [str(PYTHON), str(HERE / client.program)]


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS, ids=[client.program for client in CLIENTS])
def test_calls(client: Client, server: Server, subtests: pytest.Subtests, tmp_path: Path) -> None:
    environment = {**os.environ, **QUIET, "NODE_PATH": str(NODE_MODULES), "HOME": str(tmp_path)}
    for name in ("PYTHONPATH", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        environment.pop(name, None)
    done = subprocess.run(
        [*command(client), server.url], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name":')]
    results = {line["name"]: line["error"] for line in lines}
    assert list(results) == list(client.calls()), done.stderr[-4000:]
    for name, error in results.items():
        with subtests.test(name):
            assert not error, error


def test_the_table_is_current() -> None:
    text = PAGE.read_text()
    assert text == client_table.page(text), "python tests/serve/clients/client_table.py"


def test_every_program_is_of_a_client() -> None:
    programs = {file.name for file in HERE.glob("calls_*")}
    assert programs == {client.program for client in CLIENTS}
    assert all(client.calls() for client in CLIENTS)
