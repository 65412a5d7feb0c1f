"""`torch.hub`: what is in its folder of downloaded files is read; ox itself downloads nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ox.core.lazy import missing_attribute_error
from ox.errors import LoadError
from ox.serialization.files import load as load_file

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # the digits of a checksum in a file's name
_folder: list[str] = []  # what `set_dir` has chosen


def get_dir() -> str:
    """The folder, as PyTorch has it: ``$TORCH_HOME/hub`` or ``~/.cache/torch/hub``. `torch.hub.get_dir`."""
    return _folder[-1] if _folder else str(Path(_get_torch_home()) / "hub")


def _get_torch_home() -> str:
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "torch"
    return str(Path(os.environ.get("TORCH_HOME", cache)).expanduser())


def set_dir(d: str | os.PathLike[str]) -> None:
    """Choose the folder. `torch.hub.set_dir`."""
    _folder[:] = [str(Path(d).expanduser())]


def load_state_dict_from_url(
    url: str, model_dir: str | os.PathLike[str] | None = None, map_location: Any = None, progress: bool = True,
    check_hash: bool = False, file_name: str | None = None, weights_only: bool = False,
) -> Any:  # fmt: skip
    """What `ox.load` reads from the file that such an address was downloaded to.

    Args:
        url: the address, of which the last part is the file's name.
        model_dir: the folder; ``checkpoints`` in that of `get_dir` if it is None.
        file_name: the file's name, if it is another.

    Raises:
        LoadError: the file is not there; the error says where it is looked for.
    """
    folder = Path(model_dir) if model_dir is not None else Path(get_dir()) / "checkpoints"
    path = folder / (file_name or os.path.basename(urlparse(url).path))
    if not path.is_file():
        raise _no_download(url, f"curl -L -o {path} {url}")
    return load_file(path)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Refused, for ox downloads nothing. `torch.hub.download_url_to_file`.

    Raises:
        LoadError: always; it gives the command that does.
    """
    raise _no_download(url, f"curl -L -o {dst} {url}")


def load(repo_or_dir: str, model: str, *_: Any, **__: Any) -> Any:
    """Refused: what a repository holds is PyTorch's code. `torch.hub.load`.

    Raises:
        LoadError: always; it says how its files come to ox.
    """
    raise LoadError(
        f"{repo_or_dir} is code for PyTorch, and ox downloads nothing",
        hint="git clone it, and ox port its files; ox.export.load(path) reads an ONNX file",
    )  # fmt: skip


def list(github: str, *_: Any, **__: Any) -> Any:
    """Refused, as `load` is. `torch.hub.list`."""
    return load(github, "")


help = list


def _no_download(url: str, hint: str) -> LoadError:
    return LoadError("ox downloads nothing", got=url, hint=hint)


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
