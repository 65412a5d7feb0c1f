"""What a recipe promises: the three commands work on it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ox
from ox import tolerance
from ox.data.datasets import FashionMNIST
from ox.errors import LoadError
from ox.serve import ModelConfig, Server
from ox_cli.main import main

DATATYPES = {"float32": "FP32", "int64": "INT64", "int32": "INT32", "uint8": "UINT8", "bool": "BOOL"}


@pytest.fixture(scope="session")
def fashion_images() -> None:
    """Skips the test where Fashion-MNIST is not on this machine."""
    try:
        FashionMNIST(train=False)
    except LoadError as error:
        pytest.skip(error.one_line())


@pytest.fixture
def three_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Trains a recipe for an epoch on little data, exports it (which proves it), runs the file in ONNX Runtime, serves
    it and asks it once over HTTP; all answers must be the model's. Gives the run's result."""

    def call(name: str, *flags: object, limit: int = 64) -> dict[str, Any]:
        monkeypatch.chdir(tmp_path)
        options = ["--epochs", "1", "--limit", str(limit), *map(str, flags)]
        assert main(["train", name, *options]) == 0
        assert main(["export", "model.onnx"]) == 0
        recipe, model = ox.train.restore()
        examples = recipe.examples(5)
        session = ort.InferenceSession("model.onnx")
        names = [entry.name for entry in session.get_inputs()]
        assert names == list(recipe.inputs)
        assert [entry.name for entry in session.get_outputs()] == list(recipe.outputs)
        for rows in (1, 2, 5):
            arrays = [x[:rows] for x in examples]
            with ox.no_grad():
                expected = arrays_of(model(*map(ox.from_numpy, arrays)))
            got = session.run(None, dict(zip(names, arrays, strict=True)))
            assert all(tolerance.compare(a, b).ok for a, b in zip(got, expected, strict=True))
        one = dict(zip(names, (x[:1] for x in examples), strict=True))
        with ox.no_grad():
            expected = arrays_of(model(*(ox.from_numpy(x) for x in one.values())))
        with Server(["model.onnx"], options=ModelConfig(device="cpu", instances=1)) as server:
            answers = ask(f"{server.url}/v2/models/model/infer", one)
        assert list(answers) == list(recipe.outputs)
        assert all(tolerance.compare(a, b).ok for a, b in zip(answers.values(), expected, strict=True))
        (folder,) = (tmp_path / "runs").iterdir()
        result: dict[str, Any] = json.loads((folder / "result.json").read_text())
        return result

    return call


def arrays_of(outputs: Any) -> list[np.ndarray]:
    return [x.numpy() for x in (outputs if isinstance(outputs, tuple | list) else [outputs])]


def ask(url: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One request in JSON, as anybody's client sends it."""
    inputs = [
        {"name": name, "shape": list(x.shape), "datatype": DATATYPES[x.dtype.name], "data": x.ravel().tolist()}
        for name, x in arrays.items()
    ]
    request = urllib.request.Request(url, json.dumps({"inputs": inputs}).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        outputs = json.loads(reply.read())["outputs"]
    return {entry["name"]: np.array(entry["data"], np.float32).reshape(entry["shape"]) for entry in outputs}
