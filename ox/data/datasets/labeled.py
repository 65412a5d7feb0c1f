"""What datasets of images with a class each have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.core.operator import make_tensor
from ox.data.dataset import Dataset
from ox.data.datasets.paths import applied
from ox.data.loading.collate import default_collate
from ox.errors import BoundsError, LoadError


class LabelledImages(Dataset, ABC):
    """Images of one size, with classes, from arrays. A subclass gives `images` and `labels` of one index or of many."""

    name = ""
    classes: Sequence[str] = ()

    def __init__(self, transform: Any, target_transform: Any) -> None:
        self.transform, self.target_transform = transform, target_transform

    @abstractmethod
    def images(self, indices: Any) -> NDArray[np.uint8]:
        """uint8 [h, w, c], or [n, h, w, c] of many indices."""

    @abstractmethod
    def labels(self, indices: Any) -> Any:
        """int64 [] or [n]."""

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class."""
        return {name: i for i, name in enumerate(self.classes)}

    def check_labels(self, labels: NDArray[Any], path: Path) -> None:
        """LoadError for a label that is no class."""
        if labels.size and int(labels.max()) >= len(self.classes):
            at = int(labels.argmax())
            raise LoadError(
                f"{path} has labels that are no class of {self.name}",
                expected=f"0 to {len(self.classes) - 1}",
                got=f"{int(labels[at])} for sample {at}",
            )

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not -len(self) <= index < len(self):
            raise BoundsError(f"{self.name} has no sample {index}", expected=f"0 to {len(self) - 1}")
        return applied(self.transform, self.images(index)), applied(self.target_transform, int(self.labels(index)))

    def batch(self, indices: NDArray[Any]) -> list[Any]:
        """The samples of many indices: [n, ...] each, as collating them one by one would give.

        A `transform` of `ox.data.transforms` takes all images at once; another one is called for each.
        """
        images: Any = self.images(indices)
        labels = self.labels(indices)
        many = getattr(self.transform, "batch", None)
        if self.transform is not None:
            images = many(images) if many else [self.transform(image) for image in images]
        if self.target_transform is not None:
            labels = [self.target_transform(int(label)) for label in labels]
        return [_together(images), _together(labels)]


def _together(samples: Any) -> Any:
    if isinstance(samples, np.ndarray):
        return make_tensor(samples)
    return default_collate(samples) if isinstance(samples, list) else samples
