"""Transforms: objects that are called with an image; `batch` draws separate random numbers for each image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox import random
from ox.core.operator import make_tensor
from ox.data.loading.overrides import has_valid_shortcut
from ox.data.transforms.color import check_probability
from ox.data.transforms.images import is_pil
from ox.data.transforms.rng import draw, draw_many
from ox.errors import ArgumentError, ShapeError
from ox.tensors.tensor import Tensor

CALLS = ("__call__", "forward")  # what a subclass that comes from torchvision replaces


class Transform:
    """The base. A subclass sets `draws`, the number of random numbers per image, and implements `apply`, the result for
    an image and those; all that is random about it comes from them.

    Random numbers come from `generator`, or without one from ox's default generator (`ox.manual_seed`). In a loader's
    worker it is always the default one, which the loader seeds there for each batch.
    """

    draws = 0
    generator: random.Generator | None = None

    def __call__(self, image: Any) -> Any:
        """The image changed: of the kind and layout that it has."""
        return self.forward(image)

    def forward(self, image: Any) -> Any:
        """The same, under the name by which a subclass of torchvision's replaces it."""
        return self.apply(image, draw(self.draws, self.generator))

    def batch(self, images: Any, generator: random.Generator | None = None) -> Any:
        """Many images of one size, an array [n, h, w, c] or a tensor [n, c, h, w], each with its own random numbers.

        Args:
            generator: instead of the transform's own.

        Raises:
            ShapeError: not four dimensions, or results of different sizes.
        """
        shape: tuple[int, ...] = getattr(images, "shape", ())
        if len(shape) != 4:
            raise ShapeError(
                f"{type(self).__name__}.batch takes many images",
                expected="an array [n, h, w, c] or a tensor [n, c, h, w]",
                got=str(list(shape)) if shape else type(images).__name__,
            )
        if not shape[0]:
            return images
        if not has_valid_shortcut(self, "apply_batch", *CALLS):
            return one_by_one(lambda image, _: self(image), images, np.zeros((shape[0], 0)))
        return self.apply_batch(images, draw_many((shape[0], self.draws), generator or self.generator))

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        """What comes of an image and `draws` numbers in [0, 1)."""
        raise ArgumentError(f"{type(self).__name__} has no apply", hint="def apply(self, image, numbers): ...")

    def apply_batch(self, images: Any, numbers: NDArray[np.float64]) -> Any:
        """The results for many images and [n, draws] numbers: one by one, unless a subclass overrides it."""
        return one_by_one(self.apply, images, numbers)

    def __repr__(self) -> str:
        shown = {k: v for k, v in vars(self).items() if k != "generator" or v is not None}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


def one_by_one(apply: Callable[[Any, Sequence[float]], Any], images: Any, numbers: NDArray[np.float64]) -> Any:
    """`apply` for each image and its row of numbers, and the results in one array or tensor."""
    made = [apply(image, row) for image, row in zip(_singles(images), numbers.tolist(), strict=True)]
    arrays = [x.array if isinstance(x, Tensor) else np.asarray(x) for x in made]
    if any(array.shape != arrays[0].shape for array in arrays):
        raise ShapeError(
            "the images of a batch came out in different sizes",
            got=", ".join(sorted({str(list(array.shape)) for array in arrays})[:4]),
            hint="Resize((h, w)) or CenterCrop before",
        )
    together = np.stack(arrays)
    return make_tensor(together) if isinstance(made[0], Tensor) else together


def _singles(images: Any) -> Any:
    return (make_tensor(array) for array in images.array) if isinstance(images, Tensor) else images


class DeterministicTransform(Transform):
    """A transform without random numbers. Its `apply` accepts one image or a batch of images."""

    def apply_batch(self, images: Any, numbers: NDArray[np.float64]) -> Any:
        return self.apply(images, ())


class Sometimes(Transform):
    """A transform that is applied with probability `p`. Subclasses define `transform`."""

    draws = 1

    def __init__(self, p: float = 0.5, generator: random.Generator | None = None) -> None:
        self.p, self.generator = check_probability(p, type(self).__name__), generator

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return self.transform(image, numbers[1:]) if numbers[0] < self.p else as_array(image)

    def transform(self, image: Any, numbers: Sequence[float]) -> Any:
        """The image changed."""
        raise ArgumentError(f"{type(self).__name__} does not define transform()")


def as_array(image: Any) -> Any:
    """A Pillow image as the array that other transforms make of it; all else as it is."""
    return np.asarray(image) if is_pil(image) else image


# -- of several ------------------------------------------------------------------------------------------------------


