"""A golden sample as a request that can be sent as it is."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ox.errors import ServeError
from ox.graph.contract import Sample
from ox.serve.web.sample import sample


def test_every_kind_of_element() -> None:
    words = np.array([["a", "é"]], object)
    arrays = {
        "f": np.array([[0.1, 2]], np.float32).T, "h": np.array([0.5], np.float16), "i": np.array([[-3]], np.int64),
        "b": np.array([True, False]), "s": words, "e": np.zeros((0, 2), np.float64),
        "bf": np.array([1.5, -0.0078125], ml_dtypes.bfloat16),
    }  # fmt: skip
    document = json.loads(sample(Sample(arrays, {"y": words})))
    assert {entry["name"]: (entry["datatype"], entry["shape"], entry["data"]) for entry in document["inputs"]} == {
        "f": ("FP32", [2, 1], [0.1, 2]),  # the shortest text that reads back as the same float32
        "h": ("FP16", [1], [0.5]),
        "i": ("INT64", [1, 1], [-3]),
        "b": ("BOOL", [2], [True, False]),
        "s": ("BYTES", [1, 2], ["a", "é"]),
        "e": ("FP64", [0, 2], []),
        "bf": ("BF16", [2], [1.5, -0.0078125]),  # the page sends it as bytes
    }
    assert document["expected"][0]["name"] == "y"


@pytest.mark.parametrize("array", [np.array([np.nan], np.float32), np.array([np.inf], ml_dtypes.bfloat16)])
def test_what_json_cannot_carry(array: Any) -> None:
    with pytest.raises(ServeError, match="JSON cannot carry 'x'") as caught:
        sample(Sample({"x": array}, {}))
    assert caught.value.status == 501
