"""The libraries that come with a wheel: one for each level of a machine's vector instructions.

scripts/prebuilt_kernels.py compiles them and writes INDEX: of which sources, by which compiler, and for each library
its level, its SHA-256 and the processor flags that it needs, the fastest first. A checkout has none of them.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from pathlib import Path

from ox.kernels.compiler import sources_digest

FOLDER = Path(__file__).parent / "prebuilt"
INDEX = "index.json"
CPUINFO = Path("/proc/cpuinfo")


class PrebuiltError(Exception):
    """Why no prebuilt library is used: there is none, none for this processor, or it is damaged."""


class DamagedError(PrebuiltError):
    """A library or the index is not what the wheel contained."""


@dataclass(frozen=True)
class PrebuiltLibrary:
    """A library of the wheel that runs on this processor."""

    path: Path
    level: str
    compiler: str
    sha256: str

    @property
    def key(self) -> str:
        """Its name in the config of a run."""
        return f"{self.level}-{self.sha256[:16]}"


def prebuilt_library() -> PrebuiltLibrary:
    """The fastest prebuilt library that this processor runs.

    Raises:
        PrebuiltError: there is none.
        DamagedError: its contents are not those that the wheel was built with.
    """
    try:
        text = (FOLDER / INDEX).read_text()
    except FileNotFoundError:
        raise PrebuiltError("this installation contains no compiled library") from None
    except (OSError, ValueError) as error:
        raise DamagedError(f"{FOLDER / INDEX} cannot be read: {error}") from None
    try:
        index = json.loads(text)
        machine, sources, compiler = index["machine"], index["sources"], index["compiler"]
        libraries = [(each["level"], each["file"], each["sha256"], set(each["needs"])) for each in index["libraries"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{FOLDER / INDEX} is damaged: {type(error).__name__}: {error}") from None
    if machine != platform.machine():
        raise PrebuiltError(f"the compiled libraries of this installation are for {machine}")
    if sources != sources_digest():  # the parameters of the kernels are read from the sources
        raise DamagedError(f"the libraries in {FOLDER} were compiled from other sources than those beside them")
    flags = processor_flags()
    for level, file, sha256, needs in libraries:
        if needs <= flags:
            return _checked(PrebuiltLibrary(FOLDER / file, level, compiler, sha256))
    raise PrebuiltError(f"this processor is older than {libraries[-1][0] if libraries else machine}")


def processor_flags() -> set[str]:
    """The instruction sets of this processor in Linux's words; empty where it does not say."""
    try:
        with open(CPUINFO) as lines:
            found = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return set()
    return set(found.partition(":")[2].split())


def _checked(library: PrebuiltLibrary) -> PrebuiltLibrary:
    try:
        contents = library.path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{library.path} cannot be read: {error.strerror or error}") from None
    if hashlib.sha256(contents).hexdigest() != library.sha256:
        raise DamagedError(f"{library.path} is damaged: its SHA-256 is not the one that {INDEX} names")
    return library
