"""Folders of onnxruntime-genai's model builder, as they are: texts are those of onnxruntime-genai itself."""

from __future__ import annotations

import json
import logging
import shutil
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from generation_client import GREEDY, Answer, Client
from onnx import helper, numpy_helper

from ox.errors import LoadError
from ox.serve import Server
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.generation.decoder_folder import DecoderFolder
from ox.serve.generation.decoder_run import SharedCacheRun
from ox.serve.generation.engine import GenerationEngine
from ox.serve.generation.request import GenerationRequest, TokenEvent
from ox.serve.text.model_file import text_folder

FOLDERS = Path(__file__).parent / "genai_folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text())
LONGEST = 30


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDERS / "llama", tmp_path / "llama"))


def change_settings(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "genai_config.json"
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table))


def change_model(folder: Path, change: Callable[[onnx.GraphProto], None]) -> None:
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    change(model.graph)
    onnx.save(model, folder / "model.onnx")


def send(client: Client, cases: list[dict[str, list[int]]]) -> list[Answer]:
    return [client.send(case["prompt"], LONGEST) for case in cases]


def check(answers: list[Answer], cases: list[dict[str, list[int]]]) -> None:
    for answer, case in zip(answers, cases, strict=True):
        assert answer.wait().tokens == case["text"]
        assert answer.events[-1].finish_reason == ("length" if len(case["text"]) == LONGEST else "stop")


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_texts_alone_and_together(client_of: Any, name: str) -> None:
    """int4 weights beside the file, queries, keys and values in one product; gemma2 has layers with a window, tied
    embeddings and soft caps. Several tokens end a text."""
    cases = TEXTS[name]
    client = client_of(FOLDERS / name)
    assert isinstance(client.engine._run, SharedCacheRun) and client.engine.context_length == 64
    assert "attention_mask" not in {info.name for info in client.engine._run._session.get_inputs()}
    for case in cases:
        check(send(client, [case]), [case])
    check(send(client, cases * 2), cases * 2)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_prompts_in_parts_and_a_text_that_loses_its_slot(client_of: Any, name: str) -> None:
    first, *others = sorted(TEXTS[name], key=lambda case: -len(case["text"]))
    client = client_of(FOLDERS / name, max_texts=1, prefill_tokens=5)
    urgent: list[Answer] = []

    class Low(Answer):
        def on_event(self, event: TokenEvent) -> None:
            super().on_event(event)
            if len(self.events) == 5:
                urgent.extend(client.send(case["prompt"], LONGEST, priority=1) for case in others)

    low = Low()
    request = GenerationRequest(first["prompt"], GREEDY, max_tokens=LONGEST, priority=9)
    client.engine.submit(request, low.on_event, low.on_error)
    check([low], [first])
    check(urgent, others)
    assert client.engine.stats()["preemptions"] == 1


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_prompts_that_begin_alike(client_of: Any, name: str) -> None:
    case = max(TEXTS[name], key=lambda case: len(case["prompt"]))
    client = client_of(FOLDERS / name)
    check(send(client, [case]), [case])
    answers = send(client, [case])
    check(answers, [case])
    assert answers[0].events[-1].usage.cached_tokens >= 16


def test_the_cache_of_windows_holds_whole_texts() -> None:
    graph = onnx.load(FOLDERS / "gemma2" / "model.onnx", load_external_data=False).graph
    names = [each.name for node in graph.node if node.op_type == "GroupQueryAttention" for each in node.attribute]
    assert names.count("sliding_window_cache") == 1  # what the texts above are made with, in one of two layers


def test_settings(llama: Path) -> None:
    folder = DecoderFolder.read(llama / "model.onnx")
    assert folder.end_tokens(64) == (63, 61) and folder.max_length == 64
    assert [folder.defaults[name] for name in ("temperature", "top_k", "top_p")] == [0.7, 20, 0.9]
    change_settings(llama, lambda table: table["search"].update(do_sample=False, repetition_penalty=1.3))
    folder = DecoderFolder.read(llama / "model.onnx")
    assert (folder.defaults["temperature"], folder.defaults["repetition_penalty"]) == (0.0, 1.3)
    assert "top_k" not in folder.defaults
    (llama / "generation_config.json").write_text(json.dumps({"top_p": 0.5, "eos_token_id": 7}))
    folder = DecoderFolder.read(llama / "model.onnx")  # what it says comes first, and its sampling is one thing
    assert folder.defaults["top_p"] == 0.5 and "temperature" not in folder.defaults
    assert folder.end_tokens(64) == (7,)


