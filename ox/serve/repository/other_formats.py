"""Files and folders that hold a model in another format than ONNX, or in another place, and the way to serve each."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from ox.errors import LoadError

MOST_LOOKED_AT = 1000  # entries of a folder
# format -> where its first bytes are, and these
MAGIC = {
    "GGUF": (0, b"GGUF"), "TensorFlow Lite": (4, b"TFL3"), "ONNX Runtime": (4, b"ORTM"),
    "safetensors": (4, b'\0\0\0\0{"'), "Git LFS": (0, b"version https://"),
}  # fmt: skip
SUFFIXES = {
    ".gguf": "GGUF", ".tflite": "TensorFlow Lite", ".engine": "TensorRT", ".plan": "TensorRT", ".trt": "TensorRT",
    ".mlmodel": "Core ML", ".mlpackage": "Core ML", ".mlmodelc": "Core ML", ".keras": "Keras", ".h5": "Keras",
    ".safetensors": "safetensors", ".pt": "PyTorch", ".pth": "PyTorch", ".ckpt": "PyTorch", ".bin": "PyTorch",
    ".pt2": "torch.export", ".xml": "OpenVINO", ".pb": "TensorFlow", ".pbtxt": "TensorFlow", ".pkl": "pickle",
    ".joblib": "pickle", ".msgpack": "Flax",
}  # fmt: skip
# names without which a suffix says nothing: other programs use these suffixes, too
NAMES = {".bin": "pytorch_model", ".pb": "saved_model", ".pbtxt": "saved_model"}
TORCH = "torch.onnx.export(model, example_inputs, 'model.onnx', dynamo=True)"
HUGGING_FACE = "optimum-cli export onnx --model {path} OUT, then ox serve OUT"
# format -> what it is, and the way to an ONNX file
WAYS = {
    "GGUF": ("weights of llama.cpp, without a graph", "the checkpoint that it was made of: "
             + HUGGING_FACE.format(path="NAME")),
    "safetensors": ("weights, without a graph",
                    f"{TORCH} of the module that has them, or ox.load('{{path}}'), load_state_dict and "
                    "ox.export.save"),
    "Hugging Face": ("a checkpoint of Hugging Face, without a graph", HUGGING_FACE + "; for LLaMA: "
                     "ox_models.llama.from_pretrained, then ox.export.save_decoder"),
    "run": ("a run of ox train", "ox export model.onnx --run {path}, then ox serve model.onnx"),
    "PyTorch": ("a checkpoint of PyTorch, without a graph", f"{TORCH} of the module that has its weights"),
    "TorchScript": ("a TorchScript program", f"torch.jit.load('{{path}}'), then {TORCH}"),
    "torch.export": ("a program of torch.export",
                     "torch.onnx.export(torch.export.load('{path}'), f='model.onnx', dynamo=True)"),
    "TensorFlow": ("a SavedModel of TensorFlow", "python -m tf2onnx.convert --saved-model {path} --output model.onnx"),
    "TensorFlow Lite": ("a model of TensorFlow Lite", "python -m tf2onnx.convert --tflite {path} --output model.onnx"),
    "Keras": ("a model of Keras", "keras.models.load_model('{path}').export('model.onnx', format='onnx')"),
    "TensorRT": ("an engine of TensorRT, for one kind of GPU",
                 "the ONNX file that it was built from: ox serve model.onnx --device tensorrt"),
    "ONNX Runtime": ("a model in ONNX Runtime's own format", "the ONNX file that it was converted from"),
    "Git LFS": ("a pointer of Git LFS in place of a file", "git lfs pull, in the clone that it is from"),
    "OpenVINO": ("a model of OpenVINO", "the model that it was converted from, exported to ONNX"),
    "Core ML": ("a model of Core ML", "the model that it was converted from, exported to ONNX"),
    "Flax": ("a checkpoint of Flax, without a graph", "from_pretrained(..., from_flax=True) of transformers, then "
             + HUGGING_FACE),
    "pickle": ("a pickled object of Python", "skl2onnx.to_onnx(model, example_rows), for scikit-learn"),
}  # fmt: skip


def other_format(path: Path) -> LoadError | None:
    """The error for a path that is or holds a model in another format; None if none is known there.

    Args:
        path: a file, or a folder. Of a folder that holds folders, each is looked at, and its versions.
    """
    for found in _candidates(path):
        format = _format(found)
        if format is not None:
            what, way = WAYS[format]
            shown = found.parent if format == "TensorFlow" and found.is_file() else found
            return LoadError(
                f"{shown} is {what}, which is not served",
                where="",
                expected="an ONNX file",
                hint=way.format(path=shown),
            )
    return None


def misplaced(folder: Path) -> LoadError | None:
    """The error for a folder without models that has an ONNX file in another place; None for none."""
    for path in _candidates(folder):
        if path.suffix.lower() == ".onnx" and path.is_file() and not path.name.startswith("."):
            expected = f"{folder / 'NAME.onnx'}, or {folder / 'NAME' / '1' / 'model.onnx'}"
            return LoadError(f"{path} is not where models of a folder are", expected=expected, hint=f"ox serve {path}")
    return None


def _candidates(path: Path) -> Iterator[Path]:
    """The path, what is in it, and what is in folders in it, three levels deep."""
    level = [path]
    for _ in range(5):
        yield from level
        below: list[Path] = []
        for folder in level:
            try:
                below += sorted(folder.iterdir()) if folder.is_dir() and not folder.name.startswith(".") else []
            except OSError:  # named where it is listed
                continue
        level = below[:MOST_LOOKED_AT]


def _format(path: Path) -> str | None:
    suffix = path.suffix.lower()
    format = SUFFIXES.get(suffix)
    if path.is_dir():
        if (path / "config.toml").is_file() and (path / "checkpoints").is_dir():
            return "run"
        weights = any((path / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json"))
        weights = weights or any((path / f"pytorch_model{end}").is_file() for end in (".bin", ".bin.index.json"))
        if weights and (path / "config.json").is_file():
            return "Hugging Face"
        return format if format == "Core ML" else None
    if format is None or not path.name.startswith(NAMES.get(suffix, "")):
        return _by_content(path)
    if format == "PyTorch" and _is_torchscript(path):
        return "TorchScript"
    return format if format != "OpenVINO" or b"<net" in _first_bytes(path, 1000) else None


def _by_content(path: Path) -> str | None:
    first = _first_bytes(path, 16)
    return next((name for name, (at, magic) in MAGIC.items() if first[at : at + len(magic)] == magic), None)


def _first_bytes(path: Path, count: int) -> bytes:
    try:
        if not path.is_file():  # opening a pipe would wait
            return b""
        with open(path, "rb") as file:
            return file.read(count)
    except OSError:
        return b""


def _is_torchscript(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any("/code/" in name for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False
