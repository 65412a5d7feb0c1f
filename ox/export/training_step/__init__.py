"""The training step as a file: forward, loss, backward, clipping and update as one graph, by `ox.export.save_step`.

Imported by ox.export and ox_cli only.
"""

from __future__ import annotations

__all__: list[str] = []
