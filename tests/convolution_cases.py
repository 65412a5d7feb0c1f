"""Convolutions: sizes of data and weights, and the keywords of PyTorch's functions."""

from __future__ import annotations

from typing import Any

CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 9), (4, 3, 3), {}),
    ((2, 3, 9), (4, 3, 2), {"stride": 2, "padding": 1, "dilation": 3}),
    ((2, 3, 6, 7), (4, 3, 3, 2), {"padding": (1, 2)}),
    ((3, 4, 8, 7), (6, 2, 3, 3), {"groups": 2, "stride": (2, 1), "padding": 1}),
    ((2, 5, 7, 7), (5, 1, 3, 3), {"groups": 5, "padding": 2, "dilation": 2}),
    ((2, 4, 5, 5), (3, 4, 1, 1), {}),
    ((2, 4, 5, 5), (3, 4, 1, 1), {"stride": 2}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"stride": (1, 2, 1), "padding": (0, 1, 1)}),
    ((2, 4, 3, 4, 4), (4, 2, 2, 2, 2), {"groups": 2, "dilation": (1, 2, 1)}),
]

TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 5), (3, 4, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    ((2, 3, 4, 5), (3, 4, 3, 2), {"padding": (1, 0), "dilation": (1, 2)}),
    ((2, 4, 4, 5), (4, 3, 3, 3), {"groups": 2, "stride": (1, 2), "padding": 1}),
    ((1, 2, 3, 3, 2), (2, 3, 2, 3, 2), {"stride": 2}),
]
