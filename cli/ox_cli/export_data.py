"""What an exported file says of the data that its model was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ox.train import Recipe
    from ox.train.recipe.manifest import Manifest


def metadata_of(recipe: Recipe, manifest: Manifest | None) -> dict[str, str]:
    """The recipe and, of its data, what other commands need: the split, the encoding, the normalization."""
    from ox.graph.contract import DATASET
    from ox.train.recipe.manifest import MAX_INDEX_BYTES

    entries = {"ox.recipe": recipe.name}
    return entries if manifest is None else entries | {DATASET: manifest.to_text(MAX_INDEX_BYTES)}


def class_names(manifest: Manifest | None, model: Any, rows: Sequence[Any]) -> list[str] | None:
    """The classes of the dataset, if the first output has one score for each; else None."""
    from ox import from_numpy, no_grad
    from ox.train import rng_state

    if manifest is None or manifest.classes is None:
        return None
    with no_grad(), rng_state.fork_rng():
        outputs = model(*(from_numpy(x[:2]) for x in rows))
    scores = outputs[0] if isinstance(outputs, tuple | list) else outputs
    shape = list(getattr(scores, "shape", ()))
    return list(manifest.classes) if len(shape) == 2 and shape[1] == len(manifest.classes) else None
