"""What the installed PyTorch saves, `ox.load` reads: checkpoints of models and optimizers in every form."""

from __future__ import annotations

import argparse
import collections
import datetime
import io
import tracemalloc
import types
import warnings
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from sides import torch

import ox
from ox.errors import LoadError

FORMS: dict[str, dict[str, Any]] = {
    "zip": {},
    "legacy": {"_use_new_zipfile_serialization": False},
    "protocol 4": {"pickle_protocol": 4},
    "protocol 5": {"pickle_protocol": 5},
    "legacy, protocol 4": {"_use_new_zipfile_serialization": False, "pickle_protocol": 4},
}


def net(T: Any) -> Any:
    return T.nn.Sequential(T.nn.Conv2d(3, 4, 3, bias=False), T.nn.BatchNorm2d(4), T.nn.Flatten(), T.nn.Linear(16, 5))


def assert_same(got: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        if expected.layout == torch.sparse_coo:
            got, expected = got.to_dense(), expected.to_dense()
        assert isinstance(got, ox.Tensor) and tuple(got.shape) == tuple(expected.shape)
        assert str(got.dtype) == str(expected.dtype).removeprefix("torch.")
        assert got.requires_grad == expected.requires_grad
        raw = expected.detach().contiguous().view(-1).view(torch.uint8).numpy() if expected.numel() else np.zeros(0)
        assert np.ascontiguousarray(got.detach().array).tobytes() == raw.tobytes()
    elif isinstance(expected, dict):
        assert list(got) == list(expected) and type(got).__name__ == type(expected).__name__
        for key in expected:
            assert_same(got[key], expected[key])
    elif isinstance(expected, (list, tuple)) and not isinstance(expected, torch.Size):
        assert type(got) is type(expected) and len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(got, expected)
    else:
        assert str(got) == str(expected).removeprefix("torch.") or got == expected


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> dict[str, Any]:
    return FORMS[request.param]


def test_a_checkpoint_goes_on_in_ox(tmp_path: Path, form: dict[str, Any]) -> None:
    """Model and optimizer of a PyTorch run after three steps; the fourth is the same in both."""
    torch.manual_seed(0)
    theirs, ours = net(torch), net(ox)
    their_optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
    ours_optimizer = ox.optim.AdamW(ours.parameters(), lr=1e-1)
    data = np.random.default_rng(0).random((4, 6, 3, 4, 4), dtype=np.float32)

    def step(model: Any, optimizer: Any, x: Any) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    for x in data[:3]:
        step(theirs, their_optimizer, torch.tensor(x))
    saved = {"model": theirs.state_dict(), "optimizer": their_optimizer.state_dict(), "epoch": 3}
    torch.save(saved, tmp_path / "x.pt", **form)
    found = ox.load(tmp_path / "x.pt", map_location="cpu", weights_only=True)
    assert_same(found, saved)
    assert found["model"]._metadata == saved["model"]._metadata
    ours.load_state_dict(found["model"])
    ours_optimizer.load_state_dict(found["optimizer"])
    step(theirs, their_optimizer, torch.tensor(data[3]))
    step(ours, ours_optimizer, ox.tensor(data[3]))
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.filterwarnings("ignore")
def test_values(tmp_path: Path, form: dict[str, Any]) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    kinds = [
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
    ]
    if form.get("_use_new_zipfile_serialization") is not False:
        kinds += [torch.uint16, torch.uint32, torch.uint64]
    tagged = torch.nn.Parameter(torch.ones(2))
    tagged.tag = "kept with the weight"
    saved = {
        "types": [x.to(kind) for kind in kinds], "bool": x > 3, "empty": torch.zeros(0, 3), "scalar": torch.tensor(3),
        "views": {"t": x.t(), "row": x[1], "column": x[:, 1], "steps": x[::2, 1::2], "same": x, "again": x},
        "expanded": torch.ones(1).expand(3, 2), "parameter": torch.nn.Parameter(x),
        "lists": [1, [2.5, (None, True)], {}],
        "sparse": torch.eye(3).to_sparse(), "size": x.shape, "set": {1, 2}, "bytes": b"\x00\xff",
        "text": "naïve ☂" * 50,
        "numbers": (0, -1, 255, 256, 65536, -70000, 1 << 40, -(1 << 90), 1e300, float("inf"), 1 + 2j),
        "ordered": collections.OrderedDict(a=1), "counter": collections.Counter("hello"),
        "frozen": frozenset({"a"}),
        "numpy": [np.arange(6.0).reshape(2, 3).T, np.float64(0.5), np.int64(3), np.array(True), np.dtype("int16")],
        "keys": {1: "a", (1, "b"): "c", None: 3, 2.5: 4},
        "device": torch.device("cpu"), "dtype": torch.float16,
        "tagged": tagged, "many": list(range(3000)), "bytearray": bytearray(b"abc"), "rng": torch.get_rng_state(),
    }  # fmt: skip
    torch.save(saved, tmp_path / "x.pt", **form)
    for mapped in (False, True):
        assert_same(ox.load(tmp_path / "x.pt", mmap=mapped), saved)
    views = ox.load(tmp_path / "x.pt")["views"]
    assert views["same"] is views["again"]
    views["same"].zero_()
    assert not views["t"].any()


def test_without_checksums_and_in_memory() -> None:
    crc = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.ones(3)}, file := io.BytesIO())
    finally:
        torch.serialization.set_crc32_options(crc)
    file.seek(0)
    assert ox.load(file)["w"].tolist() == [1, 1, 1]