def test_the_longest_text_of_requests_that_set_none(llama: Path, client_of: Any) -> None:
    change_settings(llama, lambda table: table["search"].update(max_length=12))
    client = client_of(llama)
    prompts = [[1, 2, 3], [5] * 12, [5] * 20]
    answers = [client.ask(prompt, None, ignore_eos=True) for prompt in prompts]
    assert [len(answer.tokens) for answer in answers] == [9, 1, 1]
    assert len(client.ask(prompts[0], 20, ignore_eos=True).tokens) == 20


def test_what_the_server_does_not_have(llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    change_settings(llama, lambda table: table["search"].update(num_beams=4, no_repeat_ngram_size=3))
    with caplog.at_level(logging.WARNING, "ox.serve"):
        DecoderFolder.read(llama / "model.onnx")
    assert "does not have num_beams = 4, no_repeat_ngram_size = 3 of genai_config.json" in caplog.text


def test_a_file_in_a_folder_beneath(llama: Path) -> None:
    """Settings and tokenizer are those beside genai_config.json."""
    (llama / "cpu").mkdir()
    for name in ("model.onnx", "model.onnx.data"):
        (llama / name).rename(llama / "cpu" / name)
    change_settings(llama, lambda table: table["model"]["decoder"].update(filename="cpu/model.onnx"))
    engine = GenerationEngine.open(llama, GenerationOptions(cache_mib=16), threads=1)
    assert engine.tokenizer is not None and engine.context_length == 64 and engine.end_tokens == (63, 61)
    check(send(Client(engine), TEXTS["llama"][:1]), TEXTS["llama"][:1])
    engine.close()
    (llama / "other").mkdir()
    assert text_folder(llama / "other" / "model.onnx") == llama / "other"  # which the settings do not name


def test_other_names(llama: Path) -> None:
    """Of the file, and of inputs and outputs."""
    names = {"input_ids": "tokens", "attention_mask": "seen", "logits": "scores"}

    def rename(graph: onnx.GraphProto) -> None:
        def other(name: str) -> str:
            parts = name.split(".")
            if parts[0] in ("past_key_values", "present"):
                return f"{'old' if parts[0] != 'present' else 'new'}_{parts[2]}_{parts[1]}"
            return names.get(name, name)

        for info in (*graph.input, *graph.output):
            info.name = other(info.name)
        for node in graph.node:
            node.input[:], node.output[:] = map(other, node.input), map(other, node.output)

    def settings(table: dict[str, Any]) -> None:
        decoder = table["model"]["decoder"]
        decoder["filename"] = "writer.onnx"
        decoder["inputs"] = {"input_ids": "tokens", "attention_mask": "seen"}
        decoder["inputs"] |= {f"past_{kind}_names": f"old_{kind}_%d" for kind in ("key", "value")}
        decoder["outputs"] = {"logits": "scores"} | {
            f"present_{each}_names": f"new_{each}_%d" for each in ("key", "value")
        }

    change_model(llama, rename)
    change_settings(llama, settings)
    (llama / "model.onnx").rename(llama / "writer.onnx")
    engine = GenerationEngine.open(llama, threads=1)
    try:
        assert isinstance(engine._run, SharedCacheRun)
        check(send(Client(engine), TEXTS["llama"]), TEXTS["llama"])
    finally:
        engine.close(finish=False)
    with Server([llama], port=0, watch=False) as server:
        assert "llama 1 · generates texts on cpu" in "\n".join(server.greeting())


def two_tables(graph: onnx.GraphProto) -> None:
    """LongRoPE's form: other cosines and sines where a batch has more than 40 tokens."""
    branches = []
    for kind in ("short", "long"):
        nodes = []
        for name in ("cos_cache", "sin_cache"):
            stored = next(tensor for tensor in graph.initializer if tensor.name == name)
            array = numpy_helper.to_array(stored, str(FOLDERS / "llama"))
            value = numpy_helper.from_array(array if kind == "short" else array * np.float32(0.5))
            nodes.append(helper.make_node("Constant", [], [f"{name}_{kind}"], value=value))
        outputs = [helper.make_empty_tensor_value_info(node.output[0]) for node in nodes]
        branches.append(helper.make_graph(nodes, kind, [], outputs))
    for name in ("cos_cache", "sin_cache"):
        graph.initializer.remove(next(tensor for tensor in graph.initializer if tensor.name == name))
    choice = [
        helper.make_node("Constant", [], ["most"], value=numpy_helper.from_array(np.array(40))),
        helper.make_node("Shape", ["attention_mask"], ["sizes"]),
        helper.make_node("Constant", [], ["columns"], value=numpy_helper.from_array(np.array(1))),
        helper.make_node("Gather", ["sizes", "columns"], ["tokens"]),
        helper.make_node("Greater", ["tokens", "most"], ["long"]),
        helper.make_node(
            "If", ["long"], ["cos_cache", "sin_cache"], then_branch=branches[1], else_branch=branches[0]
        ),
    ]  # fmt: skip
    nodes = [*choice, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def test_long_texts_with_other_rotary_embeddings(llama: Path, client_of: Any, caplog: pytest.LogCaptureFixture) -> None:
    change_model(llama, two_tables)
    with caplog.at_level(logging.WARNING, "ox.serve"):
        client = client_of(llama)
    assert client.engine.context_length == 40
    assert "at most 40 tokens: rotary embeddings are others in texts of more than 40 tokens" in caplog.text
    cases = [case for case in TEXTS["llama"] if len(case["prompt"]) + len(case["text"]) <= 40]
    assert len(cases) > 2
    check(send(client, cases), cases)


@pytest.mark.parametrize("window, context", [(16, 16), (64, 64)])
def test_a_window_that_the_graph_does_not_have(
    llama: Path, client_of: Any, caplog: pytest.LogCaptureFixture, window: int, context: int
) -> None:
    """A text that is no longer than the window is the same with it."""
    change_settings(llama, lambda table: table["model"]["decoder"].update(sliding_window={"window_size": window}))
    with caplog.at_level(logging.WARNING, "ox.serve"):
        assert client_of(llama).engine.context_length == context
    assert ("layers see 16 tokens back, and the graph has no such window" in caplog.text) == (window < 64)


def several_files(table: dict[str, Any]) -> None:
    table["model"]["decoder"]["pipeline"] = [{"embeddings": {}}, {"transformer": {}}]


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "an encoder": (lambda table: table["model"].update(encoder={}), "not of a decoder in one file"),
    "images": (lambda table: table["model"].update(vision={}, embedding={}), "got vision, embedding"),
    "several files": (several_files, "got decoder.pipeline of 2 files"),
    "another folder": (
        lambda table: table["model"]["decoder"].update(filename="../other.onnx"),
        "names a decoder outside of its folder",
    ),
    "a name without layers": (
        lambda table: table["model"]["decoder"]["inputs"].update(past_key_names="past"),
        "expected \"past_key_values.%d.key\"; got 'past'",
    ),
    "no file": (lambda table: table["model"]["decoder"].update(filename="other.onnx"), "there is no file"),
    "no context": (lambda table: table["model"].pop("context_length"), "got no 'context_length'"),
    "an endless context": (lambda table: table["model"].update(context_length=float("inf")), "cannot be read"),
    "a temperature in words": (
        lambda table: table["search"].update(temperature="hot"),
        "temperature is a number from 0 on; got 'hot'",
    ),
    "another vocabulary": (lambda table: table["model"].update(eos_token_id=[64]), "is no token of the model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(llama: Path, name: str) -> None:
    change, message = REFUSED[name]
    change_settings(llama, change)
    with pytest.raises(LoadError) as caught:
        GenerationEngine.open(llama, threads=1)
    assert message in caught.value.one_line()


def test_an_input_that_is_not_known(llama: Path) -> None:
    image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["batch", 3])
    change_model(llama, lambda graph: graph.input.append(image))
    with pytest.raises(LoadError, match="is no decoder with a cache") as caught:
        GenerationEngine.open(llama, threads=1)
    assert "attention_mask" in caught.value.one_line() and "image" in caught.value.one_line()


def test_a_tokenizer_of_another_model(llama: Path) -> None:
    table = json.loads((llama / "tokenizer.json").read_text())
    table["added_tokens"].append({**table["added_tokens"][0], "id": 64, "content": "<more>"})
    (llama / "tokenizer.json").write_text(json.dumps(table))
    with pytest.raises(LoadError, match="tokenizer of another model"):
        GenerationEngine.open(llama, threads=1)


def test_sampling_is_that_of_the_settings(llama: Path) -> None:
    """A request without parameters draws as genai_config.json says: with top_k = 1 that is the greedy text."""
    case = max(TEXTS["llama"], key=lambda case: len(case["text"]))
    body = {"model": "llama", "prompt": case["prompt"], "max_tokens": LONGEST}
    drawn = []
    for top_k in (1, 0):
        change_settings(llama, lambda table, top_k=top_k: table["search"].update(top_k=top_k, top_p=1.0, temperature=2))
        with Server([llama], port=0, watch=False) as server:
            drawn.append({complete(server, body) for _ in range(3)})
            greedy = complete(server, {**body, "temperature": 0})
    assert drawn[0] == {greedy} and drawn[1] != {greedy}


def complete(server: Any, body: dict[str, Any]) -> str:
    request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as reply:
        text: str = json.load(reply)["choices"][0]["text"]
        return text
