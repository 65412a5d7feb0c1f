"""`save` writes a model that has proven itself, `load` makes one a living model, `inspect` says what it holds."""

from __future__ import annotations

from ox.export.proof import Row
from ox.export.save import Report, save
from ox.export.summary import Summary, inspect
from ox.nn.loaded import Loaded, load

__all__ = ["Loaded", "Report", "Row", "Summary", "inspect", "load", "save"]
