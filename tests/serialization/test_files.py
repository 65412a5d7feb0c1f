"""save and load: what goes in comes out, nothing hostile gets through, a file is whole or not there."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import random
import struct
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors
from rows import rows

import ox
from ox.dtypes import ALL
from ox.errors import ArgumentError, LoadError, OxError, WriteError
from ox.serialization.files import write_whole


class Color(Enum):
    RED = 1


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, (ox.Tensor, np.ndarray)):
        return a.dtype == b.dtype and a.shape == b.shape and np.asarray(a).tobytes() == np.asarray(b).tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) or (a != a and b != b)


def test_a_nested_value_comes_back(tmp_path: Path) -> None:
    value = {
        "step": 12, 3: [True, False, None], ("a", 1): (1.5, math.inf, -math.inf, math.nan, -0.0, 5e-324, 0.1),
        "text": 'ünï \n"quoted" \ud83d', "big": 10**40, "empty": [{}, [], ()], None: "none", True: "yes", 2.5: "float",
        "tensors": [ox.randn(2, 3), ox.tensor(3.5), ox.zeros(0, 3), ox.randn(4, 6).T[1:, ::2], ox.ones(2).expand(3, 2)],
        "arrays": (np.arange(3), np.float32(2.5) * np.ones((2, 1), np.float16)),
    }  # fmt: skip
    ox.save(value, tmp_path / "x.ox")
    back = ox.load(tmp_path / "x.ox")
    assert same(back, value)
    assert math.copysign(1, back["a", 1][4]) == -1
    assert os.listdir(tmp_path) == ["x.ox"]


@rows("dtype", ALL, ids=str)
def test_every_element_type(tmp_path: Path, dtype: Any) -> None:
    tensors = [ox.tensor([[0, 1, 2], [3, 100, 7]]).to(dtype), ox.zeros(0, dtype=dtype), ox.tensor(1).to(dtype)]
    ox.save(tensors, tmp_path / "x")
    assert same(ox.load(tmp_path / "x"), tensors)


def test_what_is_loaded_can_be_written_and_is_plain(tmp_path: Path) -> None:
    x = ox.ones(2, requires_grad=True)
    ox.save({"leaf": x, "result": x * 2, "number": np.float32(0.5), "int": np.int8(3)}, tmp_path / "x")
    back = ox.load(tmp_path / "x")
    assert back["leaf"].requires_grad
    assert back["result"].requires_grad and back["result"].is_leaf  # as in PyTorch
    with ox.no_grad():
        back["result"].add_(1)
    assert back["result"].tolist() == [3, 3]
    assert (back["number"], back["int"]) == (0.5, 3)
    np.asarray(back["leaf"].detach())[0] = 9
    assert back["leaf"].tolist() == [9, 1]


@rows(
    "bad",
    [object(), np.array([{}]), lambda: 0, defaultdict(lambda: 0), int, Color.RED, Decimal(1), slice("a"), os],
    ids=lambda bad: type(bad).__name__,
)
def test_what_cannot_be_saved_is_named(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(ArgumentError, match="cannot write") as caught:
        ox.save({"a": [1, {"deep": bad}]}, tmp_path / "x")
    assert caught.value.where == "value['a'][1]['deep']"
    assert not os.listdir(tmp_path)


PLAIN = [
    {1, 2}, frozenset("ab"), {(1, 2), "x", None, 2.5}, ox.float32, ox.bfloat16, ox.bool, Path("x/y"),
    PurePosixPath("a"), PureWindowsPath("c:\\a"), Namespace(lr=1, n=Namespace(a=[1])), SimpleNamespace(a=1),
    OrderedDict(z=1, a=2), defaultdict(list, {"a": [1]}), defaultdict(None, {1: 2}), Counter("hello"), deque([1, 2], 5),
    slice(1, None, 2), range(3, 9, 2), 1 + 2j, complex(math.inf, -0.0), b"\0\xff", bytearray(b"ab"), np.float32(0.1),
    np.int64(7), np.bool_(True), np.float64(0.1), np.complex64(1j), np.datetime64("2020-01-01"), date(2020, 1, 1),
    datetime(2020, 1, 2, 3, tzinfo=UTC), time(1, 2), timedelta(1, 2, 3), ox.Size([1, 2]), ox.device("cuda:1"), ...,
    ox.ones(2).shape,
]  # fmt: skip


@rows("value", PLAIN, ids=[f"{type(value).__name__} {number}" for number, value in enumerate(PLAIN)])
def test_plain_values_keep_their_class(value: Any) -> None:
    file = io.BytesIO()
    ox.save([value], file)
    file.seek(0)
    (back,) = ox.load(file)
    assert type(back) is type(value) and back == value
    assert getattr(back, "maxlen", 0) == getattr(value, "maxlen", 0)
    assert getattr(back, "default_factory", 0) is getattr(value, "default_factory", 0)


@pytest.mark.parametrize("array", [np.array(["a", "bcd"]), np.array([[1j, 2]]), np.array("2020", "M8[D]")], ids=str)
def test_arrays_of_numpys_own_types(tmp_path: Path, array: Any) -> None:
    ox.save(array, tmp_path / "x")
    assert same(ox.load(tmp_path / "x"), array)


def saved_and_loaded(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    ox.save(value, file)
    file.seek(0)
    return ox.load(file, **options)


def test_the_same_file_for_the_same_sets() -> None:
    files = [io.BytesIO(), io.BytesIO()]
    ox.save({"b", "a", "c"}, files[0])
    ox.save({"c", "b", "a"}, files[1])
    assert files[0].getvalue() == files[1].getvalue()


def test_tensors_that_share_memory_share_it_when_loaded() -> None:
    x = ox.arange(6.0)
    back = saved_and_loaded({"x": x, "part": x[2:4], "columns": x.reshape(2, 3).t(), "same": x, "apart": x.clone()})
    back["x"][2] = 99
    assert back["part"].tolist() == [99, 3] and back["columns"][2, 0].item() == 99
    assert back["same"] is back["x"] and back["apart"][2].item() == 2
    back["part"][1] = 7
    assert back["x"].tolist() == [0, 1, 99, 7, 4, 5] and back["x"].version == back["part"].version == 2
    twice = saved_and_loaded(back)
    twice["x"][2] = 5
    assert twice["part"][0].item() == 5


def test_views_with_gaps_or_without_their_base_share_memory_when_loaded() -> None:
    table = ox.arange(1000.0).reshape(100, 10)
    back = saved_and_loaded([table[:, 3], table[5:, 3], table[::7, :1], table[7, :1].expand(4)])
    back[0][7] = -1
    assert back[1][2].item() == -1 and back[2][1].item() == 70 and back[3].tolist() == [70] * 4
    back[2][1] = 6
    assert back[3].tolist() == [6] * 4


def test_what_shares_no_memory_stays_apart() -> None:
    x = ox.zeros(8)
    left, right, ones = saved_and_loaded([x[:4], x[4:], ox.ones(()).expand(3)])
    left += 1
    assert right.tolist() == [0] * 4 and ones.tolist() == [1] * 3


def test_parameters_and_leaves_stay_what_they_are() -> None:
    p = ox.nn.Parameter(ox.ones(2))
    frozen = ox.nn.Parameter(ox.ones(1, dtype=ox.int64), requires_grad=False)
    back = saved_and_loaded(
        {"p": p, "tied": p, "data": p.detach(), "frozen": frozen, "leaf": ox.ones(1, requires_grad=True)}
    )
    assert type(back["p"]) is ox.nn.Parameter and back["p"].requires_grad and back["tied"] is back["p"]
    assert type(back["frozen"]) is ox.nn.Parameter and not back["frozen"].requires_grad
    assert type(back["leaf"]) is ox.Tensor and back["leaf"].requires_grad and back["leaf"].is_leaf
    with ox.no_grad():
        back["p"].add_(1)
    assert back["data"].tolist() == [2, 2]
    back["p"].sum().backward()
    assert back["p"].grad.tolist() == [1, 1]
    assert not any(t.requires_grad for t in saved_and_loaded(ox.nn.Linear(2, 2).state_dict()).values())


def test_other_readers_find_every_name(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    weight = ox.nn.Parameter(ox.ones(2, 2))
    ox.save({"table": weight.detach(), "head": weight.detach()}, tmp_path / "x")
    assert {name: array.tolist() for name, array in load_file(tmp_path / "x").items()} == {
        "table": [[1, 1], [1, 1]], "head": [[1, 1], [1, 1]]
    }  # fmt: skip


def test_files_that_cannot_be_opened_are_errors_of_python(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.pt cannot be opened") as error:
        ox.load(tmp_path / "gone.pt")
    assert isinstance(error.value, LoadError) and error.value.errno == errno.ENOENT
    assert error.value.filename == str(tmp_path / "gone.pt")
    with pytest.raises(IsADirectoryError):
        ox.load(tmp_path)


def test_what_contains_itself_is_refused(tmp_path: Path) -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ArgumentError, match="contains itself"):
        ox.save(value, tmp_path / "x")


def test_a_model_is_pointed_to_its_state(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError) as caught:
        ox.save(ox.nn.Linear(1, 1), tmp_path / "x")
    assert "state_dict" in caught.value.hint


def test_a_failing_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    ox.save(1, path)
    with pytest.raises(ArgumentError):
        ox.save(object(), path)

    def half(temporary: Path) -> None:
        temporary.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, half)

    def full(temporary: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(WriteError, match="was not written") as caught:
        write_whole(path, full)
    assert caught.value.got == "No space left on device"
    assert ox.load(path) == 1
    assert os.listdir(tmp_path) == ["x"]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "missing" / "x", tmp_path / "folder"):
        with pytest.raises(WriteError):
            ox.save(1, path)
    assert os.listdir(tmp_path) == ["folder"]


def test_the_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    ox.save(1, tmp_path / "x")
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_is_not_there_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="cannot be opened"):
        ox.load(tmp_path / "missing")
    with pytest.raises(LoadError):
        ox.load(tmp_path)
    (tmp_path / "empty").touch()
    with pytest.raises(LoadError):
        ox.load(tmp_path / "empty")


def raw(path: Path, header: Any, data: bytes) -> None:
    """A safetensors file of a header as written here."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@rows("dtype", ALL, ids=str)
