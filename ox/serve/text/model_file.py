"""Which file of a folder is the model, where a tokenizer or settings of texts lie beside it: folders as Optimum,
huggingface.co/onnx-community and the model builder of onnxruntime-genai write them."""

from __future__ import annotations

from pathlib import Path

from ox.errors import LoadError
from ox.generation.genai_config import FILE, read_genai_config

TOKENIZER, GENAI = "tokenizer.json", FILE
BESIDE = (TOKENIZER, "generation_config.json", GENAI)
SUBFOLDER = "onnx"
MERGED = "decoder_model_merged.onnx"  # of Optimum until 1.13, with branches for prompts and for what follows
FILES = ("model.onnx", f"{SUBFOLDER}/model.onnx", MERGED, f"{SUBFOLDER}/{MERGED}")  # the first that is there
VARIANTS = ("model*.onnx", "decoder*.onnx", f"{SUBFOLDER}/*.onnx")  # names of others, such as model_q4.onnx
PAIR = {"decoder_model.onnx", "decoder_with_past_model.onnx"}
COMPANIONS = ("encoder_model", "vision_encoder", "audio_encoder", "embed_tokens")  # names of files begin with these


def has_text(folder: Path) -> bool:
    """Whether a folder is a model that takes or gives texts, from names alone."""
    beside = [name for name in BESIDE if (folder / name).exists()]
    return GENAI in beside or (bool(beside) and bool(_files(folder)))


def model_file(folder: Path) -> Path | None:
    """The model of a folder that takes or gives texts; None for other folders.

    Raises:
        LoadError: no file has the name of one, or several are one model together.
    """
    if (folder / GENAI).is_file():
        return read_genai_config(folder).file
    if not any((folder / name).is_file() for name in BESIDE):
        return None
    found = _files(folder)
    if not found:
        return None
    for name in FILES:
        if (folder / name).is_file():
            return _alone(folder, folder / name)
    names = [str(path.relative_to(folder)) for path in found]
    pair = {path.name for path in found} >= PAIR
    raise LoadError(
        f"{folder} has a decoder in two files" if pair else f"{folder} has no file model.onnx",
        expected=" or ".join(FILES[:3]),
        got=", ".join(names)[:300],
        hint="optimum-cli export onnx --task text-generation-with-past writes one file"
        if pair
        else f"one of them instead of the folder: {folder / names[0]}",
    )


def text_folder(file: Path) -> Path:
    """The folder with the tokenizer and the settings of a model: its own, or the one above of a folder "onnx" or of one
    whose file the settings above name.

    Raises:
        LoadError: genai_config.json above is damaged.
    """
    folder, above = file.parent, file.parent.parent
    if any((folder / name).is_file() for name in BESIDE):
        return folder
    if folder.name == SUBFOLDER and any((above / name).is_file() for name in BESIDE):
        return above
    return above if (above / GENAI).is_file() and read_genai_config(above).file == file else folder


def _files(folder: Path) -> list[Path]:
    return sorted({path for pattern in VARIANTS for path in folder.glob(pattern)})


def _alone(folder: Path, file: Path) -> Path:
    others = [path for name in COMPANIONS for path in file.parent.glob(f"{name}*.onnx")]
    if others:
        raise LoadError(
            f"{folder} is not a decoder in one file",
            expected="a decoder alone: texts of encoders and decoders, of images and of sounds are not generated",
            got=", ".join(sorted(path.name for path in (file, *others)))[:300],
        )
    return file