def _checked(transforms: Any, name: str) -> list[Any]:
    found = list(transforms) if isinstance(transforms, Sequence) else None
    if found is None or not all(callable(t) for t in found):
        raise ArgumentError(f"{name} takes a list of transforms", got=repr(transforms))
    return found


def _takes_numbers(transform: Any) -> bool:
    """Whether a transform takes its numbers from its surroundings: not if it has a generator, is just a function, or
    is called in a way of its own."""
    if not isinstance(transform, Transform) or transform.generator is not None:
        return False
    return has_valid_shortcut(transform, "apply", *CALLS)


def _needs(transform: Any) -> int:
    return transform.draws if _takes_numbers(transform) else 0


def _run(transform: Any, image: Any, numbers: Sequence[float]) -> Any:
    return transform.apply(image, numbers) if _takes_numbers(transform) else transform(image)


def _run_batch(transform: Any, images: Any, numbers: NDArray[np.float64]) -> Any:
    if not isinstance(transform, Transform):
        return one_by_one(lambda image, _: transform(image), images, numbers)
    return transform.apply_batch(images, numbers) if _takes_numbers(transform) else transform.batch(images)


class Compose(Transform):
    """One transform after the other; each may be any function of an image. `torchvision.transforms.Compose`."""

    def __init__(self, transforms: Sequence[Any], generator: random.Generator | None = None) -> None:
        self.transforms, self.generator = _checked(transforms, type(self).__name__), generator

    @property
    def draws(self) -> int:  # type: ignore[override]
        return sum(map(_needs, self.transforms))

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        at = 0
        for transform in self.transforms:
            count = _needs(transform)
            image = _run(transform, image, numbers[at : at + count])
            at += count
        return image

    def apply_batch(self, images: Any, numbers: NDArray[np.float64]) -> Any:
        at = 0
        for transform in self.transforms:
            count = _needs(transform)
            images = _run_batch(transform, images, numbers[:, at : at + count])
            at += count
        return images

    def __repr__(self) -> str:
        return "Compose([" + "".join(f"\n    {t!r}," for t in self.transforms) + "\n])"


class RandomApply(Compose):
    """All of a list, or with probability 1 - `p` none. `torchvision.transforms.RandomApply`."""

    def __init__(self, transforms: Sequence[Any], p: float = 0.5, generator: random.Generator | None = None) -> None:
        super().__init__(transforms, generator)
        self.p = check_probability(p, "RandomApply")

    @property
    def draws(self) -> int:  # type: ignore[override]
        return 1 + sum(map(_needs, self.transforms))

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return super().apply(image, numbers[1:]) if numbers[0] < self.p else as_array(image)

    apply_batch = Transform.apply_batch
    __repr__ = Transform.__repr__


class RandomChoice(Transform):
    """One of a list. `torchvision.transforms.RandomChoice`.

    Args:
        p: how likely each is, in proportion; default all the same.
    """

    def __init__(
        self, transforms: Sequence[Any], p: Sequence[float] | None = None, generator: random.Generator | None = None
    ) -> None:
        self.transforms, self.generator = _checked(transforms, "RandomChoice"), generator
        weights = np.ones(len(self.transforms)) if p is None else np.asarray(p, np.float64)
        if not self.transforms or weights.shape != (len(self.transforms),) or (weights < 0).any() or not weights.any():
            raise ArgumentError("RandomChoice takes transforms, and one weight of at least 0 each", got=repr(p))
        self.p = (weights / weights.sum()).tolist()

    @property
    def draws(self) -> int:  # type: ignore[override]
        return 1 + max(map(_needs, self.transforms))

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        which = int(np.searchsorted(np.cumsum(self.p)[:-1], numbers[0], side="right"))
        chosen = self.transforms[which]
        return as_array(_run(chosen, image, numbers[1 : 1 + _needs(chosen)]))


class RandomOrder(Compose):
    """All transforms of a list, in a random order. `torchvision.transforms.RandomOrder`."""

    @property
    def draws(self) -> int:  # type: ignore[override]
        return len(self.transforms) + sum(map(_needs, self.transforms))

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        count = len(self.transforms)
        ends = np.cumsum([count, *map(_needs, self.transforms)]).tolist()
        for i in np.argsort(numbers[:count], kind="stable").tolist():
            image = _run(self.transforms[i], image, numbers[ends[i] : ends[i + 1]])
        return image

    apply_batch = Transform.apply_batch
    __repr__ = Transform.__repr__


class Lambda(Transform):
    """Any function of an image. `torchvision.transforms.Lambda`."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise ArgumentError("Lambda takes a function", got=repr(lambd))
        self.lambd = lambd

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return self.lambd(image)
