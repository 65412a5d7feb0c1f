"""Trains a step that `ox export --train step.onnx` or `ox.export.save_step` wrote. Needs onnxruntime and NumPy, not ox.

    python train.py step.onnx batches.safetensors [trained.safetensors]

Trains on arrays [steps, batch, ...], one for each input of a batch, and prints the loss of each step.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def read_state(path):
    """The arrays of a safetensors file: eight bytes with the length of a JSON header, the header, the numbers."""
    content = Path(path).read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header.pop("__metadata__", None)
    types = {"F": "f", "I": "i", "U": "u"}
    state = {}
    for name, entry in header.items():
        kind, (first, last) = entry["dtype"], entry["data_offsets"]
        dtype = np.dtype(f"<{types[kind[0]]}{int(kind[1:]) // 8}")
        state[name] = np.frombuffer(content[end + first : end + last], dtype).reshape(entry["shape"])
    return state


def write_state(path, state):
    """The same file from arrays: `ox.load(path)` reads it."""
    header, end = {}, 0
    for name, array in state.items():
        kind = {"f": "F", "i": "I", "u": "U"}[array.dtype.kind] + str(8 * array.dtype.itemsize)
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(array.tobytes() for array in state.values())


class Trainer:
    """A training step and its state."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.layout = json.loads(self.session.get_modelmeta().custom_metadata_map["ox.step"])
        self.state = read_state(Path(path).with_name(self.layout["initial"]))
        self.lr = {name: np.float32(rate) for name, rate in self.layout["lr"].items()}
        self.outputs = [output.name for output in self.session.get_outputs()]

    def __call__(self, **batch):
        """One step. Returns the loss and the metrics."""
        rates = {name: np.asarray(rate) for name, rate in self.lr.items()}
        results = dict(zip(self.outputs, self.session.run(None, {**batch, **rates, **self.state}), strict=True))
        self.state = {name: results[following] for name, following in self.layout["state"].items()}
        return {name: results[name] for name in (self.layout["loss"], *self.layout["metrics"])}


if __name__ == "__main__":
    trainer = Trainer(sys.argv[1])
    batches = read_state(sys.argv[2])
    names = trainer.layout["batch"]
    for step in range(len(batches[names[0]])):
        results = trainer(**{name: batches[name][step] for name in names})
        print(step + 1, *(f"{name} {value:.6f}" for name, value in results.items()), flush=True)
    if len(sys.argv) > 3:
        write_state(sys.argv[3], trainer.state)
