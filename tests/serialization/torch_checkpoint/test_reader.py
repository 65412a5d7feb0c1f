"""`ox.load` of what `torch.save` writes: the values, ties, byte orders, and where tensors go."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoint_files import call, group, mapping, name, number, storage, tensor, text, write, write_legacy
from rows import rows

import ox
from ox.errors import LoadError

A = np.arange(6, dtype=np.float32)


def test_a_checkpoint_with_more_than_weights(tmp_path: Path) -> None:
    weights = (
        call("collections.OrderedDict") + b"(" + text("w") + tensor("0", (2, 3)) + text("b") + tensor("1", (3,)) + b"u"
    )
    weights += mapping({"_metadata": call("collections.OrderedDict")}) + b"b"
    betas = b"G" + np.array(0.9, ">f8").tobytes()
    value = mapping({
        "model": weights,
        "optimizer": mapping({"betas": group(betas, betas), "params": b"](" + number(0) + number(1) + b"e"}),
        "epoch": number(300), "big": number(-(1 << 70)), "none": b"N", "best": b"\x88", "name": text("naïve ☂"),
        "raw": call("_codecs.encode", text("\xff\0"), text("latin1")),
        "set": call("__builtin__.set", b"](" + number(1) + number(2) + b"e"),
        "size": call("torch.Size", group(number(2), number(3))), "dtype": name("torch.bfloat16"),
        "device": call("torch.device", text("cuda"), number(1)), "mps": call("torch.device", text("mps")),
        "complex": call("__builtin__.complex", betas, betas),
        "counter": call("collections.Counter", mapping({"cat": number(2)})),
    })  # fmt: skip
    found = ox.load(write(tmp_path / "x.pt", value, {"0": A, "1": A[:3]}))
    model = found.pop("model")
    assert list(model) == ["w", "b"] and model._metadata == {}
    assert model["w"].tolist() == A.reshape(2, 3).tolist() and model["w"].dtype == ox.float32
    assert found == {
        "optimizer": {"betas": (0.9, 0.9), "params": [0, 1]}, "epoch": 300, "big": -(1 << 70), "none": None,
        "best": True, "name": "naïve ☂", "raw": b"\xff\0", "set": {1, 2}, "size": (2, 3), "dtype": ox.bfloat16,
        "device": "cuda:1", "mps": "mps", "complex": 0.9 + 0.9j, "counter": {"cat": 2},
    }  # fmt: skip


def test_it_fits_a_model(tmp_path: Path) -> None:
    model = ox.nn.Linear(3, 2)
    value = mapping({"weight": tensor("0", (2, 3)), "bias": tensor("1", (2,))})
    state = ox.load(write(tmp_path / "x.pt", value, {"0": A, "1": A[:2]}), map_location="cpu", weights_only=True)
    assert repr(model.load_state_dict(state)) == "<All keys matched successfully>"
    assert model(ox.ones(1, 3)).tolist() == [[3, 13]]
    ox.save(model.state_dict(), tmp_path / "x.safetensors")
    assert ox.load(tmp_path / "x.safetensors")["weight"].tolist() == model.weight.tolist()


KINDS = {
    "Float": "float32", "Double": "float64", "Half": "float16", "Long": "int64", "Int": "int32", "Short": "int16",
    "Char": "int8", "Byte": "uint8", "Bool": "bool", "BFloat16": "bfloat16",
}  # fmt: skip


@rows("kind", KINDS)
@rows("order", ["little", "big", None])
@rows("mapped", [False, True])
def test_every_element_type(tmp_path: Path, kind: str, order: str | None, mapped: bool) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16 if kind == "BFloat16" else KINDS[kind])
    array = np.array([[1, 0, 3], [100, 5, 6]]).astype(dtype)
    stored = array.view(f"u{dtype.itemsize}")
    stored = stored.byteswap() if (order or "little") != sys.byteorder else stored
    value = tensor("0", (2, 3), kind=f"torch.{kind}Storage")
    found = ox.load(write(tmp_path / "x.pt", value, {"0": stored}, order), mmap=mapped)
    assert found.dtype == dtype and found.array.tobytes() == array.tobytes()
    found += found  # its memory may be written, and the file stays
    assert ox.load(tmp_path / "x.pt").array.tobytes() == array.tobytes()


@pytest.mark.parametrize("little", [True, False])
def test_the_form_before_1_6(tmp_path: Path, little: bool) -> None:
    order = "<f4" if little else ">f4"
    parts = {"w": (2, 3), "t": (3, 2)}
    value = mapping({n: tensor_of_old("0", shape) for n, shape in parts.items()} | {"e": tensor_of_old("7", (3,))})
    path = write_legacy(tmp_path / "x.pth", value, {"7": A[:3].astype(order), "0": A.astype(order)}, little)
    for mapped in (False, True):
        found = ox.load(path, mmap=mapped)
        assert found["w"].tolist() == A.reshape(2, 3).tolist() and found["e"].tolist() == [0, 1, 2]


def tensor_of_old(key: str, shape: tuple[int, ...]) -> bytes:
    new, old = (storage(key, int(np.prod(shape)), "torch.FloatStorage", "cpu", *more) for more in ((), (b"N",)))
    return tensor(key, shape).replace(new, old)


def test_strides_offsets_scalars_and_nothing(tmp_path: Path) -> None:
    value = mapping({
        "t": tensor("0", (3, 2), held=6, stride=(1, 3)), "part": tensor("0", (2,), held=6, offset=4),
        "scalar": tensor("0", (), held=6, offset=5), "none": tensor("1", (0, 5)),
        "expanded": tensor("0", (4, 2), held=6, stride=(0, 1)), "one": tensor("0", (1, 2), held=6, stride=(10**12, 1)),
    })  # fmt: skip
    found = ox.load(write(tmp_path / "x.pt", value, {"0": A, "1": b""}))
    assert found["t"].tolist() == A.reshape(2, 3).T.tolist()
    assert found["part"].tolist() == [4, 5] and found["scalar"].item() == 5 and found["none"].shape == (0, 5)
    assert found["expanded"].tolist() == [[0, 1]] * 4 and found["one"].tolist() == [[0, 1]]


def test_what_was_tied_stays_tied(tmp_path: Path) -> None:
    both = tensor("0", (2, 3))
    value = mapping({"encoder": both, "decoder": both, "row": tensor("0", (3,), held=6), "other": tensor("1", (2, 3))})
    found = ox.load(write(tmp_path / "x.pt", value, {"0": A, "1": A}))
    assert found["encoder"] is found["decoder"] and found["other"] is not found["encoder"]
    found["encoder"].mul_(10)
    assert found["row"].tolist() == [0, 10, 20] and found["other"].tolist() == A.reshape(2, 3).tolist()


def test_parameters_attributes_and_sparse_tensors(tmp_path: Path) -> None:
    plain = tensor("0", (2, 3))
    args = plain[plain.index(b"(") : -1]  # the arguments alone
    index = tensor("1", (2, 2), kind="torch.LongStorage")
    layout = call("torch.serialization._get_layout", text("torch.sparse_coo"))
    parts = group(index, tensor("0", (2,), held=6), call("torch.Size", group(number(3), number(4))), b"\x88")
    value = mapping({
        "p": call("torch._utils._rebuild_parameter", plain, b"\x88", call("collections.OrderedDict")),
        "a": call("torch._tensor._rebuild_from_type_v2", name("torch._utils._rebuild_tensor_v2"),
                  name("torch.nn.parameter.Parameter"), args, mapping({"tag": text("x")})),
        "v3": call("torch._utils._rebuild_tensor_v3", storage("0", 24, "torch.storage.UntypedStorage"), number(0),
                   group(number(6)), group(number(1)), b"\x89", call("collections.OrderedDict"), name("torch.uint32")),
        "s": call("torch._utils._rebuild_sparse_tensor", layout, parts),
    })  # fmt: skip
    with pytest.raises(LoadError, match="two different storages"):  # one storage, floats and bytes
        ox.load(write(tmp_path / "x.pt", value, {"0": A, "1": np.array([[0, 2], [1, 3]])}))
    value = value.replace(
        storage("0", 24, "torch.storage.UntypedStorage"), storage("2", 24, "torch.storage.UntypedStorage")
    )
    found = ox.load(write(tmp_path / "x.pt", value, {"0": A, "1": np.array([[0, 2], [1, 3]]), "2": A}))
    assert found["p"].requires_grad and found["p"].is_leaf and found["a"].shape == (2, 3)
    assert found["v3"].dtype == ox.uint32 and found["v3"].array.tobytes() == A.tobytes()
    assert found["s"].is_sparse and found["s"].is_coalesced() and found["s"].shape == (3, 4)
    dense = found["s"].to_dense()
    assert (dense[0, 1].item(), dense[2, 3].item(), dense.sum().item()) == (0, 1, 1)


def test_values_of_numpy(tmp_path: Path) -> None:
    def kind(code: str, order: str = "<") -> bytes:
        state = group(number(3), text(order), b"N", b"N", b"N", number(0), number(0), number(0))
        return call("numpy.dtype", text(code), b"\x89", b"\x88") + state + b"b"

    def raw(array: Any) -> bytes:
        return call("_codecs.encode", text(array.tobytes().decode("latin1")), text("latin1"))

    def array(shape: tuple[int, ...], of: bytes, fortran: bytes, content: Any) -> bytes:
        made = call(
            "numpy.core.multiarray._reconstruct", name("numpy.ndarray"), group(number(0)), raw(np.zeros(1, "u1"))
        )
        return made + group(number(1), group(*map(number, shape)), of, fortran, raw(content)) + b"b"

    value = mapping({
        "acc": call("numpy.core.multiarray.scalar", kind("f8"), raw(np.float64(0.5))),
        "swapped": call("numpy._core.multiarray.scalar", kind("i4", ">"), raw(np.array(7, ">i4"))),
        "array": array((2, 3), kind("f4"), b"\x89", A), "columns": array((2, 3), kind("f4"), b"\x88", A),
    })  # fmt: skip
    found = ox.load(write(tmp_path / "x.pt", value))
    assert found["acc"] == 0.5 and isinstance(found["acc"], np.float64) and found["swapped"] == 7
    assert found["array"].tolist() == A.reshape(2, 3).tolist()
    assert found["columns"].tolist() == A.reshape(3, 2).T.tolist()
    with pytest.raises(LoadError, match="cannot be read"):
        ox.load(write(tmp_path / "x.pt", call("numpy.dtype", text("O8"))))


def test_where_tensors_go(tmp_path: Path) -> None:
    path = write(tmp_path / "x.pt", tensor("0", (6,), place="cuda:0"), {"0": A})
    for goal in (None, "cpu", ox.device("cpu"), {"cuda:0": "cpu"}, {"cuda:1": "cuda"}, lambda storage, place: storage):
        assert ox.load(path, map_location=goal).device == "cpu"
    if not ox.cuda.is_available():
        for goal in ("cuda", {"cuda:0": "cuda:0"}):
            with pytest.raises(ox.errors.DeviceError):
                ox.load(path, map_location=goal)


def test_a_file_object_and_a_mapped_one(tmp_path: Path) -> None:
    path = write(tmp_path / "x.pt", mapping({"w": tensor("0", (6,))}), {"0": A})
    for mapped in (False, True):
        with open(path, "rb") as file:
            assert ox.load(file, mmap=mapped)["w"].tolist() == A.tolist()
    assert ox.load(io.BytesIO(path.read_bytes()))["w"].tolist() == A.tolist()


def test_an_archive_of_more_than_4_gib_has_sizes_of_64_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 16)
    path = write(tmp_path / "x.pt", mapping({"w": tensor("0", (6,))}), {"0": A})
    assert ox.load(path)["w"].tolist() == A.tolist()


def test_weights_only_false_is_refused_with_its_reason(tmp_path: Path) -> None:
    path = write(tmp_path / "x.pt", tensor("0", (6,)), {"0": A})
    with pytest.raises(LoadError, match="weights_only=False") as caught:
        ox.load(path, weights_only=False)
    assert "code" in caught.value.got and "ox.load without it" in caught.value.hint
    ox.save({"w": ox.zeros(2)}, tmp_path / "own")
    assert ox.load(tmp_path / "own", weights_only=False)["w"].tolist() == [0, 0], "nothing there could run"


def test_sets_of_none_and_tuples_and_no_bytes(tmp_path: Path) -> None:
    members = b"](" + b"N" + number(1) + group(number(1), text("a")) + b"e"
    value = mapping({"set": call("builtins.set", members), "bytes": call("__builtin__.bytes")})
    assert ox.load(write(tmp_path / "x.pt", value)) == {"set": {None, 1, (1, "a")}, "bytes": b""}
