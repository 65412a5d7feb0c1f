"""Writes models/ox_models/data/digits.npz from scikit-learn's copy of the UCI digits: `python scripts/make_digits.py`.

The archive is written byte for byte the same on every run (fixed dates, fixed order), so a diff shows a real change.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TARGET = Path(__file__).resolve().parents[1] / "models" / "ox_models" / "data" / "digits.npz"


def main() -> None:
    digits = load_digits()
    arrays = {"images": digits.images, "labels": digits.target}
    with zipfile.ZipFile(TARGET, "w") as archive:
        for name, values in arrays.items():
            small = values.astype(np.uint8)
            if not np.array_equal(small, values):
                raise SystemExit(f"{name} does not fit into uint8 without loss")
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, small, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1998, 7, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, buffer.getvalue(), compresslevel=9)
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
