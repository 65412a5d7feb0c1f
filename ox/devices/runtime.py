"""Imports ONNX Runtime, which is optional, with an error that has the install command."""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

from ox.errors import DeviceError
from ox.installation import install_command


def onnxruntime() -> ModuleType:
    """The module `onnxruntime`.

    Raises:
        DeviceError: it is not installed, or its installation is broken; names the extras that bring it.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # releases from 1.29 on send usage data; 0 allows that
    try:
        module = import_module("onnxruntime")
    except ImportError as error:
        raise DeviceError(
            "ONNX Runtime is not installed" if isinstance(error, ModuleNotFoundError) else "ONNX Runtime does not load",
            got=str(error),
            hint=f"{install_command('cpu')} (or with an NVIDIA GPU the extra cuda13 or cuda12)",
        ) from error
    if not hasattr(module, "InferenceSession"):
        raise DeviceError(
            "the installation of ONNX Runtime is damaged",
            got=f"{module.__name__} at {getattr(module, '__path__', '?')} without InferenceSession",
            hint=f"uninstall onnxruntime and onnxruntime-gpu, then {install_command('cpu')}, or with the extra cuda13",
        )
    return module
