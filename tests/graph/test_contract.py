"""The contract survives the way through a file's metadata, and damage to it is named."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from rows import rows

from ox.errors import DTypeError, LoadError
from ox.graph.contract import DTYPES, Contract, Sample, TensorInfo, dtype_name, from_bytes, show_dims, to_bytes


def contract() -> Contract:
    sample = Sample(
        {"image": np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8), "words": np.array([["zwölf", ""]], object)},
        {"logits": np.array([[0.5, -1.5]], ml_dtypes.bfloat16), "best": np.array([1])},
    )
    return Contract(
        (
            TensorInfo("image", "FP32", ("batch", 1, 8, 8), "gray levels 0 to 1"),
            TensorInfo("words", "BYTES", ("batch", None)),
        ),
        (TensorInfo("logits", "BF16", ("batch", 2), labels=("no", "yes")), TensorInfo("best", "INT64", ("batch",))),
        (sample,),
        "0.1.0",
        "digits-0007",
    )


def test_round_trip() -> None:
    metadata = contract().to_metadata()
    assert all(isinstance(value, str) for value in metadata.values())
    back = Contract.from_metadata(metadata)
    assert (back.inputs, back.outputs, back.version, back.run) == (
        contract().inputs,
        contract().outputs,
        "0.1.0",
        "digits-0007",
    )
    for ours, theirs in zip(contract().samples, back.samples, strict=True):
        for name, array in (ours.inputs | ours.outputs).items():
            other = (theirs.inputs | theirs.outputs)[name]
            assert other.dtype == array.dtype and other.shape == array.shape and (other == array).all()


def test_without_metadata_everything_is_empty() -> None:
    assert Contract.from_metadata({"somebody": "else"}) == Contract()
    assert "ox.golden" not in Contract().to_metadata()


@rows("name", DTYPES)
def test_every_type_goes_through_bytes(name: str) -> None:
    dtype = DTYPES[name]
    array = np.array([["a", "ß"], ["", "dd"]], object) if name == "BYTES" else np.array([[0, 1], [1, 0]]).astype(dtype)
    assert dtype_name(array.dtype) == name
    back = from_bytes(to_bytes(array), name, (2, 2))
    assert back.dtype == dtype and (back == array).all()


@rows(
    ("data", "dtype", "shape"),
    [
        (b"\0" * 7, "FP32", (2,)),
        (b"\2", "BOOL", (1,)),
        (b"\1\0", "BYTES", (1,)),
        (b"\5\0\0\0ab", "BYTES", (1,)),
        (b"\0\0\0\0" * 2, "BYTES", (1,)),
        (b"", "BYTES", (1,)),
        (b"\1\0\0\0\xff", "BYTES", (1,)),
    ],
)
def test_bytes_that_do_not_fit(data: bytes, dtype: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        from_bytes(data, dtype, shape)


@rows(
    "entry",
    [
        {"ox.contract": "{"},
        {"ox.contract": "[]"},
        {"ox.contract": '{"inputs":[{"name":"x","dtype":"FP99","dims":[]}],"outputs":[]}'},
        {"ox.contract": '{"inputs":[{"name":"x","dtype":"FP32","dims":[1.5]}],"outputs":[]}'},
        {"ox.golden": '{"samples":[{"inputs":{"x":{"dtype":"FP32","shape":[2],"data":"AAAA"}},"outputs":{}}]}'},
        {"ox.golden": '{"samples":[{"inputs":{"x":{"dtype":"FP32","shape":[1],"data":"?"}},"outputs":{}}]}'},
        {"ox.golden": "[" * 100_000},
    ],
)
def test_damage_is_named(entry: dict[str, str]) -> None:
    with pytest.raises(LoadError, match=next(iter(entry))):
        Contract.from_metadata(entry)


def test_no_name_for_a_type() -> None:
    with pytest.raises(DTypeError, match="element type"):
        dtype_name(np.dtype(np.complex64))


def test_dims_as_text() -> None:
    assert show_dims(("batch", 1, None)) == "[batch, 1, ?]"
    assert str(TensorInfo("x", "FP32", ("batch", 4))) == "x FP32 [batch, 4]"
