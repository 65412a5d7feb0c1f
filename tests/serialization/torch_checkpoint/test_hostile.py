"""Files of `torch.save` that are damaged, made to run code, or to take memory or time: a LoadError says so."""

from __future__ import annotations

import struct
import tracemalloc
import zipfile
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from checkpoint_files import call, group, mapping, name, number, storage, tensor, text, whole, write, write_legacy
from rows import rows

import ox
from ox.errors import LoadError
from ox.serialization.torch_checkpoint import errors

A = np.arange(6, dtype=np.float32)
MIB = 1 << 20


def refused(path: Path, got: str, **arguments: Any) -> LoadError:
    tracemalloc.start()
    try:
        with pytest.raises(LoadError) as caught:
            ox.load(path, **arguments)
        assert tracemalloc.get_traced_memory()[1] < 160 * MIB
    finally:
        tracemalloc.stop()
    assert str(path) in caught.value.what and got in str(caught.value), str(caught.value)
    return caught.value


CODE = {
    "os.system": call("os.system", text("true")),
    "posix.system": call("posix.system", text("true")),
    "builtins.eval": call("__builtin__.eval", text("1")),
    "builtins.getattr": call("builtins.getattr", text("a"), text("b")),
    "subprocess.Popen": name("subprocess.Popen") + group(text("true")) + b"\x81",
    "torch.load": call("torch.load", text("x")),
    "torch.storage._load_from_bytes": call("torch.storage._load_from_bytes", text("x")),
    "torch.nn.modules.linear.Linear": name("torch.nn.modules.linear.Linear") + b")\x81",
    "__main__.Net": name("__main__.Net") + b")\x81" + mapping({"a": number(1)}) + b"b",
    "argparse.ArgumentParser": name("argparse.ArgumentParser") + b")\x81" + mapping({"lr": number(1)}) + b"b",
    "functools.partial": call("functools.partial", name("builtins.int")),
    "builtins.type": call("builtins.type", number(1)),
    "builtins.object": name("builtins.object") + b")\x81",
    "numpy.random._pickle.__randomstate_ctor": call("numpy.random._pickle.__randomstate_ctor"),
    "ox.serialization.files.load": call("ox.serialization.files.load", text("x")),
    "numpy.load": call("numpy.load", text("x")),
    "torch._utils.os.system": text("torch._utils") + text("os.system") + b"\x93" + group(text("true")) + b"R",
    "collections.OrderedDict.fromkeys": text("collections") + text("OrderedDict.fromkeys") + b"\x93",
    "copyreg._reconstructor": call("copy_reg._reconstructor", name("torch.Tensor"), name("torch.Tensor"), b"N"),
}


@rows("named", CODE)
def test_code_is_never_run_and_is_named(tmp_path: Path, named: str) -> None:
    for value in (CODE[named], mapping({"model": tensor("0", (6,)), "args": CODE[named]})):
        error = refused(write(tmp_path / "x.pt", value, {"0": A}), f"the global {named.replace('copyreg', 'copy_reg')}")
        assert error.hint is not None and "then torch.save" in error.hint
    refused(write_legacy(tmp_path / "x.pth", CODE[named], {}), "the global")


INSTEAD = {
    "datetime.timezone": "isoformat()",
    "uuid.UUID": "str(...)",
    "__builtin__.file": "its state_dict()",
    "torch.optim.adam.Adam": "optimizer.state_dict()",
    "torch.nn.modules.linear.Linear": "model.state_dict()",
    "torch._utils._rebuild_qtensor": "tensor.dequantize()",
    "torch._utils._rebuild_nested_tensor": "tensor.unbind()",
    "torch.ComplexFloatStorage": "torch.view_as_real(tensor)",
    "torch.float8_e4m3fn": "tensor.float()",
    "exceptions.ValueError": "its state_dict()",
}


@rows("named", INSTEAD)
def test_what_is_refused_has_a_way_out(tmp_path: Path, named: str) -> None:
    told = named.replace("__builtin__", "builtins").replace("exceptions.", "builtins.")
    error = refused(write(tmp_path / "x.pt", name(named) + b")R"), told)
    assert error.hint is not None and INSTEAD[named] in error.hint


