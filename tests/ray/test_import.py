"""Ray is imported when something of it is used, and where it is missing an error says how to install it."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import subprocess
import sys

import pytest

from ox.errors import DeviceError
from ox.installation import install_command


def test_the_import_is_lazy() -> None:
    pytest.importorskip("ray.train", reason='Ray is not installed: pip install "ox-onnx[ray]"')
    code = "import sys, ox, ox.ray; assert 'ray' not in sys.modules; ox.ray.OxConfig; assert 'ray' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("spec", [None, importlib.machinery.ModuleSpec("ray", None)], ids=["nothing", "a folder"])
def test_without_ray(spec: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.delitem(sys.modules, "ox.ray", raising=False)
    with pytest.raises(DeviceError, match="Ray is not installed") as caught:
        importlib.import_module("ox.ray")
    assert caught.value.hint == install_command("ray")
