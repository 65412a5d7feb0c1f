"""Checkpoints in the form in which Hugging Face's models are shared: a folder of config.json and model.safetensors, or
pytorch_model.bin."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ox
from ox.errors import LoadError

WEIGHTS = "model.safetensors"
PICKLED = "pytorch_model.bin"  # written by torch.save; ox.load reads the weights and runs no code


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads the settings and the weights of a checkpoint.

    Args:
        path: the folder, or the file of weights in it.

    Returns:
        the content of config.json, and tensors by name.

    Raises:
        LoadError: a file is missing or damaged, or the weights are in an unsupported format.
    """
    path = Path(path)
    folder, file = (path, path / WEIGHTS) if path.is_dir() else (path.parent, path)
    if path.is_dir() and not file.is_file() and (folder / PICKLED).is_file():
        file = folder / PICKLED
    if not file.is_file():
        shards = [name for name in (f"{WEIGHTS}.index.json", f"{PICKLED}.index.json") if (folder / name).is_file()]
        raise LoadError(
            f"{folder} has no {file.name}",
            got=shards[0] if shards else "no such file",
            hint="one file: the shards' tensors in one dict, by safetensors.numpy.save_file" if shards else None,
        )
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise LoadError(
            f"{folder / 'config.json'} cannot be opened",
            got=error.strerror or str(error),
            hint="the settings that lie beside the weights; the names of the weights do not tell the number of heads",
        ) from error
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{folder / 'config.json'} is no JSON", got=str(error)) from error
    if not isinstance(config, dict):
        raise LoadError(f"{folder / 'config.json'} holds no settings", expected="{...}", got=type(config).__name__)
    return config, ox.load(file)


def settings(config: Mapping[str, Any], fields: Mapping[str, type], only: Mapping[str, tuple[Any, ...]]) -> Any:
    """The settings of config.json that a model uses, by name.

    Args:
        fields: the settings' types. `only`: what else may be there, and the values that are implemented.

    Raises:
        LoadError: a value of another type, or one that is not implemented.
    """
    for name, known in only.items():
        if name in config and config[name] not in known:
            raise LoadError(
                f"the checkpoint asks for {name}={config[name]!r}", expected=" or ".join(map(repr, known)),
                hint="a checkpoint of the usual shape",
            )  # fmt: skip
    found = {name: config[name] for name in fields if config.get(name) is not None}
    for name, value in found.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or value < 0 or (fields[name] is int and (int(value) != value or value < 1)):
            raise LoadError(f"{name} in config.json is no {fields[name].__name__}", got=repr(value))
    return {name: fields[name](value) for name, value in found.items()}


def must_fill(state: Mapping[str, Any], count: int) -> None:
    """Refuses settings for a model with far more weights than the file, before the model is created.

    Args:
        count: approximate number of weights of the model.

    Raises:
        LoadError: more than four times the weights of the file.
    """
    held = sum(tensor.numel() for tensor in state.values())
    if count > 4 * held:
        raise LoadError(
            "config.json asks for a larger model than the weights beside it are of",
            expected=f"about {held:,} weights, as in the file",
            got=f"{count:,}",
            hint="the config.json of the same checkpoint",
        )


def tie(state: dict[str, Any], tokens: str, head: str) -> None:
    """Fills in the head, which is the table of tokens: files have a copy of it or none.

    Args:
        tokens, head: their names in `state`.

    Raises:
        LoadError: the file has another head.
    """
    if tokens in state and not state.setdefault(head, state[tokens]).equal(state[tokens]):
        raise LoadError(
            f"the head is the table of tokens, and the file has another {head}",
            expected=f"a copy of {tokens}, or none",
            hint='"tie_word_embeddings": false in config.json, if the model was trained with a head of its own',
        )  # fmt: skip


def named(state: Mapping[str, Any], model: Any, prefix: str, rename: Callable[[str], str | None]) -> dict[str, Any]:
    """The state under the model's own names: checkpoints of the bare network have no `prefix`, those of the network
    with a head have it, and both fit a model of either kind.

    Args:
        prefix: such as ``transformer.``.
        rename: gives a name's new form, or None for what the model does not need.
    """
    own = model.state_dict().keys()
    found = {}
    for name, tensor in state.items():
        new = rename(name)
        if new is None:
            continue
        forms = (new, prefix + new, new.removeprefix(prefix))
        found[next((form for form in forms if form in own), new)] = tensor
    return found
