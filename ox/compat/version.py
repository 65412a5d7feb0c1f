"""`torch.version`: which ox this is, and which CUDA runtime there is.

`ox.__version__` is ox's own. Code that compares PyTorch's versions finds that of the PyTorch whose names ox has in
`ox.version.torch`.
"""

from __future__ import annotations

from typing import Any

from ox.devices import cuda as _cuda

git_version = hip = rocm = xpu = None
debug = False
torch = "2.13.0"  # the PyTorch whose names ox has


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from ox._version import __version__

        return __version__
    if name == "cuda":
        if not _cuda.available():
            return None
        number = _cuda.cupy().cuda.runtime.runtimeGetVersion()
        return f"{number // 1000}.{number % 1000 // 10}"
    raise AttributeError(f"module 'ox.version' has no attribute '{name}'")