@pytest.mark.filterwarnings("ignore")
def test_what_is_more_than_weights(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    for value, named in (
        (model, "torch.nn.modules.linear.Linear"),
        (torch.nn.ParameterList([torch.ones(1)]), "torch.nn.modules.container.ParameterList"),
        (torch.ones(2, dtype=torch.complex64).conj(), "ComplexFloatStorage"),
        (torch.ones(2, dtype=torch.complex64).conj().imag, "lazy negation"),
        (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "_rebuild_qtensor"),
        (torch.eye(2).to_sparse_csr(), "sparse_csr"),
        (torch.ones(2, device="meta"), "_rebuild_meta_tensor"),
        (torch.ones(2).to(torch.float8_e4m3fn), "torch.float8_e4m3fn"),
        (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "_rebuild_nested_tensor"),
        (torch.Generator(), "torch._C.Generator"),
        ({"f": torch.nn.utils.rnn.pack_sequence([torch.ones(2)])}, "PackedSequence"),
        ({"f": torch.optim.SGD(model.parameters(), lr=1)}, "torch.optim.sgd.SGD"),
        (torch.ones(2, dtype=torch.complex64), "ComplexFloatStorage"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.save(value, tmp_path / "x.pt")
        with pytest.raises(LoadError, match="cannot be read") as caught:
            ox.load(tmp_path / "x.pt")
        assert named in caught.value.got and caught.value.hint
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(model).save(str(tmp_path / "s.pt"))
    with pytest.raises(LoadError, match="TorchScript") as caught:
        ox.load(tmp_path / "s.pt")
    assert "torch.jit.load" in caught.value.hint


def test_what_people_store_beside_weights(tmp_path: Path, form: dict[str, Any]) -> None:
    """More than `weights_only=True` takes in PyTorch: containers and values that run nothing."""
    grouped = collections.defaultdict(list, a=[1, torch.ones(2)])
    saved = {
        "losses": grouped, "nothing": collections.defaultdict(None, a=1),
        "counts": collections.defaultdict(int, a=1), "nested": collections.defaultdict(dict, a={"b": torch.ones(1)}),
        "ordered": collections.defaultdict(collections.OrderedDict), "sets": collections.defaultdict(set, a={1}),
        "range": range(3), "steps": range(1, 10, 2), "slice": slice(1, None), "tuples": {(1, 2), None},
        "last": collections.deque([1.0, torch.ones(2)], maxlen=5), "path": tmp_path, "version": torch.__version__,
        "day": datetime.date(2020, 1, 2), "time": datetime.datetime(2020, 1, 2, 3), "took": datetime.timedelta(1, 2, 3),
        "classes": np.array(["cat", "größe"]), "bytes": np.array([b"a"]), "none": np.zeros((0, 3)), "empty": b"",
        "waves": np.ones(2, np.complex128), "type": np.float32, "kind": int, "rest": ..., "rng": np.random.get_state(),
    }  # fmt: skip
    torch.save(saved, tmp_path / "x.pt", **form)
    found = ox.load(tmp_path / "x.pt")
    assert_same(found, saved)
    for name in ("losses", "nothing", "counts", "nested", "ordered", "sets"):
        assert found[name].default_factory is saved[name].default_factory
    assert_same(list(found["last"]), list(saved["last"]))
    assert found["last"].maxlen == 5
    found["losses"]["new"].append(1)


def test_namespaces(tmp_path: Path, form: dict[str, Any]) -> None:
    args = argparse.Namespace(lr=0.1, data=types.SimpleNamespace(path="x", weight=torch.ones(2)))
    torch.save({"args": args}, tmp_path / "x.pt", **form)
    found = ox.load(tmp_path / "x.pt")["args"]
    assert isinstance(found, argparse.Namespace) and found.lr == 0.1 and found.data.path == "x"
    assert_same(found.data.weight, args.data.weight)


def test_any_bytes(tmp_path: Path, form: dict[str, Any]) -> None:
    """Changed bytes of real files: a value or a LoadError, and little memory."""
    torch.save({"model": net(torch).state_dict(), "epoch": 3}, path := tmp_path / "x.pt", **form)
    content, draw = path.read_bytes(), Random(0)
    tracemalloc.start()
    try:
        for _ in range(300):
            changed = bytearray(content)
            for _ in range(draw.choice((1, 2, 8))):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            if not draw.randrange(5):
                del changed[draw.randrange(1, len(changed)) :]
            path.write_bytes(changed)
            try:
                ox.load(path)
            except LoadError as error:
                assert str(path) in str(error)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