def test_another_programs_file(tmp_path: Path, dtype: Any) -> None:
    """The form that safetensors has documented, written by hand: no line of ox had a part in it."""
    from ox.dtypes import bfloat16

    name = {"bfloat16": "BF16", "bool": "BOOL"}.get(str(dtype)) or f"{dtype.kind.upper()}{8 * dtype.itemsize}"
    a, b = np.array([[0, 1, 2], [3, 100, 7]]).astype(dtype), np.array(1).astype(dtype)
    size = a.nbytes
    header = {
        "__metadata__": {"format": "pt"},
        "h.0.weight": {"dtype": name, "shape": [2, 3], "data_offsets": [0, size]},
        "scalar": {"dtype": name, "shape": [], "data_offsets": [size, size + b.nbytes]},
        "empty": {"dtype": name, "shape": [0, 3], "data_offsets": [size + b.nbytes] * 2},
    }
    raw(tmp_path / "x", header, a.tobytes() + b.tobytes())
    found = ox.load(tmp_path / "x")
    assert sorted(found) == ["empty", "h.0.weight", "scalar"]
    assert same(found["h.0.weight"], ox.tensor(a) if dtype != bfloat16 else ox.tensor(a.astype(float)).to(bfloat16))
    assert (found["scalar"].shape, found["scalar"].item()) == ((), 1)
    assert (found["empty"].shape, found["empty"].dtype) == ((0, 3), dtype)
    with open(tmp_path / "x", "rb") as file:
        assert same(ox.load(file)["h.0.weight"], found["h.0.weight"])


