"""Exported files in ONNX Runtime: latency and nodes of ResNet-18, a transformer and an LSTM.

Written by ox as the models are and for inference, and by PyTorch's two exporters of the same models. Every file runs in
a session with the default settings.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sides
from bench_resnet import resnet18

Write = Callable[[Any, Any, Path], None]
COUNTS = {1: 200, 8: 50}  # runs by batch size
ROWS = 12  # of the example


def models(lib: Any) -> dict[str, tuple[Any, Any]]:
    """Model and example by name, the same for both libraries."""
    nn = lib.nn

    class Encoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(256, 8, 1024, activation="gelu", batch_first=True, norm_first=True)
            self.embed, self.place = nn.Embedding(1000, 256), nn.Parameter(lib.randn(64, 256))
            self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.head = nn.Linear(256, 10)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.layers(self.embed(tokens) + self.place).mean(1))

    class Last(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(128, 128, 2, batch_first=True), nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    lib.manual_seed(0)
    return {
        "ResNet-18 32×32": (resnet18(nn, nn.functional), lib.randn(ROWS, 3, 32, 32)),
        "transformer 4×256, T 64": (Encoder(), lib.randint(0, 1000, (ROWS, 64))),
        "LSTM 2×128, T 50": (Last(), lib.randn(ROWS, 50, 128)),
    }


def figures(lib: Any, write: Write) -> dict[str, float | str]:
    """Latency in milliseconds, nodes, and the seconds that the export took."""
    import onnx
    import onnxruntime

    found: dict[str, float | str] = {}
    for name, (model, example) in models(lib).items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            start = time.perf_counter()
            write(model.eval(), example, path)
            found[f"{name}: export, s"] = time.perf_counter() - start
            file = onnx.load(path)
            found[f"{name}: nodes"] = float(sum(node.op_type != "Constant" for node in file.graph.node))
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            rows = example.numpy()
            (given,) = session.get_inputs()
            for batch, count in COUNTS.items():
                feed = {given.name: rows[:batch]}
                times = []
                for _ in range(count):
                    start = time.perf_counter()
                    session.run(None, feed)
                    times.append(time.perf_counter() - start)
                found[f"{name}: batch {batch}, ms"] = min(times) * 1e3
    return found


def run_ox() -> dict[str, float | str]:
    import ox

    return figures(ox, lambda model, x, path: ox.export.save(model, path, x, optimize="inference") and None)


def run_plain() -> dict[str, float | str]:
    import ox

    return figures(ox, lambda model, x, path: ox.export.save(model, path, x) and None)


def run_torch() -> dict[str, float | str]:
    """`torch.onnx.export` as it is by default, which needs onnxscript."""
    missing = [name for name in ("torch", "onnxscript") if find_spec(name) is None]
    if missing:
        return dict.fromkeys(("export",), f"{' and '.join(missing)} not installed")
    import torch

    def write(model: Any, x: Any, path: Path) -> None:
        size = torch.export.Dim("batch", min=1, max=64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(model, (x,), path, dynamo=True, dynamic_shapes=({0: size},), verbose=False)

    return figures(torch, write)


def run_torchscript() -> dict[str, float | str]:
    """`torch.onnx.export(dynamo=False)`: the older exporter, which folds batch norms too."""
    if find_spec("torch") is None:
        return dict.fromkeys(("export",), "torch not installed")
    import torch

    def write(model: Any, x: Any, path: Path) -> None:
        axes = {"x": {0: "batch"}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(model, (x,), path, dynamo=False, input_names=["x"], dynamic_axes=axes)

    return figures(torch, write)


SIDES: dict[str, sides.Side] = {"ox": run_ox, "ox plain": run_plain, "torch": run_torch, "torchscript": run_torchscript}

if __name__ == "__main__":
    sides.main(SIDES, unit="smaller is better")
