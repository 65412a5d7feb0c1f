"""The KServe runtime, started with its own arguments on what KServe's storage initializer leaves in /mnt/models."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ox.serve import ModelConfig, Server

# what lies at storageUri: files in /mnt/models, and the names that answer for an InferenceService `digits`
LAYOUTS = {
    "a file": (["model.onnx"], {"digits"}),
    "a file of another name": (["mnist-12.onnx"], {"digits"}),
    "versions": (["1/model.onnx", "2/model.onnx"], {"digits"}),
    "a folder of one model": (["mnist/1/model.onnx"], {"digits"}),
    "a folder of models": (["digits.onnx", "letters/1/model.onnx"], {"digits", "letters"}),
}


@pytest.fixture(scope="module")
def documents(deploy: Path) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((deploy / "kserve.yaml").read_text())}


@pytest.fixture
def parsed(documents: dict[str, Any], options: Callable[[list[str]], dict[str, Any]]) -> dict[str, Any]:
    """The runtime's arguments as `ox serve` reads them, after KServe has filled in its placeholders."""
    (container,) = documents["ClusterServingRuntime"]["spec"]["containers"]
    name = documents["InferenceService"]["metadata"]["name"]
    return options([argument.replace("{{.Name}}", name) for argument in container["args"]])


@pytest.mark.parametrize(("files", "names"), LAYOUTS.values(), ids=LAYOUTS)
def test_it_answers_under_the_name_of_the_inference_service(
    files: list[str], names: set[str], parsed: dict[str, Any], model: Path, tmp_path: Path
) -> None:
    assert [str(path) for path in parsed["models"]] == ["/mnt/models"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(model, tmp_path / file)
    (tmp_path / "README.md").touch()  # what else lies beside a model
    with Server([tmp_path], name=parsed["name"], options=ModelConfig(device="cpu", instances=1)) as server:
        for name in names:
            entry = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, -2]}
            body = json.dumps({"inputs": [entry]}).encode()
            with urllib.request.urlopen(f"{server.url}/v2/models/{name}/infer", body) as reply:
                answer = json.load(reply)
            assert answer["model_name"] == name and answer["outputs"][0]["data"] == [-1, 2]
        assert {row["name"] for row in server.service.index()} == names


def test_the_service_uses_the_runtime_for_its_format(documents: dict[str, Any]) -> None:
    model = documents["InferenceService"]["spec"]["predictor"]["model"]
    runtime = documents["ClusterServingRuntime"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["modelFormat"].items() <= runtime["spec"]["supportedModelFormats"][0].items()
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
