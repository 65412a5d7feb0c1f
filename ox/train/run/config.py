"""config.toml of a run: recipe, options, versions and machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from ox.devices import machine
from ox.errors import LoadError
from ox.train.ranks import current_ranks
from ox.train.recipe.recipe import Recipe
from ox.train.run.train_config import TrainConfig


def describe(recipe: Recipe, options: TrainConfig, run: str, processes: int | None = None) -> dict[str, Any]:
    """Everything that is needed to repeat the run.

    Args:
        processes: that will train it; default: those of this process group.
    """
    return {
        "run": {
            "name": run,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": _command(),
            "random_stream": recipe.random_stream,
        },
        "recipe": {"name": recipe.name, "source": str(recipe.path.resolve()), "sha256": recipe.sha256},
        "data": _data(recipe.seeded(options.seed)),
        **({"from": recipe.base.to_table()} if recipe.base is not None else {}),
        "options": options.to_table(),
        "versions": versions(recipe.path.resolve().parent),
        "machine": {
            "platform": platform.platform(),
            "instructions": machine.instruction_set() or "unknown",
            "threads": machine.threads(),
            "processes": processes or current_ranks().size,
            "executors": executors(),
        },
    }


def _data(recipe: Recipe) -> dict[str, Any]:
    """The seed of the data, and the checksum of data.json."""
    table: dict[str, Any] = {"seed": recipe.data_seed}
    if recipe.manifest is not None:
        table["sha256"] = hashlib.sha256(recipe.manifest.to_text().encode()).hexdigest()
    return table


def versions(folder: Path) -> dict[str, str]:
    """The versions of Python, ox, its libraries and its compiled kernels (which library: of the wheel, or compiled
    here); the git commit of `folder`, else of the working directory."""
    from ox._version import __version__
    from ox.devices.cpu_kernels import kernel_table as compiled

    found = {"python": platform.python_version(), "ox": __version__}
    for name in ("numpy", "ml_dtypes", "onnxruntime", "onnxruntime-gpu"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    library = compiled.library()
    if library is not None:
        found["kernels"] = library.key
    for place in (folder, Path.cwd()):
        commit = _git(place, "rev-parse", "HEAD")
        if commit:
            found["git"] = commit + (" with changes" if _git(place, "status", "--porcelain", "-uno") else "")
            break
    return found


def executors() -> list[str]:
    """The executors of this process: NumPy, and the accelerators for large float32 operators."""
    from ox import devices
    from ox.core.mode import MODE

    forced = MODE.get().executor
    if forced is not None:
        return [getattr(forced, "__name__", str(forced))]
    modules = (getattr(offer, "__module__", str(offer)).rpartition(".")[2] for offer in devices.accelerators)
    return ["numpy", *("compiled" if name == "kernel_table" else name for name in modules)]  # as run folders have it


def _command() -> str:
    program = os.path.basename(sys.argv[0])
    return shlex.join(["ox" if program == "__main__.py" else program, *sys.argv[1:]])


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def dump(config: dict[str, Any]) -> str:
    """TOML of tables with strings, numbers, bools and lists of them."""
    lines = []
    for table, entries in config.items():
        lines += [f"[{table}]", *(f"{json.dumps(k) if '-' in k else k} = {_value(v)}" for k, v in entries.items()), ""]
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # JSON's strings, numbers and bools are valid TOML, except that TOML requires DEL to be escaped. Bytes of a path
    # that are not UTF-8 are replaced
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return text.encode("utf-8", "replace").decode()


def parse(path: Path) -> dict[str, Any]:
    """Read a config.toml that `dump` wrote.

    Raises:
        LoadError: it is missing or damaged.
    """
    try:
        with open(path, "rb") as file:
            config = tomllib.load(file)
        TrainConfig(**config["options"])
        config["recipe"]["name"], config["recipe"]["source"], config["recipe"]["sha256"], config["machine"]["threads"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(f"{path} is not the config of a run", got=f"{type(error).__name__}: {error}") from error
    return config
