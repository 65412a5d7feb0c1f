"""A file in the layout of a decoder answers with its own tensors where its settings say so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows

from ox.errors import ArgumentError, LoadError
from ox.generation import OnnxDecoder
from ox.serve import ModelConfig, Server

pytest.importorskip("tokenizers", reason="the extra text is not installed")
pytest.importorskip("jinja2", reason="the extra text is not installed")

TYPES = {"INT64": np.int64, "FP32": np.float32}
CPU = ModelConfig("cpu", threads=1, instances=1)


@pytest.fixture
def repository(shared_folder: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder of models with the decoder `tiny`."""
    from tiny_decoder import write_decoder

    shutil.copytree(shared_folder("tiny_decoder", write_decoder) / "tiny", tmp_path / "tiny")
    return tmp_path


def feed(inputs: list[dict[str, Any]], length: int) -> list[dict[str, Any]]:
    """A prompt of tokens 1, 2 ... without a past."""
    tensors = []
    for info in inputs:
        past = info["name"].startswith("past")
        shape = [1, *(size if size > 0 else 0 if past else length for size in info["shape"][1:])]
        values = np.ones(shape) if info["name"] == "attention_mask" else np.arange(np.prod(shape)) + 1
        data = values.astype(TYPES[info["datatype"]]).ravel().tolist()
        tensors.append({"name": info["name"], "shape": shape, "datatype": info["datatype"], "data": data})
    return tensors


def answers_tensors(client: Any, name: str) -> bool:
    """Whether a model answers with scores for each token of a prompt."""
    inputs = json.loads(client.ask("GET", f"/v2/models/{name}")[2])["inputs"]
    body = {"inputs": feed(inputs, 3), "outputs": [{"name": "logits"}]}
    status, _, reply = client.ask("POST", f"/v2/models/{name}/infer", json.dumps(body).encode())
    return bool(status == 200 and json.loads(reply)["outputs"][0]["shape"][:2] == [1, 3])


def answers_texts(client: Any, name: str) -> bool:
    body = json.dumps({"text_input": "the cat", "parameters": {"max_tokens": 1}}).encode()
    return bool(client.ask("POST", f"/v2/models/{name}/generate", body)[0] == 200)


def declared(folder: Path) -> str:
    """All inputs and outputs of the file, as Triton declares them."""
    decoder = OnnxDecoder(folder / "model.onnx")
    blocks = {"input": decoder.session.get_inputs(), "output": decoder.session.get_outputs()}
    types = {"tensor(int64)": "TYPE_INT64", "tensor(float)": "TYPE_FP32"}
    lines = ["max_batch_size: 4"]
    for kind, infos in blocks.items():
        for info in infos:
            dims = ", ".join(str(size) if isinstance(size, int) else "-1" for size in info.shape[1:])
            lines.append(f'{kind} {{ name: "{info.name}" data_type: {types[info.type]} dims: [ {dims} ] }}')
    return "\n".join(lines)


@rows("by", ["ox.toml", "config.pbtxt", "options"])
def test_tensors_instead_of_texts(repository: Path, connect: Any, by: str) -> None:
    for file in (repository / "ox.toml", repository / "tiny" / "config.pbtxt"):
        file.unlink(missing_ok=True)
    options = CPU
    if by == "ox.toml":
        (repository / "ox.toml").write_text("[models.tiny]\ngeneration = false\n")
    elif by == "config.pbtxt":
        (repository / "tiny" / "config.pbtxt").write_text(declared(repository / "tiny"))
    else:
        options = ModelConfig("cpu", threads=1, instances=1, generation=False)
    with Server([repository], options=options) as server, connect(server) as client:
        assert answers_tensors(client, "tiny") and not answers_texts(client, "tiny")


def test_both_at_once(repository: Path, connect: Any) -> None:
    (repository / "raw").symlink_to("tiny")
    (repository / "ox.toml").write_text("[models.raw]\ngeneration = false\n")
    with Server([repository], options=CPU) as server, connect(server) as client:
        assert answers_texts(client, "tiny") and answers_tensors(client, "raw")
        status, _, body = client.ask("POST", "/v2/models/tiny/infer", b'{"inputs": []}')
        assert status == 400 and b"generation = false" in body


def test_counting_goes_on(repository: Path, connect: Any) -> None:
    """From texts to tensors and back."""
    config = {"name": "tiny", "input": [{"name": "input_ids", "data_type": "TYPE_INT64", "dims": [-1, -1]}]}
    with Server([repository], options=CPU, manage=True) as server, connect(server) as client:

        def load(parameters: dict[str, str]) -> int:
            body = json.dumps({"parameters": parameters}).encode()
            return int(client.ask("POST", "/v2/repository/models/tiny/load", body)[0])

        assert answers_texts(client, "tiny")
        assert load({"config": json.dumps(config)}) == 200 and answers_tensors(client, "tiny")
        assert load({}) == 200 and answers_texts(client, "tiny")
        stats = json.loads(client.ask("GET", "/v2/models/tiny/stats")[2])["model_stats"][0]["inference_stats"]
        assert stats["success"]["count"] == 3


def test_tensors_of_texts_may_be_declared(repository: Path, connect: Any) -> None:
    """As the configurations of Triton's backends for language models do."""
    text = 'input { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }\n'
    (repository / "tiny" / "config.pbtxt").write_text(text + text.replace("in", "out", 1).replace("_input", "_output"))
    with Server([repository], options=CPU) as server, connect(server) as client:
        assert answers_texts(client, "tiny")


def test_settings_that_contradict_each_other(repository: Path) -> None:
    (repository / "tiny" / "config.pbtxt").write_text(declared(repository / "tiny"))
    (repository / "ox.toml").write_text("[models.tiny]\ngeneration = {max_texts = 2}\n")
    with pytest.raises(LoadError, match="describes tensors of a model that generates texts"):
        Server([repository], options=CPU)
    with pytest.raises(ArgumentError, match="or false for tensors"):
        ModelConfig(generation=5)  # type: ignore[arg-type]


def test_a_file_without_a_cache_generates_no_texts(mlp: Path) -> None:
    with pytest.raises(LoadError):
        Server([mlp], options=ModelConfig("cpu", generation=True))
