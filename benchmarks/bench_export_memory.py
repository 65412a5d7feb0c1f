"""Memory of an export: the peak of the process over the size of the weights, and the seconds that it took.

1.0 is the model alone. Two models, four wide layers and a transformer, have as many GiB of float32 weights as the
variable GIB says (1). Beside them PyTorch's exporter of the same models. On Linux, where /proc resets the peak.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sides

Write = Callable[[Any, Any, Path], None]
BYTES = float(os.environ.get("GIB", "1")) * 2**30
WIDTH, LAYERS = 1024, 4


def wide(lib: Any) -> tuple[Any, Any]:
    width = int((BYTES / 4 / LAYERS) ** 0.5)
    nn = lib.nn
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers), lib.randn(8, width)


def transformer(lib: Any) -> tuple[Any, Any]:
    layer = lib.nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, batch_first=True)
    model = lib.nn.TransformerEncoder(layer, int(BYTES / 4 / 12 / WIDTH**2), enable_nested_tensor=False)
    with lib.no_grad():
        for parameter in model.parameters():  # whose layers begin as copies of one
            parameter.uniform_(-0.03, 0.03)
    return model, lib.randn(8, 16, WIDTH)


def resident(key: str) -> int:
    """VmRSS, or VmHWM, which is the peak, in bytes."""
    return int(Path("/proc/self/status").read_text().split(f"{key}:")[1].split()[0]) << 10


def added(work: Callable[[], None]) -> tuple[int, float]:
    """By how much the memory of this process rose at most, and the seconds."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
    before, start = resident("VmRSS"), time.perf_counter()
    work()
    return resident("VmHWM") - before, time.perf_counter() - start


def figures(lib: Any, write: Write) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for build in (wide, transformer):
        model, example = build(lib)
        weights = sum(p.numel() * 4 for p in model.parameters())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            peak, seconds = added(lambda: write(model.eval(), example, path))  # noqa: B023
            found[f"{build.__name__}: export, peak / weights"] = 1 + peak / weights
            found[f"{build.__name__}: export, s"] = seconds
    return found


def run_ox() -> dict[str, float | str]:
    import ox

    return figures(ox, lambda model, x, path: ox.export.save(model, path, x) and None)


def run_beside() -> dict[str, float | str]:
    """With the weights in a file of their own, as from 2 GiB on."""
    import ox

    return figures(ox, lambda model, x, path: ox.export.save(model, path, x, external_above=0) and None)


def run_torch() -> dict[str, float | str]:
    """`torch.onnx.export` as it is by default, which needs onnxscript; nothing is run with the file."""
    missing = [name for name in ("torch", "onnxscript") if find_spec(name) is None]
    if missing:
        return dict.fromkeys(("export",), f"{' and '.join(missing)} not installed")
    import torch

    def write(model: Any, x: Any, path: Path) -> None:
        size = torch.export.Dim("batch", min=1, max=64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                model, (x,), path, dynamo=True, dynamic_shapes=({0: size},), verbose=False, external_data=True
            )

    return figures(torch, write)


SIDES: dict[str, sides.Side] = {"ox": run_ox, "ox beside": run_beside, "torch": run_torch}

if __name__ == "__main__":
    sides.main(SIDES, unit="smaller is better")
