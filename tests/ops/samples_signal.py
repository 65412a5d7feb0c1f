"""Samples of the operators on signals: DFT, STFT."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sample import Sample, call, ints, normal

CUT = "a onesided inverse of other than length / 2 + 1 frequencies"

MORE: dict[str, Callable[[], list[Sample]]] = {
    "DFT": lambda: [
        call(normal(2, 5, 2)),
        call(normal(2, 5, 1)),
        call(normal(3, 4, 2), None, np.array(0), inverse=1),
        call(normal(3, 4, 2), np.array(7), np.array(1)),
        call(normal(3, 6, 2), np.array(4), np.array(1)),
        call(normal(3, 6, 1), np.array(4), np.array(1), onesided=1),
        call(normal(3, 5, 1), np.array(8), np.array(-2), onesided=1),
        call(normal(3, 5, 1), onesided=1),
        call(normal(2, 4, 2), inverse=1, onesided=1),
        call(normal(2, 4, 2), np.array(7), inverse=1, onesided=1),
        *[
            Sample(call(normal(k, 2, 2), np.array(n), np.array(0)).inputs, {"inverse": 1, "onesided": 1}, 1, CUT)
            for k, n in ((4, 10), (5, 5))
        ],
    ],
    "STFT": lambda: [
        call(normal(2, 12, 1), np.array(3), normal(5)),
        call(normal(2, 12, 1), np.array(2), None, np.array(4)),
        call(normal(1, 9, 2), np.array(2), normal(4), np.array(4), onesided=0),
        call(normal(1, 9, 1), np.array(2), normal(4), onesided=0),
    ],
    **{
        name: lambda: [call(np.array(n), periodic=p) for n in (2, 7) for p in (0, 1)]
        for name in ("HannWindow", "HammingWindow", "BlackmanWindow")
    },
    "MelWeightMatrix": lambda: [
        call(ints(6)[0], ints(64)[0], ints(8000)[0], np.float32(20), np.float32(3000)),
    ],
}
