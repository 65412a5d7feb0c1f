"""A decoder's folder on the server: found, described, refused, replaced and unloaded, beside other models."""

from __future__ import annotations

import json
import shutil
import threading
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generation_client import GREEDY, write_tokenizer
from tiny_decoder import save_briefly
from waiting import wait_until

import ox
from ox.devices import cuda
from ox.errors import LoadError, OxError
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.generation.request import GenerationRequest
from ox.serve.repository.layout import Layout
from ox_models.gpt2 import GPT2Config, GPT2LMHeadModel


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decoders") / "writer"
    ox.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(100, n_positions=64, n_embd=32, n_layer=2, n_head=4))
    tokenizer = write_tokenizer(folder.parent / "tokenizer.json")
    save_briefly(model, folder, tokenizer=tokenizer, generation={"eos_token_id": 99})
    return folder


@pytest.fixture
def models(writer: Path, tmp_path: Path) -> Path:
    """A repository: a decoder without versions, another with one, and a model of tensors."""
    shutil.copytree(writer, tmp_path / "models" / "writer")
    shutil.copytree(writer, tmp_path / "models" / "poet" / "3")
    ox.export.save(ox.nn.Linear(4, 2), tmp_path / "models" / "linear.onnx", ox.randn(3, 4))
    return tmp_path / "models"


