"""What is not ONNX is named, with the way to an ONNX file, and no server starts empty because of it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from rows import rows

from ox.errors import LoadError
from ox.serve import ModelConfig, Server
from ox.serve.repository.other_formats import other_format

OPTIMUM = "optimum-cli export onnx"


@rows(
    ("files", "named", "what", "way"),
    [({"m.gguf": b"GGUF"}, "m.gguf", "llama.cpp", OPTIMUM),
     ({"blob": b"GGUF\3"}, "blob", "llama.cpp", OPTIMUM),
     ({"m.safetensors": b""}, "m.safetensors", "weights", "ox.load"),
     ({"config.json": b"{}", "model.safetensors": b"", "tokenizer.json": b"{}"}, "", "Hugging Face", OPTIMUM),
     ({"sub/config.json": b"{}", "sub/pytorch_model.bin": b""}, "sub", "Hugging Face", OPTIMUM),
     ({"config.toml": b"", "checkpoints/last.safetensors": b""}, "", "a run of ox train", ".onnx --run "),
     ({"m.pt": b"a pickle"}, "m.pt", "checkpoint of PyTorch", "torch.onnx.export"),
     ({"pytorch_model.bin": b""}, "pytorch_model.bin", "checkpoint of PyTorch", "torch.onnx.export"),
     ({"m.pt2": b""}, "m.pt2", "torch.export", "torch.export.load"),
     ({"saved_model.pb": b"", "variables/variables.index": b""}, "", "SavedModel", "tf2onnx.convert --saved-model"),
     ({"net/1/saved_model.pb": b""}, "net/1", "SavedModel", "tf2onnx"),
     ({"m.tflite": b""}, "m.tflite", "TensorFlow Lite", "--tflite"),
     ({"m": b"\0\0\0\0TFL3"}, "m", "TensorFlow Lite", "--tflite"),
     ({"m.ort": b"\x20\0\0\0ORTM"}, "m.ort", "ONNX Runtime's own format", "converted from"),
     ({"m.keras": b""}, "m.keras", "Keras", "format='onnx'"),
     ({"net/1/model.plan": b""}, "net/1/model.plan", "TensorRT", "--device tensorrt"),
     ({"m.engine": b""}, "m.engine", "TensorRT", "--device tensorrt"),
     ({"m.xml": b'<?xml version="1.0"?><net name="m">', "m.bin": b""}, "m.xml", "OpenVINO", "converted from"),
     ({"m.mlpackage/Manifest.json": b"{}"}, "m.mlpackage", "Core ML", "converted from"),
     ({"flax_model.msgpack": b""}, "flax_model.msgpack", "Flax", "from_flax"),
     ({"m.joblib": b""}, "m.joblib", "pickle", "skl2onnx")],
)  # fmt: skip
def test_a_format_is_named(tmp_path: Path, files: dict[str, bytes], named: str, what: str, way: str) -> None:
    folder = tmp_path / str(abs(hash(tuple(files))))
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    error = other_format(folder)
    assert error is not None and what in error.what and way in str(error.hint)
    assert error.what.startswith(f"{folder / named} is ")
    if named in files:  # as a file that is named, too
        alone = other_format(folder / named)
        assert alone is not None and alone.what == error.what
    with pytest.raises(LoadError, match="which is not served"):
        Server([folder])


@rows(("content", "what"), [
    (b"\x20\0\0\0ORTM", "ONNX Runtime's own format"), (b'\x40\0\0\0\0\0\0\0{"w":', "weights, without a graph"),
    (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"), (b"GGUF\3", "weights of llama.cpp"),
])  # fmt: skip
def test_a_format_under_the_name_of_another(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(LoadError) as caught:
        Server([tmp_path / "model.onnx"])
    assert what in caught.value.what


@rows("place", ["Model.ONNX", "cls/v1/model.onnx", "cls/01/model.onnx", "cls/0/model.onnx", "a/b/c/model.onnx"])
def test_a_file_in_another_place_is_named(tmp_path: Path, place: str, mlp: Path) -> None:
    folder, path = tmp_path / str(abs(hash(place))), tmp_path / str(abs(hash(place))) / place
    path.parent.mkdir(parents=True)
    path.write_bytes(mlp.read_bytes())
    with pytest.raises(LoadError) as caught:
        Server([folder])
    assert caught.value.what == f"{path} is not where models of a folder are"
    assert str(folder / "NAME.onnx") in str(caught.value.expected)


def test_a_folder_of_another_format_beside_a_file(tmp_path: Path, mlp: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(LoadError, match="which is not served"):
        Server([tmp_path, mlp])


def test_a_torchscript_program(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/code/__torch__.py", "")
    error = other_format(tmp_path)
    assert error is not None and "TorchScript" in error.what and "torch.jit.load" in str(error.hint)


@rows("name", ["model.onnx", "notes.md", "labels.bin", "frozen.pb", "page.xml", ".hidden"])
def test_what_says_nothing_of_a_format(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"<page>")
    assert other_format(tmp_path) is None and other_format(tmp_path / "none") is None


def test_beside_models_nothing_is_refused(tmp_path: Path, mlp: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "mlp.onnx").write_bytes(mlp.read_bytes())
    with Server([tmp_path], options=ModelConfig("cpu")) as server:
        assert [model.name for model in server.models] == ["mlp"]


def test_a_version_in_another_format_is_named(tmp_path: Path, mlp: Path) -> None:
    (tmp_path / "net" / "1").mkdir(parents=True)
    (tmp_path / "net" / "1" / "model.plan").write_bytes(b"")
    (tmp_path / "mlp.onnx").write_bytes(mlp.read_bytes())
    with Server([tmp_path], options=ModelConfig("cpu")) as server:
        (reason,) = [row["reason"] for row in server.service.index() if row["name"] == "net"]
        assert "an engine of TensorRT" in reason


def test_a_file_in_another_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(LoadError, match=r"m\.gguf is weights of llama\.cpp"):
        Server([tmp_path / "m.gguf"])