def test_another_programs_file_fits_a_model(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    model = ox.nn.Linear(2, 1)
    save_file({"weight": np.array([[1, 2]], np.float16), "bias": np.array([3], np.float64)}, tmp_path / "x")
    assert repr(model.load_state_dict(ox.load(tmp_path / "x"))) == "<All keys matched successfully>"
    assert model(ox.tensor([10.0, 100.0])).tolist() == [213]
    assert model.weight.dtype == ox.float32


def test_a_type_that_ox_has_not(tmp_path: Path) -> None:
    raw(tmp_path / "x", {"w": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}, b"ab")
    with pytest.raises(LoadError, match="a type that ox has not") as caught:
        ox.load(tmp_path / "x")
    assert (caught.value.where, caught.value.got) == ("w", "F8_E4M3")


def test_bools_of_a_foreign_file_are_bools(tmp_path: Path) -> None:
    raw(tmp_path / "x", {"w": {"dtype": "BOOL", "shape": [3], "data_offsets": [0, 3]}}, b"\x00\x01\x07")
    assert np.asarray(ox.load(tmp_path / "x")["w"]).tobytes() == b"\x00\x01\x01"


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "new.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"cos\nsystem\n(S'true'\ntR.")
    (tmp_path / "old.pt").write_bytes(b"\x80\x02cos\nsystem\nq\x00.")
    for name in ("new.pt", "old.pt"):
        with pytest.raises(LoadError, match="cannot be read") as caught:
            ox.load(tmp_path / name)
        assert "pickle" in caught.value.got


W = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@rows(
    "header",
    [
        b"not json", b"[" * 100_000, b"[]", b"3", b"{", b'{"w": 3}', {"w": {}}, {"w": W | {"dtype": "X"}},
        {"w": W | {"shape": [3]}}, {"w": W | {"shape": [-2]}}, {"w": W | {"shape": [1 << 62, 4]}},
        {"w": W | {"shape": "ab"}}, {"w": W | {"data_offsets": [0, 1 << 62]}}, {"w": W | {"data_offsets": [8, 0]}},
        {"w": W | {"data_offsets": [-8, 0]}}, {"w": W | {"data_offsets": [4, 12]}}, {"w": W, "v": W},
        b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}',
        {"a": W | {"shape": [0, 1 << 62], "data_offsets": [0, 0]}, "w": W}, {"w": W | {"shape": [1] * 70 + [2]}},
        {"w": W | {"data_offsets": [0]}}, {"__metadata__": 5, "w": W}, {"__metadata__": {"a": 1}, "w": W}, {},
    ],
    ids=lambda t: str(t)[:40],
)  # fmt: skip
def test_hostile_headers(tmp_path: Path, header: Any) -> None:
    raw(tmp_path / "x", header, bytes(8))
    with pytest.raises(LoadError) as caught:
        ox.load(tmp_path / "x")
    assert str(tmp_path / "x") in caught.value.what


def hostile(tree: Any, path: Path) -> None:
    from safetensors.numpy import save_file

    text = tree if isinstance(tree, str) else json.dumps(tree)
    save_file({"0": np.zeros(4, np.float32), "1": np.zeros(3, np.uint16)}, path, metadata={"ox.tree": text})


@rows(
    "tree",
    [
        "not json", "[" * 100_000, "1" * 5000, {}, {"a": 1, "b": 2}, {"list": 5}, {"dict": [[[1], 2, 3]]}, [1, 2],
        {"dict": [[{"list": []}, 1]]}, {"float": "0x1p99999"}, {"float": "zz"}, {"float": 3},
        {"tensor": ["7", "float32", [4]]},
        {"tensor": ["0", "float32", [5]]}, {"tensor": ["0", "int8", [4]]}, {"tensor": ["0", "bfloat16", [4]]},
        {"tensor": ["0", "nonsense", [4]]}, {"tensor": ["0", "float32", [-1]]}, {"tensor": ["0", "float32", "ab"]},
        {"tensor": ["0", "float32", [2.5]]}, {"tensor": ["0", "float32", [1 << 62, 4]]}, {"tensor": 3},
        {"code": ["0", "float32", [4]]},
        {"set": [{"list": []}]}, {"deque": [[], -1]}, {"defaultdict": ["eval", []]}, {"Namespace": [[1, 2]]},
        {"dtype": "object"}, {"scalar": ["O", "00"]}, {"scalar": ["float32", "00"]}, {"array": ["0", "O", [4]]},
        {"bytes": "zz"}, {"range": [0, 1, 0]}, {"range": ["a", 1, 1]}, {"device": "disk"}, {"Path": 3}, {"Size": ["a"]},
        {"datetime": "never"}, {"tensor": ["0", "float32", [4], {"same": "1"}]},
        {"tensor": ["0", "float32", [4], {"storage": [0, 1 << 50, None, 0, [1]]}]},
        {"tensor": ["0", "float32", [4], {"storage": [0, 16, None, 8, [1]]}]},
        {"tensor": ["0", "float32", [4], {"storage": [0, 16, None, -4, [1]]}]},
        {"tensor": ["0", "float32", [4], {"storage": [0, 16, None, 0, [1 << 60]]}]},
        {"tensor": ["0", "float32", [4], {"storage": [0, 16, None, 0, [-1]]}]},
        {"tensor": ["0", "float32", [4], {"storage": [0, 16, "gone", 0, [1]]}]},
        {"tensor": ["0", "float32", [4], {"storage": 3}]},
        {"tensor": [["0"], "float32", [4]]}, {"tensor": ["0", "float32", [-2, -2]]}, {"array": [None, None, None]},
    ],
    ids=lambda t: str(t)[:40],
)  # fmt: skip
def test_hostile_trees(tmp_path: Path, tree: Any) -> None:
    hostile(tree, tmp_path / "x")
    with pytest.raises(LoadError) as caught:
        ox.load(tmp_path / "x")
    assert str(tmp_path / "x") in caught.value.what


def test_damaged_bytes(tmp_path: Path) -> None:
    """Cut off anywhere, or with bytes changed: a LoadError or a value, never anything else."""
    path = tmp_path / "x"
    ox.save({"a": [ox.randn(3), 2.5, "text"], "b": (ox.tensor([1, 2]), None)}, path)
    whole = path.read_bytes()
    for length in {0, 1, 7, 8, 9, *range(10, len(whole), 17), len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(LoadError):
            ox.load(path)
    choose = random.Random(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(choose.randint(1, 4)):
            damaged[choose.randrange(len(whole) - 20)] = choose.randrange(256)
        path.write_bytes(bytes(damaged))
        try:
            ox.load(path)
        except OxError as error:
            assert isinstance(error, LoadError)
    path.write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    with pytest.raises(LoadError):
        ox.load(path)


def test_a_special_file_is_never_replaced_and_a_link_is_followed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(WriteError, match="was not written"):
        ox.save({"a": 1}, pipe)
    assert pipe.is_fifo()
    real, link = tmp_path / "real", tmp_path / "link"
    ox.save({"a": 1}, real)
    link.symlink_to(real)
    ox.save({"a": 2}, link)
    assert link.is_symlink()
    assert ox.load(real) == {"a": 2}


def test_a_blob_of_the_hugging_face_cache_is_never_written(tmp_path: Path) -> None:
    """Its name is the hash of its content, and several revisions share it: the link to it becomes a file."""
    blob, revision = tmp_path / "models--a--b" / "blobs" / "1234", tmp_path / "models--a--b" / "snapshots" / "main"
    for folder in (blob.parent, revision):
        folder.mkdir(parents=True)
    ox.save({"a": 1}, blob)
    before = blob.read_bytes()
    (revision / "x.ox").symlink_to("../../blobs/1234")
    (tmp_path / "folder").symlink_to(revision)
    (tmp_path / "far.ox").symlink_to(tmp_path / "folder" / "x.ox")
    ox.save({"a": 2}, tmp_path / "far.ox")
    assert (tmp_path / "far.ox").is_symlink() and not (revision / "x.ox").is_symlink()
    assert blob.read_bytes() == before and ox.load(tmp_path / "far.ox") == {"a": 2}
    (tmp_path / "near.ox").symlink_to(blob)
    ox.save({"a": 3}, tmp_path / "near.ox")
    assert blob.read_bytes() == before and ox.load(tmp_path / "near.ox") == {"a": 3}
    ox.save({"a": 4}, blob)  # by its own name
    assert ox.load(blob) == {"a": 4}


def test_an_open_file_serves_as_well(tmp_path: Path) -> None:
    value = {"epoch": 3, "model": {"weight": ox.randn(2, 3)}}
    buffer = io.BytesIO()
    ox.save(value, buffer)
    buffer.seek(0)
    assert same(ox.load(buffer, map_location=lambda storage, place: storage, weights_only=True), value)
    with open(tmp_path / "x.pt", "wb") as file:
        ox.save(value, file)
    assert same(ox.load(tmp_path / "x.pt", map_location=ox.device("cpu")), value)
    assert same(ox.load(tmp_path / "x.pt", "cpu"), value)


# -- checksums --------------------------------------------------------------------------------------------------------


def test_any_flipped_bit_is_found_or_harmless(tmp_path: Path) -> None:
    """Each bit of a file: what is read is what was written, or one error."""
    value = {"w": ox.tensor([1.0, 2.0, 3.0]), "m": [ox.tensor([True]), ox.ones(2, dtype=ox.bfloat16)], "step": 3}
    ox.save(value, tmp_path / "x")
    data, found = (tmp_path / "x").read_bytes(), 0
    for place in range(len(data)):
        for bit in range(8):
            torn = bytearray(data)
            torn[place] ^= 1 << bit
            (tmp_path / "torn").write_bytes(torn)
            try:
                read = ox.load(tmp_path / "torn")
            except LoadError:
                found += 1
            else:
                assert same(read, value) or "ox.tree" not in str(torn), (place, bit)
    assert found > 7 * len(data)  # harmless are the spaces after the header, and the checksum's own name


def test_any_truncation_is_found(tmp_path: Path) -> None:
    ox.save({"w": ox.tensor([1.0, 2.0, 3.0])}, tmp_path / "x")
    data = (tmp_path / "x").read_bytes()
    for length in range(len(data)):
        (tmp_path / "torn").write_bytes(data[:length])
        with pytest.raises(LoadError):
            ox.load(tmp_path / "torn")


def test_a_file_without_a_checksum(tmp_path: Path) -> None:
    """As versions before wrote them."""
    from safetensors.numpy import save_file

    tree = '{"dict": [["w", {"tensor": ["w", "float32", [2]]}]]}'
    save_file({"w": np.array([1, 2], np.float32)}, tmp_path / "x", metadata={"ox.tree": tree})
    assert ox.load(tmp_path / "x")["w"].tolist() == [1, 2]


def test_a_tensor_that_another_program_changed_is_damage(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    ox.save({"w": ox.tensor([1.0, 2.0])}, tmp_path / "x")
    with safe_open(tmp_path / "x", framework="numpy") as f:
        about = f.metadata()
    save_file(load_file(tmp_path / "x"), tmp_path / "same", metadata=about)
    assert ox.load(tmp_path / "same")["w"].tolist() == [1, 2]
    save_file({"w": np.array([1, 3], np.float32)}, tmp_path / "other", metadata=about)
    with pytest.raises(LoadError, match="damaged") as caught:
        ox.load(tmp_path / "other")
    assert about["ox.crc32"] in caught.value.expected


@rows(
    "shape",
    [[2**62, 2**62], [2**63], [-1], [0, 2**64], [0] * 100, [1e300], ["a"], [None], [[1]], [True], "4", {}, 2**70, None],
    ids=str,
)
@rows("own", [True, False])
def test_an_absurd_shape(tmp_path: Path, shape: Any, own: bool) -> None:
    from safetensors.numpy import save

    path = tmp_path / "x"
    if own:
        tree = json.dumps({"dict": [["w", {"tensor": ["w", "float32", shape]}]]})
        path.write_bytes(save({"w": np.ones(4, np.float32)}, metadata={"ox.tree": tree}))
    else:
        header = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 16]}}).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    with pytest.raises(LoadError, match=r"cannot be read|damaged"):
        ox.load(path)
    empty = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    path.write_bytes(struct.pack("<Q", len(empty)) + empty)
    with pytest.raises(LoadError, match=r"cannot be read|damaged"):
        ox.load(path)


