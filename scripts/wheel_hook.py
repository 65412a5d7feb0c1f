"""Puts compiled kernels into a wheel: hatchling runs it for wheels, and leaves it out for editable installs and sdists.

Without a compiler the wheel is one for every machine, and ox compiles the kernels where it runs. With OX_WHEEL_MACHINE
(x86_64, aarch64) in the environment, as `make wheel` sets it, that is an error.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))  # hatchling runs this file by its path

import prebuilt_kernels


class KernelsHook(BuildHookInterface[Any]):
    """Compiles, and names the files and the wheel's platform tag."""

    PLUGIN_NAME = "kernels"
    _folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the files are collected. `version` is "standard" or "editable"."""
        if version != "standard":
            return
        wanted = os.environ.get("OX_WHEEL_MACHINE", "")
        self._folder = tempfile.mkdtemp(prefix="ox-wheel-")
        try:
            tag = prebuilt_kernels.build(Path(self._folder), wanted or platform.machine())
        except prebuilt_kernels.compiler.CompilerError as error:
            if wanted:
                raise
            self.app.display_warning(f"this wheel is without compiled kernels: {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"
        for path in Path(self._folder).iterdir():
            build_data["force_include"][str(path)] = f"ox/kernels/prebuilt/{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """After the wheel is written."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