def call(server: Server, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    client = HTTPConnection("127.0.0.1", server.port, timeout=60)
    client.request(method, path, None if body is None else json.dumps(body))
    answer = client.getresponse()
    text = answer.read()
    client.close()
    return answer.status, text.decode() if path == "/metrics" else json.loads(text or b"null")


def write(server: Server, name: str, count: int = 8) -> tuple[list[int], list[Any]]:
    """Tokens of a text, and errors."""
    done, tokens, errors = threading.Event(), [], []

    def on_event(event: Any) -> None:
        tokens.append(event.token)
        if event.finish_reason is not None:
            done.set()

    def on_error(error: Any) -> None:
        errors.append(error)
        done.set()

    engine = server.service.repository.find(name).generation
    engine.submit(GenerationRequest([5, 6, 7], GREEDY, max_tokens=count, ignore_eos=True), on_event, on_error)
    assert done.wait(60)
    return tokens, errors


@pytest.mark.parametrize("path", ["", "model.onnx"])
def test_the_folder_is_the_model(writer: Path, path: str) -> None:
    with Server([writer / path], port=0) as server:
        (model,) = server.models
        assert model.name == ("model" if path else "writer") and "generates texts on cpu" in model.describe()
        assert len(write(server, model.name)[0]) == 8


def test_layouts(models: Path) -> None:
    found = Layout([models]).scan().models
    assert {name: sorted(model.versions) for name, model in found.items()} == {
        "writer": [1],
        "poet": [3],
        "linear": [1],
    }
    assert set(Layout([models / "writer"]).scan().models) == {"writer"}
    assert set(Layout([models / "writer"], "other").scan().models) == {"other"}
    (models / "writer" / "tokenizer.json").unlink()
    (models / "writer" / "generation_config.json").unlink()
    assert not Layout([models]).scan().models["writer"].versions  # a model without text has folders of versions


def test_beside_other_models(models: Path) -> None:
    with Server([models], port=0) as server:
        status, meta = call(server, "GET", "/v2/models/writer")
        assert status == 200 and [each["name"] for each in meta["inputs"]] == [
            "text_input", "stream", "sampling_parameters",
        ]  # fmt: skip
        config = call(server, "GET", "/v2/models/poet/config")[1]
        assert config["model_transaction_policy"] == {"decoupled": True} and config["max_batch_size"] == 0
        assert call(server, "GET", "/v2/models/writer/stats")[0] == 200
        assert {each["state"] for each in call(server, "POST", "/v2/repository/index", {})[1]} == {"READY"}
        tensors = [
            {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["a"]},
            {"name": "stream", "datatype": "BOOL", "shape": [1], "data": [False]},
            {"name": "sampling_parameters", "datatype": "BYTES", "shape": [1], "data": ["{}"]},
        ]
        for some in (tensors, tensors[:1]):
            status, answer = call(server, "POST", "/v2/models/writer/infer", {"inputs": some})
            assert status == 400 and "generates texts, and answers no requests of tensors" in answer["error"]
        x = {"name": "input", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
        assert call(server, "POST", "/v2/models/linear/infer", {"inputs": [x]})[0] == 200
        assert write(server, "writer")[0] == write(server, "poet")[0]
        metrics = call(server, "GET", "/metrics")[1]
        labels = '{model="writer",version="1"}'
        assert f"ox_generated_tokens_total{labels} 8.0" in metrics and f"ox_texts_running{labels} 0.0" in metrics
        assert f"ox_first_token_seconds_count{labels} 1.0" in metrics
        assert f"ox_drafted_tokens_total{labels} " in metrics and f"ox_accepted_tokens_total{labels} " in metrics
        assert f"ox_token_interval_seconds_count{labels} 7.0" in metrics


SETTINGS = {
    "max_rows = 8": "max_rows", "max_wait_ms = 2": "max_wait_ms",
    "instances = 2": "instances", "memory_mib = 9000": "memory_mib", "max_dims = {tokens = 5}": "max_dims",
    "pad = {tokens = 0}": "pad",
}  # fmt: skip


@pytest.mark.parametrize("line", SETTINGS)
def test_settings_that_a_decoder_would_ignore(models: Path, line: str) -> None:
    setting = SETTINGS[line]
    (models / "ox.toml").write_text(f"[models.writer]\n{line}\n[models.poet]\ninstances = 1\nthreads = 1\n")
    with Server([models], port=0, options=ModelConfig(max_rows=4)) as server:  # for the model beside them
        assert sorted(model.name for model in server.models) == ["linear", "poet"]
        (entry,) = [each for each in call(server, "POST", "/v2/repository/index", {})[1] if each["name"] == "writer"]
        assert f"the setting {setting} is for models of tensors, and this one generates texts" in entry["reason"]
        assert "threads" in entry["reason"] and f"got {setting} = " in entry["reason"]


def test_options_of_cuda_on_the_cpu(models: Path) -> None:
    text = '[models.writer]\ndevice = "auto"\ncuda = {use_tf32 = false}\n[models.poet]\nthreads = 1\n'
    (models / "ox.toml").write_text(text)
    with Server([models], port=0) as server:
        (entry,) = [each for each in call(server, "POST", "/v2/repository/index", {})[1] if each["name"] == "writer"]
        assert "has options of cuda, and runs on the CPU" in entry["reason"]


def test_the_same_in_a_configuration_of_triton(models: Path) -> None:
    (models / "poet" / "config.pbtxt").write_text("max_batch_size: 8\ninstance_group [{ kind: KIND_CPU count: 1 }]")
    with Server([models], port=0) as server:
        assert "poet" not in [model.name for model in server.models]
        (models / "poet" / "config.pbtxt").write_text("instance_group [{ kind: KIND_CPU count: 1 }]")
    with Server([models], port=0) as server:
        assert "poet" in [model.name for model in server.models]


def test_unload_completes_what_was_accepted(models: Path) -> None:
    with Server([models], port=0, manage=True) as server:
        engine = server.service.repository.find("writer").generation
        ends: list[Any] = []
        for index in range(4):
            request = GenerationRequest([5, 6], GREEDY, max_tokens=50, ignore_eos=True, index=index)
            engine.submit(request, lambda event: event.finish_reason and ends.append(event), ends.append)
        assert call(server, "POST", "/v2/repository/models/writer/unload", {})[0] == 200
        engine._thread.join(120)
        assert [event.finish_reason for event in ends] == ["length"] * 4
        with pytest.raises(Exception, match="unloaded"):
            engine.submit(GenerationRequest([1]), ends.append, ends.append)
        assert call(server, "POST", "/v2/repository/models/writer/load", {})[0] == 200
        assert len(write(server, "writer")[0]) == 8


def test_a_new_file_takes_over(models: Path) -> None:
    with Server([models], port=0, limits=RequestLimits(poll_s=0.05)) as server:
        before = server.service.repository.find("writer")
        defaults = models / "writer" / "generation_config.json"
        new = models / "writer" / ".new"
        new.write_text(json.dumps({"eos_token_id": 98}))
        new.rename(defaults)
        wait_until(lambda: server.service.repository.find("writer") is not before)
        assert server.service.repository.find("writer").generation.end_tokens == (98,)


def test_stopping_ends_texts(writer: Path) -> None:
    ends: list[Any] = []
    with Server([writer], port=0) as server:
        engine = server.service.repository.find("writer").generation
        for _ in range(40):
            engine.submit(GenerationRequest([5], GREEDY, ignore_eos=True), lambda event: None, ends.append)
    assert not engine._thread.is_alive() and all(error.status == 503 for error in ends)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "cuda:0,cuda:1"])
def test_a_gpu_that_is_not_there(writer: Path, device: str) -> None:
    if cuda.available():
        pytest.skip("there is a GPU")
    with pytest.raises(OxError, match="CUDA execution provider did not load"):
        Server([writer], options=ModelConfig(device)).__enter__()


def test_settings(writer: Path, tmp_path: Path) -> None:
    options = ModelConfig(generation={"max_texts": 2, "cache_mib": 1}, threads=1)
    with Server([writer], port=0, options=options) as server:
        (model,) = server.models
        assert "1 thread · up to 2 texts at once, 64 tokens each · 100 tokens · shared cache, 1 MiB" in model.describe()
    broken = tmp_path / "writer"
    shutil.copytree(writer, broken)
    write_tokenizer(broken / "tokenizer.json", 101)
    with pytest.raises(LoadError, match="tokenizer of another model"):
        Server([broken], port=0)


def test_the_folder_has_what_a_decoder_gives(writer: Path) -> None:
    with Server([writer], port=0) as server:
        tokens, _ = write(server, "writer", 20)
    from ox.generation import OnnxDecoder

    wanted = OnnxDecoder(writer).generate(np.array([[5, 6, 7]]), max_new_tokens=20).numpy()[0, 3:]
    assert tokens == wanted.tolist()