@pytest.mark.parametrize("own", [True, False])
def test_tensors_that_no_memory_holds(tmp_path: Path, own: bool) -> None:
    """A sparse file is as large as its header says, and costs nothing."""
    count = 2**41
    about = {"ox.tree": json.dumps({"tensor": ["w", "float32", [count]]})} if own else {}
    entry = {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}
    header = json.dumps({"__metadata__": about, "w": entry}).encode()
    with open(tmp_path / "x", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        try:
            file.truncate(8 + len(header) + 4 * count)
        except OSError:
            pytest.skip("this disk has no files of that size")
    with pytest.raises(LoadError, match="does not fit into memory"):
        ox.load(tmp_path / "x")


def test_a_file_that_is_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that another process renames into place between two looks at the path: one of both, whole."""
    path, other = tmp_path / "last", tmp_path / "other"
    ox.save({"w": ox.zeros(3)}, path)
    ox.save({"w": ox.ones(3), "v": ox.ones(5)}, other)
    checked = safetensors.safe_open
    left = 1

    def open_and_replace(*given: Any, **options: Any) -> Any:
        nonlocal left
        opened = checked(*given, **options)
        if left:
            left -= 1
            os.replace(other, path)
            if left:
                ox.save({"w": ox.full((3,), float(left))}, other)
        return opened

    monkeypatch.setattr(safetensors, "safe_open", open_and_replace)
    assert {name: t.tolist() for name, t in ox.load(path).items()} == {"w": [1.0] * 3, "v": [1.0] * 5}
    left = 1000
    ox.save({"w": ox.full((3,), 1000.0)}, other)
    with pytest.raises(LoadError, match="another file in each"):
        ox.load(path)
