"""The command that installs optional packages of ox, in the words of the tool that installed it."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

__all__ = ["install_command"]

NAME = "ox-onnx"
TOOLS = {"pipx_metadata.json": "pipx install --force", "uv-receipt.toml": "uv tool install"}
"""Tools that give each program an environment of its own, by the file that they write into it, and their command."""


def install_command(*extras: str) -> str:
    """The shell command that adds extras to this installation, for the hint of an error.

    Args:
        *extras: names of extras of ``pyproject.toml``, such as ``"cuda13"``.

    Returns:
        such as ``pip install "ox-onnx[cuda13]"``: with ``-e`` and the folder of sources of an editable installation,
        with the URL for one from a URL, and with the command of uv or pipx where they installed ox.
    """
    command, source, editable = _installation()
    listed = f"[{','.join(extras)}]"
    if editable:
        return f'{command} -e "{source}{listed}"'
    return f'{command} "{NAME}{listed} @ {source}"' if source else f'{command} "{NAME}{listed}"'


@cache
def _installation() -> tuple[str, str, bool]:
    """The command of the tool that installed ox, where ox came from ("" for an index), and whether it is editable."""
    from importlib import metadata  # takes 20 ms, and only errors need it

    try:
        distribution = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:  # a folder of sources on the path
        return "pip install", "", False
    command = "uv pip install" if (distribution.read_text("INSTALLER") or "").strip() == "uv" else "pip install"
    command = next((tool for file, tool in TOOLS.items() if Path(sys.prefix, file).exists()), command)
    return command, *_origin(distribution.read_text("direct_url.json"))


def _origin(direct_url: str | None) -> tuple[str, bool]:
    """Where a distribution came from, and whether it is editable, from its ``direct_url.json`` (PEP 610)."""
    import json
    from urllib.parse import unquote, urlsplit

    if direct_url is None:
        return "", False
    origin = json.loads(direct_url)
    if origin.get("dir_info", {}).get("editable"):
        return unquote(urlsplit(origin["url"]).path), True
    version_control = origin.get("vcs_info")
    return (f"{version_control['vcs']}+{origin['url']}" if version_control else origin["url"]), False