FLOATS = storage("0", 6)
NOTHING = call("collections.OrderedDict")


def rebuilt(*arguments: bytes) -> bytes:
    return call("torch._utils._rebuild_tensor_v2", *arguments)


WRONG = {
    "a shape larger than the storage": (tensor("0", (7,), held=6), "outside its storage"),
    "a huge shape": (tensor("0", (1 << 62, 1 << 62), held=6), "outside its storage"),
    "a shape that overflows 64 bits": (tensor("0", (1 << 64, 0), held=6), "no numbers from 0 on"),
    "an offset behind the end": (tensor("0", (1,), held=6, offset=6), "outside its storage"),
    "a negative offset": (tensor("0", (1,), held=6, offset=-1), "no numbers from 0 on"),
    "a negative size": (tensor("0", (-1,), held=6), "no numbers from 0 on"),
    "a negative stride": (tensor("0", (2,), held=6, offset=5, stride=(-1,)), "no numbers from 0 on"),
    "a stride out of it": (tensor("0", (2,), held=6, stride=(6,)), "outside its storage"),
    "expanded without end": (tensor("0", (1 << 40,), held=6, stride=(0,)), "again and again"),
    "other strides than sizes": (tensor("0", (2, 3), held=6, stride=(1,)), "no numbers from 0 on"),
    "many dimensions": (tensor("0", (1,) * 100, held=6), "100 dimensions"),
    "sizes of text": (rebuilt(FLOATS, number(0), group(text("6")), group(number(1)), b"\x89", NOTHING), "no numbers"),
    "sizes of bools": (rebuilt(FLOATS, number(0), group(b"\x88"), group(number(1)), b"\x89", NOTHING), "no numbers"),
    "a storage longer than its bytes": (tensor("0", (7,)), "a storage '0' of 28 bytes"),
    "a storage of 2 to the 60 elements": (tensor("0", (1,), held=1 << 60), "holds 24 bytes"),
    "a storage that is not there": (tensor("9", (6,)), "holds none"),
    "a path as its key": (tensor("../data.pkl", (6,)), "holds none"),
    "a storage of complex numbers": (tensor("0", (3,), kind="torch.ComplexFloatStorage"), "type that ox has not"),
    "a quantized storage": (tensor("0", (6,), kind="torch.QInt8Storage"), "type that ox has not"),
    "a storage of no type": (tensor("0", (6,), kind="torch.Size"), "no known type"),
    "no storage": (rebuilt(text("x"), number(0), group(number(1)), group(number(1)), b"\x89", NOTHING), "no storage"),
    "a storage alone": (mapping({"s": FLOATS}), "a storage without a tensor"),
    "a persistent id of text": (text("0") + b"Q", "names no storage"),
    "a function as a value": (mapping({"f": name("torch._utils._rebuild_tensor_v2")}), "as a value"),
    "too few arguments": (call("torch._utils._rebuild_tensor_v2", FLOATS), "damaged"),
    "arguments that are no tuple": (name("torch.Size") + b"](" + number(1) + b"eR", "calls"),
    "a call of a value": (text("x") + b")R", "calls a str"),
    "attributes of a tensor": (tensor("0", (6,)) + mapping({"array": text("x")}) + b"b", "sets attributes of"),
    "attributes of a function": (name("torch.Size") + mapping({"call": text("x")}) + b"b", "sets attributes of"),
    "items of a tensor": (tensor("0", (6,)) + text("a") + text("b") + b"s", "as if it were a dict"),
    "items of a list": (b"]" + text("a") + text("b") + b"s", "as if it were a dict"),
    "members of a dict": (b"}" + text("a") + b"a", "as if it were a list"),
    "a key of its own making": (b"}" + tensor("0", (6,)) + text("b") + b"s", "a key of a dict"),
    "a nested key": (b"}" + group(group(number(1))) + text("b") + b"s", "a key of a dict"),
    "a set of tensors": (
        call("builtins.set", b"](" + tensor("0", (6,)) + b"e"),
        "a member of a set that is a TensorSpec",
    ),
    "a set of many tuples": (
        call("builtins.set", b"](" + b"".join(group(number(i)) for i in range(1001)) + b"e"), "a member of a set"
    ),
    "a set of nested tuples": (call("builtins.set", b"](" + group(group(number(1))) + b"e"), "a member of a set"),
    "a set of text": (call("builtins.set", text("ab")), "a set of a str"),
    "a class that is called": (name("builtins.int") + group(text("1")) + b"R", "calls a type"),
    "a class that is made": (name("builtins.list") + b")\x81", "calls a type"),
    "a defaultdict of a function": (call("collections.defaultdict", name("torch.Size")), "a defaultdict of a"),
    "a defaultdict of a value": (call("collections.defaultdict", text("list")), "a defaultdict of a str"),
    "a defaultdict of Ellipsis": (call("collections.defaultdict", name("builtins.Ellipsis")), "a defaultdict of a"),
    "a range without a step": (call("builtins.xrange", number(0), number(1), number(0)), "three whole numbers"),
    "a range of text": (call("builtins.xrange", text("a"), number(1), number(1)), "three whole numbers"),
    "a slice of text": (call("builtins.slice", text("a"), b"N", b"N"), "a slice of"),
    "a path of numbers": (call("pathlib.PosixPath", number(1)), "a path of"),
    "a date of text": (call("datetime.date", text("abcd")), "a date that is none"),
    "a date of wrong bytes": (call("datetime.date", b"C\x04\0\0\0\0"), "damaged"),
    "a timedelta of text": (call("datetime.timedelta", text("1")), "three whole numbers"),
    "a huge timedelta": (call("datetime.timedelta", number(1 << 62), number(0), number(0)), "damaged"),
    "bytes of a size": (call("builtins.bytes", number(1 << 40)), "damaged"),
    "a deque filled at once": (call("collections.deque", b"](" + number(1) + b"e"), "a deque that is none"),
    "a deque of negative length": (call("collections.deque", b")", number(-1)), "a deque that is none"),
    "a namespace of numbers": (name("argparse.Namespace") + b")\x81}" + number(1) + b"Nsb", "no string"),
    "a namespace that contains itself": (name("argparse.Namespace") + b")\x81q\x00}" + text("me") + b"h\x00sb",
                                         "contains itself"),
    "a deque that contains itself": (call("collections.deque") + b"q\x00h\x00a", "contains itself"),
    "a version of numbers": (call("torch.torch_version.TorchVersion", number(2)), "no string"),
    "text of NumPy of absurd length": (call("numpy.dtype", text("U9999999")), "text of length"),
    "text of NumPy of no length": (call("numpy.dtype", text("U0")), "text of length"),
    "a tensor yet to be negated": (rebuilt(FLOATS, number(0), group(number(6)), group(number(1)), b"\x89", NOTHING,
                                           mapping({"neg": b"\x88"})), "lazy negation"),
    "an attribute that pairs bring": (call("collections.OrderedDict", b"](" + text("ab") + b"e"), "pairs"),
    "a value out of nothing": (b"h\x07", "has not stored"),
    "nothing on the stack": (b"R", "more values than it has made"),
    "no mark": (b"t", "damaged"),
    "an instruction of protocol 0": (b"S'x'\n", "0x53"),
    "an extension": (b"\x82\x01", "0x82"),
    "a buffer outside": (b"\x97", "0x97"),
    "a string that does not end": (b"X\xff\xff\xff\xff", "breaks off"),
    "a long string that does not end": (b"\x8d" + b"\xff" * 8, "breaks off"),
    "a name that does not end": (b"c" + b"x" * 5000, "name that does not end"),
    "text that is no UTF-8": (b"X\x01\0\0\0\xff", "damaged"),
    "an endless integer": (b"\x8b\xff\xff\xff\x7f", "an integer of"),
    "two values": (b"NN", "damaged"),
    "a list that contains itself": (b"]q\x00h\x00a", "contains itself"),
    "a dict that contains itself": (b"}q\x00" + text("me") + b"h\x00s", "contains itself"),
    "a layout of its own": (call("torch.serialization._get_layout", text("torch.sparse_csr")), "layout"),
    "bytes in another encoding": (call("_codecs.encode", text("ab"), text("rot13")), "encoding"),
    "a device of numbers": (call("torch.device", number(3)), "without a name"),
    "an array of objects": (call("numpy.dtype", text("O8")), "values of type 'O8'"),
    "an array of nothing": (call("numpy.core.multiarray._reconstruct"), "an array of NumPy that is none"),
}  # fmt: skip


