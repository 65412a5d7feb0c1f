"""`save` writes a verified ONNX file, `load` reads one as a module that can be trained, `inspect` describes one."""

from __future__ import annotations

from ox.export.proof import Row
from ox.export.save_model import Report, save
from ox.export.summary import Summary, inspect
from ox.onnx_module.loaded import Loaded, load

__all__ = ["Loaded", "Report", "Row", "Summary", "inspect", "load", "save"]
