"""Where CUDA's headers are."""

from __future__ import annotations

import sys
from pathlib import Path


def cuda_headers(*more: Path) -> Path | None:
    """The folder of cuda_fp16.h: that of the wheel nvidia-cuda-runtime, or of a CUDA on this machine.

    Args:
        more: folders of packages beside those of this process.
    """
    folders = [*map(Path, sys.path), *more]
    found = [file.parent for folder in folders for file in folder.glob("nvidia/*/include/cuda_fp16.h")]
    fixed = Path("/usr/local/cuda/include")
    return found[0] if found else fixed if (fixed / "cuda_fp16.h").exists() else None