@rows("case", WRONG)
def test_wrong_values(tmp_path: Path, case: str) -> None:
    value, got = WRONG[case]
    refused(write(tmp_path / "x.pt", value, {"0": A}), got)


def test_sparse_tensors_are_checked(tmp_path: Path) -> None:
    layout = call("torch.serialization._get_layout", text("torch.sparse_coo"))

    def sparse(shape: tuple[int, ...], sorted_: bytes = b"\x89") -> bytes:
        index = tensor("1", (2, 2), kind="torch.LongStorage")
        size = call("torch.Size", group(*map(number, shape)))
        return call(
            "torch._utils._rebuild_sparse_tensor", layout, group(index, tensor("0", (2,), held=6), size, sorted_)
        )

    storages = {"0": A, "1": np.array([[0, 2], [1, 3]])}
    for shape in ((2, 4), (3, 3), (3,), (3, 4, 5)):
        refused(write(tmp_path / "x.pt", sparse(shape), storages), "sparse")
    lying = write(tmp_path / "x.pt", sparse((3, 4), b"\x88"), storages | {"1": np.array([[2, 0], [1, 3]])})
    assert not ox.load(lying).is_coalesced(), "the file says sorted, and is not"


AGAIN = name("torch._utils._rebuild_tensor_v2") + group(
    b"h\x00", number(0), group(number(6)), group(number(1)), b"\x89", b"N"
)
LATIN = name("_codecs.encode") + b"h\x01" + text("latin1") + b"\x86R"
BOMBS = {
    "sets": b"(" + b"\x8f" * 200_000 + b"t",
    "marks": b"(" * 200_000,
    "memo": b"N" + b"".join(map(struct.Struct("<cI").pack, repeat(b"r"), range(200_000))),
    "a list made a set, again and again": b"](" + b"".join(map(number, range(200))) + b"eq\x000("
    + call("builtins.set", b"h\x00") * 5000 + b"t",
    "a tensor again and again": FLOATS + b"q\x000(" + (AGAIN + b"R") * 5000 + b"t",
    "a text made bytes, again and again": text("a" * 20_000) + b"q\x010(" + LATIN * 5000 + b"t",
}  # fmt: skip


