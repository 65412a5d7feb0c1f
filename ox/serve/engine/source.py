"""Looks at a model file before a runtime does: is it whole, and does it stay inside its folder?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ox.graph.file import external_file, metadata_of, nodes_of, opset_of, parse, tensors_of

# Operators whose work does not follow from the shapes of the inputs: the values can make it any length.
OPEN_ENDED = {
    "Loop",
    "Scan",
    "Range",
    "Expand",
    "Tile",
    "ConstantOfShape",
    "Resize",
    "Pad",
    "OneHot",
    "HannWindow",
    "HammingWindow",
    "BlackmanWindow",
    "RandomNormal",
    "RandomUniform",
}


@dataclass(frozen=True)
class Source:
    """A model file that may be given to a runtime."""

    path: Path
    metadata: dict[str, str]
    opset: int
    operators: frozenset[str]

    @property
    def open_ended(self) -> bool:
        """Whether the values of an input, not only its shape, may decide how long a run takes."""
        return bool(self.operators & OPEN_ENDED)


def read(path: Path) -> Source:
    """Parses the file without its external data and checks where that data lies.

    Raises:
        LoadError: missing, unreadable, damaged, or external data outside the model's folder.
    """
    model = parse(path)
    for tensor in tensors_of(model):
        external_file(path, tensor)
    operators = frozenset(node.op_type for node in nodes_of(model))
    return Source(path, metadata_of(model), opset_of(model), operators)
