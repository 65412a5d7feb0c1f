"""The 1,797 handwritten digits that ship with ox, as NumPy arrays.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49, CC BY 4.0; `data/ATTRIBUTION.txt` says what was changed.
"""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

COUNT = 1797


def load_digits() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """All images and labels, in the order of the source.

    Returns:
        images: uint8 [1797, 8, 8], grey levels from 0 (paper) to 16 (ink).
        labels: uint8 [1797], the digit from 0 to 9.
    """
    with as_file(files("ox_models") / "data" / "digits.npz") as path, np.load(path, allow_pickle=False) as archive:
        images, labels = archive["images"], archive["labels"]
    return images, labels