@rows("case", BOMBS)
def test_memory_is_in_proportion_to_the_pickle(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "LEAST", 4 * MIB)
    path = write(tmp_path / "x.pt", BOMBS[case], {"0": A})
    tracemalloc.start()
    try:
        with suppress(LoadError):
            ox.load(path)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB + 30 * path.stat().st_size
    finally:
        tracemalloc.stop()


def test_a_storage_is_read_once_whatever_its_tensors_take_it_for(tmp_path: Path) -> None:
    def seen_as(kind: str, width: int) -> bytes:
        bare = storage("0", 8 * MIB, "torch.storage.UntypedStorage")
        parts = (number(0), group(number(8 * MIB // width)), group(number(1)), b"\x89", NOTHING, name(f"torch.{kind}"))
        return call("torch._utils._rebuild_tensor_v3", bare, *parts)

    kinds = {"float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4, "int16": 2, "uint8": 1}
    value = mapping({kind: seen_as(kind, width) for kind, width in kinds.items()})
    path = write(tmp_path / "x.pt", value, {"0": bytes(8 * MIB)})
    tracemalloc.start()
    try:
        found = ox.load(path)
        assert tracemalloc.get_traced_memory()[1] < 12 * MIB
    finally:
        tracemalloc.stop()
    found["int64"].add_(1)
    assert found["uint8"][0].item() == 1 and found["uint8"].shape == (8 * MIB,)


def test_depth_and_repetition_are_bounded(tmp_path: Path) -> None:
    refused(write(tmp_path / "x.pt", b"]" * 200 + b"a" * 199), "nested too deep")
    refused(write(tmp_path / "x.pt", b"]" * 200_000 + b"a" * 199_999), "nested too deep")  # in linear time
    refused(write(tmp_path / "x.pt", b")" + b"\x85" * 50_000), "nested too deep")
    doubled = b")" + b"q\x000h\x00h\x00\x86" * 60
    refused(write(tmp_path / "x.pt", doubled), "hold one another")


def test_hashes_do_not_collide(tmp_path: Path) -> None:
    """Integers that Python hashes alike would make a dict of n keys take n² steps."""
    same = b"".join(number((2**61 - 1) * i) + b"N" for i in range(1, 50_000))
    refused(write(tmp_path / "x.pt", b"}(" + same + b"u"), "a key of a dict")
    pairs = b"".join(group(number(i), number(i)) + b"N" for i in range(2000))
    refused(write(tmp_path / "x.pt", b"}(" + pairs + b"u"), "a key of a dict")


# -- the archive -----------------------------------------------------------------------------------------------------


def test_entries_that_are_compressed(tmp_path: Path) -> None:
    bomb = write(tmp_path / "x.pt", tensor("0", (1 << 28,)), {"0": bytes(1 << 20)}, compression=zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 10_000
    refused(bomb, "compressed or encrypted")


def test_entries_that_lie_over_one_another(tmp_path: Path) -> None:
    """Two names for the same bytes: an archive that unpacks to more than it is."""
    path = write(tmp_path / "x.pt", mapping({"a": tensor("0", (6,)), "b": tensor("1", (6,))}), {"0": A, "1": A})
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        places = {info.filename: info.header_offset for info in archive.infolist()}
    at = content.rindex(b"weights/data/1") - 46
    content[at + 42 : at + 46] = struct.pack("<I", places["weights/data/0"])
    path.write_bytes(content)
    refused(path, "is not where the directory says")
    content[at + 46 : at + 46 + 14] = b"weights/data/0"
    path.write_bytes(content)
    refused(path, "two entries of the name")


def test_entries_within_one_another(tmp_path: Path) -> None:
    inner = b"PK\x03\x04" + bytes(22) + struct.pack("<HH", 14, 0) + b"weights/data/1" + A.tobytes()
    path = write(tmp_path / "x.pt", tensor("0", (len(inner) // 4,)), {"0": inner, "1": A})
    content = bytearray(path.read_bytes())
    at = content.rindex(b"weights/data/1") - 46
    content[at + 42 : at + 46] = struct.pack("<I", content.index(inner))
    path.write_bytes(content)
    refused(path, "lie over one another")


def test_archives_of_other_kinds(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=A)
    refused(tmp_path / "x.npz", "without data.pkl")
    with zipfile.ZipFile(tmp_path / "s.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/constants.pkl", whole(b")"))
        archive.writestr("m/code/__torch__.py", "class M: pass")
        archive.writestr("m/data.pkl", whole(b")"))
    assert "torch.jit.load" in str(refused(tmp_path / "s.pt", "TorchScript").hint)
    (tmp_path / "p.pkl").write_bytes(whole(mapping({"a": number(1)})))
    refused(tmp_path / "p.pkl", "none of torch.save")
    (tmp_path / "short.pt").write_bytes(b"PK\x03\x04")
    refused(tmp_path / "short.pt", "no directory")


def test_no_words_of_python_in_a_damaged_file(tmp_path: Path) -> None:
    for value in (b"t", b"NN", b"X\x01\0\0\0\xff", call("torch._utils._rebuild_tensor_v2", FLOATS)):
        error = refused(write(tmp_path / "x.pt", value, {"0": A}), "a damaged file")
        assert error.got == "a damaged file: its parts do not fit together" and "an earlier checkpoint" in error.hint


def test_bytes_that_are_not_what_was_written(tmp_path: Path) -> None:
    path = write(tmp_path / "x.pt", tensor("0", (6,)), {"0": A})
    content = path.read_bytes()
    path.write_bytes(content.replace(A.tobytes(), A[::-1].tobytes()))
    refused(path, "checksum")
    blank = bytearray(content.replace(A.tobytes(), A[::-1].tobytes()))
    at = blank.rindex(b"weights/data/0") - 46
    blank[at + 16 : at + 20] = bytes(4)
    path.write_bytes(blank)
    assert ox.load(path).tolist() == A[::-1].tolist(), "torch.serialization.set_crc32_options(False) writes none"


def files(folder: Path) -> list[Path]:
    value = mapping({
        "m": mapping({"w": tensor("0", (2, 3)), "v": tensor("0", (3,), held=6)}), "n": NOTHING,
        "o": b"](" + number(3) + group(number(1 << 40), b"N", b"\x88") + b"G" + bytes(8) + b"e",
        "i": tensor("1", (2, 2), kind="torch.LongStorage"), "s": call("torch.Size", group(number(3))),
    })  # fmt: skip
    old = mapping({"w": tensor("0", (2, 3)).replace(FLOATS, storage("0", 6, "torch.FloatStorage", "cpu", b"N"))})
    storages = {"0": A, "1": np.arange(4)}
    return [write(folder / "new.pt", value, storages), write_legacy(folder / "old.pt", old, {"0": A})]


@pytest.mark.parametrize("which", [0, 1], ids=["archive", "legacy"])
@pytest.mark.parametrize("mapped", [False, True])
def test_any_bytes(tmp_path: Path, which: int, mapped: bool) -> None:
    """Cut off, with bytes changed, doubled or left out: a value or a LoadError, nothing else, and little memory."""
    path = files(tmp_path)[which]
    content, draw = path.read_bytes(), Random(which)
    ox.load(path)
    tracemalloc.start()
    try:
        for _ in range(1000):
            changed = bytearray(content)
            for _ in range(draw.choice((1, 1, 2, 5))):
                at = draw.randrange(len(changed))
                match draw.randrange(5):
                    case 0:
                        changed[at] ^= 1 << draw.randrange(8)
                    case 1:
                        changed[at] = draw.randrange(256)
                    case 2:
                        changed[at : at + draw.randrange(9)] = draw.randbytes(draw.randrange(9))
                    case 3:
                        changed[at:at] = changed[at : at + draw.randrange(60)]
                    case _:
                        del changed[at + draw.randrange(40) :]
            path.write_bytes(changed or b"PK\x03\x04")
            try:
                ox.load(path, mmap=mapped)
            except LoadError as error:
                assert str(path) in str(error)
        assert tracemalloc.get_traced_memory()[1] < 128 * MIB
    finally:
        tracemalloc.stop()


def test_any_pickle(tmp_path: Path) -> None:
    """Instructions in any order, with checksums that fit."""
    codes = b"])}(N\x88teasuRbQ01dl\x8f\x85\x86\x87\x90\x91\x81\x94"
    names = ("torch.Size", "torch._utils._rebuild_parameter", "torch._utils._rebuild_sparse_tensor", "numpy.ndarray",
             "collections.Counter", "torch._tensor._rebuild_from_type_v2", "collections.defaultdict",
             "argparse.Namespace", "builtins.list", "collections.deque", "pathlib.PosixPath")  # fmt: skip
    parts = [codes[i : i + 1] for i in range(len(codes))] + [name(each) for each in names]
    parts += [number(3), text("a"), tensor("0", (6,)), FLOATS, b"q\x00", b"h\x00", NOTHING, b"G" + bytes(8)]
    parts += [call("numpy.dtype", text("f4")), call("numpy.core.multiarray._reconstruct")]
    draw, values = Random(0), 0
    for _ in range(1500):
        value = b"".join(draw.choices(parts, k=draw.randrange(1, 12)))
        try:
            ox.load(write(tmp_path / "x.pt", value, {"0": A}))
            values += 1
        except LoadError:
            pass
    assert values > 10
