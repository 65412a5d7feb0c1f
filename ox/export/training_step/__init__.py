"""The training step as a file: forward, loss, backward, clipping and update as one graph, by `ox.export.save_step`.

Imports nothing of `ox.train`: a recipe's step is given to it as a function.
"""

from __future__ import annotations

__all__: list[str] = []
