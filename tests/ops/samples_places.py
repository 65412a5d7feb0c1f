"""Samples of the operators that pick, place and move elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sample import Sample, call, ints, normal, positive

_depths = [("DCR", 2), ("CRD", 2), ("DCR", 1), ("CRD", 3)]

MORE: dict[str, Callable[[], list[Sample]]] = {
    "Compress": lambda: [
        call(normal(3, 4), np.array([True, False, True])),
        call(normal(3, 4), np.array([True, False, True]), axis=0),
        call(normal(3, 4), np.array([False, True, True, False]), axis=-1),
    ],
    "Trilu": lambda: [call(normal(2, 3, 4), upper=u) for u in (0, 1)]
    + [call(normal(4, 3), np.array(k), upper=u) for u in (0, 1) for k in (-1, 2, 2**62)],
    "Tile": lambda: [call(normal(2, 3), ints(2, 1)), call(normal(2, 1, 3), ints(1, 3, 2)), call(normal(3), ints(0))],
    "DepthToSpace": lambda: [call(normal(2, 18 if b == 3 else 8, 2, 3), blocksize=b, mode=m) for m, b in _depths],
    "SpaceToDepth": lambda: [call(normal(2, 3, 6, 6), blocksize=b, mode=m) for m, b in _depths],
    "ReverseSequence": lambda: [
        call(normal(4, 3, 2), ints(4, 1, 2)),
        call(normal(2, 3, 5), ints(0, 4, 5), batch_axis=1, time_axis=2),
    ],
    "CenterCropPad": lambda: [
        call(normal(3, 6), ints(4, 3)),
        call(normal(3, 6, 2), ints(8, 5), axes=[-2, 0]),
    ],
    "GatherND": lambda: [
        call(normal(3, 4, 2), ints([0, 1], [2, -1], [0, 1])),
        call(normal(3, 4), ints([[0], [2]], [[-1], [0]])),
        call(normal(2, 3, 4), ints([[0], [2]], [[1], [1]]), batch_dims=1),
        call(normal(2, 2, 4, 3), ints([[3], [0]], [[1], [1]]), batch_dims=2),
        call(normal(2, 3), ints(1, 2)),
    ],
    "ScatterND": lambda: [
        call(normal(4, 3), ints([0], [2]), normal(2, 3)),
        call(normal(4, 3), ints([0, 1], [-1, 2]), normal(2)),
        call(normal(4, 3), ints([0], [0], [1]), normal(3, 3), reduction="add"),
        call(positive(4, 3), ints([0, 1], [0, 1], [2, 2]), positive(3), reduction="mul"),
        call(normal(4, 3), ints([1], [1], [-1]), normal(3, 3), reduction="max"),
        call(normal(2, 3, 2), ints([1, 0], [0, 2]), normal(2, 2), reduction="min"),
    ],
    "TensorScatter": lambda: [
        call(normal(2, 5, 3), normal(2, 2, 3), ints(1, 3)),
        call(normal(2, 5, 3), normal(2, 2, 3), ints(1, 4), mode="circular"),
        call(normal(2, 1, 3, 4), normal(2, 1, 3, 2), axis=-1),
    ],
    "Scatter": lambda: [call(normal(3, 4), ints([0, 3, 1], [2, -1, 1]), normal(2, 3), axis=1)],
    "Einsum": lambda: [
        call(*(normal(*s) for s in shapes), equation=equation)
        for equation, *shapes in [
            ("ij,jk->ik", (2, 3), (3, 4)),
            ("bij,bjk->bik", (2, 3, 4), (2, 4, 2)),
            ("bij , bkj -> bik", (2, 3, 4), (2, 2, 4)),
            ("...ij,...jk", (1, 2, 3), (4, 3, 2)),
            ("ij->", (2, 3)),
            ("ij->ji", (2, 3)),
            ("ii->i", (3, 3)),
            ("ii", (3, 3)),
            ("iji->j", (3, 2, 3)),
            ("i,j->ij", (2,), (3,)),
            ("i,i", (3,), (3,)),
            ("ij,k->k", (2, 3), (2,)),
            ("bn,anm,bm->ba", (2, 3), (4, 3, 2), (2, 2)),
            ("abc,cd,def->abef", (1, 2, 3), (3, 2), (2, 2, 2)),
            ("ij,ij->ij", (2, 3), (2, 3)),
            ("...a,...a->...", (2, 3, 4), (1, 3, 4)),
            (",i->i", (), (3,)),
            ("Ab,bA->A", (2, 3), (3, 2)),
        ]
    ],
    "Det": lambda: [call(normal(1, 1)), call(normal(3, 2, 2)), call(normal(3, 3)), call(normal(2, 2, 4, 4))],
}  # fmt: skip
